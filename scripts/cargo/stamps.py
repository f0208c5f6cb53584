"""Receive times: the kernel's stamp of a packet, as a time on CLOCK_MONOTONIC.

In:  a connected socket (`ask_for_stamps`), and the ancillary bytes that `recvmsg` gave.
Out: nanoseconds of CLOCK_MONOTONIC, and whether they are the kernel's or the reader's own.

The kernel stamps with CLOCK_REALTIME. The offset between the two clocks is measured at the start,
each second and at the end; where the wall clock was stepped between two measurements, the offset
is taken that puts the stamp closest before the read. A stamp that fits neither is not used.
"""

from __future__ import annotations

import bisect
import select
import socket
import struct
import time
from typing import List, NamedTuple, Optional

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module does not name it
ANCILLARY_SPACE = socket.CMSG_SPACE(16) if hasattr(socket, "CMSG_SPACE") else 0
_TIMESPEC = struct.Struct("@ll")
_STEP_NS = 2_000_000  # offsets further apart than this are a step, not a slow drift
_TOLERANCE_NS = 200_000  # a stamp may lie this far after the read: error of the offset
_OLDEST_NS = 60_000_000_000  # nor this long before it: the two clocks are not those of one machine


class Stamp(NamedTuple):
    t_ns: int
    kernel: bool


def ask_for_stamps(sock: socket.socket) -> bool:
    """Have the kernel stamp what this socket receives; False where it cannot."""
    if not hasattr(sock, "recvmsg"):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


class StampSwitch:
    """Keeps the kernel's packet stamping switched on, and says whether it works.

    The kernel switches stamping on a moment after the first socket asked for it, so the first
    packets of a run would have none: a socket pair of our own asks beforehand and waits.
    """

    def __init__(self, patience_s: float = 0.5) -> None:
        self.works = False
        self._sockets: List[socket.socket] = []
        try:
            self._open()
            self.works = self._wait(patience_s)
        except OSError:
            self.works = False

    def _open(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            near = socket.create_connection(listener.getsockname(), timeout=1)
            self._sockets.append(near)
            self._sockets.append(listener.accept()[0])
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _wait(self, patience_s: float) -> bool:
        near, far = self._sockets
        if not ask_for_stamps(far):
            return False
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            near.send(b"x")
            if not select.select([far], [], [], 0.2)[0]:
                return False
            if far.recvmsg(16, ANCILLARY_SPACE)[1]:
                return True
            time.sleep(0.002)
        return False

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets = []


class MonotonicOffset:
    """Measures CLOCK_REALTIME minus CLOCK_MONOTONIC over a run and converts stamps with it."""

    def __init__(self) -> None:
        self._at: List[int] = []
        self._offset: List[int] = []
        self.measure(200)

    def measure(self, tries: int = 20) -> None:
        """One measurement: of some tries the one with the narrowest bracket."""
        best_width: Optional[int] = None
        at = offset = 0
        for _ in range(tries):
            before = time.monotonic_ns()
            wall = time.time_ns()
            after = time.monotonic_ns()
            if best_width is None or after - before < best_width:
                best_width = after - before
                at = (before + after) // 2
                offset = wall - at
        self._at.append(at)
        self._offset.append(offset)

    @property
    def steps(self) -> int:
        pairs = zip(self._offset, self._offset[1:])
        return sum(1 for one, two in pairs if abs(two - one) > _STEP_NS)

    def convert(self, ancillary: Optional[bytes], user_ns: int) -> Stamp:
        """The receive time of a read that the client saw at `user_ns`."""
        if ancillary is None or len(ancillary) < _TIMESPEC.size:
            return Stamp(user_ns, False)
        seconds, nanoseconds = _TIMESPEC.unpack_from(ancillary)
        wall = seconds * 1_000_000_000 + nanoseconds
        if not wall:
            return Stamp(user_ns, False)
        times = [wall - offset for offset in self._offsets_near(user_ns)]
        fitting = [t for t in times if -_OLDEST_NS <= t - user_ns <= _TOLERANCE_NS]
        if not fitting:
            return Stamp(user_ns, False)
        return Stamp(min(max(fitting), user_ns), True)

    def _offsets_near(self, t_ns: int) -> List[int]:
        """The offset at this time; two of them where the wall clock was stepped about then."""
        right = bisect.bisect_left(self._at, t_ns)
        if right == 0:
            return [self._offset[0]]
        if right == len(self._at):
            return [self._offset[-1]]
        left = right - 1
        one, two = self._offset[left], self._offset[right]
        if abs(two - one) > _STEP_NS:
            return [one, two]
        share = (t_ns - self._at[left]) / max(1, self._at[right] - self._at[left])
        return [one + round((two - one) * share)]
