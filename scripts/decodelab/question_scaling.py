"""The question how a metric goes with concurrency: each level of a curve against the lowest.

In: a blank verdict, the question, its point, the plan and the tables. Out: the verdict, filled in by
the rules of `verdict_making`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import arms, decisions, reasons, region_metric, verdict_making
from decodelab.tables import Tables
from decodelab.verdict_making import Verdict


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
    verdict_making.enter(verdict, *curve.values())
    first = min(curve, default=0)
    if len(curve) < 2:
        verdict_making.stop(verdict, "invalid", [reasons.reason("nothing_to_compare")])
        return
    if verdict_making.blocked(verdict, plan, tables, *curve.values()):
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
    verdict_making.tell_drift(verdict, curve[first], plan, tables)


def _step(
    level: int,
    question: Mapping[str, Any],
    first: arms.Arm,
    arm: arms.Arm,
    plan: Mapping[str, Any],
    tables: Tables,
) -> Verdict:
    """One concurrency against the lowest; invalid where more than the concurrency differs."""
    step: Verdict = {
        **verdict_making.BLANK,
        "verdict": "invalid",
        "reasons": [],
        "concurrency": level,
    }
    step["value"] = arm.value
    wrong = arms.mismatches(first, arm, plan, tables, same_workload=True)
    if wrong:
        verdict_making.stop(step, "invalid", [reasons.at_concurrency(level, why) for why in wrong])
        return step
    step["reasons"] += [reasons.at_concurrency(level, why) for why in arms.unchecked(first, arm)]
    verdict_making.decide(step, question, first, arm, plan, tables)
    verdict_making.left_out(step, plan, tables, first, arm)
    return step
