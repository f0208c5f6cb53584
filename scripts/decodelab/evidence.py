"""Conditions on what came out: each one holds, does not hold, or cannot be known.

In: a condition of the plan (exactly one of question, experiment, anomaly, start_class, metric, profile,
and what narrows it) and what is `Known`. Out: an `Outcome` with the figure it rests on. Runs that are
invalid or suspect carry no evidence here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decodelab import decisions, gates, step_shares
from decodelab.tables import Row

Condition = Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """What conditions may look at."""

    verdicts: Sequence[Mapping[str, Any]]
    experiments: Mapping[str, str | None]
    anomalies: Sequence[Mapping[str, Any]]
    starts: Sequence[Mapping[str, Any]]
    runs: Mapping[str, Row] = field(default_factory=dict)
    # anomaly -> variants in which its rule had all that it looks at
    looked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grids: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> cells
    # experiment -> its deciding questions; all of them where none are named
    deciding: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def fits(self, variant: str | None, *names: Any) -> bool:
        """Whether one of these is the variant, or a cell of the grid, that a condition names."""
        cells = (self.grids.get(variant or "") or {}).get("cells") or []
        return variant is None or any(name in (variant, *cells) for name in names)


@dataclass(frozen=True)
class Outcome:
    holds: bool | None  # None: not known
    figure: Mapping[str, Any] | None = None
    why: str | None = None  # code of what makes it unknown


def look(condition: Condition | None, known: Known) -> Outcome:
    """Every part of a condition must hold; none at all is a fact that always holds."""
    given: Condition = condition or {}
    parts = [find(given, known) for key, find in _PARTS.items() if given.get(key)]
    if any(part.holds is False for part in parts):
        return next(part for part in parts if part.holds is False)
    unknown = [part for part in parts if part.holds is None]
    if unknown:
        return unknown[0]
    return Outcome(True, next((part.figure for part in parts if part.figure), None))


def _verdict(condition: Condition, known: Known) -> Outcome:
    name, variant = condition.get("question") or condition["experiment"], condition.get("variant")
    if condition.get("question"):
        mine = [v for v in known.verdicts if name in (v["id"], v.get("question"))]
    else:
        asked = known.deciding.get(name)
        mine = [
            v
            for v in known.verdicts
            if v.get("experiment") == name and (not asked or v["question"] in asked)
        ]
    if condition.get("question") or variant:
        word = decisions.overall(
            v["verdict"] for v in mine if known.fits(variant, v.get("variant"), v.get("candidate"))
        )
    else:
        word = known.experiments.get(name)
    wanted = condition.get("verdict") or []
    decided = decisions.decision(word)
    if word in wanted or (decided is not None and not wanted):
        return Outcome(True)
    return Outcome(None, why="no_verdict") if decided is None else Outcome(False)


def _anomaly(condition: Condition, known: Known) -> Outcome:
    code, variant = condition["anomaly"], condition.get("variant")
    found = [
        item
        for item in known.anomalies
        if item["code"] == code and known.fits(variant, item.get("variant"))
    ]
    if any(all(_carries(known.runs.get(run)) for run in item.get("runs") or []) for item in found):
        return Outcome(True)
    if found:
        return Outcome(None, why="suspect_runs")
    looked = known.looked.get(code, frozenset())
    evaluated = any(known.fits(variant, name) for name in looked)
    return Outcome(False) if evaluated else Outcome(None, why="no_data")


def _start_class(condition: Condition, known: Known) -> Outcome:
    variant = condition.get("variant")
    # a start that is told without a variant is nobody's in particular
    mine = [s for s in known.starts if known.fits(variant, s.get("variant"))]
    if any(start.get("cause_class") == condition["start_class"] for start in mine):
        return Outcome(True)
    return Outcome(False) if mine else Outcome(None, why="no_start")


def _carries(row: Row | None) -> bool:
    return row is None or row["validity"] == "valid"


def _metric(condition: Condition, known: Known) -> Outcome:
    """The median over the valid runs that fit: starts of one arm count alike."""
    narrowed = ("variant", "workload", "concurrency")
    fit = [
        row
        for row in known.runs.values()
        if known.fits(condition.get("variant"), row["variant"])
        and all(condition.get(key) in (None, row[key]) for key in narrowed[1:])
    ]
    valid = [row for row in fit if row["validity"] == "valid"]
    values = [value for row in valid if (value := figure_of(row, condition["metric"])) is not None]
    if not values:
        why = "no_run" if not fit else "no_valid_run" if not valid else "no_value"
        return Outcome(None, why=why)
    value = statistics.median(values)
    figure = {
        "metric": condition["metric"],
        "value": value,
        "n": len(values),
        **{key: condition.get(key) for key in narrowed},
        **condition["is"],
    }
    return Outcome(_meets(value, condition["is"]), figure)


def _meets(value: float, limit: Mapping[str, Any]) -> bool:
    return gates.meets(value, {"op": limit["op"], "value": limit["limit"]})


def figure_of(row: Row, metric: str) -> float | None:
    """A run's figure by a column's name, or by that of a figure of each request: its median."""
    for name in (metric, f"{metric}_median", f"{metric}_p50"):
        if name in row:
            value: float | None = row[name]
            return value
    return None


def _profile(condition: Condition, known: Known) -> Outcome:
    given = known.profiles.get(condition["profile"]) or {}
    if not given.get("shares"):
        return Outcome(None, why=given.get("why") or "no_profile")
    least, most = step_shares.share_of(given["shares"], condition["op"])
    ends = {_meets(least, condition["is"]), _meets(most, condition["is"])}
    figure = {
        "profile": condition["profile"],
        "ops": condition["op"],
        "value": least,
        "most": most,
        **condition["is"],
    }
    if len(ends) > 1:
        return Outcome(None, figure, "not_attributed")
    return Outcome(ends.pop(), figure)


_PARTS = {
    "question": _verdict,
    "experiment": _verdict,
    "anomaly": _anomaly,
    "start_class": _start_class,
    "metric": _metric,
    "profile": _profile,
}
