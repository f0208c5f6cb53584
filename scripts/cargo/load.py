"""What both transports share: the load to make, how a run ends early, and the client's self-check.

In:  the endpoint, the request's bytes, concurrency, counts and time limits (`Load`).
Out: exchanges to fill (`RunState`), figures about the client itself (`self_check`).
"""

from __future__ import annotations

import errno
import socket
import time
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from cargo import record
from cargo.endpoint import Endpoint
from cargo.exchange import WHOLE, Exchange, RunClock
from cargo.stamps import MonotonicOffset

TICK_S = 0.010
_PROBE_TIMEOUT_S = 0.3


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
    """The run's exchanges, its clock, and why it ends early (if it does)."""

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
        self._done = 0
        self._progress = progress

    @property
    def clock(self) -> RunClock:
        return RunClock(self.zero_ns, self.offset if self.kernel_stamps else None)

    @property
    def phases(self) -> List[List[Exchange]]:
        return [phase for phase in (self.warmups, self.counted) if phase]

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
        return True

    def finished(self, exchange: Exchange) -> None:
        if exchange.warmup:
            return
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, len(self.counted))

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


def _nearest(values: Sequence[int], q: float) -> Optional[float]:
    found = record.percentile(values, q)
    return None if found is None else round(found / 1e9, 7)


def self_check(state: RunState) -> Dict[str, Any]:
    """How well the client itself kept up: the figures of record.CLIENT_FIELDS it can measure."""
    exchanges = state.warmups + state.counted
    lags: List[int] = []
    counts = {"reads": 0, "user": 0, "coalesced": 0, "multi": 0}
    connects: List[float] = []
    for exchange in exchanges:
        _count_reads(exchange, state.clock, lags, counts)
        if exchange.begun_ns is not None and exchange.connected_ns is not None:
            connects.append((exchange.connected_ns - exchange.begun_ns) / 1e9)
    mean, most = _open_requests(state.counted)
    source = None
    if counts["reads"]:
        source = "user" if counts["user"] else "kernel"
    return {
        "stamp_source": source,
        "ended": state.ended,
        "cpu_s": state.cpu_s,
        "wall_s": state.wall_s,
        "loop_late_max_s": _nearest(state.late_ns, 100),
        "loop_late_p99_s": _nearest(state.late_ns, 99),
        "lag_p50_s": _nearest(lags, 50),
        "lag_p99_s": _nearest(lags, 99),
        "lag_max_s": _nearest(lags, 100),
        "reads": counts["reads"],
        "user_stamped_reads": counts["user"],
        "coalesced_reads": counts["coalesced"],
        "multi_event_reads": counts["multi"],
        "clock_steps": state.offset.steps,
        "connect_max_s": round(max(connects), 7) if connects else None,
        "concurrency_mean": mean,
        "concurrency_max": most,
    }


def _count_reads(
    exchange: Exchange, clock: RunClock, lags: List[int], counts: Dict[str, int]
) -> None:
    events = [0] * len(exchange.reads)
    output = [0] * len(exchange.reads)
    for index, kind in zip(exchange.decoder.read_of, exchange.decoder.meaning.kinds):
        events[index] += 1
        output[index] += kind in record.OUTPUT_KINDS
    counts["reads"] += len(events)
    counts["multi"] += sum(1 for n in events if n > 1)
    counts["coalesced"] += sum(1 for n in output if n > 1)
    for read in exchange.reads:
        stamp = clock.stamp(read)
        if stamp.kernel:
            lags.append(read.user_ns - stamp.t_ns)
        else:
            counts["user"] += 1


def _open_requests(exchanges: Sequence[Exchange]) -> Tuple[Optional[float], Optional[int]]:
    """Mean and largest number of requests that were open at once, over their window."""
    spans = [
        (exchange.sent_ns, exchange.ended_ns)
        for exchange in exchanges
        if exchange.sent_ns is not None and exchange.ended_ns is not None
    ]
    if not spans:
        return None, None
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    now = most = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    window = edges[-1][0] - edges[0][0]
    busy = sum(end - begin for begin, end in spans)
    return (round(busy / window, 4) if window else None), most
