"""The timeline of a profile as a Chrome trace, to open in Perfetto or chrome://tracing.

In: a `Profile` with a timeline. Out: {"traceEvents": [...]}, times in µs. Each rank is a process; the worker's,
the engine's and the device's spans are threads of it. Our own trace reader takes it back: each step is an annotation,
each span an op (or, of a device, a kernel) with its region's name.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from decodelab.step_table import Profile
from decodelab.trace_steps import STEP

FOLDER = "traces"  # beside the tables
SUFFIX = ".json.gz"
ENGINE_PID = 1_000_000  # a process beside the ranks
_THREADS = {"worker": 1, "engine": 2, "device": 3}


def trace(profile: Profile) -> dict[str, Any]:
    """ValueError for a profile without a timeline."""
    if not profile.timeline:
        raise ValueError("no timeline in this profile")
    events: list[dict[str, Any]] = []
    for step in profile.timeline:
        events += _step(step)
    threads = {(e["pid"], e["tid"]) for e in events}
    ranks = {s.get("rank") for s in profile.timeline} - {None}
    told = {"rank": next(iter(ranks))} if len(ranks) == 1 else {}
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        **({"distributedInfo": told} if told else {}),
        "traceEvents": [*_names(threads), *events],
    }


def write(profile: Profile, path: Path) -> None:
    """Gzip where the name ends so; the same profile makes the same bytes."""
    data = json.dumps(trace(profile), ensure_ascii=False).encode()
    waiting = path.with_name(f".{path.name}.{os.getpid()}")
    waiting.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    waiting.replace(path)


def write_all(profiles: Mapping[str, Profile], folder: Path) -> None:
    """A file for each run that has a timeline; of runs that are gone or have none the file goes too."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {run: f"{run}{SUFFIX}" for run, profile in profiles.items() if profile.timeline}
    for file in folder.glob(f"*{SUFFIX}"):
        if file.name not in names.values():
            file.unlink()
    for run, name in names.items():
        write(profiles[run], folder / name)


def _step(step: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    rank = step.get("rank")
    role = "device" if step.get("device") else step.get("role") or "worker"
    place = {"pid": ENGINE_PID if rank is None else rank, "tid": _THREADS[role]}
    spans = step["spans"]
    begin = step.get("begin_ms", min((s[2] for s in spans), default=None))
    end = step.get("end_ms", max((s[3] for s in spans), default=None))
    if role == "worker" and begin is not None and end is not None:
        name = f"{STEP} {step['step']} ({step['phase']})"
        yield {**place, "ph": "X", "cat": "user_annotation", "name": name, **_times(begin, end)}
    for region, depth, begin_ms, end_ms in spans:
        args: dict[str, Any] = {"depth": depth, "step": step["step"]}
        if role == "device":
            args |= {"device": 0 if rank is None else rank, "stream": depth}
        yield {
            **place,
            "ph": "X",
            "cat": "kernel" if role == "device" else "cpu_op",
            "name": region,
            **_times(begin_ms, end_ms),
            "args": args,
        }


def _times(begin_ms: float, end_ms: float) -> dict[str, float]:
    """µs with the digits of a ns."""
    begin, end = round(begin_ms * 1e6), round(end_ms * 1e6)
    return {"ts": begin / 1000, "dur": (end - begin) / 1000}


def _names(threads: Iterable[tuple[int, int]]) -> Iterable[dict[str, Any]]:
    roles = {number: role for role, number in _THREADS.items()}
    for pid, tid in sorted(threads):
        process = "engine" if pid == ENGINE_PID else f"rank {pid}"
        for what, name in (("process_name", process), ("thread_name", roles[tid])):
            yield {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}
