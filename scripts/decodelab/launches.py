"""Runs and launches: which servers are started how often, in which order, with which runs.

In: a filled config, its variants and points. Out: run entries and launch entries of a plan.
One launch is one (server, start number): what several experiments want of it is one union.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from decodelab import digest, naming, races, targets, twins
from decodelab.variants import Variant
from decodelab.workloads import Point

Config = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """One experiment wants one point (or, with None, only the start) of one variant's start k."""

    experiment: str
    when: str | None  # the condition as text; those of one text are one
    variant: Variant
    start: int
    point: Point | None
    sampled: bool = False  # SMI samples beside it: asked for, and the host has a tool
    has_tool: bool = False  # whether the host has one
    screened: bool = False  # only if the experiment's cheap run shows it worth the time

    @property
    def run(self) -> str | None:
        return self.point.run(self.sampled) if self.point else None

    @property
    def key(self) -> tuple[str, int, str | None]:
        return self.variant.server, self.start, self.run


def arms(experiment: dict[str, Any], grids: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """(variant, workloads) in config order; a grid's name stands for all its cells."""
    return [
        (name, list(loads))
        for given, loads in experiment["runs"].items()
        for name in grids.get(given, [given])
    ]


def wishes(
    config: Config,
    variants: dict[str, Variant],
    points: dict[str, list[Point]],
    grids: dict[str, list[str]],
) -> Iterator[Wish]:
    """Config order; the arms of every second start are turned round (A B, B A, A B ...). A profiled arm
    has its unprofiled twin beside it.

    The A/A arm is one arm more in that order, so that its starts lie between the others: with A
    twice, A B A', A' B A, A B A' ... Its start numbers follow those of the repeats.
    """
    quick = config["control"].get("quick")
    for name, experiment in config["experiments"].items():
        repeats = 1 if quick else experiment["repeats"]
        asked = arms(experiment, grids)
        order = [(variant, loads, 0) for variant, loads in twins.beside(asked, variants)]
        if experiment.get("aa") and not quick:
            again = [(variant, loads) for variant, loads in asked if variant == experiment["aa"]]
            order += [(v, loads, repeats) for v, loads in twins.beside(again, variants)]
        for start in range(1, repeats + 1):
            for variant, loads, after in order if start % 2 else order[::-1]:
                chosen: list[Point | None] = [point for load in loads for point in points[load]]
                for point in chosen or [None]:
                    yield _wish(config, name, variants[variant], after + start, point)
                for load in races.full_loads(experiment, loads):
                    for point in points[load]:
                        wish = _wish(config, name, variants[variant], after + start, point)
                        yield replace(wish, screened=True)


def _wish(
    config: Config, experiment: str, variant: Variant, start: int, point: Point | None
) -> Wish:
    has_tool = tool(config, variant) != "none"
    sampled = point is not None and point.telemetry and has_tool
    when = condition(config["experiments"][experiment])
    return Wish(
        experiment, when["text"] if when else None, variant, start, point, sampled, has_tool
    )


def condition(experiment: dict[str, Any]) -> dict[str, Any] | None:
    """What an experiment waits for; None: nothing."""
    return targets.when(experiment["when"]) if experiment.get("when") else None


def tool(config: Config, variant: Variant) -> str:
    """The telemetry tool of the variant's host (of the whole folder in a replay)."""
    where = config["replay"] if config.get("replay") else config["hosts"][variant.host]
    return str(where["telemetry"]["tool"])


def runs(config: Config, wanted: list[Wish]) -> dict[str, dict[str, Any]]:
    """Run entries by name, in order of first wish."""
    out: dict[str, dict[str, Any]] = {}
    for wish in wanted:
        if wish.point is None:
            continue
        entry = _run(config, wish, wish.point)
        known = out.setdefault(entry["name"], entry)
        if wish.experiment not in known["experiments"]:
            known["experiments"].append(wish.experiment)
    return out


def name_of(wish: Wish) -> str:
    """The name of the run that is wished for (of the start alone: the server's log)."""
    if wish.point is None:
        return naming.server_log(wish.variant.name, wish.start)
    return naming.run_name(_tail(wish, wish.point))


def _tail(wish: Wish, point: Point) -> str:
    return naming.run_tail(
        wish.variant.name,
        point.scenario,
        point.concurrency,
        point.max_tokens,
        point.requests,
        point.suffix,
        wish.start,
    )


def _run(config: Config, wish: Wish, point: Point) -> dict[str, Any]:
    variant, start, run = wish.variant, wish.start, wish.run
    tail = _tail(wish, point)
    return {
        "name": naming.run_name(tail),
        "capture": naming.capture_name(tool(config, variant), tail) if wish.sampled else None,
        "variant": variant.name,
        "workload": point.workload,
        "scenario": point.scenario,
        "start": start,
        "server": variant.server,
        "run": run,
        "launch": None,
        # Arms of one start number get the same prompts; runs of one launch never share a prefix.
        "seed": f"{run}-start{start}",
        "concurrency": point.concurrency,
        "requests": point.requests,
        "max_tokens": point.max_tokens,
        "telemetry": wish.sampled,
        "experiments": [],
    }


def launches(
    config: Config, wanted: list[Wish], points: dict[str, list[Point]]
) -> list[dict[str, Any]]:
    """Launch entries in queue order (= order of first wish); runs inside in order of wish.

    What only experiments behind a `when:` want is a launch of its own for each set of conditions
    under which it is wanted, so that nothing is measured before one of them is met, and each run
    has one launch.
    """
    conditions: dict[tuple[str, int, str | None], list[str | None]] = {}
    for wish in wanted:
        conditions.setdefault(wish.key, []).append(wish.when)
    groups: dict[tuple[str, int, frozenset[str]], list[Wish]] = {}
    for wish in wanted:
        under = conditions[wish.key]
        whens = frozenset() if None in under else frozenset(w for w in under if w)
        groups.setdefault((wish.variant.server, wish.start, whens), []).append(wish)
    made = [_launch(config, group, bool(key[2]), points) for key, group in groups.items()]
    return [{**entry, "position": n} for n, entry in enumerate(made, start=1)]


def _launch(
    config: Config, group: list[Wish], waits: bool, points: dict[str, list[Point]]
) -> dict[str, Any]:
    first = group[0].variant
    start, server = group[0].start, first.server
    screens = races.screens(config, group, points)
    last = {run for screen in screens for run in screen["then"]}
    named = dict.fromkeys(w.run for w in group if w.run)
    wanted = sorted(named, key=lambda run: run in last)  # what hangs on a race comes after it
    host = config["hosts"].get(first.host, {})
    experiments = list(dict.fromkeys(w.experiment for w in group))
    found = [condition(config["experiments"][name]) for name in experiments] if waits else []
    return {
        "digest": digest.launch(server, start, wanted, screens),
        "server": server,
        "start": start,
        "host": first.host,
        "source": "simulated" if host.get("simulated") else "measured",
        "variant": first.name,
        "variants": list(dict.fromkeys(w.variant.name for w in group)),
        "experiments": experiments,
        # Any of these lets it be measured; None: it waits for nothing.
        "when": list({w["text"]: w for w in found if w}.values()) or None,
        "runs": wanted,
        **({"screens": screens} if screens else {}),
    }
