"""What the kinds of question share: who takes part, what forbids an answer, an effect and its word.

In: the verdict that is being made, its arms, the plan and the tables. Out: the verdict, filled in further.
The rules are METRICS' "Questions and verdicts": supported if the 95 % interval lies above 0 and the
estimate reaches max(smallest_effect, floor); refuted if the interval lies below smallest_effect;
else inconclusive. One launch an arm has to reach floor and drift together, since nothing balanced
its order. An arm that cannot start makes the verdict not_possible; one that is invalid or not
comparable makes it invalid, with the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import arms, drift, effects, measured_floor, reasons, shares
from decodelab.tables import Tables

SMALLEST_EFFECT = 0.05  # where a question names none: the size of a typical single win
Verdict = dict[str, Any]
# A method that a sceptic should know of, and the reason that tells it.
_SAID = {
    "floor": "one_launch",
    "own_t": "one_launch_against_many",
    "score": "counted_share",
    "starts_t": "share_uncounted",
}

BLANK: Verdict = {
    "effect": None,
    "interval": None,
    "floor": None,
    "floor_source": None,
    "floor_basis": None,  # of a measured floor: scatter, degrees of freedom, starts
    "drift_allowance": None,  # what a claim must exceed beside the floor
    "drift": None,  # the baseline's first start against its last
    "guards": None,
    "guarded": None,  # the guards that made a supported change refuted
    "smallest_detectable": None,
    "method": None,
    "baseline_value": None,
    "candidate_value": None,
    "value": None,
    "needed_effect": None,
    "explains_gap": None,
    "points": None,
    "refused": None,  # the variants that cannot start
    "in_points": None,  # effect, interval and what they are held against are points of a share
    "value_interval": None,  # of one arm's value, in its unit; `interval` is the effect's
}


def stop(verdict: Verdict, word: str, why: list[dict[str, str]]) -> None:
    verdict["verdict"] = word
    verdict["reasons"].extend(why)


def enter(verdict: Verdict, *sides: arms.Arm) -> None:
    """Who takes part: runs, numbers, suspects; what is missing is said even where the rest is
    enough.
    """
    verdict["runs"] = list(dict.fromkeys(row["run"] for arm in sides for row in arm.rows))
    verdict["n_requests"] = [arm.n_requests for arm in sides]
    verdict["population"] = [arm.population for arm in sides]
    verdict["n_launches"] = [len(arm.launches) for arm in sides]
    verdict["suspect_runs"] = list(dict.fromkeys(name for arm in sides for name in arm.suspect))
    late = [name for arm in sides if arm.rows for name in arm.missing]
    if late:
        verdict["reasons"].append(reasons.reason("launches_missing", runs=", ".join(late)))


def blocked(verdict: Verdict, plan: Mapping[str, Any], tables: Tables, *sides: arms.Arm) -> bool:
    """Stop where an arm forbids an answer; one that cannot start outranks an invalid one."""
    ends = [(arm, end) for arm in sides if (end := arms.unusable(arm, plan, tables)) is not None]
    if not ends:
        return False
    stops = [end for _, end in ends]
    refused = [arm.variant for arm, end in ends if end[0] == "not_possible"]
    verdict["refused"] = list(dict.fromkeys(refused)) or None
    words = [end[0] for end in stops]
    word = next(word for word in ("not_possible", "invalid", "inconclusive") if word in words)
    stop(verdict, word, [why for end in stops for why in end[1]])
    return True


def substitute(verdict: Verdict, metric: str, sides: Sequence[arms.Arm], tables: Tables) -> None:
    """Old logs may not give tokens of the first delta: decode_tps then stands in, in both arms
    alike.
    """
    if metric != "decode_rate" or all(arm.launches or not arm.rows for arm in sides):
        return
    for arm in sides:
        arms.measure(arm, "decode_tps", tables)
    if all(arm.launches for arm in sides):
        verdict["reasons"].append(
            reasons.reason("metric_substituted", metric=metric, used="decode_tps")
        )


def decide(
    verdict: Verdict,
    question: Mapping[str, Any],
    base: arms.Arm,
    cand: arms.Arm,
    plan: Mapping[str, Any],
    tables: Tables,
) -> None:
    """Effect, interval and verdict of a relative change."""
    sign = -1 if question.get("direction") == "lower" else 1
    scatter = measured_floor.of(plan, tables, base, cand)
    smallest = question.get("smallest_effect")
    smallest = SMALLEST_EFFECT if smallest is None else smallest
    try:
        found = shares.compared(base, cand, sign, scatter, smallest)
    except effects.NoRelativeChange:
        stop(verdict, "invalid", [reasons.reason("no_relative_change")])
        return
    verdict.update(
        effect=found.effect,
        interval=list(found.interval),
        smallest_effect=smallest,
        smallest_detectable=found.detectable,
        drift_allowance=found.drift or None,
        verdict=word(found, smallest),
        in_points=found.in_points or None,
    )
    if found.in_points:
        verdict.update(baseline_value=shares.value(base), candidate_value=shares.value(cand))
        needed = verdict["needed_effect"]
        verdict["needed_effect"] = needed and needed * verdict["baseline_value"]  # points, too
    tell_floor(verdict, found, scatter)
    if found.drift:
        verdict["reasons"] += _unbalanced(verdict["verdict"], found, smallest)


def tell_floor(verdict: Verdict, found: effects.Estimate, scatter: effects.Scatter | None) -> None:
    """The floor, where it comes from, and what its starts were."""
    verdict.update(floor=found.floor, floor_source=found.floor_source, method=found.method)
    if found.floor_source == "measured" and scatter is not None:
        verdict["floor_basis"] = {
            "scatter": scatter.s,
            "df": scatter.df,
            "starts": list(scatter.starts),
            "variants": list(scatter.variants),
        }
        shown = {"n": len(scatter.starts), "df": f"{scatter.df:g}", "scatter": f"{scatter.s:.2%}"}
        verdict["reasons"].append(
            reasons.reason("floor_measured", variants=", ".join(scatter.variants), **shown)
        )
    elif found.method in _SAID:
        code = _SAID[found.method]
        verdict["reasons"].append(reasons.reason(code, floor=f"{found.floor:.0%}"))


def left_out(verdict: Verdict, plan: Mapping[str, Any], tables: Tables, *sides: arms.Arm) -> None:
    """The A/A starts that are invalid, and whether the others still measure the floor."""
    starts = measured_floor.left_out(plan, tables, *sides)
    if starts and (source := verdict["floor_source"]):
        code = "aa_starts_left_out" if source == "measured" else "aa_floor_lost"
        verdict["reasons"].append(reasons.reason(code, starts=", ".join(starts)))


def _unbalanced(verdict: str, found: effects.Estimate, smallest: float) -> list[dict[str, str]]:
    """What the drift of an order of two starts did to the verdict, or may have done."""
    drift = f"{found.drift:.0%}"
    low, high = found.interval
    if verdict == "inconclusive" and low > 0 and found.effect >= max(smallest, found.floor):
        return [reasons.reason("within_drift", drift=drift)]
    if verdict == "refuted" and high + found.drift >= smallest:
        return [reasons.reason("refuted_within_drift", drift=drift)]
    return []


def word(found: effects.Estimate, smallest: float) -> str:
    """The verdict of an effect: see the file's first lines."""
    low, high = found.interval
    if low > 0 and found.effect >= max(smallest, found.floor + found.drift):
        return "supported"
    return "refuted" if high < smallest else "inconclusive"


def tell_drift(verdict: Verdict, arm: arms.Arm, plan: Mapping[str, Any], tables: Tables) -> None:
    """A drift beyond its floor is a doubt about what other starts are compared with, no fault."""
    if arm.metric in effects.COUNTED:
        return  # no start's share has a floor that a second one could exceed
    found = drift.check(plan, tables, arm)
    verdict["drift"] = found
    if found is not None and found["exceeds"] and verdict["method"] != "paired_t":
        effect, floor = f"{found['effect']:+.1%}", f"{found['floor']:.1%}"
        verdict["reasons"].append(
            reasons.reason("drift", variant=arm.variant, effect=effect, floor=floor)
        )
