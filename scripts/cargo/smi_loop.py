"""An SMI tool in its own loop: the raw text of each tick, for tools that take long to start.

In:  the looping call, an environment, the interval in seconds. Out: one Call a tick, its stamps the
last look that found nothing of it and its last byte. What comes in one go is a tick, cut between
lines only: the rows of a tick are milliseconds apart, ticks a whole interval. The last Call says in
"trouble" why the loop ended: it was silent too long, went mad, or ended by itself. One more that is
"stuck" follows where even KILL did not end the tool.
"""

from __future__ import annotations

import select
import subprocess
import time
from typing import Callable, Dict, Generator, Iterator, List, Tuple

from cargo import smi_call
from cargo.smi_call import Call

LOOK_S = 0.05
QUIET_S = 0.2  # after the last byte of a tick, at most a quarter of the interval
SILENCE_S = 10.0  # beyond the interval


def ticks(
    argv: List[str], env: Dict[str, str], interval_s: float, stopped: Callable[[], bool]
) -> Generator[Call, None, None]:
    """Until it is stopped, or the loop has ended. Who closes it instead does not hear of "stuck"."""
    begin = _now()
    try:
        process = smi_call.start(argv, env)
    except (OSError, ValueError) as error:
        yield smi_call.not_started(begin, error)
        return
    gone = None
    try:
        yield from _Ticks(process, interval_s).until(stopped)
        begin, gone = _now(), smi_call.ended(process)
    finally:
        if gone is None:
            smi_call.ended(process)
    if not gone:
        yield Call(*begin, *_now(), None, b"", b"", "its loop is not killable", True)


def _now() -> Tuple[float, float]:
    return time.monotonic(), time.time()


class _Ticks:
    def __init__(self, process: "subprocess.Popen[bytes]", interval_s: float) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.process = process
        self.quiet_s, self.silence_s = min(QUIET_S, interval_s / 4), interval_s + SILENCE_S
        self.open = {process.stdout.fileno(): "out", process.stderr.fileno(): "err"}
        self.got = {"out": bytearray(), "err": bytearray()}
        self.before = self.last = _now()

    def until(self, stopped: Callable[[], bool]) -> Iterator[Call]:
        while True:
            whole = self.got["out"].rfind(b"\n") + 1
            stop = stopped()
            if whole and (stop or time.monotonic() - self.last[0] >= self.quiet_s):
                yield self._tick(whole, "")
            if stop:
                return
            gone = smi_call.exited(self.process.pid)
            looked = _now()
            ready = select.select(list(self.open), [], [], 0.0 if gone else LOOK_S)[0]
            if not self.got["out"]:
                self.before = looked
            over = [self.open[fd] for fd in ready if not smi_call.take(fd, self.open, self.got)]
            if ready:
                self.last = _now()
            trouble = "%s goes on and on" % over[0] if over else ""
            if gone and not ready:
                trouble = "its loop ended"
            elif time.monotonic() - self.last[0] > self.silence_s:
                trouble = "silent for %g s" % self.silence_s
            if trouble:
                yield self._tick(len(self.got["out"]), trouble)
                return

    def _tick(self, size: int, trouble: str) -> Call:
        """What came so far, up to `size`; half a line that follows belongs to the next."""
        out, err = bytes(self.got["out"][:size]), bytes(self.got["err"])
        del self.got["out"][:size], self.got["err"][:]
        before, after = self.before, self.last if out else _now()
        self.before = after
        return Call(*before, *after, None, out, err, trouble)
