"""The step profiler's files of one run -> a `Profile`.

In: a run's folder (profile-<pid>.jsonl, profile.json), or any of the profiler's files by name. Out:
a `Profile` with a table for each phase and rank, and for several ranks one of all together; None
where a folder has no profile. Ranks and phases are kept apart; steps before the first counted
request are warm-up and dropped, as are dummy steps and those that raised. The first decode step
behind a prefill stays: its cycle begins with it, so nothing of the prefill is in it.

What only the run's twin can tell is added by `step_twin`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from decodelab import (
    step_checks,
    step_closure,
    step_collective,
    step_lines,
    step_ranks,
    step_tables,
)
from decodelab.step_closure import Cycle
from decodelab.step_ranks import Rank
from decodelab.step_table import Profile, Table

RUN_SCHEMA = "decodelab.profile_run/1"
RUN_FILE = "profile.json"
TIMELINE_STEPS = 8
Told = Mapping[str, Any]
MS = 1e6  # ns


def of_folder(folder: Path) -> Profile | None:
    """The profile of a run's folder; None: its server was not profiled."""
    paths = sorted(folder.glob("profile-*.jsonl"))
    told = _told(folder / RUN_FILE)
    if told is None and not paths:
        return None
    return of_files(paths, told if told is not None else {"complete": False})


def of_files(paths: Sequence[Path], told: Told | None = None) -> Profile:
    """`told`: what the agent says of the run. Raises OSError for a file that cannot be read."""
    lines = [path.read_bytes().split(b"\n") for path in paths]
    return of_lines(lines, [path.name for path in paths], told)


def of_lines(
    files: Iterable[Iterable[str | bytes]], names: Sequence[str] = (), told: Told | None = None
) -> Profile:
    """Of the lines of each process."""
    told = told or {}
    begin = told.get("requests_begin_ns")
    processes = [step_lines.read(lines) for lines in files]
    ranks = step_ranks.ranks(processes, begin if isinstance(begin, int) else None)
    cycles = {rank.number: step_closure.cycles(rank.steps, rank.engine) for rank in ranks}
    model = next((p.model for p in processes if p.model is not None), None)
    mode = told.get("mode") or next((p.mode for p in processes if p.mode), None)
    profile = Profile(
        source="events",
        mode=mode,
        files=tuple(names),
        ranks=len(ranks) or None,
        tables=tuple(_tables(ranks, cycles)),
        targets=tuple(_targets(processes)),
        model=model,
        timeline=tuple(_timeline(ranks, processes)),
    )
    return step_checks.checked(profile, ranks, cycles, processes, told)


def _told(path: Path) -> dict[str, Any] | None:
    """What the agent wrote of the run; None: nothing whole."""
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) and told.get("schema") == RUN_SCHEMA else None


def _tables(ranks: Sequence[Rank], cycles: Mapping[int, list[Cycle]]) -> Iterable[Table]:
    for phase in ("decode", "prefill", "mixed"):
        found = []
        for rank in ranks:
            alone = [step for step in rank.steps if step.phase == phase]
            mine = cycles[rank.number] if phase == "decode" else step_tables.alone(alone)
            if (one := step_tables.table(phase, rank.number, mine)) is not None:
                waited = _waits(rank, ranks, cycles) if phase == "decode" else None
                found.append(step_tables.with_waits(one, waited))
        yield from found
        if len(found) > 1:
            yield step_tables.together(found)


def _waits(
    rank: Rank, ranks: Sequence[Rank], cycles: Mapping[int, list[Cycle]]
) -> tuple[float, float] | None:
    same = {one.number: cycles[one.number] for one in ranks if one.group == rank.group}
    return step_collective.waits(same).get(rank.number)


def _targets(processes: Iterable[step_lines.Process]) -> Iterable[dict[str, Any]]:
    """Each target once: found, if any process found it; those of the table that no process came to
    import are not found for that reason.
    """
    told: dict[tuple[str, str], dict[str, Any]] = {}
    for process in processes:
        for one in process.targets:
            key = one["region"], one["target"]
            if key not in told or (one["found"] and not told[key]["found"]):
                told[key] = one
    for process in processes:
        for region, target, era in process.table:
            blank = {"region": region, "target": target, "found": False, "era": era}
            told.setdefault((region, target), {**blank, "why": "not imported"})
    return told.values()


def _timeline(
    ranks: Sequence[Rank], processes: Sequence[step_lines.Process]
) -> list[dict[str, Any]]:
    """A few decode steps of every rank, and what the engine did meanwhile; ms since the first began."""
    steps: dict[tuple[int | None, int], step_lines.Step] = {
        (r.number, s.i): s for r in ranks for s in r.steps if s.phase == "decode"
    }
    taken: list[tuple[int | None, int, step_lines.Spanned]] = []
    told = {
        rank.number: [
            s for s in rank.process.spans if s.role == "worker" and (rank.number, s.i) in steps
        ]
        for rank in ranks
    }
    seen = [{s.i for s in mine} for mine in told.values() if mine]
    common = set.intersection(*seen) if seen else set()
    for number, mine in told.items():
        kept = _in_a_row(common or {s.i for s in mine})
        taken += [(number, s.i, s) for s in mine if s.i in kept]
    if not taken:
        return []
    begin = min(steps[rank, i].t0 for rank, i, _ in taken)
    end = max(steps[rank, i].end for rank, i, _ in taken)
    for process in processes:
        for one in process.spans:
            if one.role == "engine" and begin <= one.spans[0][2] and one.spans[0][2] <= end:
                taken.append((None, one.i, one))
    return [_drawn(rank, one, steps.get((rank, i)), begin) for rank, i, one in taken]


def _in_a_row(numbers: set[int]) -> list[int]:
    """Of steps those that follow one another, the most of them there are, the first of equals: what lies between
    others (a prefill, or seconds) would leave no room for the steps.
    """
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if not rows or number != rows[-1][-1] + 1:
            rows.append([])
        rows[-1].append(number)
    return max((row[:TIMELINE_STEPS] for row in rows), key=len, default=[])


def _drawn(
    rank: int | None, one: step_lines.Spanned, step: step_lines.Step | None, begin: int
) -> dict[str, Any]:
    """A device's own spans count from the begin of their step."""
    zero = begin - step.t0 if one.device and step is not None else begin
    spans = [[r, depth, (b - zero) / MS, (e - zero) / MS] for r, depth, b, e in one.spans]
    return {
        "rank": rank,
        "role": one.role,
        "device": one.device,
        "step": one.i,
        "phase": "decode",
        "spans": spans,
    }
