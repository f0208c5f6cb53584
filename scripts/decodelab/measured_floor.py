"""The scatter between starts as a study measured it: from the starts of its A/A arms.

In: the plan (`aa` of its experiments), the tables, the arms of a comparison. Out: `Scatter`, or
None where this study measured none for them.

What may stand in for what. A scatter counts for a comparison only if it is of the same metric, the
same workload at the same load, the same source, and of a server of the same host and model. Where
an A/A server is itself an arm, it speaks alone; else all that fit are pooled. A start that is invalid is
left out, the others still count. Two workloads of one
start are compared within the start, so theirs is the scatter of that difference, from the A/A
starts that measured both. All starts of the A/A server count, whichever experiment made them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from decodelab import arms
from decodelab.effects import Scatter, pooled_scatter
from decodelab.tables import Tables

Load = tuple[Any, ...]  # what a run asks of a server: workload, concurrency, rate
Plan = Mapping[str, Any]


@dataclass(frozen=True)
class _Sample:
    variant: str
    values: dict[str, float]  # launch -> logarithm, or difference of two


def of(plan: Plan, tables: Tables, base: arms.Arm, cand: arms.Arm) -> Scatter | None:
    """For a comparison of two arms; of the difference within a launch where both are of the same."""
    if not _comparable(base, cand):
        return None
    sides = [base, cand] if _paired(base, cand) else [base]
    return _scatter(plan, tables, sides, [base, cand])


def _paired(base: arms.Arm, cand: arms.Arm) -> bool:
    return set(base.launches) == set(cand.launches)


def _comparable(base: arms.Arm, cand: arms.Arm) -> bool:
    """Each load may scatter in its own way: unlike ones need launches that tie the two."""
    return _paired(base, cand) or _loads(base) == _loads(cand)


def of_one(plan: Plan, tables: Tables, arm: arms.Arm) -> Scatter | None:
    """For the value of one arm."""
    return _scatter(plan, tables, [arm], [arm])


def aa_variants(plan: Plan) -> list[str]:
    named = [entry.get("aa") for entry in (plan.get("experiments") or {}).values()]
    return list(dict.fromkeys(str(name) for name in named if name))


def every_start(plan: Plan, tables: Tables, like: arms.Arm, variant: str | None = None) -> arms.Arm:
    """The arm with all usable starts of its server (or another) that made the same load, whichever
    experiment asked.
    """
    variant = variant or like.variant
    groups = _by_launch(plan, tables, variant, like)
    usable = [group for group in groups.values() if arms.unusable(group, plan, tables) is None]
    names = [name for group in usable for name in group.names]
    return arms.build(variant, names, like.metric, tables)


def left_out(plan: Plan, tables: Tables, *asked: arms.Arm) -> list[str]:
    """The A/A starts that would have measured the scatter for these arms, were they not invalid."""
    if len(asked) > 1 and not _comparable(*asked):
        return []
    out = [
        launch
        for variant in aa_variants(plan)
        if all(_alike(plan, variant, arm.variant) for arm in asked)
        for arm in asked
        for launch, group in _by_launch(plan, tables, variant, arm).items()
        if arms.unusable(group, plan, tables) is not None
    ]
    return list(dict.fromkeys(out))


def _by_launch(plan: Plan, tables: Tables, variant: str, like: arms.Arm) -> dict[str, arms.Arm]:
    """Launch -> the arm of its runs of the same load alone."""
    names: dict[str, list[str]] = {}
    for name in _names(plan, tables, variant, _loads(like)):
        names.setdefault(arms.launch_of(tables.runs[name]), []).append(name)
    return {key: arms.build(variant, mine, like.metric, tables) for key, mine in names.items()}


def _scatter(
    plan: Plan, tables: Tables, sides: Sequence[arms.Arm], asked: Sequence[arms.Arm]
) -> Scatter | None:
    samples = []
    for variant in aa_variants(plan):
        if all(_alike(plan, variant, arm.variant) for arm in asked):
            sample = _sample(plan, tables, variant, sides)
            if sample is not None:
                samples.append(sample)
    servers = {_server(plan, arm.variant) for arm in asked}
    own = [sample for sample in samples if _server(plan, sample.variant) in servers]
    return _pooled(own or samples)


def _sample(plan: Plan, tables: Tables, variant: str, sides: Sequence[arms.Arm]) -> _Sample | None:
    """The A/A server's logarithms (of two sides: their differences) by launch."""
    found: list[dict[str, float]] = []
    for side in sides:
        arm = every_start(plan, tables, side, variant)
        sources = {row["source"] for row in arm.rows}
        if not arm.rows or sources != {row["source"] for row in side.rows}:
            return None
        if any(not math.isfinite(v) or v <= 0 for v in arm.launches.values()):
            return None
        found.append({key: math.log(v) for key, v in arm.launches.items()})
    first, last = found[0], found[-1]
    if len(found) == 1:
        return _Sample(variant, first)
    return _Sample(variant, {key: last[key] - first[key] for key in first if key in last})


def _pooled(samples: Iterable[_Sample]) -> Scatter | None:
    """One server known under two names is counted once."""
    unlike = list({frozenset(sample.values): sample for sample in samples}.values())
    used = [sample for sample in unlike if len(sample.values) >= 2]
    found = pooled_scatter([list(sample.values.values()) for sample in used])
    if found is None:
        return None
    starts = tuple(key for sample in used for key in sample.values)
    return replace(found, starts=starts, variants=tuple(s.variant for s in used))


def _names(plan: Plan, tables: Tables, variant: str, loads: set[Load]) -> list[str]:
    server = _server(plan, variant)
    mine = [run["name"] for run in plan["runs"] if _server(plan, run["variant"]) == server]
    return [name for name in mine if name in tables.runs and _load(tables.runs[name]) in loads]


def _loads(arm: arms.Arm) -> set[Load]:
    return {_load(row) for row in arm.rows}


def _load(row: Mapping[str, Any]) -> Load:
    return row["workload"], row["concurrency"], row.get("rate")


def _server(plan: Plan, variant: str) -> Any:
    """The server's digest; two variants of one are the same starts."""
    return plan["variants"].get(variant, {}).get("server") or variant


def _alike(plan: Plan, one: str, other: str) -> bool:
    a, b = (plan["variants"].get(name, {}) for name in (one, other))
    return all(a.get(key) == b.get(key) for key in ("host", "model"))
