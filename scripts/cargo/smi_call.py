"""One call of an SMI tool: its raw output between two stamps, whatever the tool does.

In:  argv, environment, deadline in seconds. Out: a Call with the stamps before and after it
(CLOCK_MONOTONIC and wall), exit code and bytes. The tool runs in a process group of its own, which
is ended with the call. A tool's end counts, not that of its pipes: what it leaves in the background
may hold those open for ever. Output above a limit ends the call, and is told.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

OUT_BYTES = 2 << 20  # `-q -x` of sixteen accelerators is a tenth of it
ERR_BYTES = 64 << 10
UNKILLABLE_S = 2.0
LOOK_S = 0.02  # how soon the end of a tool is seen whose pipes stay open
CHUNK = 1 << 16
LIMITS = {"out": OUT_BYTES, "err": ERR_BYTES}


class Call(NamedTuple):
    m0: float
    w0: float
    m1: float
    w1: float
    rc: Optional[int]  # None: it did not start, or had to be ended
    out: bytes
    err: bytes
    trouble: str = ""  # our own words
    stuck: bool = False  # even KILL did not end it: another call would hang as well

    @property
    def seconds(self) -> float:
        return self.m1 - self.m0

    @property
    def text(self) -> str:
        return _text(self.out)

    def last_words(self) -> str:
        """The line that says most about a failure; never empty."""
        lines = [x.strip() for x in _text(self.err or self.out).splitlines() if x.strip()]
        code = "" if self.rc in (0, None) else "exit code %s: " % self.rc
        return self.trouble or (code + (lines[-1][:200] if lines else "no output"))

    def record(self) -> Dict[str, object]:
        """Its line of a capture. Bytes that are no UTF-8 stay, as \\xNN."""
        line: Dict[str, object] = {"m0": self.m0, "m1": self.m1, "w0": self.w0, "w1": self.w1}
        line.update(rc=self.rc, out=self.text, err=_text(self.err))
        if self.trouble:
            line["trouble"] = self.trouble
        return line


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def call(
    argv: List[str], env: Dict[str, str], deadline_s: float, out_bytes: int = OUT_BYTES
) -> Call:
    begin = (time.monotonic(), time.time())
    try:
        process = start(argv, env)
    except (OSError, ValueError) as error:
        return not_started(begin, error)
    reading = _Reading(process, {"out": out_bytes, "err": ERR_BYTES})
    trouble = reading.until_the_end(begin[0] + deadline_s, deadline_s)
    end = (time.monotonic(), time.time())
    stuck = not ended(process)
    if stuck:
        trouble = (trouble + ", not killable").lstrip(", ")
    rc = None if trouble else process.returncode
    out, err = bytes(reading.got["out"]), bytes(reading.got["err"])
    return Call(*begin, *end, rc, out, err, trouble, stuck)


def start(argv: List[str], env: Dict[str, str]) -> "subprocess.Popen[bytes]":
    """In a session of its own. Descriptors of ours are all close-on-exec: none is to be closed."""
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=False,
        start_new_session=True,
    )


def not_started(begin: Tuple[float, float], error: Exception) -> Call:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Call(*begin, time.monotonic(), time.time(), None, b"", b"", why)


class _Reading:
    def __init__(self, process: "subprocess.Popen[bytes]", limits: Dict[str, int]) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.pid, self.limits = process.pid, limits
        self.open = {process.stdout.fileno(): "out", process.stderr.fileno(): "err"}
        self.got = {"out": bytearray(), "err": bytearray()}

    def until_the_end(self, end: float, deadline_s: float) -> str:
        """Until the tool has ended and all of its output is here; "", or what else ended it."""
        pause = 0.0005
        while True:
            gone = exited(self.pid)  # before the look at the pipes: nothing can come after that
            left = end - time.monotonic()
            if left <= 0 and not gone:
                return "no answer within %g s" % deadline_s
            if self.open:
                wait_s = 0.0 if gone else min(left, LOOK_S)
                ready = select.select(list(self.open), [], [], wait_s)[0]
                for fd in ready:
                    name = self.open[fd]
                    if not take(fd, self.open, self.got, self.limits):
                        return "%s cut at %d bytes" % (name, self.limits[name])
                if gone and (not ready or left <= 0):
                    return ""
            elif gone:
                return ""
            else:  # both pipes are closed: it ends at any moment
                time.sleep(min(left, pause))
                pause = min(2 * pause, LOOK_S)


def take(
    fd: int, pipes: Dict[int, str], got: Dict[str, bytearray], limits: Dict[str, int] = LIMITS
) -> bool:
    """What the pipe holds now; False once there is more than there may be."""
    name = pipes[fd]
    data = os.read(fd, CHUNK)
    if not data:
        del pipes[fd]
        return True
    got[name] += data
    over = len(got[name]) > limits[name]
    del got[name][limits[name] :]
    return not over


def exited(pid: int) -> bool:
    """Has it ended? It stays a zombie, so that its number, and its group's, is nobody else's."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def ended(process: "subprocess.Popen[bytes]") -> bool:
    """End the process's own group, whoever of it is left; False if the process itself stays."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(UNKILLABLE_S)
    except subprocess.TimeoutExpired:
        return False
    return True
