"""The kinds of question about one point: how each turns it into a verdict. `question_scaling` has the fifth.

In: a blank verdict, the question, its point, the plan and the tables. Out: the verdict, filled in by
the rules of `verdict_making`. Of several candidates a claim must hold among them all (`among`). A
guard that got worse makes a supported change refuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import (
    among,
    arms,
    effects,
    gates,
    guards,
    measured_floor,
    reasons,
    region_metric,
    shares,
    verdict_making,
)
from decodelab.tables import Tables
from decodelab.verdict_making import Verdict


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
    verdict_making.substitute(verdict, metric, (base, cand), tables)
    verdict_making.enter(verdict, base, cand)
    if verdict_making.blocked(verdict, plan, tables, base, cand):
        return
    verdict["baseline_value"], verdict["candidate_value"] = base.value, cand.value
    _gap(verdict, question, base, plan)
    wrong = arms.mismatches(
        base, cand, plan, tables, same_workload=question["kind"] == "compare_variants"
    )
    if wrong:
        verdict_making.stop(verdict, "invalid", wrong)
        return
    if question["kind"] == "compare_variants":
        verdict["reasons"] += arms.unchecked(base, cand)
    verdict["reasons"] += region_metric.said((base, cand), plan, tables)
    verdict_making.decide(verdict, question, base, cand, plan, tables)
    among.hold(verdict, question, base, cand, plan, tables)
    verdict_making.left_out(verdict, plan, tables, base, cand)
    _guard(verdict, question, base, cand, plan, tables)
    verdict_making.tell_drift(verdict, base, plan, tables)
    needed = verdict["needed_effect"]
    if needed is not None and needed > 0 and verdict["interval"] is not None:
        low, high = verdict["interval"]
        verdict["explains_gap"] = False if high < needed else low >= needed or None


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
    verdict_making.substitute(verdict, question["metric"], (arm,), tables)
    verdict_making.enter(verdict, arm)
    if verdict_making.blocked(verdict, plan, tables, arm):
        return None
    verdict["reasons"] += region_metric.said((arm,), plan, tables)
    scatter = measured_floor.of_one(plan, tables, arm)
    try:
        found = shares.alone(arm, scatter)
    except effects.NoRelativeChange:
        verdict_making.stop(verdict, "invalid", [reasons.reason("no_relative_change")])
        return None
    verdict.update(value=found.effect, interval=list(found.interval))
    verdict_making.tell_floor(verdict, found, scatter)
    verdict_making.left_out(verdict, plan, tables, arm)
    verdict_making.tell_drift(verdict, arm, plan, tables)
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
        verdict_making.stop(verdict, "invalid", [reasons.reason("nothing_to_compare")])
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
        verdict_making.stop(verdict, "invalid", [reasons.reason("nothing_to_compare")])
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
