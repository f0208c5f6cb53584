"""Steps of one phase -> the table of where their time goes.

In: the cycles of one rank. Out: a `Table`, ms a step; of several ranks' tables the one of all
together. A region that took no part in a step took 0 of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cargo.record import percentile
from decodelab import step_closure, step_regions
from decodelab.step_closure import Cycle
from decodelab.step_lines import Step
from decodelab.step_table import Region, Table

MS = 1e6  # ns


def alone(steps: Iterable[Step]) -> list[Cycle]:
    """Prefill and mixed steps: each from its begin to its end, the worker's part of it only."""
    return [
        Cycle(s, s.ns, step_closure.within(s), {n: t.calls for n, t in s.regions.items()})
        for s in steps
    ]


def table(phase: str, rank: int | None, cycles: Sequence[Cycle]) -> Table | None:
    """None where there is nothing."""
    if not cycles:
        return None
    whole = [cycle.ns / MS for cycle in cycles]
    mean = statistics.fmean(whole)
    names = {name for cycle in cycles for name in (*cycle.parts, *cycle.calls)}
    regions = [
        _region(
            name,
            [cycle.parts.get(name, 0.0) / MS for cycle in cycles],
            [cycle.calls.get(name, 0) for cycle in cycles] if _called(name, cycles) else None,
            mean,
        )
        for name in names
    ]
    left = [(cycle.ns - cycle.named) / MS for cycle in cycles]
    regions.append(_region(step_regions.UNATTRIBUTED, left, None, mean))
    return Table(
        phase=phase,
        rank=rank,
        steps=len(cycles),
        step_ms_p50=percentile(whole, 50),
        step_ms_p90=percentile(whole, 90),
        step_ms_mean=mean,
        regions=tuple(sorted(regions, key=lambda r: step_regions.order(r.region))),
        closure=-statistics.fmean(left) / mean if mean else None,
    )


def _called(name: str, cycles: Sequence[Cycle]) -> bool:
    """Time between steps that is the engine's is nothing that was called."""
    return any(name in cycle.calls for cycle in cycles)


def _region(
    name: str, times: Sequence[float], calls: Sequence[int] | None, step_ms: float
) -> Region:
    mean = statistics.fmean(times)
    share = mean / step_ms if step_ms else None
    return Region(
        region=name,
        calls_per_step=None if calls is None else statistics.median(calls),
        ms_p50=percentile(times, 50),
        ms_p90=percentile(times, 90),
        ms_mean=mean,
        share=share,
        ceiling=ceiling(name, share),
    )


def ceiling(region: str, share: float | None) -> float | None:
    """How many times as fast a step, were the region free."""
    if region == step_regions.UNATTRIBUTED or share is None or not 0 <= share < 1:
        return None
    return 1 / (1 - share)


def together(tables: Sequence[Table]) -> Table:
    """Of the ranks of one phase: the mean over ranks of each figure."""
    names = {region.region for one in tables for region in one.regions}
    step_ms = _mean([one.step_ms_mean for one in tables])
    regions = [_joined(name, tables, step_ms) for name in names]
    left = next((r.ms_mean for r in regions if r.region == step_regions.UNATTRIBUTED), None)
    return Table(
        phase=tables[0].phase,
        rank=None,
        steps=min(one.steps or 0 for one in tables),
        step_ms_p50=_mean([one.step_ms_p50 for one in tables]),
        step_ms_p90=_mean([one.step_ms_p90 for one in tables]),
        step_ms_mean=step_ms,
        regions=tuple(sorted(regions, key=lambda r: step_regions.order(r.region))),
        closure=-left / step_ms if left is not None and step_ms else None,
    )


def _joined(name: str, tables: Sequence[Table], step_ms: float | None) -> Region:
    """A rank that has no such region spent no time there; of calls the most: a rank that leaves the
    sampling to another does not halve the samples.
    """
    found = [r for one in tables for r in one.regions if r.region == name]
    absent = [0.0] * (len(tables) - len(found))
    mean = _mean([*(r.ms_mean for r in found), *absent])
    calls = [r.calls_per_step for r in found if r.calls_per_step is not None]
    share = mean / step_ms if mean is not None and step_ms else None
    return Region(
        region=name,
        calls_per_step=max(calls) if calls else None,
        ms_p50=_mean([*(r.ms_p50 for r in found), *absent]),
        ms_p90=_mean([*(r.ms_p90 for r in found), *absent]),
        ms_mean=mean,
        share=share,
        ceiling=ceiling(name, share),
        wait_ms=_mean([r.wait_ms for r in found]),
        transfer_ms=_mean([r.transfer_ms for r in found]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def without_shares(one: Table) -> Table:
    """Times without what only a valid profile may state."""
    return replace(one, regions=tuple(replace(r, share=None, ceiling=None) for r in one.regions))


def with_waits(one: Table, waits: tuple[float, float] | None) -> Table:
    """The collectives of a rank split into (wait, transfer), ms a step."""
    if waits is None:
        return one
    wait, transfer = waits
    regions = tuple(
        replace(r, wait_ms=wait, transfer_ms=transfer) if r.region == "collective" else r
        for r in one.regions
    )
    return replace(one, regions=regions)
