"""Races among the launches of an experiment (`screen:`): what the plan says of them, what the store knows.

In:  a filled config and the plan's wishes; later a launch and the Store. Out: the plan's `races` and
each launch's `screens`; the full runs that a launch need not make (`left_out`), with both figures.
What is known here outranks what a host agent decided: the answer follows from the store alone, so a
better best, another `within` or a run found invalid changes it without a new measurement of what is
there. A race is among launches of one experiment, workload, host, source and metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cargo import race
from decodelab import digest, records, targets
from decodelab.vocabulary import METRIC_ALIASES

if TYPE_CHECKING:
    from decodelab.launches import Wish
    from decodelab.store import Store
    from decodelab.workloads import Point

Config = Mapping[str, Any]


# ---------------------------------------------------------------------- the plan
def full_loads(experiment: Mapping[str, Any], loads: Sequence[str]) -> list[str]:
    """The workloads that only those still in the race run: not what `runs` asks for in any case."""
    screen = experiment.get("screen")
    if not screen or screen["workload"] not in loads:
        return []
    return [load for load in screen["then"] if load not in loads]


def all_loads(experiment: Mapping[str, Any]) -> dict[str, list[str]]:
    """What an experiment runs against each variant, full runs of a race included; of a config that
    may still be wrong.
    """
    runs = experiment.get("runs") or {}
    screen = experiment.get("screen") or {}
    if not screen.get("workload") or not screen.get("then"):
        return {name: list(loads or []) for name, loads in runs.items()}
    return {
        name: [*(loads or []), *full_loads(experiment, loads or [])] for name, loads in runs.items()
    }


def screens(
    config: Config, wanted: Iterable[Wish], points: Mapping[str, Sequence[Point]]
) -> list[dict[str, Any]]:
    """What the wishes of one launch say of races: one entry a race, with the runs that hang on it."""
    wanted = list(wanted)
    always = {wish.run for wish in wanted if not wish.screened}
    then: dict[str, list[str]] = {}
    for wish in wanted:
        if wish.screened and wish.run not in always:
            then.setdefault(wish.experiment, []).append(str(wish.run))
    made = []
    for experiment, runs in then.items():
        wish = next(w for w in wanted if w.experiment == experiment)
        entry = _race(config, wish, points)
        chosen = list(dict.fromkeys(runs))
        made.append({"race": _identity(entry), **_terms(entry), "then": chosen})
    return made


def races(
    config: Config, wanted: Iterable[Wish], points: Mapping[str, Sequence[Point]]
) -> dict[str, dict[str, Any]]:
    """Every race of the study by its digest, with its members: (server, start) of each cheap run."""
    found: dict[str, dict[str, Any]] = {}
    for wish in wanted:
        screen = config["experiments"][wish.experiment].get("screen")
        if not screen or wish.point is None or wish.point.workload != screen["workload"]:
            continue
        entry = _race(config, wish, points)
        known = found.setdefault(_identity(entry), {**entry, "members": []})
        member = [wish.variant.server, wish.start]
        if member not in known["members"]:
            known["members"].append(member)
    return found


def _race(config: Config, wish: Wish, points: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    screen = config["experiments"][wish.experiment]["screen"]
    (point,) = points[screen["workload"]]
    host = config["hosts"].get(wish.variant.host, {})
    sampled = point.telemetry and wish.has_tool
    return {
        "experiment": wish.experiment,
        "metric": METRIC_ALIASES.get(screen["metric"], screen["metric"]),
        "within": targets.share(screen["within"]),
        "workload": screen["workload"],
        "run": point.run(sampled),
        "host": wish.variant.host,
        "source": "simulated" if host.get("simulated") else "measured",
        "requests": point.requests,
        "max_tokens": point.max_tokens,
    }


def _identity(entry: Mapping[str, Any]) -> str:
    """`within` is no part of it: who races with whom does not hang on how close it has to be."""
    names = ("experiment", "metric", "run", "host", "source")
    return digest.of("race", {name: entry[name] for name in names})


def _terms(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("experiment", "metric", "within", "run")}


# ---------------------------------------------------------------------- the store
def with_members(launch: Mapping[str, Any], plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """The launch with all that `left_out` needs; a launch without races as it is."""
    if not launch.get("screens"):
        return launch
    whole = [{**plan["races"][screen["race"]], **screen} for screen in launch["screens"]]
    return {**launch, "screens": whole}


def left_out(launch: Mapping[str, Any], store: Store) -> list[dict[str, Any]]:
    """Of a launch `with_members`: one entry a race that it is out of, with the runs it need not make,
    its value, the best, and how close it would have had to be.
    """
    made = [_decided(screen, launch, store) for screen in launch.get("screens") or []]
    return race.told(made, {run for run in race.left_out(made) if not _has(launch, run, store)})


def still_out(told: Iterable[Mapping[str, Any]], launch: Mapping[str, Any], store: Store) -> bool:
    """Whether what a receipt tells (its `screened_out`) is still so: the same runs are left out, and
    the best it names is one of a present member. A better best since then changes nothing.
    """
    now = {screen["race"]: screen["runs"] for screen in left_out(launch, store)}
    bars = {screen["race"]: _bars(screen, store) for screen in launch.get("screens") or []}
    return all(
        now.get(screen["race"]) == screen["runs"] and screen["best"] in bars[screen["race"]]
        for screen in told
    )


def _bars(screen: Mapping[str, Any], store: Store) -> set[float | None]:
    figures = [_figure(screen, server, start, store) for server, start in screen["members"]]
    return {figure.value for figure in figures if figure is not None and figure.clean}


def for_order(launch: Mapping[str, Any], store: Store) -> list[dict[str, Any]]:
    """What the host agent is told: the terms, the best known here, and the launch's own value where
    its cheap run is here. A cheap run that is here and of no use has no value: nobody is out by it.
    """
    told = []
    for screen in launch.get("screens") or []:
        made = _decided(screen, launch, store)
        names = ("race", "experiment", "metric", "within", "run", "then")
        told.append(
            {
                **{name: made[name] for name in names},
                "members": digest.of("race members", sorted(screen["members"])),
                "best": made["best"],
                "own": made["value"],
            }
        )
    return told


def _decided(screen: Mapping[str, Any], launch: Mapping[str, Any], store: Store) -> dict[str, Any]:
    own = _figure(screen, launch["server"], launch["start"], store)
    others = [_figure(screen, server, start, store) for server, start in screen["members"]]
    bar = race.best([f for f in others if f is not None], screen["metric"])
    value = own.value if own else None
    out = race.is_out(value, bar, screen["within"], screen["metric"])
    return {**screen, "value": value, "best": bar, "out": out}


def _has(launch: Mapping[str, Any], run: str, store: Store) -> bool:
    return store.select(launch["server"], launch["start"], run) is not None


def _figure(screen: Mapping[str, Any], server: str, start: int, store: Store) -> race.Figure | None:
    """None where there is no cheap run, or an invalid one."""
    attempt = store.select(server, start, screen["run"])
    if attempt is None or attempt.status != "done" or attempt.reasons:
        return None
    return _read(attempt.path, screen["metric"], screen["requests"], screen["max_tokens"])


@lru_cache(maxsize=4096)  # what is in the store never changes
def _read(folder: Path, metric: str, requests: int, max_tokens: int) -> race.Figure | None:
    try:
        made = records.read_record(folder / "run.json")
        planned = {"requests": requests, "max_tokens": max_tokens}
        run = records.make_run(planned, {}, made)
        records.judge_validity(run)
    except (OSError, json.JSONDecodeError, records.UnreadableRecord):
        return None
    return None if run.validity == "invalid" else race.figure(made, metric)
