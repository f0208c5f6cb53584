"""The profiles of a study's own runs: regions.csv and profiles.json.

In: the plan, the runs as they are read, their raw folders. Out: a `Profile` for each run of a
profiled variant, held against the runs of its twin; one row for each phase, rank and region.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from decodelab import step_collective, step_events, step_table, step_twin
from decodelab.step_table import Problem, Profile, Region, Table

SCHEMA = "decodelab.profiles/1"
FILE = "profiles.json"
Row = dict[str, Any]
Point = tuple[str, str, Any]  # variant, workload, concurrency


class ProfiledRuns:
    """Collects while the runs are read; `profiles`, asked for after the last, holds each against its twin."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan
        self._made: dict[Point, list[step_twin.Made]] = {}
        self._read: dict[str, tuple[Any, Profile]] = {}  # by run

    def add(self, run: Any, row: Row, raw: Path | None, start: Mapping[str, Any] | None) -> None:
        """A `records.Run` with its row of runs.csv, its raw folder and its start's facts."""
        planned = run.planned
        point = planned["variant"], planned["workload"], planned["concurrency"]
        profiled = self._variant(planned["variant"]).get("profile")
        if profiled or planned["variant"] in self._twins():
            self._made.setdefault(point, []).append(step_twin.made(run, row))
        found = step_events.of_folder(raw) if raw is not None and raw.is_dir() else None
        if found is None and profiled:
            found = step_events.of_lines([], told={"mode": profiled.get("mode")})
        if found is not None:
            doubt = step_collective.doubt(found, start or {})
            found = replace(found, doubts=(*found.doubts, *([doubt] if doubt else [])))
            self._read[planned["name"]] = run, found

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """Run -> its profile."""
        return {name: self._held(run, found) for name, (run, found) in self._read.items()}

    def _held(self, run: Any, found: Profile) -> Profile:
        planned = run.planned
        point = planned["variant"], planned["workload"], planned["concurrency"]
        arm = self._made.get(point, [])
        mine = next((one for one in arm if one.run == planned["name"]), None)
        twin = self._variant(planned["variant"]).get("twin")
        if mine is None:  # a profiled server that the plan does not know as one
            return replace(found, problems=(*found.problems, Problem("no_twin", {"twin": None})))
        others = self._made.get((twin, *point[1:]), []) if twin else []
        return step_twin.beside_twin(found, mine, arm, twin, others)

    def _variant(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._plan["variants"].get(name) or {}
        return found

    def _twins(self) -> set[str]:
        return {v["twin"] for v in self._plan["variants"].values() if v.get("twin")}

    def rows(self) -> Iterator[Row]:
        """regions.csv."""
        for name, profile in self.profiles.items():
            run = self._read[name][0]
            identity = {
                "run": name,
                **{key: run.planned[key] for key in ("variant", "workload", "concurrency")},
                "start_id": run.entry.get("start_id"),
                "valid": int(profile.valid),
            }
            for table in profile.tables:
                for region in table.regions:
                    yield {**identity, **_figures(table, region)}


def _figures(table: Table, region: Region) -> Row:
    names = ("region", "calls_per_step", "ms_p50", "ms_p90", "ms_mean", "share", "ceiling")
    waits = ("wait_ms", "transfer_ms")
    return {
        "phase": table.phase,
        "rank": table.rank,
        "steps": table.steps,
        **{name: getattr(region, name) for name in (*names, *waits)},
    }


def document(
    profiles: Mapping[str, Profile], given: Mapping[str, Profile] | None = None
) -> dict[str, Any]:
    """profiles.json: of the study's own runs, and of files by their name in the config."""
    return {
        "schema": SCHEMA,
        "profiles": {name: step_table.to_json(profile) for name, profile in profiles.items()},
        **({"given": {n: step_table.to_json(p) for n, p in given.items()}} if given else {}),
    }


def load(path: Path) -> tuple[dict[str, Profile], dict[str, Profile]]:
    """Run -> its profile, and name -> profile of those given by file; none where a study of an older version has no
    such file. Raises ValueError for another or a damaged file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, {}
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f'{path}: schema "{SCHEMA}" expected')
    try:
        own, given = (
            {name: step_table.of_json(told) for name, told in (data.get(which) or {}).items()}
            for which in ("profiles", "given")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: no profile ({error!r})") from error
    return own, given
