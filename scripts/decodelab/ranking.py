"""The result of a parameter grid: its cells ranked, what may be said of the best, and what trades off.

In: the plan and the tables. Out: one board for each grid, workload and concurrency of an experiment:
entries (measured, screened out, not possible, invalid or pending), the best with its margin, the Pareto
set of rate against TTFT, and the mean effect of each value of each key.

A rank counts only what can be told apart: it is one more than the number of cells that are better by
more than the interval and the noise floor allow. So cells that tie share a rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from decodelab import arms, effects
from decodelab.arms import Arm
from decodelab.tables import Tables
from decodelab.vocabulary import METRICS

TTFT = "ttft_s_p90"
RATE = "output_tps_total"
Entry = dict[str, Any]
Plan = Mapping[str, Any]


def boards(plan: Plan, tables: Tables) -> list[dict[str, Any]]:
    """All boards of a study, in plan order; a study without a grid has none."""
    return [
        _board(name, grid, (workload, concurrency), runs, plan, tables)
        for name, experiment in plan["experiments"].items()
        for (grid, workload, concurrency), runs in _groups(name, plan).items()
    ]


def _groups(experiment: str, plan: Plan) -> dict[tuple[str, str, int], dict[str, list[str]]]:
    """Run names by variant for each board. A variant outside the grid stands on its boards too, unless
    a cell is the very same server.
    """
    mine = [run for run in plan["runs"] if experiment in (run.get("experiments") or [])]
    variants = plan["variants"]
    found: dict[tuple[str, str, int], dict[str, list[str]]] = {}
    for run in mine:
        grid = variants.get(run["variant"], {}).get("grid")
        if grid:
            board = found.setdefault((grid, run["workload"], run["concurrency"]), {})
            board.setdefault(run["variant"], []).append(run["name"])
    for (_, workload, concurrency), board in found.items():
        cells = {variants[name].get("server") for name in board}
        for run in mine:
            variant = variants.get(run["variant"], {})
            at = (run["workload"], run["concurrency"]) == (workload, concurrency)
            if at and not variant.get("grid") and variant.get("server") not in cells:
                board.setdefault(run["variant"], []).append(run["name"])
    return found


def _board(
    experiment: str,
    grid: str,
    load: tuple[str, int],
    runs: Mapping[str, list[str]],
    plan: Plan,
    tables: Tables,
) -> dict[str, Any]:
    metric, lower = subject(plan["experiments"][experiment])
    built = {name: arms.build(name, names, metric, tables) for name, names in runs.items()}
    entries = [_entry(arm, plan, tables) for arm in built.values()]
    usable = [entry for entry in entries if entry["state"] == "measured"]
    order = sorted(usable, key=lambda e: e["value"] if lower else -e["value"])
    _rank(order, built, metric, lower)
    _compare(order, built, plan, tables)
    out = _screened(experiment, plan, tables)
    for entry in entries:
        entry["screened"] = out.get(entry["variant"])
    front = pareto(order)
    for entry in order:
        entry["pareto"] = entry["variant"] in front
    base = _baseline(experiment, plan, order)
    rest = [entry for entry in entries if entry["state"] != "measured"]
    return {
        "experiment": experiment,
        "grid": grid,
        "workload": load[0],
        "concurrency": load[1],
        "metric": metric,
        "direction": "lower" if lower else "higher",
        "floor": effects.floor_of(metric),
        "entries": [*order, *sorted(rest, key=lambda e: _REST.index(e["state"]))],
        "best": _best(order, built, metric, lower, base),
        "pareto": front,
        "effects": main_effects(order, metric),
    }


_REST = ("screened_out", "invalid", "not_possible", "pending")


def subject(experiment: Mapping[str, Any]) -> tuple[str, bool]:
    """What an experiment's cells are ranked by, and whether less is better: the metric of its first
    question, of its race, or the rate of decode.
    """
    asked = (experiment.get("questions") or [{}])[0]
    metric = asked.get("metric") or (experiment.get("screen") or {}).get("metric") or "decode_rate"
    direction = asked.get("direction") or METRICS[metric].direction
    return str(metric), direction == "lower"


# ---------------------------------------------------------------------- entries
def _entry(arm: Arm, plan: Plan, tables: Tables) -> Entry:
    variant = plan["variants"].get(arm.variant, {})
    rows = arm.rows
    entry: Entry = {
        "variant": arm.variant,
        "cell": variant.get("cell") or {},
        "server": variant.get("server"),
        "runs": arm.names,
        "state": "measured",
        "validity": _validity(arm),
        "rank": None,
        "value": None,
        "interval": None,
        "method": None,
        "n_launches": len(arm.launches),
        "n_requests": arm.n_requests,
        "ttft": _mean(row.get(TTFT) for row in rows),
        "rate": _mean(row.get(RATE) for row in rows),
        "success_rate": _mean(row.get("success_rate") for row in rows),
        "behind": None,
        "tie": None,
        "pareto": False,
        "screened": None,
        "cause": None,
        "known_from": None,
        "reasons": [],
    }
    absent = [tables.absent[name] for name in arm.names if name in tables.absent]
    screened = [item for item in absent if item.get("why") == "screened_out"]
    if screened and not rows:
        return {**entry, "state": "screened_out"}
    end = arms.unusable(arm, plan, tables)
    if end is None:
        _measure(entry, arm)
        return entry
    entry |= {"state": _state(*end), "reasons": end[1], "ttft": None, "rate": None}
    if entry["state"] == "not_possible":
        start = next(
            (s for s in tables.starts if s["variant"] == arm.variant and s["root_cause"]), None
        )
        entry["cause"] = start["root_cause"] if start else None
        entry["known_from"] = next((a["known_from"] for a in absent if a.get("known_from")), None)
    return entry


def _screened(experiment: str, plan: Plan, tables: Tables) -> dict[str, Any]:
    """The variants that are out of the experiment's race, with value, best and how close it had to be."""
    found: dict[str, Any] = {}
    for run in plan["runs"]:
        item = tables.absent.get(run["name"]) or {}
        if item.get("why") == "screened_out" and item.get("experiment") == experiment:
            terms = ("metric", "value", "best", "within")
            found.setdefault(run["variant"], {term: item.get(term) for term in terms})
    return found


