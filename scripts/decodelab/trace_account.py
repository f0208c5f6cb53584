"""Where the time of each step went, of one rank: the work's own time by region, and why the device idled.

In: a trace, its steps and whose work it is (a device, or the CPU's ops). Out: `Account`, per step: ms and calls by
region. Work counts for the step that launched it; where several kernels overlap an instant counts once, for the
one that is no collective and no copy. Idle time counts for the step in which it lies, by its cause:

- `engine`: nothing is launched any more, the next step has not begun;
- `prepare`: the step has begun and has launched nothing yet;
- `sync`: the host waited for the device in between, so that no work was queued behind;
- `launch_gap`: the next kernel was launched after the device had run dry, and no such wait lay in between;
- `unattributed`: the rest (the kernel was launched in time), and what nothing tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodelab import step_kernels
from decodelab.step_kernels import IDLE
from decodelab.step_regions import UNATTRIBUTED
from decodelab.trace_events import NO_LINK, Columns, Trace
from decodelab.trace_steps import Steps
from decodelab.trace_time import Ints, covered, exclusive, union

_LAST = {"collective": 1, "copy": 1}  # overlapped work that would cost nothing to be rid of
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """Kernels and copies of a device, or ops of the CPU; `own` is exclusive time, `call` whether it
    begins a call of its region, `step` -1 outside of all steps."""

    events: Columns
    region: list[str]
    own: Ints
    call: NDArray[np.bool_]
    step: Ints


@dataclass(frozen=True)
class Account:
    """Arrays by step; ms and calls steps x regions."""

    phase: tuple[str, ...]
    counted: NDArray[np.bool_]
    step_ms: Floats
    regions: tuple[str, ...]
    ms: Floats
    calls: Floats
    busy_ms: Floats  # time of the step in which the device works
    launches: Floats | None  # None: the trace has no calls of launches
    work: Work
    linked: float | None  # share of the device's work whose launch is known


def of_device(trace: Trace, steps: Steps, device: int) -> Account:
    events = trace.device.take(trace.device.device == device)
    region = [step_kernels.region_of(n) for n in trace.names]
    rank = np.array([_LAST.get(r, 0) for r in region] or [0])[events.name]
    launched = _launched(trace, events)
    known = launched >= 0
    at = np.where(known & (not steps.on_device), launched, events.begin)
    own = exclusive(events.begin, events.end, rank)
    work = Work(
        events, [region[n] for n in events.name], own, np.ones(len(events), bool), steps.of(at)
    )
    launches = trace.launches() if len(trace.calls) else None
    idle = _device_idle(trace, steps, work, launched)
    return _account(steps, work, idle, launches, float(known.mean()) if len(events) else None)


def of_cpu(trace: Trace, steps: Steps) -> Account:
    place = steps.place
    if place is None:
        place = int(np.bincount(trace.ops.place).argmax())
    scope = np.array([n in step_kernels.SCOPES for n in trace.names] or [False])
    marks = trace.marks.take(scope[trace.marks.name] if len(trace.marks) else [])
    both = _joined(trace.ops, marks)
    work = _nested(trace.names, both.take(both.place == place), steps)
    gaps = _gaps(steps, *union(work.events.begin, work.events.end))
    host_end = np.maximum(steps.host_end, _latest(steps, work.events.end, work.step))
    pieces = _cut(gaps, np.concatenate((steps.begin, host_end, steps.end)))
    step = steps.of(pieces[0])
    late = (step >= 0) & (pieces[0] >= host_end[step])
    return _account(steps, work, (step, np.where(late, 0, 4), pieces[1] - pieces[0]), None, None)


def _joined(one: Columns, other: Columns) -> Columns:
    columns = [
        np.concatenate((getattr(one, c), getattr(other, c))) for c in one.__dataclass_fields__
    ]
    both = Columns(*columns)
    return both.take(np.lexsort((-both.end, both.begin)))


def _nested(names: list[str], events: Columns, steps: Steps) -> Work:
    """Ops within ops, on one thread: a child's time is taken from its parent's."""
    begin, end = events.begin.tolist(), events.end.tolist()
    own = (events.end - events.begin).tolist()
    region = [step_kernels.region_of(names[n]) for n in events.name]
    call = [True] * len(own)
    stack: list[int] = []
    for i, start in enumerate(begin):
        while stack and end[stack[-1]] <= start:
            stack.pop()
        if stack:
            parent = stack[-1]
            own[parent] -= min(end[i], end[parent]) - start
            if region[parent] in step_kernels.WHOLE:
                region[i] = region[parent]
            call[i] = region[parent] != region[i]
        stack.append(i)
    return Work(
        events, region, np.array(own, np.int64), np.array(call, bool), steps.of(events.begin)
    )


def _launched(trace: Trace, events: Columns) -> Ints:
    """When each was launched, -1 where that is not told."""
    calls = trace.calls.take(trace.calls.link != NO_LINK)
    if not len(calls):
        return np.full(len(events), -1, np.int64)
    order = np.argsort(calls.link, kind="stable")  # of equal links the first call is the outer one
    links, begin = calls.link[order], calls.begin[order]
    i = np.minimum(np.searchsorted(links, events.link), len(links) - 1)
    return np.where((links[i] == events.link) & (events.link != NO_LINK), begin[i], -1)


def _gaps(steps: Steps, busy_from: Ints, busy_to: Ints) -> tuple[Ints, Ints]:
    """When there is no work, from the first step's begin to the last one's end."""
    first, last = steps.begin[:1], steps.end.max(keepdims=True)
    begin, end = np.concatenate((first, busy_to)), np.concatenate((busy_from, last))
    begin, end = np.maximum(begin, first), np.minimum(end, last)
    return begin, np.maximum(begin, end)


def _cut(gaps: tuple[Ints, Ints], at: Ints) -> tuple[Ints, Ints, Ints]:
    """The gaps cut at these instants: begins, ends, and of which gap each piece is."""
    begin, end = gaps
    edges = np.unique(np.concatenate((begin, end, at)))
    a, b = edges[:-1], edges[1:]
    k = np.searchsorted(begin, a, side="right") - 1
    inside = (k >= 0) & (b <= end[np.maximum(k, 0)])
    return a[inside], b[inside], k[inside]


def _device_idle(trace: Trace, steps: Steps, work: Work, launched: Ints) -> tuple[Ints, Ints, Ints]:
    """Of each piece of idle time: its step, its cause (index of IDLE), its length."""
    busy_from, busy_to = union(work.events.begin, work.events.end)
    gaps = _gaps(steps, busy_from, busy_to)
    cause = _causes(trace, work.events, launched, gaps, busy_from)
    first, host_end = steps.begin, steps.end
    if not steps.on_device and (launched >= 0).any():
        calls = np.concatenate((trace.launches().begin, launched[launched >= 0]))
        first = _earliest(steps, calls)
        waits = np.concatenate((trace.launches().end, trace.blocking().end))
        host_end = np.minimum(
            np.maximum(steps.host_end, _latest(steps, waits, steps.of(waits))), steps.end
        )
    a, b, gap = _cut(gaps, np.concatenate((steps.begin, steps.end, first, host_end)))
    step = steps.of(a)
    why = cause[gap]
    late = why != IDLE.index(UNATTRIBUTED)
    why = np.where(late & (a < first[step]), IDLE.index("prepare"), why)
    why = np.where(late & (a >= host_end[step]), IDLE.index("engine"), why)
    return step, np.where(why < 0, IDLE.index(UNATTRIBUTED), why), b - a


def _causes(
    trace: Trace, events: Columns, launched: Ints, gaps: tuple[Ints, Ints], busy_from: Ints
) -> Ints:
    """Of each gap, from the launch of what ended it: sync, launch_gap, unattributed; -1 unknown."""
    out = np.full(len(gaps[0]), -1, np.int64)
    if not len(busy_from):
        return out
    order = np.argsort(events.begin, kind="stable")
    long = order[(events.end > events.begin)[order]]
    nexts = long[np.searchsorted(events.begin[long], busy_from)]
    launch, dry = launched[nexts], gaps[0][:-1]
    blocking = trace.blocking()
    from_, to = union(blocking.begin, blocking.end)
    i = np.searchsorted(from_, launch) - 1
    waited = (i >= 0) & (to[np.maximum(i, 0)] > dry) if len(to) else np.zeros(len(dry), bool)
    why = np.where(waited, IDLE.index("sync"), IDLE.index("launch_gap"))
    why = np.where(launch > dry, why, IDLE.index(UNATTRIBUTED))
    out[:-1] = np.where(launch < 0, -1, why)
    return out


def _earliest(steps: Steps, at: Ints) -> Ints:
    """The first of these instants in each step; its end where there is none."""
    out, k = steps.end.copy(), steps.of(at)
    np.minimum.at(out, k[k >= 0], at[k >= 0])
    return out


def _latest(steps: Steps, at: Ints, step: Ints) -> Ints:
    out = steps.begin.copy()
    np.maximum.at(out, step[step >= 0], at[step >= 0])
    return out


def _account(
    steps: Steps,
    work: Work,
    idle: tuple[Ints, Ints, Ints],
    launches: Columns | None,
    linked: float | None,
) -> Account:
    names = [*sorted(set(work.region)), *IDLE]
    regions = tuple(dict.fromkeys(names))
    number = {name: i for i, name in enumerate(regions)}
    ms, calls = np.zeros((2, len(steps), len(regions)))
    column = np.array([number[r] for r in work.region], np.int64)
    mine = work.step >= 0
    np.add.at(ms, (work.step[mine], column[mine]), work.own[mine] / 1e6)
    begun = mine & work.call
    np.add.at(calls, (work.step[begun], column[begun]), 1)
    step, why, length = idle
    inside = step >= 0
    column = np.array([number[name] for name in IDLE])[why[inside]]
    np.add.at(ms, (step[inside], column), length[inside] / 1e6)
    spent = union(work.events.begin, work.events.end)
    busy = covered(*spent, steps.end) - covered(*spent, steps.begin)
    per_step = None
    if launches is not None and len(launches) and not steps.on_device:
        k = steps.of(launches.begin)
        per_step = np.bincount(k[k >= 0], minlength=len(steps)).astype(float)
    return Account(
        steps.phase,
        steps.counted,
        (steps.end - steps.begin) / 1e6,
        regions,
        ms,
        calls,
        busy / 1e6,
        per_step,
        work,
        linked,
    )
