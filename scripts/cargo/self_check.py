"""How well the client itself kept up, as figures of record.CLIENT_FIELDS.

In:  what one process saw of its exchanges (`Tally.of`); tallies of several processes add up.
Out: `figures`: stamp source, processor share, loop lateness, lag of the stamps, reads that merged events,
     achieved concurrency over time, connect times, lateness against the schedule.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from cargo import record
from cargo.exchange import Exchange, RunClock
from cargo.load import RunState

_POINTS = 500  # of the concurrency over time that are kept
_BLUR_NS = 15_000_000  # a loop on time looks each 10 ms


class Tally:
    """What can be added up over processes; arrays hold nanoseconds."""

    def __init__(self) -> None:
        self.ended = "done"
        self.cpu_s = 0.0
        self.clock_steps = 0
        self.counts = dict.fromkeys(("reads", "user", "coalesced", "multi", "output", "blurred"), 0)
        self.tick_late = array("q")
        self.lag = array("q")
        self.connect = array("q")
        self.start_late = array("q")
        self.spans: List[Tuple[int, int]] = []  # of counted requests: sent, ended

    @classmethod
    def of(cls, state: RunState, exchanges: Iterable[Exchange]) -> Tally:
        found = cls()
        found.ended = state.ended
        found.cpu_s = state.cpu_s or 0.0
        found.clock_steps = state.offset.steps
        found.tick_late.extend(state.late_ns)
        for exchange in exchanges:
            found._take(exchange, state.clock)
        return found

    def _take(self, exchange: Exchange, clock: RunClock) -> None:
        if exchange.begun_ns is None:
            return
        if exchange.connected_ns is not None:
            self.connect.append(exchange.connected_ns - exchange.begun_ns)
        if exchange.due_ns is not None:
            self.start_late.append(exchange.begun_ns - exchange.due_ns)
        if exchange.sent_ns is not None and exchange.ended_ns is not None and not exchange.warmup:
            self.spans.append((exchange.sent_ns, exchange.ended_ns))
        events = [0] * len(exchange.reads)
        output = [0] * len(exchange.reads)
        for index, kind in zip(exchange.decoder.read_of, exchange.decoder.meaning.kinds):
            events[index] += 1
            output[index] += kind in record.OUTPUT_KINDS
        self.counts["reads"] += len(events)
        self.counts["multi"] += sum(1 for n in events if n > 1)
        self.counts["coalesced"] += sum(1 for n in output if n > 1)
        self.counts["output"] += sum(output)
        for read, n in zip(exchange.reads, output):
            stamp = clock.stamp(read)
            if n > 1 and stamp.t_ns - read.since_ns > _BLUR_NS:
                # the stamp is the last one's: the others may have come long before
                self.counts["blurred"] += n - 1
            if stamp.kernel:
                self.lag.append(read.user_ns - stamp.t_ns)
            else:
                self.counts["user"] += 1

    def add(self, other: Tally) -> None:
        if self.ended == "done":
            self.ended = other.ended
        self.cpu_s += other.cpu_s
        self.clock_steps = max(self.clock_steps, other.clock_steps)  # one clock, seen by each
        for name, value in other.counts.items():
            self.counts[name] += value
        for name in ("tick_late", "lag", "connect", "start_late"):
            getattr(self, name).extend(getattr(other, name))
        self.spans.extend(other.spans)


def figures(tally: Tally, wall_s: float, zero_ns: int) -> Dict[str, Any]:
    """The figures of a run; None where there is nothing to say."""
    counts = tally.counts
    source = None
    if counts["reads"]:
        source = "user" if counts["user"] else "kernel"
    open_at = _open_requests(tally.spans)
    return {
        "stamp_source": source,
        "ended": tally.ended,
        "cpu_s": tally.cpu_s,
        "wall_s": wall_s,
        "cpu_share": round(tally.cpu_s / wall_s, 4) if wall_s > 0 else None,
        "loop_late_max_s": _seconds(tally.tick_late, 100),
        "loop_late_p99_s": _seconds(tally.tick_late, 99),
        "lag_p50_s": _seconds(tally.lag, 50),
        "lag_p99_s": _seconds(tally.lag, 99),
        "lag_max_s": _seconds(tally.lag, 100),
        "reads": counts["reads"],
        "user_stamped_reads": counts["user"],
        "coalesced_reads": counts["coalesced"],
        "multi_event_reads": counts["multi"],
        "output_events": counts["output"],
        "blurred_events": counts["blurred"],
        "clock_steps": tally.clock_steps,
        "connect_p50_s": _seconds(tally.connect, 50),
        "connect_max_s": _seconds(tally.connect, 100),
        "schedule_late_p50_s": _seconds(tally.start_late, 50),
        "schedule_late_p99_s": _seconds(tally.start_late, 99),
        "schedule_late_max_s": _seconds(tally.start_late, 100),
        "concurrency_mean": _mean_open(open_at),
        "concurrency_max": max((n for _, n in open_at), default=None),
        "open_requests": _over_time(open_at, zero_ns),
    }


def _seconds(values_ns: Sequence[int], q: float) -> Optional[float]:
    found = record.percentile(values_ns, q)
    return None if found is None else round(found / 1e9, 7)


def _open_requests(spans: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """(time, requests open from then on), a step function; a request that ends makes room first."""
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    found, now = [], 0
    for at_ns, change in edges:
        now += change
        found.append((at_ns, now))
    return found


def _mean_open(steps: Sequence[Tuple[int, int]]) -> Optional[float]:
    """Over the window from the first request's start to the last one's end."""
    window_ns = steps[-1][0] - steps[0][0] if steps else 0
    if not window_ns:
        return None
    untils = [at_ns for at_ns, _ in steps[1:]]
    busy_ns = sum(n * (until_ns - at_ns) for (at_ns, n), until_ns in zip(steps, untils))
    return round(busy_ns / window_ns, 4)


def _over_time(steps: Sequence[Tuple[int, int]], zero_ns: int) -> Optional[Dict[str, List[Any]]]:
    """The step function, thinned to a bounded number of points; its last point always stays."""
    if not steps:
        return None
    every = -(-len(steps) // _POINTS)
    kept = [*steps[:-1:every], steps[-1]]
    return {
        "t_s": [round((at_ns - zero_ns) / 1e9, 4) for at_ns, _ in kept],
        "n": [n for _, n in kept],
    }
