"""Meaning of experiments and evidence. In: a Check. Out: mistakes added to it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cargo import race
from cargo.start_cause import CLASSES
from decodelab import (
    launches,
    meaning_guards,
    meaning_questions,
    meaning_servers,
    mistakes,
    questions,
    races,
    targets,
    variants,
    workloads,
)
from decodelab.columns import COLUMNS
from decodelab.tables import TEXT
from decodelab.vocabulary import ANOMALIES, METRICS, REGION_METRICS

if TYPE_CHECKING:
    from decodelab.meaning import Check

_LONGEST = 200  # file systems take 255 bytes, endings such as .jsonl included


def check(todo: Check) -> None:
    experiments = todo.config.get("experiments") or {}
    for name, entry in experiments.items():
        _runs(todo, name, entry)
        _aa(todo, name, entry)
        _when(todo, name, entry)
        if entry.get("screen"):
            _screen(todo, name, entry)
    meaning_questions.check(todo)
    meaning_guards.check(todo)
    _evidence(todo)
    if todo.whole and not todo.found:
        _run_names(todo)


def _runs(todo: Check, name: str, entry: dict[str, Any]) -> None:
    path = ("experiments", name, "runs")
    known = meaning_servers.variant_names(todo)
    for variant, loads in (entry.get("runs") or {}).items():
        todo.known((*path, variant), variant, known, "unknown variant")
        for n, load in enumerate(loads):
            if load is not None:
                todo.known((*path, variant, n), load, todo.names("workloads"), "unknown workload")
    if todo.config["server"].get("attach") and entry.get("repeats", 1) > 1:
        found = f"{entry['repeats']} starts of an attached server"
        todo.add(
            ("experiments", name, "repeats"),
            found,
            "1: a server that already runs is never restarted",
        )


def _screen(todo: Check, name: str, entry: dict[str, Any]) -> None:
    """The race of an experiment: its cheap run is one run, its full runs are others."""
    path, screen = ("experiments", name, "screen"), entry["screen"]
    load, loads = screen.get("workload"), todo.names("workloads")
    if load is not None and todo.known((*path, "workload"), load, loads, "unknown workload"):
        if not any(load in (given or []) for given in (entry.get("runs") or {}).values()):
            hint = f"add {load} to the variants of `runs` that take part"
            todo.add((*path, "workload"), f"no variant runs {load}", "a workload of `runs`", hint)
        levels = (todo.config["workloads"][load] or {}).get("concurrency")
        if isinstance(levels, list) and len(levels) > 1:
            found = f"{load} has {len(levels)} points"
            todo.add((*path, "workload"), found, "a workload of one concurrency")
    for n, full in enumerate(screen.get("then") or []):
        todo.known((*path, "then", n), full, loads, "unknown workload")
        if full == load:
            todo.add((*path, "then", n), f"{full} is the cheap run itself", "another workload")
    _screens_somebody(todo, path, entry)
    if screen.get("metric") is not None:
        known = questions.metric(screen["metric"])
        todo.known((*path, "metric"), known, list(race.METRICS), "no metric of a race")
    if screen.get("within") is not None:
        todo.text((*path, "within"), screen["within"], targets.share)


def _screens_somebody(todo: Check, path: mistakes.Path, entry: dict[str, Any]) -> None:
    """A full run that `runs` asks for as well is made in any case: somebody has to depend on the race."""
    load, then = entry["screen"].get("workload"), entry["screen"].get("then") or []
    racing = [loads for loads in (entry.get("runs") or {}).values() if load in (loads or [])]
    if racing and then and not any(races.full_loads(entry, loads) for loads in racing):
        found = f"{', '.join(map(str, then))}, which `runs` has for all that race"
        hint = "take it out of `runs` for the variants that only run it near the best"
        todo.add((*path, "then"), found, "a workload that hangs on the race", hint)


def _aa(todo: Check, name: str, entry: dict[str, Any]) -> None:
    """The A/A arm is a variant that the experiment runs (a grid's cell by its own name), with runs."""
    aa, path = entry.get("aa"), ("experiments", name, "aa")
    if not aa:
        return
    cells, runs = meaning_servers.cells(todo), entry.get("runs") or {}
    inside = {cell: runs[grid] for cell, grid in cells.items() if grid in runs}
    runs = {v: loads for v, loads in runs.items() if v not in cells.values()} | inside
    if not todo.known(path, aa, list(runs), "not a variant of this experiment:"):
        return
    if not runs[aa]:
        todo.add(path, f'"{aa}", which is only started', "a variant with a workload")
    if entry.get("repeats", 1) < 2 and not todo.config["control"].get("quick"):
        found = "two starts in all: one degree of freedom, a floor of some 100 %"
        todo.add(path, found, "repeats of 2 or more beside aa", "repeats: 3")
    if todo.config["server"].get("attach"):
        found = "a second arm of an attached server"
        todo.add(path, found, "no aa: a server that already runs is never restarted")


def _refusal(todo: Check, path: mistakes.Path, found: str) -> None:
    """Of a `when:` only causes in the configuration: those of the host are never not_possible, and
    the branch would never be taken.
    """
    possible = [name for name, known in CLASSES.items() if known.side == "config"]
    if not todo.known(path, found, list(CLASSES), "unknown start_class"):
        return
    if found not in possible:
        told = f"{found}, for which a start is tried again"
        todo.add(path, told, ", ".join(possible), "what lies in the host is never not_possible")


def _when(todo: Check, name: str, entry: dict[str, Any]) -> None:
    path = ("experiments", name, "when")
    if not entry.get("when"):
        return
    read = todo.text(path, entry["when"], targets.when)
    if not read or not todo.known(
        path, read["experiment"], todo.names("experiments"), "unknown experiment"
    ):
        return
    for found in read["start_classes"]:
        _refusal(todo, (*path, "start_class"), found)
    other = todo.config["experiments"].get(read["experiment"])
    if other and not any(questions.asked(other)) and read["verdicts"] != ["not_possible"]:
        hint = "give it a question, or wait for its being not_possible"
        todo.add(path, read["text"], "an experiment that asks something", hint)
    seen, at = [name], read["experiment"]
    while at is not None and at not in seen:
        seen.append(at)
        try:
            waits = launches.condition(todo.config["experiments"].get(at) or {})
            at = waits["experiment"] if waits else None
        except ValueError:
            return
    if at == name:
        todo.add(path, " waits for ".join([*seen, at]), "no experiment that waits for itself")


# evidence


def _evidence(todo: Check) -> None:
    for name, suspect in todo.config["suspects"].items():
        for n, rule in enumerate(suspect.get("evidence") or []):
            if rule and rule.get("when"):
                _condition(todo, ("suspects", name, "evidence", n, "when"), rule["when"])
    for key in ("next_steps", "actions"):
        for n, step in enumerate(todo.config[key]):
            when = (step or {}).get("when")
            if isinstance(when, list):
                for m, item in enumerate(when):
                    _condition(todo, (key, n, "when", m), item or {})
            elif when:
                _condition(todo, (key, n, "when"), when)


def _condition(todo: Check, path: mistakes.Path, given: dict[str, Any]) -> None:
    kinds = {
        "question": question_ids(todo),
        "experiment": todo.names("experiments"),
        "anomaly": list(ANOMALIES),
        "start_class": list(CLASSES),
        "metric": evidence_metrics(),
        "profile": list(todo.config["profiles"]),
    }
    said = [kind for kind in kinds if given.get(kind) is not None]
    if len(said) != 1:
        allowed = "exactly one of " + ", ".join(kinds)
        todo.add(path, ", ".join(said) or "none of them", allowed)
    for kind in said:
        name = questions.metric(given[kind]) if kind == "metric" else given[kind]
        todo.known((*path, kind), name, kinds[kind], f"unknown {kind}")
        # a verdict of a wrong shape is told already, and is gone by now
        if kind in ("question", "experiment") and not given.get("verdict") and todo.whole:
            todo.add((*path, "verdict"), "nothing", f"the verdict that the {kind} must have")
        if kind not in ("question", "experiment") and given.get("verdict"):
            todo.add(
                (*path, "verdict"), mistakes.shown(given["verdict"]), f"no verdict beside {kind}"
            )
    if len(said) == 1:
        _narrowed(todo, path, given, said[0])
    if given.get("variant") is not None:
        todo.known(
            (*path, "variant"),
            given["variant"],
            meaning_servers.variant_names(todo),
            "unknown variant",
        )


# what narrows a kind of condition -> the kinds it may stand beside
_BESIDE = {
    "workload": ("metric",),
    "concurrency": ("metric",),
    "op": ("profile",),
    "is": ("metric", "profile"),
    "variant": ("question", "experiment", "anomaly", "start_class", "metric"),
}


def _narrowed(todo: Check, path: mistakes.Path, given: dict[str, Any], kind: str) -> None:
    for key, beside in _BESIDE.items():
        if given.get(key) is not None and kind not in beside:
            found = f"{key} beside {kind}"
            todo.add((*path, key), found, f"{key} beside " + mistakes.listed(beside))
    needed = {"metric": ("is",), "profile": ("op", "is")}.get(kind, ())
    for key in needed:
        if given.get(key) is None:
            todo.add((*path, key), "nothing", f"{key}, which a condition on a {kind} needs")
    if given.get("is") is not None:
        unit = questions.unit(str(given[kind])) if kind == "metric" else "share"
        todo.text((*path, "is"), given["is"], partial(targets.target, unit=unit))
    if given.get("workload") is not None:
        todo.known(
            (*path, "workload"), given["workload"], todo.names("workloads"), "unknown workload"
        )


def evidence_metrics() -> list[str]:
    """Metrics, and every column of runs.csv that is a number."""
    columns = [name for name in COLUMNS["runs"] if name not in TEXT]
    metrics = [name for name in METRICS if name not in REGION_METRICS]  # `profile` asks for those
    return list(dict.fromkeys([*metrics, *columns]))


def question_ids(todo: Check) -> list[str]:
    experiments = todo.config.get("experiments") or {}
    return [
        questions.question_id(name, n, question)
        for name, entry in experiments.items()
        for n, question in enumerate(questions.asked(entry), start=1)
        if question
    ]


# names of runs (only where all else is well, since it needs the runs themselves)


def _run_names(todo: Check) -> None:
    config = todo.config
    points = workloads.points(config, todo.root)
    grids = variants.grids(config)
    wanted = list(launches.wishes(config, variants.resolve(config), points, grids))
    owners: dict[str, str] = {}
    told: set[tuple[str, str]] = set()  # each pair once, however many starts it has
    for wish in wanted:
        if wish.point is None:
            continue
        name, mine = launches.name_of(wish), wish.point.workload
        _name_length(todo, name, mine, told)
        other = owners.setdefault(name, mine)
        if other != mine and (other, mine) not in told:
            told.add((other, mine))
            found = f'"{name}" is the name of its run and of one of workload "{other}"'
            todo.add(
                ("workloads", mine), found, "each name for one run", "give one of the two a suffix"
            )


def _name_length(todo: Check, name: str, workload: str, told: set[tuple[str, str]]) -> None:
    """Each part may be short enough, and a grid's cell or a prompt's file make it too long."""
    if len(name) > _LONGEST and (workload, "") not in told:
        told.add((workload, ""))
        found = f'"{mistakes.cut(name)}" ({len(name)} characters) is the name of its run'
        hint = "set `scenario`, or shorten the names of the variant, its varied values, the suffix"
        todo.add(("workloads", workload), found, f"at most {_LONGEST} characters", hint)
