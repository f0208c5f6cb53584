"""Guards of a comparison: metrics that must not get worse for the sake of the one asked for.

In: the question's `guard:` list, the two arms, plan and tables. Out: one entry a guard: its effect
(+ is better), interval, limit and outcome. `worse`: the loss is beyond the limit and its interval
is a loss throughout. `kept`: the whole interval stays within the limit. `open`: the data cannot
tell, or one arm has no value.

Method. Rates and times as in `effects`, with the same floors. A share is judged by its difference
in points of a share, since 99 % to 90 % is ten times the failures and no tenth of anything: of
counted requests (success_rate, goodput) by the score interval for two proportions (Newcombe), which
does not call four successes out of four a certainty; of others by t over the launches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scipy.special import ndtri, stdtrit

from decodelab import arms, effects, measured_floor, reasons
from decodelab.tables import Tables
from decodelab.vocabulary import METRICS

COUNTED = ("success_rate", "goodput")
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
    if not is_share(metric):
        scatter = measured_floor.of(plan, tables, left, right)
        found = effects.compared(left.launches, right.launches, metric, sign, scatter)
        out.update(
            effect=found.effect,
            interval=list(found.interval),
            floor=found.floor,
            floor_source=found.floor_source,
            method=found.method,
        )
    else:
        if metric in COUNTED:
            counts = [_counts(arm) for arm in (left, right)]
            out.update(baseline_value=counts[0][0] / counts[0][1])
            out.update(candidate_value=counts[1][0] / counts[1][1])
        effect, interval, method = points(left, right)
        bounds = sorted(sign * bound for bound in interval)
        out.update(effect=sign * effect, interval=bounds, method=method)


def points(
    left: arms.Arm, right: arms.Arm, confidence: float = effects.CONFIDENCE
) -> tuple[float, tuple[float, float], str]:
    """(right - left in points of a share, its interval, the method); the metric is the arms' own."""
    if left.metric in COUNTED:
        (a, n), (b, m) = _counts(left), _counts(right)
        return b / m - a / n, newcombe(a, n, b, m, confidence), "newcombe"
    low, middle, high = _difference(left.launches, right.launches, confidence)
    return middle, (low, high), "t_of_points"


def _counts(arm: arms.Arm) -> tuple[float, float]:
    """(good requests, attempted ones) over all runs of the arm that have a value."""
    rows = [row for row in arm.rows if row.get(arm.metric) is not None and row["n_attempted"]]
    good = sum(row[arm.metric] * row["n_attempted"] for row in rows)
    return float(round(good)), float(sum(row["n_attempted"] for row in rows))


def newcombe(
    a: float, n: float, b: float, m: float, confidence: float = effects.CONFIDENCE
) -> tuple[float, float]:
    """Interval of b/m - a/n by the square-and-add of two Wilson score intervals."""
    p, q = a / n, b / m
    (p_low, p_high), (q_low, q_high) = (wilson(*of, confidence) for of in ((a, n), (b, m)))
    low = (q - p) - math.hypot(q - q_low, p_high - p)
    return low, (q - p) + math.hypot(q_high - q, p - p_low)


def wilson(good: float, n: float, confidence: float = effects.CONFIDENCE) -> tuple[float, float]:
    """Score interval of a proportion; inside [0, 1], and honest at 0 and at n of n."""
    z = float(ndtri(0.5 + confidence / 2))
    p, scale = good / n, 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    middle = (p + z * z / (2 * n)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def _difference(
    base: Mapping[str, float], cand: Mapping[str, float], confidence: float
) -> tuple[float, float, float]:
    """(low, middle, high) in points of a share: paired within launches, or pooled t. One launch an
    arm tells no scatter: anything is possible.
    """
    a, b = list(base.values()), list(cand.values())
    middle = sum(b) / len(b) - sum(a) / len(a)
    if set(base) == set(cand):
        a, b = [0.0], [cand[key] - base[key] for key in base]
        error_of = 1 / len(b)
    else:
        error_of = 1 / len(a) + 1 / len(b)
    df = len(a) + len(b) - 2
    if df < 1:
        return -1.0, middle, 1.0
    squares = sum((v - sum(x) / len(x)) ** 2 for x in (a, b) for v in x)
    half = float(stdtrit(df, 0.5 + confidence / 2)) * math.sqrt(squares / df * error_of)
    return middle - half, middle, middle + half
