"""The plan: one study, expanded into servers, launches, runs and questions, as plain data.

In: a filled config (config.load). Out: the document of plan.json, deterministic and self-contained:
no clock, no host contact, no absolute path; {python}, {simulator} and {repo} stay symbols.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decodelab import flags, launches, naming, questions, races, variants, workloads
from decodelab.variants import Variant
from decodelab.vocabulary import PLAN_SCHEMA
from decodelab.workloads import Point

ROOT = Path(__file__).resolve().parents[2]


def expand(config: dict[str, Any], root: Path | None = None) -> dict[str, Any]:
    servers = variants.resolve(config)
    grids = variants.grids(config)
    points = workloads.points(config, root or ROOT)
    wanted = list(launches.wishes(config, servers, points, grids))
    runs = launches.runs(config, wanted)
    replay = config.get("replay")
    queue = [] if replay else launches.launches(config, wanted, points)
    _assign(runs, queue)
    used = {w.variant.name for w in wanted}
    contests = {} if replay else races.races(config, wanted, points)
    return {
        "schema": PLAN_SCHEMA,
        "study": config["study"],
        "languages": config["languages"],
        "title": questions.text(config.get("title") or config["study"]),
        "kind": "replay" if replay else "measure",
        "source": _source(config, queue),
        "replay": replay,
        "host": config.get("host"),
        "hosts": {
            name: config["hosts"][name]
            for name in dict.fromkeys(v.host for v in servers.values())
            if name
        },
        "targets": questions.study_targets(config),
        "facts": questions.lines(config["facts"]),
        "limits": config["limits"],
        "accepts": config["server"]["accepts"],
        "servers": {v.server: _server(config, v) for v in servers.values() if v.name in used},
        "variants": {name: _variant(v, wanted) for name, v in servers.items()},
        "grids": {
            name: _grid(config, name, cells)
            for name, cells in grids.items()
            if config["variants"][name].get("vary")
        },
        "scenarios": {p.content_digest: p.content for p in _distinct(wanted)},
        "points": _points(config, wanted),
        "launches": queue,
        **({"races": contests} if contests else {}),
        "runs": list(runs.values()),
        "starts": _starts(wanted, queue),
        "experiments": questions.experiments(config, grids, servers, runs),
        "suspects": questions.suspects(config),
        "profiles": questions.profiles(config, root or ROOT, runs),
        "next_steps": questions.steps(config["next_steps"]),
        "actions": questions.steps(config["actions"]),
    }


def _assign(runs: dict[str, dict[str, Any]], queue: list[dict[str, Any]]) -> None:
    """Each run learns the digest of the launch that makes it."""
    home: dict[tuple[str, int, str], str] = {}
    for launch in queue:
        for run in launch["runs"]:
            home.setdefault((launch["server"], launch["start"], run), launch["digest"])
    for run in runs.values():
        run["launch"] = home.get((run["server"], run["start"], run["run"]))


def _source(config: dict[str, Any], queue: list[dict[str, Any]]) -> str:
    if config.get("replay"):
        return "replay"
    return "simulated" if any(launch["source"] == "simulated" for launch in queue) else "measured"


def _server(config: dict[str, Any], variant: Variant) -> dict[str, Any]:
    """What a launch needs to start this server; two names of one server share the entry.

    Of secrets it has the names; they are no part of the server's digest.
    """
    return {
        "argv": variant.argv,
        "env": variant.env,
        "model": variant.model,
        "served_model": variant.served_model,
        "engine": variant.engine,
        "build": variant.build,
        "host": variant.host,
        "attach": variant.attach,
        "profile": variant.profile,
        "engine_key": variant.engine_key,
        "fingerprint": variant.fingerprint,
        "secrets": config["server"]["secrets"],
        "api_key": config["server"].get("api_key"),
    }


def _variant(variant: Variant, wanted: list[launches.Wish]) -> dict[str, Any]:
    starts = [w.start for w in wanted if w.variant.name == variant.name]
    return {
        "name": variant.name,
        "label": questions.text(variant.label),
        "server": variant.server,
        "start_count": max(starts, default=0),
        "host": variant.host,
        "extends": variant.extends,
        "grid": variant.grid,
        "cell": variant.cell,
        "engine": variant.engine,
        "build": variant.build,
        "model": variant.model,
        "served_model": variant.served_model,
        "flags": variant.flags,
        "canonical": flags.canonical(variant.flags, variant.engine),
        "removed": variant.removed,
        "env": variant.env,
        "attach": variant.attach,
        "profile": variant.profile,
        "twin": variant.twin,
        "argv": variant.argv,
        "limits": variant.limits,
    }


def _grid(config: dict[str, Any], name: str, cells: list[str]) -> dict[str, Any]:
    entry = config["variants"][name]
    return {"label": questions.text(entry.get("label")), "vary": entry["vary"], "cells": cells}


def _distinct(wanted: list[launches.Wish]) -> list[Point]:
    return list({w.point.content_digest: w.point for w in wanted if w.point}.values())


def _points(config: dict[str, Any], wanted: list[launches.Wish]) -> dict[str, dict[str, Any]]:
    """What the client is told for each run digest (all but the seed, which the start adds)."""
    out: dict[str, dict[str, Any]] = {}
    for wish in wanted:
        if wish.point is None:
            continue
        out.setdefault(
            str(wish.run),
            {
                "scenario": wish.point.content_digest,
                "scenario_name": wish.point.scenario,
                **wish.point.parameters(wish.sampled),
                "timeout_s": wish.point.timeout_s,
            },
        )
    return out


def _starts(wanted: list[launches.Wish], queue: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry per variant and start number: the server log that a person greps for."""
    home: dict[tuple[str, int], list[str]] = {}
    for launch in queue:
        home.setdefault((launch["server"], launch["start"]), []).append(launch["digest"])
    pairs = dict.fromkeys((w.variant.name, w.variant.server, w.start) for w in wanted)
    return [
        {
            "variant": name,
            "server": server,
            "start": start,
            "log": naming.server_log(name, start),
            "launches": home.get((server, start), []),
        }
        for name, server, start in pairs
    ]
