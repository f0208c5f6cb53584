"""Writes <folder>/steps-<pid>.jsonl from a thread of its own; what is buffered is bounded.

The file is opened with the first thing to tell, so that a process that imports nothing of an engine leaves none;
a forked child opens its own. Whole lines are appended by one write each, so that a kill loses at most what
was buffered: WRITE_EVERY_S of steps. `flush.json` in the folder asks for everything so far.
"""

import atexit
import json
import os
import sys
import threading
import time
from collections import deque
from typing import Any

from . import spans, targets

SCHEMA = "decodelab.steps/1"
WRITE_EVERY_S = 0.2
MOST_STEPS = 20000  # in the buffer
MOST_BYTES = 1 << 16  # of one write


class Writer:
    def __init__(self, folder: str, mode: str) -> None:
        self._folder = folder
        self._mode = mode
        self._facts: list = []  # what a forked child tells once more
        self._table: list = []
        self.after_fork: list = []  # of others, called in the child
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork_in_child,
            )
        atexit.register(self.close)

    def _reset(self):
        self._file: Any = None
        self._broken = False
        self._closed = False
        self._thread = None
        self._wake = threading.Event()
        self._lock = threading.RLock()  # one writes at a time
        self._buffer: deque = deque()
        self._dropped = 0
        self._token = None

    # ------------------------------------------------------------------ what is told
    def table(self, rows):
        self._table = [[t.region, "%s:%s" % (t.module, t.name), t.era] for t in rows]

    def target(self, fact):
        self._facts.append(fact)
        self.tell(fact)

    def note(self, text):
        """A trouble that is told with the rest, should this process have anything to tell."""
        self._facts.append({"kind": "trouble", "text": text})
        self._buffer.append((self._facts[-1], None))

    def trouble(self, text):
        self.tell({"kind": "trouble", "text": text[:2000]})

    def tell(self, fact):
        """Buffers one line that is no step; never dropped."""
        if fact is not None:
            self._buffer.append((fact, None))
            self._start()

    def step(self, step, told):
        if len(self._buffer) >= MOST_STEPS:
            self._dropped += 1
            return
        self._buffer.append((step, told))
        if self._thread is None:
            self._start()

    # ------------------------------------------------------------------ the thread
    def _start(self):
        with self._lock:
            if self._thread is not None or self._closed:
                return
            self._thread = threading.Thread(
                target=self._run, name="decodelab-profiler", daemon=True
            )
            self._thread.start()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # a child of multiprocessing ends without atexit
            util.Finalize(None, self.close, exitpriority=0)

    def _run(self):
        while not self._wake.wait(WRITE_EVERY_S):
            try:
                self.write()
            except Exception as fault:
                self._give_up(fault)
                return

    def _give_up(self, fault):
        self._broken = True
        self._buffer.clear()
        sys.stderr.write("decodelab: the step profiler stopped writing: %r\n" % (fault,))

    def write(self):
        """Writes what is buffered, then the answer to a new flush token."""
        with self._lock:
            if self._broken:
                self._buffer.clear()
                return
            token = self._asked()
            self._drain()
            if token is not None and self._file is not None:
                self._token = token
                self._append([_line({"kind": "flushed", "token": token})])

    def _asked(self):
        try:
            with open(os.path.join(self._folder, "flush.json"), encoding="utf-8") as file:
                token = json.load(file)["token"]
        except (OSError, ValueError, KeyError, TypeError):
            return None  # none yet, or being written
        return token if token != self._token else None

    def _drain(self):
        lines = []
        size = 0
        for _ in range(len(self._buffer)):
            told, more = self._buffer.popleft()
            made = _lines_of(told, more)
            time.sleep(0)  # lets the engine's thread have the interpreter
            lines += made
            size += sum(map(len, made))
            if size > MOST_BYTES:
                self._append(lines)
                lines, size = [], 0
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            lines.append(_line({"kind": "dropped", "steps": dropped}))
        self._append(lines)

    def _append(self, lines):
        if not lines:
            return
        if self._file is None:
            lines = self._opened() + lines
        data = b"".join(lines)
        while data:
            data = data[os.write(self._file, data) :]

    def _opened(self):
        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, "steps-%d.jsonl" % os.getpid())
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(path, flags, 0o644)
        header = {
            "kind": "header",
            "schema": SCHEMA,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "argv0": (getattr(sys, "argv", None) or [""])[0],
            "mode": self._mode,
            "t_ns": spans.now(),
            "unix_s": time.time(),
        }
        return [_line(header), _line({"kind": "table", "targets": self._table})]

    def close(self):
        """At the end of the process: writes the rest. Afterwards nothing more is written."""
        if self._closed or self._thread is None:
            return
        self._closed = True
        self._wake.set()
        try:
            with self._lock:
                self.write()
                if self._file is not None and not self._broken:
                    self._append([_line({"kind": "end", "t_ns": spans.now()})])
        except Exception as fault:
            self._give_up(fault)

    # ------------------------------------------------------------------ forks
    def _before_fork(self):
        self._lock.acquire()

    def _after_fork_in_parent(self):
        self._lock.release()

    def _after_fork_in_child(self):
        if self._file is not None:
            os.close(self._file)
        self._reset()
        self._buffer.extend((fact, None) for fact in self._facts)
        for forget in self.after_fork:
            forget()


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def _line(fact):
    return (_encode(fact) + "\n").encode("utf-8")


def _lines_of(told, more):
    if isinstance(told, dict):
        return [_line(told)]
    return [_line(fact) for fact in step_facts(told, more)]


def step_facts(step, more):
    """The step's line, and its spans' where they were kept."""
    line = {
        "kind": "step",
        "i": step.index,
        "role": step.role,
        "phase": step.phase or "dummy",
        "reqs": step.reqs,
        "tokens": step.tokens,
        "t0": step.t0,
        "t1": step.t1,
        "self": step.unnamed,
        "regions": step.regions,
    }
    gap = step.t1 - step.t0 - step.busy
    if gap > 0 and step.role == targets.WORKER and not step.nested:
        # Between the halves of the step the worker waits for the engine's next call.
        line["regions"] = dict(step.regions)
        calls, inclusive, exclusive = step.regions.get("handover", (0, 0, 0))
        line["regions"]["handover"] = [calls + 1, inclusive + gap, exclusive + gap]
    device_spans = more.pop("device_spans", None)
    if step.calls:
        line["calls"] = step.calls
    line.update(more)
    if step.failed:
        line["failed"] = True
    if step.untimed:
        line["untimed"] = True
    facts = [line]
    if step.spans is not None:
        kept = {"kind": "spans", "i": step.index, "role": step.role}
        kept["spans"] = sorted(step.spans, key=lambda s: (s[2], s[1]))
        if device_spans is not None:
            kept["device_spans"] = [[r, d, step.t0 + b, step.t0 + e] for r, d, b, e in device_spans]
        facts.append(kept)
    return facts
