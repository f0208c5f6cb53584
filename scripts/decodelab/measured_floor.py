"""The scatter between starts as a study measured it: from the starts of its A/A arms.

In: the plan (`aa` of its experiments), the tables, the arms of a comparison. Out: `Scatter`, or
None where this study measured none for them.

What may stand in for what. A scatter counts for a comparison only if it is of the same metric, the
same workload at the same load, the same source, and of a server of the same host and model. Where
an A/A server is itself an arm, it speaks alone; else all that fit are pooled. Two workloads of one
start are compared within the start, so theirs is the scatter of that difference, from the A/A
starts that measured both. All starts of the A/A server count, whichever experiment made them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodelab import arms
from decodelab.effects import Scatter
from decodelab.tables import Tables

Load = tuple[Any, ...]  # what a run asks of a server: workload, concurrency, rate
Plan = Mapping[str, Any]


@dataclass(frozen=True)
class _Sample:
    variant: str
    values: dict[str, float]  # launch -> logarithm, or difference of two


def of(plan: Plan, tables: Tables, base: arms.Arm, cand: arms.Arm) -> Scatter | None:
    """For a comparison of two arms; of the difference within a launch where both are of the same."""
    paired = set(base.launches) == set(cand.launches)
    sides = [base, cand] if paired else [base]
    if not paired and _loads(base) != _loads(cand):
        return None  # each load may scatter in its own way, and no launch ties the two
    return _scatter(plan, tables, sides, [base, cand])


def of_one(plan: Plan, tables: Tables, arm: arms.Arm) -> Scatter | None:
    """For the value of one arm."""
    return _scatter(plan, tables, [arm], [arm])


def aa_variants(plan: Plan) -> list[str]:
    named = [entry.get("aa") for entry in (plan.get("experiments") or {}).values()]
    return list(dict.fromkeys(str(name) for name in named if name))


def every_start(plan: Plan, tables: Tables, like: arms.Arm) -> arms.Arm:
    """The arm with all starts of its server that made the same load, whichever experiment asked."""
    names = _names(plan, tables, like.variant, _loads(like))
    return arms.build(like.variant, names, like.metric, tables)


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
        names = _names(plan, tables, variant, _loads(side))
        arm = arms.build(variant, names, side.metric, tables)
        sources = {row["source"] for row in arm.rows}
        if not arm.rows or sources != {row["source"] for row in side.rows}:
            return None
        if arms.unusable(arm, plan, tables) is not None:
            return None
        if any(not math.isfinite(v) or v <= 0 for v in arm.launches.values()):
            return None
        found.append({key: math.log(v) for key, v in arm.launches.items()})
    first, last = found[0], found[-1]
    if len(found) == 1:
        return _Sample(variant, first)
    return _Sample(variant, {key: last[key] - first[key] for key in first if key in last})


def _pooled(samples: Iterable[_Sample]) -> Scatter | None:
    """One server known under two names is counted once. Starts that agree to the last digit of a
    float are no measurement of a scatter.
    """
    unlike = list({frozenset(sample.values): sample for sample in samples}.values())
    used = [sample for sample in unlike if len(sample.values) >= 2]
    squares = sum(statistics.variance(s.values.values()) * (len(s.values) - 1) for s in used)
    df = sum(len(sample.values) - 1 for sample in used)
    if not used or squares <= 1e-18 * df:
        return None
    starts = tuple(key for sample in used for key in sample.values)
    return Scatter(math.sqrt(squares / df), df, starts, tuple(s.variant for s in used))


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
