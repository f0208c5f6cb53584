"""The numbers of a verdict as they are printed: its change and its value, each with its interval.

In: one verdict of verdicts.json. Out: `numbers.Estimate`, so that every place of the report prints a
verdict's number in the same digits. What the number is held against keeps it on its own side.
"""

from __future__ import annotations

from decodelab import numbers
from decodelab.findings import Findings, Verdict
from decodelab.numbers import Estimate


def change(verdict: Verdict) -> Estimate:
    """The effect; of a threshold the distance to its target, of which 0 decides."""
    smallest, floor = verdict.get("smallest_effect"), verdict.get("floor")
    allowed = verdict.get("drift_allowance")
    needed = floor + allowed if floor is not None and allowed is not None else None
    decides = [0.0] if verdict.get("kind") in ("threshold", "level") else []
    against = [smallest, floor, needed, *decides]
    return numbers.change(verdict.get("effect"), verdict.get("interval"), against=against)


def value(findings: Findings, verdict: Verdict, coarse: bool = False) -> Estimate:
    """The value of a threshold or a level, in the metric's unit."""
    return numbers.estimate(
        verdict.get("metric") or "",
        raw_value(verdict),
        verdict.get("value_interval"),
        against=limits(findings, verdict),
        coarse=coarse,
    )


def raw_value(verdict: Verdict) -> float | None:
    found = verdict.get("value")
    return found if found is not None else verdict.get("candidate_value")


def limits(findings: Findings, verdict: Verdict) -> list[float | None]:
    """The target or the expected bounds that the value is held against, in the column's unit."""
    target = (verdict.get("target") or {}).get("value")
    bounds = verdict.get("expected") or findings.question(verdict).get("expected") or []
    return [target, *bounds]
