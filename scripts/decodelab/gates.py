"""Targets held against what was measured: met or not, and by how much.

In: the plan's targets and runs.csv. Out: rows for verdicts.json. A gate is read from a variant's
runs at its lowest concurrency (the contest measures one stream), one row per run and target. The
concurrency of an open loop is a cap: each such workload is a load of its own, and all are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab.stats import meets
from decodelab.tables import Row, Tables

__all__ = ["margin", "meets", "needed", "table"]


def table(plan: Mapping[str, Any], tables: Tables) -> list[dict[str, Any]]:
    by_variant: dict[str, list[Row]] = {}
    for row in tables.runs.values():
        by_variant.setdefault(row["variant"], []).append(row)
    out: list[dict[str, Any]] = []
    for variant, rows in by_variant.items():
        lowest = min((row["concurrency"] for row in rows if not row.get("rate")), default=None)
        for row in rows:
            if row.get("rate") or row["concurrency"] == lowest:
                out.extend(
                    _gate(variant, row, metric, aim)
                    for metric, aim in (plan.get("targets") or {}).items()
                )
    return out


def _gate(variant: str, row: Row, metric: str, target: Mapping[str, Any]) -> dict[str, Any]:
    value = row.get(metric)
    judged = value if row["validity"] != "invalid" else None
    return {
        "variant": variant,
        "metric": metric,
        "op": target["op"],
        "target": target["value"],
        "value": value,
        "met": None if judged is None else meets(judged, target),
        "margin": None if judged is None else margin(judged, target),
        "n": row["n_attempted"] if metric == "success_rate" else row["n_ok"],
        "run": row["run"],
        "workload": row["workload"],
        "validity": row["validity"],
    }


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
