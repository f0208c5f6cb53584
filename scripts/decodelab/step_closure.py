"""A decode step as a cycle, and what of it has a name.

In: a worker's steps and its engine's, on one clock. Out: `Cycle`s: from the begin of a decode step
to the begin of the next one with as many requests and no idle time between; and of each which
region took how much of it.

In the worker's step a region has its exclusive time. On a device that is the device's: what only
the host has counts before the device begins and after it ends, for between the two it is hidden.
The rest of the cycle, while the worker does nothing, is the engine's: its scheduler lies at the
begin of an engine step, its output at the end, and between them the call of the executor
(handover), of which the worker's step is no part. An engine in the worker's own process also tells
what of that is its own code (engine); between two steps all of it is. What runs beside the worker
(async scheduling) costs the step nothing and is not in it. What is left has no name.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from decodelab.step_lines import Step

IDLE_NS = 200_000_000  # longer without a step: the engine had nothing to do
_LATE = ("sync", "output")  # what a host does once the device is done
Parts = dict[str, float]  # region -> ns


@dataclass(frozen=True)
class Cycle:
    step: Step  # the worker's
    ns: int
    parts: Parts
    calls: Mapping[str, int]

    @property
    def named(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Engine:
    """The steps of the engine that calls a worker, in order of time."""

    steps: Sequence[Step]
    same_process: bool  # as the worker: one stack, and the engine's times hold none of the worker's
    ends: list[int] = field(default_factory=list)

    def between(self, begin: int, end: int) -> Iterator[tuple[Step, Step | None]]:
        """The steps that touch this time, each with the one behind it."""
        at = bisect.bisect_right(self.ends, begin)
        at = max(0, at - 1)  # whose end may lie before: the gap behind it touches
        for n in range(at, len(self.steps)):
            if self.steps[n].t0 >= end:
                return
            yield self.steps[n], self.steps[n + 1] if n + 1 < len(self.steps) else None


def engine(steps: Sequence[Step], same_process: bool) -> Engine:
    return Engine(steps, same_process, [step.t1 for step in steps])


def cycles(worker: Sequence[Step], of: Engine | None) -> list[Cycle]:
    """The decode cycles of one rank; the last step of a batch has none."""
    return [cycle(one, after, of) for one, after in pairwise(worker) if _follows(one, after)]


def _follows(one: Step, after: Step) -> bool:
    return (
        one.phase == after.phase == "decode"
        and after.i == one.i + 1
        and after.reqs == one.reqs
        and after.t0 - one.t1 <= IDLE_NS
    )


def cycle(one: Step, after: Step, of: Engine | None) -> Cycle:
    parts = within(one)
    calls = {name: timed.calls for name, timed in {**one.regions, **(one.device or {})}.items()}
    if of is not None:
        _add_rest(parts, calls, one, after, of)
    return Cycle(one, after.t0 - one.t0, parts, calls)


def within(step: Step) -> Parts:
    """The named times of a worker's step, ns."""
    if step.device is None:
        return {name: float(timed.exclusive) for name, timed in step.regions.items()}
    parts = {name: float(timed.exclusive) for name, timed in step.device.items()}
    span = step.device_ns
    if span is None:
        return parts
    outside = max(0, step.end - step.t0 - span)
    before = outside if step.device_begin is None else min(outside, max(0, step.device_begin))
    only = {n: t.exclusive for n, t in step.regions.items() if n not in step.device}
    early = {name: ns for name, ns in only.items() if name not in _LATE}
    late = {name: ns for name, ns in only.items() if name in _LATE}
    used = _fit(parts, early, before)
    _fit(parts, late, outside - (used if step.device_begin is None else before))
    return parts


def _fit(parts: Parts, wanted: Mapping[str, float], room: float) -> float:
    """Add as much of `wanted` as there is room for, in proportion; what was added."""
    total = sum(wanted.values())
    used = max(0.0, min(total, room))
    for name, ns in wanted.items():
        parts[name] = parts.get(name, 0.0) + (ns * used / total if total else 0.0)
    return used


def _add_rest(parts: Parts, calls: dict[str, int], one: Step, after: Step, of: Engine) -> None:
    begin, end = min(one.end, after.t0), after.t0
    # Between its two calls (execute, sample) the worker stands still inside its own step.
    inside = one.ns - one.own - sum(timed.exclusive for timed in one.regions.values())
    waits = max(0, inside) if one.device is None else 0
    for mine, behind in of.between(one.t0, end):
        before_end = max(0, min(mine.t1, end) - max(mine.t0, begin))
        caller = mine.t0 <= one.t0 < mine.t1
        if caller:
            calls.update({name: timed.calls for name, timed in mine.regions.items()})
        waited = waits if caller else 0
        if before_end or waited:
            _add_step(parts, mine, (begin, end), waited, of.same_process)
        if behind is not None and behind.i == mine.i + 1 and behind.t0 - mine.t1 <= IDLE_NS:
            _grow(parts, "engine", _overlap(mine.t1, behind.t0, begin, end))


def _add_step(
    parts: Parts, mine: Step, rest: tuple[int, int], waits: int, same_process: bool
) -> None:
    """What of an engine's step lies in the rest of a cycle."""
    times = {name: timed.exclusive for name, timed in mine.regions.items()}
    handover, output = times.pop("handover", None), times.pop("output", 0)
    head = min(sum(times.values()), mine.ns)
    tail = min(output, mine.ns - head)
    _share_out(parts, times, _overlap(mine.t0, mine.t0 + head, *rest))
    if "output" in mine.regions:
        _grow(parts, "output", _overlap(mine.t1 - tail, mine.t1, *rest))
    middle = _overlap(mine.t0 + head, mine.t1 - tail, *rest) + waits
    if same_process:
        told = {} if handover is None else {"handover": handover}
        _share_out(parts, {**told, "engine": mine.own}, middle)
    else:  # it waits for the worker there, in its call or in its own code
        _grow(parts, "handover" if handover is not None else "engine", middle)


def _share_out(parts: Parts, weights: Mapping[str, float], ns: float) -> None:
    total = sum(weights.values())
    for name, weight in weights.items():
        if total:
            _grow(parts, name, ns * weight / total)


def _grow(parts: Parts, name: str, ns: float) -> None:
    parts[name] = parts.get(name, 0.0) + ns


def _overlap(begin: int, end: int, low: int, high: int) -> int:
    return max(0, min(end, high) - max(begin, low))
