"""The result of a parameter grid: its cells ranked, what may be said of the best, and what trades off.

In: the plan and the tables. Out: one board for each grid, workload and concurrency of an experiment:
entries (measured, screened out, not possible, invalid or pending), the best with its margin, the Pareto
set of rate against TTFT, and the mean effect of each value of each key.

A rank counts only what can be told apart (`ranking_pairs`): it is one more than the number of cells that
are better by more than noise, floor and drift allow. So cells that tie share a rank. Cells that were not
measured alike (tokens, cache state, source, identity) are no order: those unlike the rest are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from decodelab import arms, effects, shares
from decodelab.arms import Arm
from decodelab.ranking_pairs import Pairs
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
    base = _baseline(experiment, plan, entries)
    _set_apart([e for e in entries if e["state"] == "measured"], built, base, plan, tables)
    usable = [entry for entry in entries if entry["state"] == "measured"]
    order = sorted(usable, key=lambda e: e["value"] if lower else -e["value"])
    cells = {entry["variant"]: built[entry["variant"]] for entry in order}
    pairs = Pairs(cells, metric, lower, plan, tables)
    _rank(order, pairs)
    out = _screened(experiment, plan, tables)
    for entry in entries:
        entry["screened"] = out.get(entry["variant"])
    front = pareto(order)
    for entry in order:
        entry["pareto"] = entry["variant"] in front
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
        "best": _best(order, pairs, base),
        "pareto": front,
        "effects": main_effects(order, metric),
    }


_REST = ("unlike", "screened_out", "invalid", "not_possible", "pending")


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
        _enter(entry, arm)
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


def _enter(entry: Entry, arm: Arm) -> None:
    try:
        found = shares.alone(arm)
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
def _set_apart(
    entries: Sequence[Entry],
    built: Mapping[str, Arm],
    base: str | None,
    plan: Plan,
    tables: Tables,
) -> None:
    """Marks as `unlike` what was not measured as most others were: tokens, cache state, source,
    identity. Where no kind is the most frequent it is the baseline's that counts; without one no
    order is known, and all are unlike.
    """
    kinds: list[list[Entry]] = []
    for entry in entries:
        arm = built[entry["variant"]]
        mine = next(
            (k for k in kinds if not _unlike(built[k[0]["variant"]], arm, plan, tables)), None
        )
        if mine is None:
            kinds.append([entry])
        else:
            mine.append(entry)
    most = max((len(kind) for kind in kinds), default=0)
    first = [kind for kind in kinds if len(kind) == most]
    has_base = [kind for kind in first if base in [entry["variant"] for entry in kind]]
    alike = first[0] if len(first) == 1 else has_base[0] if has_base else []
    others = alike or entries
    for entry in entries:
        if entry not in alike:
            against = next(o for o in others if o is not entry)
            pair = built[against["variant"]], built[entry["variant"]]
            entry |= {"state": "unlike", "reasons": _unlike(*pair, plan, tables)}


def _unlike(one: Arm, other: Arm, plan: Plan, tables: Tables) -> list[dict[str, str]]:
    return arms.mismatches(one, other, plan, tables, same_workload=True)


def _rank(order: Sequence[Entry], pairs: Pairs) -> None:
    for entry in order:
        mine, first = entry["variant"], order[0]
        better = [other for other in order if pairs.lead(mine, other["variant"]).apart]
        entry["rank"] = 1 + len(better)
        entry["tie"] = not pairs.lead(mine, first["variant"]).apart
        entry["behind"] = entry["value"] / first["value"] - 1 if first["value"] else None


def _best(order: Sequence[Entry], pairs: Pairs, base: str | None) -> dict[str, Any] | None:
    """The first cell, by how much it leads the next, and whether that is more than noise."""
    if not order:
        return None
    best = order[0]

    def lead(name: str) -> dict[str, Any]:
        found = pairs.lead(name, best["variant"])
        told = {"margin": found.margin, "beyond_noise": found.apart}
        return {"variant": name, **told, "needed": found.needed, "basis": found.basis}

    ranked = [entry["variant"] for entry in order]
    return {
        "variant": best["variant"],
        "value": best["value"],
        "among": len(order),
        "pairs": pairs.n,
        "runner_up": lead(ranked[1]) if len(order) > 1 else None,
        "baseline": lead(base) if base is not None and base in ranked else None,
        "ties": [entry["variant"] for entry in order[1:] if entry["tie"]],
        "starts": min(entry["n_launches"] for entry in order),
    }


def _baseline(experiment: str, plan: Plan, entries: Sequence[Entry]) -> str | None:
    """The measured entry that is the experiment's baseline, by its name or its server."""
    questions = plan["experiments"][experiment].get("questions") or []
    names = {q.get("baseline") for q in questions if q.get("kind") == "compare_variants"}
    servers = {plan["variants"][name].get("server") for name in names if name in plan["variants"]}
    measured = [entry for entry in entries if entry["state"] == "measured"]
    by_name = [e["variant"] for e in measured if e["variant"] in names]
    by_server = [e["variant"] for e in measured if e["server"] and e["server"] in servers]
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
    floor = effects.floor_of(metric)
    if floor and any(e["n_launches"] < 2 for e in entries):
        floor += effects.DRIFT  # cells are started in the order of their keys
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
                    "floor": floor,
                }
            )
    return found


def _frozen(cell: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, repr(value)) for key, value in cell.items()))


def _setting_order(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)
