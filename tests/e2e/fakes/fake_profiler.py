"""A profiler that a test makes talk, be silent or stop: it writes what the real one writes, of no real step.

In: DECODELAB_PROFILE, and how to behave: "answers", or "deaf" (it never answers a flush). Out: steps-<pid>.jsonl,
a step each 5 ms from a thread of its own.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

EVERY_S = 0.005


def start(how: str, says: str = "") -> None:
    folder = Path(json.loads(Path(os.environ["DECODELAB_PROFILE"]).read_text())["folder"])
    threading.Thread(target=_write, args=(folder, how, says), daemon=True).start()


def _write(folder: Path, how: str, says: str) -> None:
    with open(folder / f"steps-{os.getpid()}.jsonl", "a", encoding="utf-8", buffering=1) as out:

        def tell(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")

        tell(kind="header", schema="decodelab.steps/1", pid=os.getpid(), argv0=says)
        answered, i = None, 0
        while True:
            now = time.monotonic_ns()
            tell(
                kind="step",
                i=i,
                role="worker",
                phase="decode",
                reqs=1,
                tokens=1,
                t0=now,
                t1=now + 1000,
            )
            if i % 10 == 0:
                tell(kind="spans", i=i, role="worker", spans=[["forward", 1, now, now + 900]])
            i += 1
            token = _asked(folder / "flush.json")
            if how == "answers" and token != answered:
                tell(kind="flushed", token=token)
                answered = token
            time.sleep(EVERY_S)


def _asked(file: Path) -> Any:
    try:
        return json.loads(file.read_text())["token"]
    except OSError:
        return None
