"""The load client's floor on this host, as the agent keeps it: measured once, told with each start.

In:  the store; what calibrate.py writes. Out: the object for start.json, and the file
client_floor-<client digest>.json in the working folder. It holds for one client, one Python, one boot
and a week. Measured before any server is started or looked at, in the kind of session that a run's
client gets. A failure is an object with a `problem`: it is not kept, and it stops nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import Any, Dict, List, Optional

from cargo import procs, whole
from cargo.beside import Beside, last_words
from cargo.event_log import EventLog
from cargo.queue_store import Store
from cargo.watch import LifeOver, StopNow, Watch

SCHEMA = "decodelab.client_floor/1"
HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST_S = 7 * 86400.0
LIMIT_S = 15.0  # it takes 2.5 s; a host that needs so much longer has said enough
POLL_S = 0.05
MARK = "client_floor"


class ClientFloor:
    """Asked before each start; measures at most once in an agent's life."""

    def __init__(self) -> None:
        self._last: Optional[Dict[str, Any]] = None

    def of(self, store: Store, events: EventLog, watch: Watch) -> Dict[str, Any]:
        """Raises only what `watch` raises."""
        if self._last is None:
            self._last = self._find(store, events, watch)
        return self._last

    def _find(self, store: Store, events: EventLog, watch: Watch) -> Dict[str, Any]:
        try:
            client = _client()
            path = store.at("client_floor-%s.json" % client["digest"])
            kept = whole.read_json(path)
            if kept is not None and holds(kept, client, time.time()):
                return dict(kept)
            return self._make(store, path, events, watch)
        except (StopNow, LifeOver):
            raise
        except Exception as error:  # a full disk, say: the launch meets it itself, in its own words
            return _problem("%s: %s" % (type(error).__name__, error))

    def _make(self, store: Store, path: str, events: EventLog, watch: Watch) -> Dict[str, Any]:
        events.emit("calibrating")
        begin = time.monotonic()
        found = measure(store.at("cwd", MARK), watch)
        seconds = round(time.monotonic() - begin, 3)
        if found.get("problem") is None:
            found["boot_id"] = procs.boot_id()
            with contextlib.suppress(OSError):  # it is measured again another time
                whole.write_json(path, found)
        figures = {name: found.get(name) for name in ("lag_p99_s", "problem")}
        events.emit("calibrated", seconds=seconds, **figures)
        return found


def _client() -> Dict[str, str]:
    from cargo import calibrate  # only here: it brings the whole load client with it

    return calibrate.which_client()


def holds(kept: Any, client: Dict[str, str], now: float) -> bool:
    """Whether a kept floor is still that of this client on this host."""
    if not isinstance(kept, dict) or kept.get("schema") != SCHEMA or kept.get("problem"):
        return False
    measured_at = kept.get("t_wall")
    if not isinstance(measured_at, (int, float)) or abs(now - measured_at) > OLDEST_S:
        return False
    return kept.get("client") == client and kept.get("boot_id") == procs.boot_id()


def measure(folder: str, watch: Watch) -> Dict[str, Any]:
    """calibrate.py as a child of its own, in `folder`, which is gone afterwards."""
    shutil.rmtree(folder, ignore_errors=True)  # of an agent that died: its result is not ours
    os.makedirs(folder)
    out, log = os.path.join(folder, "floor.json"), os.path.join(folder, "calibrate.log")
    argv: List[str] = [*procs.PYTHON, "-S", os.path.join(HERE, "calibrate.py"), "--out", out]
    child: Optional[Beside] = None
    try:
        child = Beside(argv, dict(os.environ), folder, log, MARK, favoured=True)
        end = time.monotonic() + LIMIT_S
        while child.poll() is None and time.monotonic() < end:
            watch.pause(POLL_S)
        found = whole.read_json(out)
        if isinstance(found, dict):
            return found
        code = child.poll()
        if code is None:
            return _problem("no result within %g s" % LIMIT_S)
        said = last_words(log) or "it said nothing"
        return _problem("calibrate.py ended with exit code %s: %s" % (code, said))
    finally:
        if child is not None:
            child.end(0.2)
        shutil.rmtree(folder, ignore_errors=True)


def _problem(text: str) -> Dict[str, Any]:
    return {"schema": SCHEMA, "problem": text}
