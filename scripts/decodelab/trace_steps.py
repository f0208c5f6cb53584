"""The steps in a trace: when each began, what phase it was, how that is known.

In: `trace_events.Trace`. Out: `Steps`, or None where none can be told. Known are, in this order:
1. annotations of the step itself: vLLM's `execute_context_1(9)_generation_0(0)`, which tell the phase, our own
   exported ones, `execute_model`-like ones;
2. `ProfilerStep#n` of torch.profiler's schedule;
3. on a device, the sampler's kernel: where the same sequence of kernels lies between any two of its calls, each is
   the end of a step. A sequence without a sampler is none: a model's layers repeat as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from decodelab import step_kernels
from decodelab.trace_events import Columns, Trace
from decodelab.trace_time import Ints

QUIET_NS = 200_000_000  # longer without a step: the server idled, and the step before has no cycle
ALIKE = 4  # least equal sequences that make steps
SHORTEST = 5  # kernels in such a sequence

STEP = "decodelab step"  # our own annotation: "decodelab step 7 (decode)"
_EXECUTE = re.compile(r"execute_(?:\d+_)?context_(\d+)\(.*?\)_generation_(\d+)\(")
_CACHED = re.compile(r"execute_new_(\d+)_cached_(\d+)")
_OWN = re.compile(re.escape(STEP) + r" \d+ \((prefill|decode|mixed)\)")
_PLAIN = (
    "execute_model",
    "gpu_model_runner: preprocess",
    "Preprocess",
    "gpu_model_runner: forward",
)
_SCHEDULE = re.compile(r"ProfilerStep#\d+")


@dataclass(frozen=True)
class Steps:
    """Times in ns. `end` is the next step's begin where it follows at once, `host_end` the end of its
    annotation. `counted`: it has a cycle. `on_device`: the times are the device's own."""

    how: str  # annotation, schedule, sequence
    begin: Ints
    host_end: Ints
    end: Ints
    phase: tuple[str, ...]
    counted: NDArray[np.bool_]
    place: int | None = None  # the thread of the annotations
    on_device: bool = False

    def __len__(self) -> int:
        return len(self.begin)

    def of(self, at: Ints) -> Ints:
        """The step in which each instant lies, -1 for none."""
        k = np.searchsorted(self.begin, at, side="right") - 1
        return np.where((k >= 0) & (at < self.end[np.maximum(k, 0)]), k, -1)


def find(trace: Trace) -> Steps | None:
    for marks, on_device in ((trace.marks, False), (trace.device_marks, True)):
        for phase_of, whole in _families():
            if steps := _annotated(trace, marks, phase_of, whole, on_device):
                return steps
    return _by_sequence(trace)


def _families() -> list[tuple[Callable[[str], str | None], bool]]:
    """How each family tells its steps' phase (None: no such step), and whether an annotation is
    the whole step, or the next one's begin its end."""
    plain = [lambda name, n=n: "all" if n in name else None for n in _PLAIN]
    return [
        (_of_execute, False),
        (lambda name: m[1] if (m := _OWN.fullmatch(name)) else None, True),
        *((p, False) for p in plain),
        (lambda name: "all" if _SCHEDULE.fullmatch(name) else None, True),
    ]


def _of_execute(name: str) -> str | None:
    found = _EXECUTE.match(name)
    if found:
        prefills, decodes = int(found[1]), int(found[2])
        return (
            "mixed"
            if prefills and decodes
            else "prefill"
            if prefills
            else "decode"
            if decodes
            else "none"
        )
    if older := _CACHED.match(name):
        # a request in the cache may still be at its prompt
        return ("mixed" if int(older[2]) else "prefill") if int(older[1]) else "all"
    return None


def _annotated(
    trace: Trace,
    marks: Columns,
    phase_of: Callable[[str], str | None],
    whole: bool,
    on_device: bool,
) -> Steps | None:
    phases = [phase_of(n) for n in trace.names]
    mine = np.array([p is not None for p in phases] or [False])
    marks = marks.take(mine[marks.name] if len(marks) else [])
    if not len(marks):
        return None
    place = int(np.bincount(marks.place).argmax())
    marks = marks.take(marks.place == place)
    outer = np.concatenate(([True], marks.begin[1:] >= np.maximum.accumulate(marks.end)[:-1]))
    marks = marks.take(outer)
    phase = tuple(str(phases[n]) for n in marks.name)
    if whole:
        end, counted = marks.end, marks.end > marks.begin
    else:
        following = np.append(marks.begin[1:], marks.end[-1:])
        counted = np.append(following[:-1] - marks.end[:-1] <= QUIET_NS, False)
        end = np.where(counted, following, marks.end)
    counted = counted & np.array([p != "none" for p in phase])
    if not counted.any():
        return None
    how = "schedule" if whole and _SCHEDULE.fullmatch(trace.names[marks.name[0]]) else "annotation"
    return Steps(how, marks.begin, marks.end, end, phase, counted, place, on_device)


def _by_sequence(trace: Trace) -> Steps | None:
    work = trace.device
    if len(work) < ALIKE * SHORTEST or len(np.unique(work.device)) > 1:
        return None
    counts = np.bincount(work.name, minlength=len(trace.names))
    samplers = [
        n
        for n in np.flatnonzero(counts > ALIKE)
        if step_kernels.region_of(trace.names[n]) == "sampler"
    ]
    for anchor in sorted(samplers, key=lambda n: counts[n]):
        places = np.flatnonzero(work.name == anchor)
        names = work.name.tolist()
        between = [tuple(names[a + 1 : b + 1]) for a, b in pairwise(places)]
        usual, often = Counter(between).most_common(1)[0]
        if often < ALIKE or often * 2 < len(between) or len(usual) < SHORTEST:
            continue
        edges = work.end[places]
        busy_from = work.begin[places[:-1] + 1]
        alike = np.array([b == usual for b in between]) & (busy_from - edges[:-1] <= QUIET_NS)
        alike &= np.diff(edges) > 0
        if alike.any():
            begin, end = edges[:-1], edges[1:]
            return Steps("sequence", begin, end, end, ("all",) * len(begin), alike, None, True)
    return None
