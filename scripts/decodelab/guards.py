"""Guards of a comparison: metrics that must not get worse for the sake of the one asked for.

In: the question's `guard:` list, the two arms, plan and tables. Out: one entry a guard: its effect
(+ is better), interval, limit and outcome. `worse`: the loss is beyond the limit and its interval
is a loss throughout. `kept`: the whole interval stays within the limit. `open`: the data cannot
tell, or one arm has no value.

Method. Rates, times and counted shares (success, goodput, cache hit) as in `effects`, so that a
guard and a question say the same of the same data; other shares by t of points over the launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import arms, effects, measured_floor, reasons, region_metric, shares
from decodelab.tables import Tables
from decodelab.vocabulary import METRICS

Result = dict[str, Any]


def is_share(metric: str) -> bool:
    return METRICS[metric].unit == "share"


def judge(
    guard: Mapping[str, Any],
    base: arms.Arm,
    cand: arms.Arm,
    plan: Mapping[str, Any],
    tables: Tables,
    same_workload: bool,
) -> Result:
    """One guard, over the runs of the question's two arms."""
    metric = guard["metric"]
    left, right = (arms.build(arm.variant, arm.names, metric, tables) for arm in (base, cand))
    out: Result = {
        "metric": metric,
        "worse_by": guard["worse_by"],
        "in_points": is_share(metric),
        "baseline_value": left.value,
        "candidate_value": right.value,
        "effect": None,
        "interval": None,
        "floor": None,
        "floor_source": None,
        "method": None,
        "outcome": "open",
        "reasons": [],
    }
    lacking = [arm.variant for arm in (left, right) if not arm.launches]
    if lacking:
        return _open(out, "guard_no_value", metric=metric, variants=", ".join(lacking))
    unlike = arms.event_mismatches(left, right, plan) if same_workload else []
    unlike += region_metric.mismatch(left, right, plan)
    if unlike:
        return {**out, "reasons": unlike}
    try:
        _measure(out, left, right, plan, tables)
    except effects.NoRelativeChange:
        return _open(out, "no_relative_change")
    out["outcome"] = outcome(out["effect"], out["interval"], guard["worse_by"])
    return out


def outcome(effect: float, interval: tuple[float, float] | list[float], limit: float) -> str:
    """`worse`, `kept` or `open`: see the file's first lines."""
    low, high = interval
    if high < 0 and -effect > limit:
        return "worse"
    return "kept" if -low <= limit else "open"


def told(code: str, found: Result) -> dict[str, str]:
    """The reason with its figures; of a share they are points of it."""
    low, high = found["interval"]
    shown = {"effect": found["effect"], "low": low, "high": high, "limit": found["worse_by"]}
    signs = {name: f"{value:{'' if name == 'limit' else '+'}.1%}" for name, value in shown.items()}
    return reasons.reason(code, metric=found["metric"], **signs)


def _open(out: Result, code: str, **values: str) -> Result:
    return {**out, "reasons": [reasons.reason(code, **values)]}


def _measure(
    out: Result, left: arms.Arm, right: arms.Arm, plan: Mapping[str, Any], tables: Tables
) -> None:
    metric = left.metric
    sign = -1 if METRICS[metric].direction == "lower" else 1
    if is_share(metric) and metric not in effects.COUNTED:
        bounds = sorted(sign * bound for bound in shares.points(left, right))
        effect = sign * ((right.value or 0.0) - (left.value or 0.0))
        out.update(effect=effect, interval=bounds, method="starts_t")
        return
    found = shares.compared(left, right, sign, measured_floor.of(plan, tables, left, right))
    out.update(effect=found.effect, interval=list(found.interval), method=found.method)
    if found.in_points:
        out.update(baseline_value=shares.value(left), candidate_value=shares.value(right))
    else:
        out.update(floor=found.floor, floor_source=found.floor_source)
