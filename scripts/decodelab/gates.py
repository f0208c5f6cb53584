"""Targets held against what was measured: met or not, and by how much.

In: the plan's targets and the tables. Out: rows for verdicts.json. A gate is read from a variant's
runs at its lowest concurrency (the contest measures one stream), one row per run and target. The
concurrency of an open loop is a cap: each such workload is a load of its own, and all are read.
A figure that only an evaluator's account states is used where the requests do not carry it (`told`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from decodelab import evaluator_told, numbers
from decodelab.stats import meets
from decodelab.tables import Row, Tables
from decodelab.vocabulary import SCORES

__all__ = ["held", "margin", "meets", "needed", "table"]

# What makes a run invalid and leaves its success rate known: every request failed. A submission whose
# server died is not measured again, so its rate is its result as well.
_FAILED = {"no_success"}
_FAILED_FOR_GOOD = {"no_success", "server_died"}


def held(tables: Tables) -> list[Row]:
    """The runs that are held against the targets, variant by variant."""
    by_variant: dict[str, list[Row]] = {}
    for row in tables.runs.values():
        by_variant.setdefault(row["variant"], []).append(row)
    out: list[Row] = []
    for rows in by_variant.values():
        lowest = min((row["concurrency"] for row in rows if not row.get("rate")), default=None)
        out += [row for row in rows if row.get("rate") or row["concurrency"] == lowest]
    return out


def table(plan: Mapping[str, Any], tables: Tables) -> list[dict[str, Any]]:
    return [
        _gate(row, metric, aim)
        for row in held(tables)
        for metric, aim in (plan.get("targets") or {}).items()
    ]


def _gate(row: Row, metric: str, target: Mapping[str, Any]) -> dict[str, Any]:
    value, account = row.get(metric), evaluator_told.of_row(row)
    told = bool(account) and value is not None and metric in SCORES  # made with its cached tokens
    if value is None:
        value = account.get(metric)
        told = value is not None
    judged = value if row["validity"] != "invalid" or _failures_tell(row, metric, target) else None
    n = row["n_attempted"] if metric == "success_rate" else row["n_ok"]
    return {
        "variant": row["variant"],
        "metric": metric,
        "op": target["op"],
        "target": target["value"],
        "value": value,
        "told": told,
        "met": None if judged is None else meets(judged, target),
        "margin": None if judged is None else margin(judged, target),
        "needed": None if judged is None else needed(judged, target),
        **_with_failures(row, metric),
        "n": n,
        "interval_possible": _interval_possible(metric, n),
        "run": row["run"],
        "workload": row["workload"],
        "validity": row["validity"],
    }


def _failures_tell(row: Row, metric: str, target: Mapping[str, Any]) -> bool:
    """The success rate of a run that is invalid because requests failed is known all the same, as
    far as it misses: what met the target until the server died says nothing of the rest.
    """
    reasons = set((row["reasons"] or "").split(";"))
    allowed = _FAILED_FOR_GOOD if row["source"] == "imported" else _FAILED
    if metric != "success_rate" or not row["n_attempted"] or not reasons <= allowed:
        return False
    return row[metric] is not None and not meets(row[metric], target)


def _with_failures(row: Row, metric: str) -> dict[str, Any]:
    """The twin of a percentile in which each failed request counts; JSON has no infinity."""
    twin = row.get(f"adj_{metric}")
    infinite = twin is not None and math.isinf(twin)
    return {"adjusted": None if infinite else twin, "adjusted_infinite": infinite}


def _interval_possible(metric: str, n: int | None) -> bool | None:
    """Whether n values can bound the percentile with 95 % confidence; None: it is no percentile."""
    which = metric.rpartition("_")[2]
    if which not in numbers.PERCENTILES or metric in SCORES:
        return None
    return numbers.enough_for_percentile(n or 0, which)


def margin(value: float, target: Mapping[str, Any]) -> float | None:
    """Relative distance from the target; + on the side that meets it."""
    aim = float(target["value"])
    if aim == 0:
        return None
    return value / aim - 1 if target["op"].startswith(">") else 1 - value / aim


def needed(value: float, target: Mapping[str, Any]) -> float | None:
    """Relative change that the value needs to meet the target, as a size; 0 or less: it is met."""
    if value == 0:
        return None
    change = float(target["value"]) / value - 1
    return change if target["op"].startswith(">") else -change
