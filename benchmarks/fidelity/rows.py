"""One load, one client: the figures of a row, and what they say about the targets.

In:  a `Load`, the client's record, the comparison with the emitter.
Out: a `Row`, whether its figures can be trusted, and which targets the rows miss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from cargo.record import percentile
from decodelab.records import stamps_late
from fidelity.client_run import ClientRun
from fidelity.lag import Comparison

LAG_P99_S = 100e-6
COALESCED_SHARE = 0.05
T0_LATE_S = 20e-6  # both ends of it go through a clock conversion
CPU_PER_READ_S = 20e-6
BARE_RATIO = 1.5  # to the barest loop in the same run, where this machine cannot do it in 20 us
CAPACITY_HZ = 40_000.0


class Load(NamedTuple):
    streams: int
    rate_hz: float  # events/s of each stream
    mode: str  # sync: all at the same instants | async

    @property
    def total_hz(self) -> float:
        return self.streams * self.rate_hz

    @property
    def name(self) -> str:
        return f"{self.streams} x {self.rate_hz:g}/s {self.mode}"


LAG_TARGETS = (Load(32, 50, "sync"), Load(256, 30, "sync"), Load(1024, 20, "sync"))
CAPACITY_TARGET = Load(1024, 40, "async")
CPU_TARGETS = (*LAG_TARGETS, CAPACITY_TARGET)


class BareRun(NamedTuple):
    reads: int
    cpu_s: float


class Row(NamedTuple):
    http: str
    load: Load
    events: int
    lost: int
    lag_p50_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    user_lag_p99_s: float | None
    cpu_per_event_s: float | None  # of the run alone: record client.cpu_s
    cpu_per_read_s: float | None
    reads: int
    cpu_s: float
    process_cpu_per_event_s: float | None  # with start, decoding and writing
    cpu_share: float | None
    coalesced_share: float
    stamp_source: str
    late: bool  # the client's own self-check
    emitter_behind: bool  # it did not speak as fast as the load asks
    blocked_s: float
    t0_late_s: float
    others_share: float | None  # of the client's cores, taken by other processes
    problems: list[str]
    read_cost_s: float | None = None  # of one more read: see `middle_cost`
    bare_cost_s: float | None = None  # the same of the barest loop, measured beside it


def make_row(
    http: str,
    load: Load,
    run: ClientRun,
    found: Comparison,
    span_s: float,
    others: float | None = None,
) -> Row:
    client = run.record["client"]
    events, reads = found.received or None, client["reads"] or None
    cpu_s, wall_s = client["cpu_s"], client["wall_s"]
    return Row(
        http=http,
        load=load,
        events=found.emitted,
        lost=found.lost,
        lag_p50_s=percentile(found.lags_s, 50),
        lag_p99_s=percentile(found.lags_s, 99),
        lag_max_s=max(found.lags_s, default=None),
        user_lag_p99_s=percentile(found.user_lags_s, 99),
        cpu_per_event_s=cpu_s / events if events else None,
        cpu_per_read_s=cpu_s / reads if reads else None,
        reads=client["reads"],
        cpu_s=cpu_s,
        process_cpu_per_event_s=run.process_cpu_s / events if events else None,
        cpu_share=cpu_s / wall_s if wall_s else None,
        coalesced_share=client["coalesced_reads"] / reads if reads else 0.0,
        stamp_source=client["stamp_source"] or "none",
        late=stamps_late(client),
        emitter_behind=span_s > 1.05 * found.emitted / load.total_hz + 1 / load.rate_hz,
        blocked_s=found.blocked_s,
        t0_late_s=found.t0_late_s,
        others_share=others,
        problems=found.problems,
    )


class Pair(NamedTuple):
    """A row and one of a shorter time, and the barest loop (`bare_loop.py`) at the same two loads."""

    row: Row
    shorter: Row
    bare: BareRun
    bare_shorter: BareRun

    @property
    def cost_s(self) -> float:
        return slope_s(self.row.reads, self.row.cpu_s, self.shorter.reads, self.shorter.cpu_s)

    @property
    def bare_cost_s(self) -> float:
        return slope_s(*self.bare, *self.bare_shorter)


def slope_s(reads: int, cpu_s: float, fewer_reads: int, less_cpu_s: float) -> float:
    """The cost of one more read, so that connecting and ending, which both runs have, fall out."""
    more = reads - fewer_reads
    return (cpu_s - less_cpu_s) / more if more > 0 else float("inf")


def middle_cost(pairs: Sequence[Pair]) -> Row:
    """The row whose read cost is in the middle, with that cost and the middle one of the bare loop."""
    half = len(pairs) // 2
    chosen = sorted(pairs, key=lambda pair: pair.cost_s)[half]
    bare_s = sorted(pair.bare_cost_s for pair in pairs)[half]
    return chosen.row._replace(read_cost_s=chosen.cost_s, bare_cost_s=bare_s)


def distrust(row: Row) -> list[str]:
    """Why the figures of this row are not to be trusted; []: they are."""
    why = []
    if row.problems:
        why.append(f"not matched: {row.problems[0]}")
    if row.lost:
        why.append(f"{row.lost} events lost")
    if row.lag_p99_s is None or row.lag_p99_s > LAG_P99_S:
        why.append(f"P99 lag > {LAG_P99_S * 1e3:g} ms")
    if row.t0_late_s > T0_LATE_S:
        why.append(f"t0 up to {row.t0_late_s * 1e3:.1f} ms after the server had the request")
    if row.coalesced_share > COALESCED_SHARE:
        why.append(f"coalesced > {COALESCED_SHARE:.0%}")
    if row.late:
        why.append("self-check: late")
    if row.emitter_behind:
        why.append("the emitter did not keep the rate")
    return why


def missed(rows: Sequence[Row]) -> list[str]:
    """The targets that these rows miss, each in words; a load that was not run misses nothing."""
    found = []
    for row in rows:
        if row.http != "epoll":
            continue
        if row.load in (*LAG_TARGETS, CAPACITY_TARGET) and distrust(row):
            found.append(f"{row.load.name}: {', '.join(distrust(row))}")
        if row.load in CPU_TARGETS and (text := too_dear(row)):
            found.append(f"{row.load.name}: {text}")
    return found


def too_dear(row: Row) -> str | None:
    """In words, where a read costs more than 20 us and more than the barest loop explains."""
    cost_s, bare_s = row.read_cost_s, row.bare_cost_s
    if cost_s is None or bare_s is None or not math.isfinite(max(cost_s, bare_s)):
        return "no cost of a read"
    if cost_s <= max(CPU_PER_READ_S, BARE_RATIO * bare_s):
        return None
    return (
        f"{cost_s * 1e6:.1f} us a read; wanted {CPU_PER_READ_S * 1e6:g}, or {BARE_RATIO:g} times "
        f"the {bare_s * 1e6:.1f} of the barest loop"
    )
