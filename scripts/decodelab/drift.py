"""Did the host drift while the study ran: the baseline's first start against its last.

In: the plan, the tables, the baseline arm. Out: plain data for verdicts.json, or None where fewer
than two of its starts have a time on record. First and last are by the clock of the host when the
start began, since starts may have been made in another order than they are numbered.

Its floor. The scatter over all starts would hold the very drift that is looked for, so it is taken
between starts that followed each other (mean square of successive differences, half of it; the
degrees of freedom are those that give a chi-square of the same variance). Below five starts that
says too little, and the field's restart floor stands in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import arms, effects, measured_floor
from decodelab.tables import Tables

LEAST_STARTS = 5


def check(plan: Mapping[str, Any], tables: Tables, arm: arms.Arm) -> dict[str, Any] | None:
    """+ is a rise of the metric from the first start to the last, relative."""
    every = measured_floor.every_start(plan, tables, arm)
    ordered = in_order(every, tables)
    if len(ordered) < 2:
        return None
    values = [every.launches[start] for start, _ in ordered]
    if any(not math.isfinite(v) or v <= 0 for v in values):
        return None
    floor, source = _floor([math.log(v) for v in values], arm.metric)
    effect = values[-1] / values[0] - 1
    row = arm.rows[0]
    return {
        "variant": arm.variant,
        "workload": row["workload"],
        "concurrency": row["concurrency"],
        "rate": row.get("rate"),
        "metric": arm.metric,
        "effect": effect,
        "floor": floor,
        "floor_source": source,
        "exceeds": abs(effect) > floor,
        "first": ordered[0][0],
        "last": ordered[-1][0],
        "span_s": ordered[-1][1] - ordered[0][1],
        "n_launches": len(ordered),
    }


def in_order(arm: arms.Arm, tables: Tables) -> list[tuple[str, float]]:
    """(launch, when it began) of the arm's launches whose time is on record, by that time."""
    begun = {s["start_id"]: s["t_begin_s"] for s in tables.starts if s.get("t_begin_s") is not None}
    known = [(key, float(begun[key])) for key in arm.launches if key in begun]
    return sorted(known, key=lambda item: item[1])


def _floor(logs: Sequence[float], metric: str) -> tuple[float, str]:
    n = len(logs)
    squares = sum((b - a) ** 2 for a, b in itertools.pairwise(logs))
    if n < LEAST_STARTS or not squares:
        return effects.floor_of(metric), "field"
    scatter = effects.Scatter(math.sqrt(squares / (2 * (n - 1))), 2 * (n - 1) ** 2 / (3 * n - 4))
    return math.expm1(scatter.half(1, 1)), "measured"
