"""Chrome traces of torch.profiler, one file a rank, as a step profile.

In: trace files (see `trace_stream`). Out: `step_table.Profile` of source `trace`: regions are classes of kernels
(`step_kernels`) and causes of idle time (`trace_account`); without a device, classes of the CPU's ops. ValueError
where a file is no trace, or has nothing in it that takes time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from decodelab import (
    step_kernels,
    step_regions,
    step_words,
    trace_account,
    trace_events,
    trace_steps,
    words,
)
from decodelab.step_kernels import IDLE
from decodelab.step_table import Kernel, Problem, Profile, Region, Table
from decodelab.trace_account import Account
from decodelab.trace_events import Trace
from decodelab.trace_ranks import collectives, waits
from decodelab.trace_steps import Steps
from decodelab.trace_stream import NotATrace, TraceFile
from decodelab.trace_timeline import timeline

TOP_KERNELS = 30
LINKED = 0.9  # least share of the device's work whose launch is known, for a step to be told by it
CLOSED = 0.03  # largest difference of the regions' sum and the step
_RANK = re.compile(r"rank[_-]?(\d+)")


@dataclass(frozen=True)
class Rank:
    rank: int
    trace: Trace
    steps: Steps | None
    account: Account


def read(files: Sequence[Path]) -> Profile:
    doubts: list[Problem] = []
    ranks: list[Rank] = []
    for n, path in enumerate(files):
        trace = _read(path, doubts)
        if trace is None:
            continue
        ranks += _ranks(trace, _rank(path, trace), n, path, doubts)
    if not ranks:
        said = words.load("en")
        why = "; ".join(step_words.sentence("doubt", doubt, said) for doubt in doubts)
        raise NotATrace(f"no trace of work: {why}")
    ranks.sort(key=lambda r: r.rank)
    numbers = [r.rank for r in ranks]
    if len(set(numbers)) < len(numbers):
        twice = next(n for n in numbers if numbers.count(n) > 1)
        raise ValueError(f"two traces of rank {twice}: give one capture of each rank")
    told = [r for r in ranks if r.steps is not None]
    if told and len(told) < len(ranks):
        missing = [r.rank for r in ranks if r.steps is None]
        raise ValueError(
            f"steps are told on some ranks only, not on {missing}: give the others alone"
        )
    return _profile(files, ranks, doubts)


def _read(path: Path, doubts: list[Problem]) -> Trace | None:
    """None: nothing in it that takes time, such as the trace of a process without a model."""
    file = TraceFile(path)
    try:
        trace = trace_events.read(file, file.head)
    except NotATrace as error:
        raise NotATrace(f"{path.name}: {error}") from None
    if file.damage:
        figures = {"file": path.name, "why": file.damage, "events": file.events}
        doubts.append(Problem("trace_cut", figures))
    if trace.skipped:
        doubts.append(Problem("events_without_time", {"file": path.name, "events": trace.skipped}))
    if not len(trace.device) and not len(trace.ops):
        doubts.append(Problem("nothing_timed", {"file": path.name, "events": file.events}))
        return None
    return trace


def _rank(path: Path, trace: Trace) -> int | None:
    told = trace.head.get("distributedInfo")
    if isinstance(told, dict) and isinstance(told.get("rank"), int):
        return int(told["rank"])
    found = _RANK.search(path.name)
    return int(found[1]) if found else None


def _ranks(trace: Trace, rank: int | None, n: int, path: Path, doubts: list[Problem]) -> list[Rank]:
    """One a file; of a process with several devices one a device."""
    steps = trace_steps.find(trace)
    if steps is None:
        doubts.append(Problem("steps_not_found", {"file": path.name}))
    elif steps.how == "sequence":
        doubts.append(Problem("steps_by_sequence", {"file": path.name}))
    devices = np.unique(trace.device.device).tolist() or [None]
    out = []
    for device in devices:
        number = (n if rank is None else rank) if len(devices) == 1 else device
        frame = steps or _whole(trace, device)
        account = (
            trace_account.of_cpu(trace, frame)
            if device is None
            else trace_account.of_device(trace, frame, device)
        )
        linked = account.linked
        if steps and not steps.on_device and linked is not None and linked < LINKED:
            doubts.append(Problem("not_linked", {"file": path.name, "share": linked}))
        out.append(Rank(number, trace, steps, account))
    return out


def _whole(trace: Trace, device: int | None) -> Steps:
    """No steps: all that was traced as one frame."""
    events = trace.ops if device is None else trace.device.take(trace.device.device == device)
    place = None if device is not None else int(np.bincount(events.place).argmax())
    if place is not None:
        events = events.take(events.place == place)
    begin, end = events.begin.min(keepdims=True), events.end.max(keepdims=True)
    return Steps("none", begin, end, end, ("all",), np.array([True]), place, device is not None)


def _profile(files: Sequence[Path], ranks: list[Rank], doubts: list[Problem]) -> Profile:
    calls = collectives([r.account for r in ranks]) if len(ranks) > 1 else None
    shared = None if calls is None else waits(calls)
    if len(ranks) > 1 and shared is None:
        doubts.append(Problem("collectives_unlike", {"ranks": [r.rank for r in ranks]}))
    stepped = ranks[0].steps is not None
    tables = []
    for phase in _phases(ranks):
        own = [
            _table(phase, r.rank, [r.account], None if shared is None else [shared[i]], stepped)
            for i, r in enumerate(ranks)
        ]
        if len(ranks) > 1:
            own.append(_table(phase, None, [r.account for r in ranks], shared, stepped))
        tables += own
    main = "decode" if any(t.phase == "decode" for t in tables) else tables[0].phase
    for t in tables:
        if t.closure is not None and abs(t.closure) > CLOSED:
            doubts.append(
                Problem("not_closed", {"phase": t.phase, "rank": t.rank, "closure": t.closure})
            )
    on_device = len(ranks[0].trace.device) > 0
    return Profile(
        source="trace",
        mode="event" if on_device else None,
        files=tuple(str(f) for f in files),
        ranks=len(ranks),
        tables=tuple(tables),
        doubts=tuple(doubts),
        timeline=timeline([(r.rank, r.account, r.steps) for r in ranks if r.steps], main),
        kernels=_kernels(ranks, main, stepped),
        **(_device_figures(ranks, main, stepped) if on_device else {}),
    )


def _phases(ranks: list[Rank]) -> list[str]:
    found = {
        phase
        for r in ranks
        for phase, counted in zip(r.account.phase, r.account.counted, strict=True)
        if counted
    }
    return [p for p in (*reversed(step_regions.PHASES[:2]), "mixed", "all") if p in found]


def _of_phase(account: Account, phase: str) -> Any:
    return account.counted & (np.array(account.phase) == phase)


def _table(
    phase: str,
    rank: int | None,
    accounts: Sequence[Account],
    shared: Sequence[Any] | None,
    stepped: bool,
) -> Table:
    """`shared`: per account the ms waited and transferred of each step (steps x 2)."""
    which = [_of_phase(a, phase) for a in accounts]
    step = np.concatenate([a.step_ms[w] for a, w in zip(accounts, which, strict=True)])
    names = sorted({n for a in accounts for n in a.regions}, key=step_regions.order)
    both = None
    if shared is not None:
        both = np.concatenate([s[w] for s, w in zip(shared, which, strict=True)]).mean(axis=0)
    regions = []
    for name in names:
        parts = [
            (a.ms[w, a.regions.index(name)], a.calls[w, a.regions.index(name)])
            if name in a.regions
            else (np.zeros(w.sum()), np.zeros(w.sum()))
            for a, w in zip(accounts, which, strict=True)
        ]
        ms, calls = (np.concatenate(p) for p in zip(*parts, strict=True))
        if ms.any() or calls.any():
            regions.append(_region(name, ms, calls, step, both, stepped))
    total = math.fsum(r.total_ms or 0 for r in regions)
    closure = float(total / step.sum() - 1) if len(step) and step.sum() else None
    figures = _spread(step) if stepped else (None, None, None)
    return Table(
        phase,
        rank,
        len(step) if stepped else None,
        *figures,
        tuple(regions),
        closure=closure,
        total_ms=float(step.sum()),
    )


def _region(name: str, ms: Any, calls: Any, step: Any, both: Any, stepped: bool) -> Region:
    share = float(ms.sum() / step.sum()) if step.sum() else None
    idle = name in IDLE and not calls.any()
    p50, p90, mean = _spread(ms) if stepped else (None, None, None)
    region = Region(
        name,
        float(np.median(calls)) if stepped and not idle else None,
        p50,
        p90,
        mean,
        share,
        1 / (1 - share) if share is not None and share < 1 else None,
        total_ms=float(ms.sum()),
    )
    if name == "collective" and both is not None and stepped:
        return replace(region, wait_ms=float(both[0]), transfer_ms=float(both[1]))
    return region


def _spread(values: Any) -> tuple[float | None, float | None, float | None]:
    if not len(values):
        return None, None, None
    p50, p90 = np.percentile(values, [50, 90])
    return float(p50), float(p90), float(values.mean())


def _device_figures(ranks: list[Rank], phase: str, stepped: bool) -> dict[str, Any]:
    which = [_of_phase(r.account, phase) for r in ranks]
    step = sum(r.account.step_ms[w].sum() for r, w in zip(ranks, which, strict=True))
    busy = sum(r.account.busy_ms[w].sum() for r, w in zip(ranks, which, strict=True))
    steps = sum(int(w.sum()) for w in which)
    launches = None
    if stepped and all(r.account.launches is not None for r in ranks):
        counts = [r.account.launches[w] for r, w in zip(ranks, which, strict=True)]  # type: ignore[index]
        launches = float(np.median(np.concatenate(counts)))
    return {
        "gpu_busy_share": float(busy / step) if step else None,
        "gap_ms_per_step": float((step - busy) / steps) if stepped and steps else None,
        "launches_per_step": launches,
    }


def _kernels(ranks: list[Rank], phase: str, stepped: bool) -> tuple[Kernel, ...]:
    """Those that take most of the time; means over steps and ranks."""
    found: dict[str, list[float]] = {}
    category: dict[str, str] = {}
    steps = 0
    for r in ranks:
        which = _of_phase(r.account, phase)
        steps += int(which.sum())
        work = r.account.work
        mine = np.flatnonzero((work.step >= 0) & which[np.maximum(work.step, 0)])
        whole = (
            (work.events.end - work.events.begin) if len(r.trace.device) else work.own
        )  # an op's children are ops as well
        number = work.events.name[mine]
        size = len(r.trace.names)
        sums = [
            np.bincount(number, weights=w, minlength=size)
            for w in (np.ones(len(mine)), whole[mine] / 1e6, work.own[mine] / 1e6)
        ]
        for i in mine[np.unique(number, return_index=True)[1]]:
            category.setdefault(r.trace.names[work.events.name[i]], work.region[i])
        for n in np.flatnonzero(sums[0]):
            if r.trace.names[n] in step_kernels.SCOPES:
                continue  # Python's time
            row = found.setdefault(r.trace.names[n], [0.0, 0.0, 0.0])
            for k, s in enumerate(sums):
                row[k] += float(s[n])
    busy = math.fsum(row[2] for row in found.values())
    top = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))[:TOP_KERNELS]
    return tuple(
        Kernel(
            name,
            category[name],
            calls / steps if stepped else None,
            ms / steps if stepped else None,
            own / busy if busy else None,
            total_ms=ms,
            total_calls=calls,
        )
        for name, (calls, ms, own) in top
    )
