"""What an experiment's own data say, as others that wait for it are told.

In: the plan's experiment, its verdicts and summary, and the tables of its own launches. Out: the
content of a decision: verdict, what of it decides, causes of failed starts, and the figures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from decodelab import decisions
from decodelab.tables import Tables

FIGURES = (
    "id",
    "verdict",
    "metric",
    "point",
    "baseline",
    "candidate",
    "baseline_value",
    "candidate_value",
    "value",
    "value_interval",
    "effect",
    "interval",
    "smallest_effect",
    "floor",
    "floor_source",
    "smallest_detectable",
    "n_requests",
    "n_launches",
    "runs",
    "reasons",
)
_NOT_YET = {"not_measured", "launches_missing"}
CAME_UP = ("ready", "stopped", "died")  # of a start: the server answered


def of(
    experiment: Mapping[str, Any],
    verdicts: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    tables: Tables,
    pending: Collection[str] | None = None,
) -> dict[str, Any]:
    """`decision` is None where the verdict decides nothing; `unmeasured`: because runs still wait.
    `pending` names the runs that are still to be made; None where that is not known, as in a replay:
    then what is not there never comes, and a point without any data is what waits.
    """
    points = [v for v in verdicts if v["question"] in summary["questions"]]
    invalid = [v for v in points if v["verdict"] == "invalid"]
    decision = decisions.decision(summary["verdict"])
    if pending is not None:
        waits = bool(set(experiment.get("runs") or []) & set(pending))
        decision = None if waits else decision
    else:
        waits = bool(invalid) and all(_waits(verdict) for verdict in invalid)
    if not points and summary["verdict"] is None and not waits:
        waits = not _settled(experiment, tables)
    return {
        "verdict": summary["verdict"],
        "decision": decision,
        "unmeasured": decision is None and waits,
        "invalid_points": [verdict["id"] for verdict in invalid],
        "causes": _causes(experiment, points, tables),
        "points": [{key: verdict.get(key) for key in FIGURES} for verdict in points],
    }


def _waits(verdict: Mapping[str, Any]) -> bool:
    """Whether nothing is wrong with a point but that it is not measured yet."""
    codes = {reason.get("code") for reason in verdict["reasons"]}
    return "not_measured" in codes and codes <= _NOT_YET


def _settled(experiment: Mapping[str, Any], tables: Tables) -> bool:
    """Of an experiment that only starts servers: whether one came up, or each was refused. A start
    that failed for the host's sake says nothing of the variant, and is made again.
    """
    variants = set(experiment["variants"])
    mine = [start for start in tables.starts if start["variant"] in variants]
    refused = {start["variant"] for start in mine if start["status"] == "not_possible"}
    return variants <= refused or any(start["status"] in CAME_UP for start in mine)


def _causes(
    experiment: Mapping[str, Any], points: Sequence[Mapping[str, Any]], tables: Tables
) -> list[str]:
    """Classes of the refused starts of the arms that the deciding points are about."""
    arms = {
        verdict.get(side) for verdict in points for side in ("baseline", "candidate", "variant")
    }
    if not points:
        arms = set(experiment.get("variants") or [])
    refused = [s for s in tables.starts if s["status"] == "not_possible" and s["variant"] in arms]
    return sorted({str(s["cause_class"]) for s in refused if s["cause_class"]})
