"""What the host agent tells about itself: only looked up, nothing is changed, no lock is taken.

In:  the store, the launch that is asked about. Out: the answer of `agent.py status`. It is asked
for while a measurement runs on few cores: nothing is imported here that only the work needs.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Optional

from cargo import room, stopped_sessions, whole
from cargo.queue_store import Store

LAST_EVENTS_BYTES = 256 << 10


def status(store: Store, launch: Optional[str]) -> Dict[str, Any]:
    alive = store.agent_alive()
    current = (alive or {}).get("current")
    queue = [item.launch for item in store.queued()]
    answer: Dict[str, Any] = {
        "agent": {
            "alive": alive is not None,
            "pid": (alive or {}).get("pid"),
            "owner": (alive or {}).get("owner"),
            "state": (alive or {}).get("state"),
        },
        "queue": [name for name in queue if name != current],
        "current": current,
        "doing": None,
        "halted": store.halted(),
        "kept": store.kept(),
        "stopped_sessions": stopped_sessions.known(store),
        "now": time.time(),
    }
    if alive is not None:  # one that waits for the host has no current launch: the first one tells
        answer["doing"] = last_event(store, current or (queue[0] if queue else None))
    elif queue:  # it should be there: say what it said last
        answer["agent"]["log_tail"] = store.log_tail()
        answer["agent"]["trouble"] = room.trouble(store.root)
    if launch is not None:
        answer["launch"] = launch_state(store, launch, current, queue)
        answer["sealed"] = sealed(store, launch)
    return answer


def launch_state(
    store: Store, launch: str, current: Optional[str], queue: List[str]
) -> Dict[str, Any]:
    outcome = store.outcome(launch)
    if outcome is not None:
        return {"state": "finished", "outcome": outcome}
    if launch == current:
        return {"state": "running", "outcome": None}
    return {"state": "queued" if launch in queue else "unknown", "outcome": None}


def sealed(store: Store, launch: str) -> List[str]:
    """The whole folders of a launch, relative to done/<launch>/: they never change any more."""
    top = store.launch_dir(launch)
    found = [name for name in _names(top) if name.startswith("start-")]
    for run in _names(os.path.join(top, "runs")):
        found += ["runs/%s/%s" % (run, name) for name in _names(os.path.join(top, "runs", run))]
    return [name for name in found if os.path.exists(os.path.join(top, name, whole.DONE))]


def _names(folder: str) -> List[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


def last_event(store: Store, launch: Optional[str]) -> Optional[Dict[str, Any]]:
    if launch is None:
        return None
    try:
        with open(os.path.join(store.launch_dir(launch), "events.jsonl"), "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - LAST_EVENTS_BYTES))
            lines = f.read().rpartition(b"\n")[0].split(b"\n")
        event = json.loads(lines[-1].decode("utf-8"))
    except (OSError, ValueError):
        return None
    return event if isinstance(event, dict) else None
