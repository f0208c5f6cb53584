"""What both transports share: the load to make, whose turn it is, and how a run ends early.

In:  the endpoint, the requests' bytes, concurrency, counts, schedule and time limits (`Load`).
Out: exchanges to fill, one after the other (`RunState.take`).
"""

from __future__ import annotations

import errno
import socket
import time
from array import array
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from cargo.endpoint import Endpoint
from cargo.exchange import WHOLE, Exchange, RunClock
from cargo.stamps import MonotonicOffset

TICK_S = 0.010
_PROBE_TIMEOUT_S = 0.02  # a refusal on this machine comes at once; the loop stands still meanwhile


class Limits(NamedTuple):
    """Time limits of one request, in seconds; each ends it with its own kind of timeout."""

    connect: float = 10.0  # until the request is written
    first_token: float = 600.0  # from then to the first output
    between_tokens: float = 120.0  # from one output to the next, and from the last to the end
    total: float = 1800.0  # from connecting to the end


class Load(NamedTuple):
    endpoint: Endpoint
    headers: Dict[str, str]
    body_of: Callable[[Exchange], bytes]  # the request's JSON; differs where each has its own salt
    concurrency: int  # closed loop: open at any time; open loop: at most open at once
    requests: int
    warmup: int
    limits: Limits
    due_s: Optional[Sequence[float]] = None  # open loop: when each request is due, from the start


Progress = Callable[[int, int], None]


class RunState:
    """The run's exchanges, its clock, whose turn it is, and why it ends early (if it does)."""

    def __init__(self, load: Load, progress: Optional[Progress] = None) -> None:
        self.load = load
        self.warmups = [Exchange(i, True) for i in range(load.warmup)]
        self.counted = [Exchange(i, False) for i in range(load.requests)]
        self.offset = MonotonicOffset()
        self.zero_ns = time.monotonic_ns()
        self.zero_wall_s = time.time()
        self.cpu_begin_s = time.process_time()
        self.cpu_s: Optional[float] = None
        self.wall_s: Optional[float] = None
        self.ended = "done"
        self.late_ns = array("q")  # lateness of the loop's ticks
        self.connected_once = False
        self.kernel_stamps = False
        self.last_read_ns = 0
        self.each_tick: Callable[[], None] = lambda: None
        # Where the load is shared by processes: when any of the others read something.
        self.others_read_ns: Callable[[], int] = lambda: 0
        self.stages: List[Callable[[], Iterator[Exchange]]] = [self._warm_up, self._count]
        self.done = 0
        self._turns: Iterator[Exchange] = iter(())
        self._next: Optional[Exchange] = None
        self._exhausted = True
        # Called with the number of finished requests; who shares the load tells for all.
        self.tell: Callable[[int], None] = lambda _done: None
        if progress is not None:
            self.tell = lambda done: progress(done, load.requests)

    @property
    def clock(self) -> RunClock:
        return RunClock(self.zero_ns, self.offset if self.kernel_stamps else None)

    # -- whose turn it is -------------------------------------------------------------------

    def _warm_up(self) -> Iterator[Exchange]:
        return iter(self.warmups)

    def _count(self) -> Iterator[Exchange]:
        self.schedule()
        return iter(self.counted)

    def schedule(self) -> None:
        """The open loop begins now: each counted request learns when it is due."""
        start_ns = time.monotonic_ns()
        for exchange, due_s in zip(self.counted, self.load.due_s or ()):
            exchange.due_ns = start_ns + round(due_s * 1e9)

    def phases(self) -> Iterator[None]:
        """The warm-up, then the counted requests: `take` gives those of the present phase."""
        for stage in self.stages:
            if self.stopping:
                return
            self._turns, self._next, self._exhausted = stage(), None, False
            yield

    def take(self, now_ns: int) -> Optional[Exchange]:
        """The next request; None when none is left, or when it is not due yet."""
        if self._next is None and not self._exhausted:
            self._next = next(self._turns, None)
            self._exhausted = self._next is None
        found = self._next
        if found is None or self.stopping or (found.due_ns or 0) > now_ns:
            return None
        self._next = None
        return found

    @property
    def next_due_ns(self) -> Optional[int]:
        """When there may be something to take; None when nothing more comes."""
        if self.stopping or (self._next is None and self._exhausted):
            return None
        return 0 if self._next is None else self._next.due_ns or 0

    # -- how it ends ------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self.ended != "done"

    def stop(self, why: str) -> None:
        """No further request is begun; the first reason stands."""
        if self.ended == "done":
            self.ended = why

    def stalled(self, exchange: Exchange) -> bool:
        """Since this exchange's last output, no other had output or came to its end."""
        since_ns = exchange.decoder.last_output_ns() or exchange.begun_ns or 0
        others = [one for one in self.warmups + self.counted if one is not exchange]
        if any(one.ended == WHOLE and (one.ended_ns or 0) > since_ns for one in others):
            return False
        for one in others:
            if one.begun_ns is not None and one.ended is None:
                one.decoder.catch_up()
                if (one.decoder.last_output_ns() or 0) > since_ns:
                    return False
        return self.others_read_ns() <= since_ns

    def finished(self, exchange: Exchange) -> None:
        if exchange.warmup:
            return
        self.done += 1
        self.tell(self.done)

    def close(self) -> None:
        self.offset.measure(200)
        self.cpu_s = time.process_time() - self.cpu_begin_s
        self.wall_s = (time.monotonic_ns() - self.zero_ns) / 1e9


def listens(endpoint: Endpoint) -> bool:
    """Whether anything accepts connections there. Only a refusal is a no."""
    if endpoint.address is None:
        return True
    family, address = endpoint.address
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(_PROBE_TIMEOUT_S)
        return sock.connect_ex(address) != errno.ECONNREFUSED


def shares(load: Load, processes: int) -> List[Any]:
    """The same load for each of some processes, with its part of the concurrency."""
    least, more = divmod(load.concurrency, processes)
    return [load._replace(concurrency=least + (n < more)) for n in range(processes)]
