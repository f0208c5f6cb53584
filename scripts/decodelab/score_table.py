"""Scores side by side: which runs answered the same requests, and their order within those.

In: the tables. Out: for verdicts.json the scored runs, each with its population, and for each population
of two runs or more a ranking by each reading. A score of another population is another quantity, so
no ranking goes across.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decodelab import gates
from decodelab.arms import PROMPT_TOLERANCE, TOKEN_TOLERANCE
from decodelab.score import total
from decodelab.tables import Row, Tables
from decodelab.vocabulary import SCORES

# Four streams share one wall clock, so more concurrency is more of every rate by the clock.
_SAME = ("workload", "n_attempted", "concurrency", "rate", "source")
_KEPT = ("run", "variant", "workload", "validity", "n_ok", "n_attempted")
_PARTS = (
    "batch_wall_s",
    "output_tps_wall",
    "input_tps_wall",
    "cache_tps_wall",
    "cache_tps_warm",
    "e2e_tps_mean",
    "e2e_tps_p10",
    "input_tps_mean",
)


def table(tables: Tables) -> dict[str, Any]:
    """Runs without any score are left out, but for those in which nothing succeeded; if that is all there is,
    only a submission's failure is told, which is final.
    """
    rows = [
        row
        for row in gates.held(tables)
        if row["n_ok"] == 0 or any(row.get(name) is not None for name in SCORES)
    ]
    if all(row["n_ok"] == 0 for row in rows):
        failed = [_told(row, None) for row in rows if row["source"] == "imported"]
        return {"runs": failed, "rankings": []}
    groups = populations([row for row in rows if row["n_ok"]], tables)
    number = {row["run"]: i for i, group in enumerate(groups, start=1) for row in group}
    return {
        "runs": [_told(row, number.get(row["run"])) for row in rows],
        "rankings": [
            {"population": i, **ranking}
            for i, group in enumerate(groups, start=1)
            for ranking in _rankings(group)
        ],
    }


def _told(row: Row, population: int | None) -> dict[str, Any]:
    figures = {name: row.get(name) for name in (*_PARTS, *SCORES)}
    return {
        **{name: row[name] for name in _KEPT},
        "population": population,
        "told": bool(row.get("told")),
        **figures,
    }


def populations(rows: Sequence[Row], tables: Tables) -> list[list[Row]]:
    """Runs that answered the same requests of one workload at one load, in the order of their first run."""
    groups: list[list[Row]] = []
    for row in rows:
        mine = next((group for group in groups if alike(group[0], row, tables)), None)
        if mine is None:
            groups.append([row])
        else:
            mine.append(row)
    return groups


def alike(one: Row, other: Row, tables: Tables) -> bool:
    """The same requests attempted and answered at the same load and from the same source, with prompts
    and outputs of the same size.
    """
    if any(one.get(name) != other.get(name) for name in _SAME):
        return False
    left, right = _answered(one, tables), _answered(other, tables)
    if left.keys() != right.keys():
        return False
    pairs = [(left[i].get("prompt_tokens"), right[i].get("prompt_tokens")) for i in left]
    if not all(_near(a, b, PROMPT_TOLERANCE) for a, b in pairs):
        return False
    mine, theirs = (total(list(side.values()), "completion_tokens") for side in (left, right))
    return _near(mine, theirs, TOKEN_TOLERANCE)


def _answered(row: Row, tables: Tables) -> dict[int, Row]:
    return {r["index"]: r for r in tables.requests.get(row["run"], []) if r["outcome"] == "ok"}


def _near(a: float | None, b: float | None, tolerance: float) -> bool:
    """What is not known is not known to be alike."""
    return a is not None and b is not None and abs(a - b) <= tolerance * max(a, b)


def _rankings(group: Sequence[Row]) -> list[dict[str, Any]]:
    usable = [row for row in group if row["validity"] != "invalid"]
    out = []
    for reading in SCORES:
        scored = [row for row in usable if row.get(reading) is not None]
        if len(scored) > 1:
            order = sorted(scored, key=lambda row: -row[reading])
            out.append({"reading": reading, "runs": [row["run"] for row in order]})
    return out