def _state(word: str, reasons: Sequence[Mapping[str, str]]) -> str:
    waiting = bool(reasons) and all(reason["code"] == "not_measured" for reason in reasons)
    return "pending" if waiting else word


def _measure(entry: Entry, arm: Arm) -> None:
    values = list(arm.launches.values())
    try:
        found = effects.alone(values, arm.metric)
    except effects.NoRelativeChange:
        entry["state"] = "invalid"
        return
    entry |= {"value": found.effect, "interval": list(found.interval), "method": found.method}


def _validity(arm: Arm) -> str | None:
    if not arm.rows:
        return None
    return "invalid" if arm.invalid else "suspect" if arm.suspect else "valid"


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None


# ---------------------------------------------------------------------- ranks
def _rank(order: Sequence[Entry], built: Mapping[str, Arm], metric: str, lower: bool) -> None:
    for entry in order:
        better = [
            other
            for other in order
            if _change(built[entry["variant"]], built[other["variant"]], metric, lower)[1]
        ]
        entry["rank"] = 1 + len(better)
        pair = built[entry["variant"]], built[order[0]["variant"]]
        entry["tie"] = not _change(*pair, metric, lower)[1]
        first = order[0]["value"]
        entry["behind"] = entry["value"] / first - 1 if first else None


def _compare(order: Sequence[Entry], built: Mapping[str, Arm], plan: Plan, tables: Tables) -> None:
    """Whether an entry was measured like the first one: tokens, cache state, counts, identity."""
    for entry in order[1:]:
        pair = built[entry["variant"]], built[order[0]["variant"]]
        entry["reasons"] = arms.mismatches(*pair, plan, tables, same_workload=True)


