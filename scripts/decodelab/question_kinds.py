"""The five kinds of question: how each turns its point into a verdict.

In: a blank verdict, the question, its point, the plan and the tables. Out: the verdict, filled in.
The rules are METRICS' "Questions and verdicts": supported if the 95 % interval lies above 0 and the
estimate reaches max(smallest_effect, floor); refuted if the interval lies below smallest_effect;
else inconclusive. Of several candidates a claim must hold among them all (`among`). One launch an
arm has to reach floor and drift together, since nothing balanced its order. A guard that got worse
makes a supported change refuted. An arm that cannot start makes the verdict not_possible; an arm
that is invalid or not comparable makes it invalid, with the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import (
    among,
    arms,
    decisions,
    drift,
    effects,
    gates,
    guards,
    measured_floor,
    reasons,
    region_metric,
    shares,
)
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


def _enter(verdict: Verdict, *sides: arms.Arm) -> None:
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


def _blocked(verdict: Verdict, plan: Mapping[str, Any], tables: Tables, *sides: arms.Arm) -> bool:
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


def compare(
    verdict: Verdict,
    question: Mapping[str, Any],
    point: Mapping[str, Any],
    plan: Mapping[str, Any],
    tables: Tables,
) -> None:
    metric = question["metric"]
    base = arms.build(point["baseline_variant"], point["baseline"], metric, tables)
    cand = arms.build(point["candidate_variant"], point["candidate"], metric, tables)
    _substitute(verdict, metric, (base, cand), tables)
    _enter(verdict, base, cand)
    if _blocked(verdict, plan, tables, base, cand):
        return
    verdict["baseline_value"], verdict["candidate_value"] = base.value, cand.value
    _gap(verdict, question, base, plan)
    wrong = arms.mismatches(
        base, cand, plan, tables, same_workload=question["kind"] == "compare_variants"
    )
    if wrong:
        stop(verdict, "invalid", wrong)
        return
    if question["kind"] == "compare_variants":
        verdict["reasons"] += arms.unchecked(base, cand)
    verdict["reasons"] += region_metric.said((base, cand), plan, tables)
    _decide(verdict, question, base, cand, plan, tables)
    among.hold(verdict, question, base, cand, plan, tables)
    _left_out(verdict, plan, tables, base, cand)
    _guard(verdict, question, base, cand, plan, tables)
    _drift(verdict, base, plan, tables)
    needed = verdict["needed_effect"]
    if needed is not None and needed > 0 and verdict["interval"] is not None:
        low, high = verdict["interval"]
        verdict["explains_gap"] = False if high < needed else low >= needed or None


def _substitute(verdict: Verdict, metric: str, sides: Sequence[arms.Arm], tables: Tables) -> None:
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


def _decide(
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
    _floor(verdict, found, scatter)
    if found.drift:
        verdict["reasons"] += _unbalanced(verdict["verdict"], found, smallest)


def _floor(verdict: Verdict, found: effects.Estimate, scatter: effects.Scatter | None) -> None:
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


def _left_out(verdict: Verdict, plan: Mapping[str, Any], tables: Tables, *sides: arms.Arm) -> None:
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


def _guard(
    verdict: Verdict,
    question: Mapping[str, Any],
    base: arms.Arm,
    cand: arms.Arm,
    plan: Mapping[str, Any],
    tables: Tables,
) -> None:
    """What must not get worse; a loss takes a supported change back, one that cannot be told is
    named.
    """
    asked = question.get("guard") or []
    same = question["kind"] == "compare_variants"
    found = [guards.judge(guard, base, cand, plan, tables, same) for guard in asked]
    verdict["guards"] = found or None
    worse = [guard["metric"] for guard in found if guard["outcome"] == "worse"]
    if worse and verdict["verdict"] == "supported":
        verdict.update(verdict="refuted", guarded=worse)
    for guard in found:
        if guard["outcome"] == "worse":
            verdict["reasons"].append(guards.told("guard_worse", guard))
        elif guard["outcome"] == "open":
            verdict["reasons"] += guard["reasons"] or [guards.told("guard_open", guard)]


def _drift(verdict: Verdict, arm: arms.Arm, plan: Mapping[str, Any], tables: Tables) -> None:
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


def _gap(
    verdict: Verdict, question: Mapping[str, Any], base: arms.Arm, plan: Mapping[str, Any]
) -> None:
    """How much the baseline would have to gain to meet a target: what a cause would have to
    explain.
    """
    asked = question.get("explains_gap_to")
    if asked is None:
        return
    if isinstance(asked, str):
        target = (plan.get("targets") or {}).get(asked)
        values = [row[asked] for row in base.rows if row.get(asked) is not None]
        value = sum(values) / len(values) if values else None
    else:
        target, value = {"op": ">=", "value": float(asked)}, base.value
    if target and value:
        verdict["target"] = target
        verdict["needed_effect"] = gates.needed(value, target)


def _single(
    verdict: Verdict,
    question: Mapping[str, Any],
    point: Mapping[str, Any],
    plan: Mapping[str, Any],
    tables: Tables,
) -> effects.Estimate | None:
    """The value of one arm with its interval; None where the verdict is already given."""
    arm = arms.build(point["variant"], point["runs"], question["metric"], tables)
    _substitute(verdict, question["metric"], (arm,), tables)
    _enter(verdict, arm)
    if _blocked(verdict, plan, tables, arm):
        return None
    verdict["reasons"] += region_metric.said((arm,), plan, tables)
    scatter = measured_floor.of_one(plan, tables, arm)
    try:
        found = shares.alone(arm, scatter)
    except effects.NoRelativeChange:
        stop(verdict, "invalid", [reasons.reason("no_relative_change")])
        return None
    verdict.update(value=found.effect, interval=list(found.interval))
    _floor(verdict, found, scatter)
    _left_out(verdict, plan, tables, arm)
    _drift(verdict, arm, plan, tables)
    return found


def threshold(
    verdict: Verdict,
    question: Mapping[str, Any],
    point: Mapping[str, Any],
    plan: Mapping[str, Any],
    tables: Tables,
) -> None:
    """Met if the whole interval meets the target, refuted if no part of it does. `effect` is the
    margin, + is met.
    """
    target = question.get("target")
    if not target:
        stop(verdict, "invalid", [reasons.reason("nothing_to_compare")])
        return
    found = _single(verdict, question, point, plan, tables)
    if found is None:
        return
    verdict["effect"] = gates.margin(found.effect, target)
    verdict["needed_effect"] = gates.needed(found.effect, target)
    met = [gates.meets(bound, target) for bound in found.interval]
    verdict["verdict"] = "supported" if all(met) else "inconclusive" if any(met) else "refuted"
    verdict["value_interval"] = verdict["interval"]
    margins = [gates.margin(bound, target) for bound in found.interval]
    verdict["interval"] = None if None in margins else sorted(m for m in margins if m is not None)


def level(
    verdict: Verdict,
    question: Mapping[str, Any],
    point: Mapping[str, Any],
    plan: Mapping[str, Any],
    tables: Tables,
) -> None:
    """Inside the expected range, outside it, or across one of its ends."""
    expected = question.get("expected")
    if not expected:
        stop(verdict, "invalid", [reasons.reason("nothing_to_compare")])
        return
    found = _single(verdict, question, point, plan, tables)
    if found is None:
        return
    (low, high), (least, most) = found.interval, expected
    if low >= least and high <= most:
        verdict["verdict"] = "supported"
    else:
        verdict["verdict"] = "refuted" if high < least or low > most else "inconclusive"
    verdict["value_interval"], verdict["interval"] = (
        verdict["interval"],
        None,
    )  # a level has no effect


def scaling(
    verdict: Verdict,
    question: Mapping[str, Any],
    point: Mapping[str, Any],
    plan: Mapping[str, Any],
    tables: Tables,
) -> None:
    """The metric at each higher concurrency against the lowest; the figures are those of the best
    step that bears the verdict.
    """
    metric = question["metric"]
    curve = {
        int(level): arms.build(point["variant"], names, metric, tables)
        for level, names in point["runs"].items()
    }
    _enter(verdict, *curve.values())
    first = min(curve, default=0)
    if len(curve) < 2:
        stop(verdict, "invalid", [reasons.reason("nothing_to_compare")])
        return
    if _blocked(verdict, plan, tables, *curve.values()):
        return
    verdict["reasons"] += region_metric.said((curve[first],), plan, tables)
    verdict["baseline_value"] = curve[first].value
    steps = [
        _step(level, question, curve[first], curve[level], plan, tables)
        for level in sorted(curve)[1:]
    ]
    verdict["verdict"] = decisions.overall(step["verdict"] for step in steps)
    best = max(
        (step for step in steps if step["verdict"] == verdict["verdict"]),
        key=lambda s: float("-inf") if s["effect"] is None else s["effect"],
    )
    estimate = "effect interval floor floor_source floor_basis drift_allowance method in_points"
    for name in (*estimate.split(), "smallest_effect", "smallest_detectable"):
        verdict[name] = best.get(name, verdict.get(name))
    verdict["candidate_value"] = verdict["value"] = best["value"]
    verdict["point"] = {"concurrency": best["concurrency"]}
    unlike = [step for step in steps if step["verdict"] == "invalid" and step is not best]
    verdict["reasons"] += [why for step in (best, *unlike) for why in step["reasons"]]
    keep = ("concurrency", "verdict", "effect", "interval", "value")
    verdict["points"] = [{name: step[name] for name in keep} for step in steps]
    _drift(verdict, curve[first], plan, tables)


def _step(
    level: int,
    question: Mapping[str, Any],
    first: arms.Arm,
    arm: arms.Arm,
    plan: Mapping[str, Any],
    tables: Tables,
) -> Verdict:
    """One concurrency against the lowest; invalid where more than the concurrency differs."""
    step: Verdict = {**BLANK, "verdict": "invalid", "reasons": [], "concurrency": level}
    step["value"] = arm.value
    wrong = arms.mismatches(first, arm, plan, tables, same_workload=True)
    if wrong:
        stop(step, "invalid", [reasons.at_concurrency(level, why) for why in wrong])
        return step
    step["reasons"] += [reasons.at_concurrency(level, why) for why in arms.unchecked(first, arm)]
    _decide(step, question, first, arm, plan, tables)
    _left_out(step, plan, tables, first, arm)
    return step
