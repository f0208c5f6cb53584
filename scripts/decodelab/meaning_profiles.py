"""Meaning of step profiles: what a variant's `profile` may ask for, what `profiles` may name, and the
questions about a region. In: a Check. Out: mistakes added to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from decodelab import (
    meaning_servers,
    mistakes,
    questions,
    step_read,
    step_regions,
    variants,
)
from decodelab.vocabulary import REGION_METRICS

if TYPE_CHECKING:
    from decodelab.meaning import Check

STANDARD = [*step_regions.REGIONS, step_regions.UNATTRIBUTED]
_NO_SITE = set("SEI")  # python's own options with which it reads no sitecustomize of ours
_OWN = ("workload", "concurrency")  # beside `variant`, in place of `file`


def check(todo: Check) -> None:
    for name, entry in (todo.config.get("variants") or {}).items():
        if entry.get("profile"):
            _profile(todo, name, entry["profile"])
    for name, entry in (todo.config.get("experiments") or {}).items():
        _race(todo, name, entry)
    for name, entry in todo.config["profiles"].items():
        _declared(todo, ("profiles", name), entry)


def of_variant(todo: Check, name: str) -> dict[str, Any] | None:
    """What the profiler does in a variant, inherited or its own; a cell has that of its grid."""
    name = meaning_servers.cells(todo).get(name, name)
    layers = [todo.config["variants"][n] for n in variants.chain(todo.config, name)]
    return next((layer["profile"] for layer in reversed(layers) if "profile" in layer), None)


# a variant


def _profile(todo: Check, name: str, given: dict[str, Any]) -> None:
    path: mistakes.Path = ("variants", name, "profile")
    if todo.config.get("replay"):
        todo.add(path, "a profile in a replay", "no profile: a replay starts no server")
        return
    seen: dict[str, str] = {}
    for region, target in (given.get("regions") or {}).items():
        at = (*path, "regions", region)
        if region in STANDARD:
            hint = f"its time then is a region of its own, beside {region}"
            todo.add(at, f'"{region}", a standard region', "another name for your own region", hint)
        if target in seen:
            found = f"{target}, which is the region {seen[target]} already"
            todo.add(at, found, "each method in one region")
        seen.setdefault(target, region)
    for n, region in enumerate(given.get("skip") or []):
        if region is not None:
            known = list(step_regions.REGIONS)
            todo.known((*path, "skip", n), region, known, "unknown region")
    _site(todo, path, name)


def _site(todo: Check, path: mistakes.Path, name: str) -> None:
    """The profiler comes in by PYTHONPATH and sitecustomize, which python can be told not to look at."""
    layers = [todo.config["variants"][n] for n in variants.chain(todo.config, name)]
    said = [layer["command"] for layer in layers if layer.get("command")]
    words = said[-1] if said else todo.config["server"].get("command") or []
    program = os.path.basename(str(words[0])) if words else ""
    if program != "{python}" and not program.startswith("python"):
        return
    for word in words[1:]:
        if not word or not word.startswith("-") or word[1:2] in ("m", "c"):
            return
        if not word.startswith("--") and _NO_SITE & set(word[1:]):
            found = f"{word} in the command, with which python does not load the profiler"
            todo.add(path, found, "a command without -S, -E and -I")


def _race(todo: Check, name: str, entry: dict[str, Any]) -> None:
    """Profiling costs time, so a profiled server in a race of others would lose for it."""
    load = (entry.get("screen") or {}).get("workload")
    for variant, loads in (entry.get("runs") or {}).items():
        known = variant in meaning_servers.variant_names(todo)
        if load is not None and load in (loads or []) and known and of_variant(todo, variant):
            path: mistakes.Path = ("experiments", name, "runs", variant)
            found = f"the profiled {variant} in the race of `screen`"
            hint = "give what is profiled an experiment of its own"
            todo.add(path, found, "variants without `profile`", hint)


# `profiles:`


def _declared(todo: Check, path: mistakes.Path, entry: Mapping[str, Any]) -> None:
    """A file, or runs of this study: a profiled variant with a workload, and a point of it."""
    variant = entry.get("variant")
    known = variant is not None and todo.known(
        (*path, "variant"), variant, meaning_servers.variant_names(todo), "unknown variant"
    )
    if entry.get("file"):
        _file(todo, path, entry)
        for key in _OWN:
            if entry.get(key) is not None:
                hint = "a file is of whatever it was made of"
                todo.add((*path, key), f"{key} beside file", f"{key} beside variant alone", hint)
        return
    if variant is None:
        if todo.whole:
            todo.add(path, "neither file nor variant", "a file, or a variant and its workload")
        return
    if known and _is_profiled(todo, (*path, "variant"), str(variant)):
        _run(todo, path, str(variant), entry)


def _is_profiled(todo: Check, path: mistakes.Path, variant: str) -> bool:
    if variant in meaning_servers.cells(todo).values():
        todo.add(path, f'"{variant}", which is a grid', "one variant", "name one of its cells")
    elif of_variant(todo, variant) is None:
        hint = f"give it `profile: {{mode: event}}`, or a variant that extends {variant}"
        todo.add(path, f'"{variant}", which is not profiled', "a variant with `profile`", hint)
    else:
        return True
    return False


def _run(todo: Check, path: mistakes.Path, variant: str, entry: Mapping[str, Any]) -> None:
    load = entry.get("workload")
    if load is None:
        if todo.whole:
            todo.add((*path, "workload"), "nothing", "the workload that was profiled")
        return
    if not todo.known((*path, "workload"), load, todo.names("workloads"), "unknown workload"):
        return
    grid = meaning_servers.cells(todo).get(variant)
    loads = [
        item
        for experiment in (todo.config.get("experiments") or {}).values()
        for name, items in (experiment.get("runs") or {}).items()
        if name in (variant, grid)
        for item in items or []
    ]
    if load not in loads:
        found = f'"{load}", which no experiment runs against {variant}'
        todo.add((*path, "workload"), found, mistakes.listed(list(dict.fromkeys(loads))))
        return
    given = (todo.config["workloads"].get(load) or {}).get("concurrency")
    curve = given if isinstance(given, list) else [given]
    chosen = entry.get("concurrency")
    if chosen is None and len(curve) > 1:
        found = f"nothing, and {load} has {len(curve)} points"
        todo.add((*path, "concurrency"), found, f"one of {mistakes.listed(curve)}")
    elif chosen is not None and chosen not in curve:
        allowed = f"a concurrency of {load}: {mistakes.listed(curve)}"
        todo.add((*path, "concurrency"), str(chosen), allowed)


def _file(todo: Check, path: mistakes.Path, entry: Mapping[str, Any]) -> None:
    file = todo.root / str(entry["file"])
    if not file.exists():
        return  # it may be measured yet; what rests on it is not known
    try:
        if step_read.sort_of(file) in (
            "table",
            "json",
        ):  # others may take long, and are read when all is measured
            step_read.one([file], entry.get("run"))
    except (OSError, ValueError) as error:
        todo.add((*path, "file"), f"{entry['file']}: {error}", step_read.FORMS)


# questions


def question(todo: Check, path: mistakes.Path, asked: Mapping[str, Any], kind: str) -> None:
    """`region` and the metrics of a region need each other, and profiled arms that time it."""
    metric, region = questions.metric(str(asked.get("metric"))), asked.get("region")
    if metric not in REGION_METRICS:
        if region is not None:
            allowed = f"region beside {mistakes.listed(list(REGION_METRICS))}"
            todo.add((*path, "region"), f"region beside {metric}", allowed)
        return
    if region is None and todo.whole:
        todo.add((*path, "region"), "nothing", f"region, which {metric} is of")
    sides = ("baseline", "candidate") if kind == "compare_variants" else ("variant",)
    for side in sides:
        name = asked.get(side)
        if name in meaning_servers.variant_names(todo):
            _arm(todo, path, side, str(name), metric, region)


def _arm(
    todo: Check, path: mistakes.Path, side: str, name: str, metric: str, region: str | None
) -> None:
    given = of_variant(todo, name)
    if given is None:
        hint = "ask a variant that extends it and has `profile: {mode: event}`"
        found = f'{metric} of "{name}", which is not profiled'
        todo.add((*path, side), found, "a variant with `profile`", hint)
        return
    if given.get("mode") == "sync":
        found = f'{metric} of "{name}", profiled in mode sync'
        hint = "waiting at each region makes a step longer: sync orders regions, no more"
        todo.add((*path, side), found, "a variant profiled in mode event", hint)
    known = [r for r in STANDARD if r not in (given.get("skip") or [])]
    known += list(given.get("regions") or {})
    if region is not None and region not in known and region in STANDARD:
        found = f'"{region}", which `profile.skip` of {name} leaves out'
        todo.add((*path, "region"), found, mistakes.listed(known))
    elif region is not None:
        todo.known((*path, "region"), region, known, "unknown region")
