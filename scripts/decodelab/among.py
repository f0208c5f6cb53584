"""A claim among several: one question that asks many candidates is supported if any of them is.

In: a supported verdict of a point, its two arms, the question with all of its points. Out: the verdict,
inconclusive where the claim does not hold among so many. One pair in forty is called better by noise
alone; of the 24 cells of a grid one is that every second time. So as on a board (`ranking_pairs`) the
lead must hold at the confidence 0.95 to the power 1/pairs, its scatter pooled over all arms asked for.
The levels of a curve are no such pairs: they share their starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from decodelab import arms, reasons
from decodelab.ranking_pairs import Pairs
from decodelab.tables import Tables

Question = Mapping[str, Any]


def pairs(question: Question) -> int:
    """How many pairs of variants a question compares."""
    points = question.get("points") or []
    return len({(p.get("baseline_variant"), p.get("candidate_variant")) for p in points})


def hold(
    verdict: dict[str, Any],
    question: Question,
    base: arms.Arm,
    cand: arms.Arm,
    plan: Mapping[str, Any],
    tables: Tables,
) -> None:
    """Takes a supported verdict back where it is the best of many by no more than noise allows."""
    n = pairs(question)
    if n < 2 or verdict["verdict"] != "supported":
        return
    level = verdict["point"] and verdict["point"].get("concurrency")
    cells = {arm.variant: arm for arm in _others(question, level, base.metric, plan, tables)}
    cells |= {base.variant: base, cand.variant: cand}
    lower = question.get("direction") == "lower"
    lead = Pairs(cells, base.metric, lower, plan, tables, claims=n).lead(base.variant, cand.variant)
    if not lead.apart:
        verdict["verdict"] = "inconclusive"
        verdict["reasons"].append(reasons.reason("one_of_many", n=str(n)))


def _others(
    question: Question, level: Any, metric: str, plan: Mapping[str, Any], tables: Tables
) -> Iterator[arms.Arm]:
    """The usable arms of all points at this load."""
    for point in question["points"]:
        if level is not None and point.get("concurrency") != level:
            continue
        for side in ("baseline", "candidate"):
            arm = arms.build(point[f"{side}_variant"], point[side], metric, tables)
            if arms.unusable(arm, plan, tables) is None:
                yield arm