def _change(one: Arm, other: Arm, metric: str, lower: bool) -> tuple[float | None, bool]:
    """How much better `other` is than `one` (relative), and whether that can be told from noise."""
    if one is other or one.launches == other.launches:
        return 0.0, False
    try:
        found = effects.compared(one.launches, other.launches, metric, -1 if lower else 1)
    except effects.NoRelativeChange:
        return None, False
    return found.effect, found.interval[0] > 0 and found.effect >= found.floor


def _best(
    order: Sequence[Entry],
    built: Mapping[str, Arm],
    metric: str,
    lower: bool,
    base: str | None,
) -> dict[str, Any] | None:
    """The first cell, by how much it leads the next, and whether that is more than noise."""
    if not order:
        return None
    best = order[0]
    mine = built[best["variant"]]

    def lead(name: str) -> dict[str, Any]:
        margin, told_apart = _change(built[name], mine, metric, lower)
        return {"variant": name, "margin": margin, "beyond_noise": told_apart}

    return {
        "variant": best["variant"],
        "value": best["value"],
        "among": len(order),
        "runner_up": lead(order[1]["variant"]) if len(order) > 1 else None,
        "baseline": lead(base) if base is not None else None,
        "ties": [entry["variant"] for entry in order[1:] if entry["tie"]],
        "floor": effects.floor_of(metric),
        "starts": min(entry["n_launches"] for entry in order),
    }


def _baseline(experiment: str, plan: Plan, order: Sequence[Entry]) -> str | None:
    """The measured entry that is the experiment's baseline, by its name or its server."""
    questions = plan["experiments"][experiment].get("questions") or []
    names = {q.get("baseline") for q in questions if q.get("kind") == "compare_variants"}
    servers = {plan["variants"][name].get("server") for name in names if name in plan["variants"]}
    by_name = [e["variant"] for e in order if e["variant"] in names]
    by_server = [e["variant"] for e in order if e["server"] and e["server"] in servers]
    return next(iter([*by_name, *by_server]), None)


# ---------------------------------------------------------------------- trade-offs
def pareto(entries: Sequence[Entry]) -> list[str]:
    """The variants that no other beats: a total rate at least as high and a TTFT at most as long, one
    of the two better. Equal ones stand together.
    """
    known = [e for e in entries if e["rate"] is not None and e["ttft"] is not None]
    points = {e["variant"]: (e["rate"], -e["ttft"]) for e in known}
    return [
        name
        for name, mine in points.items()
        if not any(
            other != mine and other[0] >= mine[0] and other[1] >= mine[1]
            for other in points.values()
        )
    ]


def main_effects(entries: Sequence[Entry], metric: str) -> list[dict[str, Any]]:
    """For each key of the grid each value against the key's first: the mean relative change over the
    pairs of cells that are alike in all other keys, and how many there are.
    """
    values = {_frozen(e["cell"]): e["value"] for e in entries if e["cell"] and e["value"]}
    cells = [e["cell"] for e in entries if _frozen(e["cell"]) in values]
    found = []
    for key in dict.fromkeys(key for cell in cells for key in cell):
        settings = sorted({cell[key] for cell in cells if key in cell}, key=_setting_order)
        for setting in settings[1:]:
            changes = [
                values[_frozen({**cell, key: setting})] / values[_frozen(cell)] - 1
                for cell in cells
                if key in cell
                and cell[key] == settings[0]
                and type(cell[key]) is type(settings[0])
                and _frozen({**cell, key: setting}) in values
            ]
            found.append(
                {
                    "key": key,
                    "from": settings[0],
                    "to": setting,
                    "pairs": len(changes),
                    "effect": _mean(changes),
                    "range": [min(changes), max(changes)] if changes else None,
                    "floor": effects.floor_of(metric),
                }
            )
    return found


def _frozen(cell: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, repr(value)) for key, value in cell.items()))


def _setting_order(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)
