"""The host agent's part of a race: which runs of a launch are not worth their time.

In:  an order's `screens` (one a race: race, experiment, metric, within, run, then, members, best,
own), the launch's finished runs, what this agent's queue has measured for the same race. Out:
decisions with both figures. Nothing is remembered of a launch: each decision is read from the files
of its cheap run, so an agent that takes over decides alike.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional

from cargo import race, whole
from cargo.queue_store import Store


class Races:
    """The best values that the launches of one agent's life have set, by race and owner."""

    def __init__(self) -> None:
        self.figures: Dict[str, List[race.Figure]] = {}
        self.looked = False

    def best(self, store: Store, order: Mapping[str, Any], screen: Mapping[str, Any]) -> Any:
        """Of what home knew and of what was finished here since; None for nothing."""
        self._look_back(store)
        known = list(self.figures.get(_key(order, screen), []))
        if screen.get("best") is not None:
            known.append(race.Figure(float(screen["best"]), True))
        return race.best(known, screen["metric"])

    def note(self, store: Store, order: Mapping[str, Any], runs: Mapping[str, Any]) -> None:
        """A launch that ended well may set the bar for those behind it."""
        self._look_back(store)
        self._note(store, order, runs)

    def _note(self, store: Store, order: Mapping[str, Any], runs: Mapping[str, Any]) -> None:
        for screen in order.get("screens") or []:
            run, metric = screen["run"], screen["metric"]
            made = figure(store, order["launch"], run, runs.get(run), metric)
            if made is not None:
                self.figures.setdefault(_key(order, screen), []).append(made)

    def _look_back(self, store: Store) -> None:
        """Once: what an agent before this one finished of the same queue."""
        if self.looked:
            return
        self.looked = True
        folder = store.at("done")
        for launch in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            outcome = store.outcome(launch)
            order = whole.read_json(os.path.join(store.launch_dir(launch), "order.json"))
            if outcome and order and outcome["status"] == "done":
                self._note(store, order, outcome["runs"])


def _key(order: Mapping[str, Any], screen: Mapping[str, Any]) -> str:
    """The same race among others is another: who left the study sets no bar."""
    return "%s %s %s" % (order.get("owner"), screen["race"], screen.get("members"))


def figure(
    store: Store, launch: str, run: str, result: Optional[Mapping[str, Any]], metric: str
) -> Optional[race.Figure]:
    """Of a finished run that is whole and good; None for any other."""
    if not result or result.get("status") != "done" or result.get("reasons"):
        return None
    folder = os.path.join(store.launch_dir(launch), "runs", run, str(result.get("attempt")))
    made = whole.read_json(os.path.join(folder, "run.json"))
    return None if made is None else race.figure(made, metric)


def decisions(
    store: Store, order: Mapping[str, Any], done: Mapping[str, Any], races: Races
) -> List[Dict[str, Any]]:
    """One for each race whose cheap run is made (or was known at home), with `out` and the figures."""
    made = []
    for screen in order.get("screens") or []:
        if screen["run"] in done:
            run, metric = screen["run"], screen["metric"]
            found = figure(store, order["launch"], run, done[run], metric)
            value = found.value if found else None
        elif any(run["digest"] == screen["run"] for run in order["runs"]):
            continue  # still to be made
        else:
            value = screen.get("own")
        bar = races.best(store, order, screen)
        out = race.is_out(value, bar, screen["within"], screen["metric"])
        names = ("race", "experiment", "metric", "within", "run", "then")
        facts = {name: screen[name] for name in names}
        made.append(dict(facts, value=value, best=bar, out=out))
    return made


def left_out(
    order: Mapping[str, Any], made: List[Dict[str, Any]], done: Mapping[str, Any]
) -> List[Dict[str, Any]]:
    """What the outcome says, one a race: the runs of this order that are not made, value, best, within."""
    decided = {screen["race"] for screen in made}
    waiting = [s for s in order.get("screens") or [] if s["race"] not in decided]
    made = [*made, *(dict(screen, out=False) for screen in waiting)]
    wanted = {run["digest"] for run in order["runs"]} - set(done)
    return race.told(made, wanted.intersection(race.left_out(made)))
