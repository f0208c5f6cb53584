"""The A/A comparison: a server against itself, by the rule that all other arms are held to.

In: an experiment that declares `aa`, the plan, the tables. Out: one entry for each metric and load
that its questions ask about: effect, interval, floor, and whether the arm differs from itself,
which one in twenty does by chance. An arm that differs is a doubt about the verdicts whose floor
rests on it: something else than the restart moved between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from decodelab import arms, effects, measured_floor, reasons, shares
from decodelab.tables import Tables

Plan = Mapping[str, Any]
Result = dict[str, Any]


def results(experiment: Mapping[str, Any], plan: Plan, tables: Tables) -> list[Result]:
    if not experiment.get("aa"):
        return []
    planned = {run["name"]: run for run in plan["runs"]}
    out = []
    for metric, load in _asked(experiment, planned):
        mine = [
            planned[name]
            for name in experiment.get("runs") or []
            if planned[name]["variant"] == experiment["aa"] and _load(planned[name]) == load
        ]
        if mine:
            out.append(_one(experiment, mine, metric, plan, tables))
    return out


def doubts(verdict: Mapping[str, Any], found: Iterable[Result]) -> list[dict[str, str]]:
    """The A/A comparisons that a verdict's measured floor rests on and that differ."""
    basis = (verdict.get("floor_basis") or {}).get("starts") or []
    out = []
    for one in found:
        if one["differs"] and one["metric"] == verdict["metric"] and set(one["starts"]) & {*basis}:
            low, high = (f"{bound:+.1%}" for bound in one["interval"])
            values = {"variant": one["variant"], "effect": f"{one['effect']:+.1%}"}
            out.append(reasons.reason("aa_differs", low=low, high=high, **values))
    return out


def _asked(
    experiment: Mapping[str, Any], planned: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, tuple[Any, ...]]]:
    """(metric, load) of every question, each once, in order."""
    found: dict[tuple[str, tuple[Any, ...]], None] = {}
    for question in experiment["questions"]:
        for point in question.get("points") or []:
            for name in _runs(point):
                if name in planned:
                    found[question["metric"], _load(planned[name])] = None
    return list(found)


def _runs(point: Mapping[str, Any]) -> list[str]:
    """The run names of a point of any kind."""
    given = [point[side] for side in ("baseline", "candidate", "runs") if side in point]
    lists = [part for one in given for part in (one.values() if isinstance(one, dict) else [one])]
    return [name for part in lists for name in part]


def _load(run: Mapping[str, Any]) -> tuple[Any, ...]:
    return run["workload"], run["concurrency"]


def _one(
    experiment: Mapping[str, Any],
    runs: list[Mapping[str, Any]],
    metric: str,
    plan: Plan,
    tables: Tables,
) -> Result:
    variant, first = experiment["aa"], experiment.get("repeats") or 1
    names = [
        [run["name"] for run in runs if (run["start"] > first) == second]
        for second in (False, True)
    ]
    left, right = (arms.build(variant, group, metric, tables) for group in names)
    out: Result = {
        "variant": variant,
        "metric": metric,
        "workload": runs[0]["workload"],
        "concurrency": runs[0]["concurrency"],
        "n_launches": [len(left.launches), len(right.launches)],
        "starts": [*left.launches, *right.launches],
        **dict.fromkeys(("effect", "interval", "floor", "floor_source", "df", "method")),
        "differs": None,
        "reasons": [],
    }
    stops = [end for arm in (left, right) if (end := arms.unusable(arm, plan, tables))]
    if stops:
        return {**out, "reasons": [why for end in stops for why in end[1]]}
    scatter = measured_floor.of(plan, tables, left, right)
    try:
        found = shares.compared(left, right, scatter=scatter)
    except effects.NoRelativeChange:
        return {**out, "reasons": [reasons.reason("no_relative_change")]}
    low, high = found.interval
    out.update(effect=found.effect, interval=[low, high], method=found.method)
    out.update(floor=found.floor, floor_source=found.floor_source)
    out["df"] = scatter.df if scatter is not None else None
    # One start an arm: the interval is made of the very difference, and can exclude nothing.
    out["differs"] = None if found.method == "aa_floor" else not low <= 0 <= high
    return out
