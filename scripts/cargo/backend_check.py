"""Ask the engine on this host which attention backends it could choose. Nothing is started.

    python -S backend_check.py < {"workdir", "setup", "lock": path|null, "argv0", "env", "asked": as
                                  backend_probe.py has it}

Out: {"state": "told"|"failed"|"busy", "problem": words|null, "python", "seconds", "lines": [facts]}.
The work is backend_probe.py's, in the server's own python and environment, in an empty folder. What
outlasts its deadline is left alone, told with its pid and remembered: while it lives no second probe
hangs beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import apart, identity, procs, server_env, utf8_io, whole
from cargo.setup_env import SetupFailed, Setups

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "backend_probe.py")
REMEMBERED = "hanging_probes.json"
POLL_S = 0.05
MARGIN_S = 10.0  # the leader's own deadlines come first


def check(told: Mapping[str, Any]) -> Dict[str, Any]:
    begin = time.monotonic()
    root = os.path.abspath(os.path.expanduser(str(told["workdir"])))
    stuck = _living(root)
    if stuck:
        words = "an earlier probe still hangs at %(at)s (pid %(pid)d)" % stuck[0]
        return _said("failed", words)
    try:
        setup = Setups().of(told.get("setup"))
    except SetupFailed as failed:
        return _said("failed", "the setup script failed: %s" % failed)
    env = server_env.layered(setup.env, told.get("env") or {})
    python = identity.python_of(str(told["argv0"]), env)
    if python is None:
        return _said("failed", "no python found behind %s" % told["argv0"])
    with contextlib.ExitStack() as stack:
        if not _free(told.get("lock"), stack):
            return _said(
                "busy", "the host is in use; importing an engine would disturb what is measured"
            )
        found = _probe(python, env, told["asked"], root)
    return dict(found, python=python, seconds=round(time.monotonic() - begin, 3))


def _said(state: str, problem: Optional[str], lines: Optional[List[Any]] = None) -> Dict[str, Any]:
    return {
        "state": state,
        "problem": problem,
        "lines": lines or [],
        "python": None,
        "seconds": None,
    }


def _free(lock: Optional[str], stack: contextlib.ExitStack) -> bool:
    """Whether nobody measures here; held shared for the while, so that nobody begins."""
    if not lock:
        return True
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(lock, os.O_RDONLY)
        stack.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _probe(
    python: str, env: Mapping[str, str], asked: Mapping[str, Any], root: str
) -> Dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="decodelab-backends-")
    facts = os.path.join(folder, "facts.jsonl")
    leader = apart.start(python, PROBE, env, folder, asked)
    ended = _wait(leader, facts, float(asked["import_s"]) + MARGIN_S)
    lines = _lines(facts)
    hanging = [
        {"pid": x["pid"], "at": str(x.get("backend") or x.get("stage"))}
        for x in lines
        if x.get("pid")
    ]
    if not ended:
        hanging.append({"pid": leader.pid, "at": "reading the engine's files"})
    problem = None
    if not any("end" in line for line in lines):
        problem = (
            _last_words(folder) if ended else "no end within its deadline (pid %d)" % leader.pid
        )
    if hanging:
        _remember(root, hanging)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return _said("failed" if problem else "told", problem, lines)


def _wait(leader: "subprocess.Popen[bytes]", facts: str, patience_s: float) -> bool:
    """Until it ended or told nothing for that long; it is never ended from here."""
    size, end = -1, 0.0
    while leader.poll() is None:
        now = os.path.getsize(facts) if os.path.exists(facts) else 0
        if now != size:
            size, end = now, time.monotonic() + patience_s
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def _lines(path: str) -> List[Dict[str, Any]]:
    try:
        with open(path, "rb") as f:
            whole_lines = f.read().split(b"\n")[:-1]
    except OSError:
        return []
    return [json.loads(line) for line in whole_lines]


def _last_words(folder: str) -> str:
    with open(os.path.join(folder, "said"), "rb") as f:
        said = f.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
    return said[-1][:400] if said else "it ended without a word"


# ---------------------------------------------------------------------- what hangs
def _living(root: str) -> List[Dict[str, Any]]:
    told = (whole.read_json(os.path.join(root, REMEMBERED)) or {}).get("probes") or []
    return [
        one
        for one in told
        if one["boot_id"] == procs.boot_id()
        and procs.alive(procs.Proc(one["pid"], one["start_time"]))
    ]


def _remember(root: str, hanging: List[Dict[str, Any]]) -> None:
    kept = _living(root)
    for one in hanging:
        proc = procs.identify(one["pid"])
        if proc is not None:
            kept.append(dict(one, start_time=proc.start_time, boot_id=procs.boot_id()))
    whole.write_json(os.path.join(root, REMEMBERED), {"probes": kept})


def main() -> int:
    try:
        found = check(utf8_io.read())
    except (utf8_io.NotReadable, KeyError, TypeError, ValueError) as error:
        utf8_io.say({"error": "stdin: %s" % error})
        return 1
    utf8_io.say(found)
    return 0


if __name__ == "__main__":
    utf8_io.start_in_utf8()
    raise SystemExit(main())
