"""Steps and the spans inside them: a stack per thread or task, with exclusive time.

The open span is a context variable, so that a coroutine keeps its own stack while others run on its thread.
Every span knows the one around it; what an inner one takes is taken off the outer's exclusive time. Times are
CLOCK_MONOTONIC nanoseconds.
"""

import time
from contextvars import ContextVar

MOST_SPANS = 20000  # of one step's timeline

now = time.monotonic_ns


class Step:
    """One step of a worker or of an engine, while it runs and until it is written."""

    __slots__ = (
        "busy",
        "calls",
        "device",
        "failed",
        "index",
        "nested",
        "opened",
        "phase",
        "regions",
        "reqs",
        "role",
        "spans",
        "t0",
        "t1",
        "tokens",
        "unnamed",
    )

    def __init__(self, role, index, keep_spans, device):
        self.role = role
        self.index = index
        self.phase = None
        self.reqs = None
        self.tokens = None
        self.t0 = 0
        self.t1 = 0
        self.busy = 0  # ns inside the calls that are the step
        self.unnamed = 0  # of these, in no region
        self.regions = {}  # name -> [calls, inclusive, exclusive] ns
        self.calls = {}  # name -> ns of each call in order, of the regions that want it
        self.opened = set()  # regions open now: a call inside its own region is part of it
        self.spans = [] if keep_spans else None  # [region, depth, begin, end]
        self.device = device  # what times the device in this step; None on a CPU
        self.nested = False  # inside an engine's step of the same process
        self.failed = False


class Span:
    """An open call. `step` None: no step is open here (IDLE), or nothing may become one (MUTED)."""

    __slots__ = ("begin", "children", "depth", "mark", "outer", "step")

    def __init__(self, step, outer, depth):
        self.step = step
        self.outer = outer
        self.depth = depth
        self.children = 0  # ns that inner spans took
        self.mark = None  # the device's: where its begin stands in the step's list
        self.begin = 0


IDLE = Span(None, None, 0)
MUTED = Span(None, None, 0)
current = ContextVar("decodelab_span", default=IDLE)

WANT_CALLS = frozenset(["collective"])


def enter(region, outer):
    # type: (str, Span) -> Span
    """Opens a span of `region` inside `outer`, whose step is not None."""
    step = outer.step
    span = Span(step, outer, outer.depth + 1)
    step.opened.add(region)
    if step.device is not None:
        span.mark = step.device.enter(region)
    current.set(span)
    span.begin = now()
    return span


def leave(region, span):
    # type: (str, Span) -> None
    step = span.step
    if step.device is not None:
        step.device.leave(span.mark)
    end = now()
    current.set(span.outer)
    step.opened.discard(region)
    took = end - span.begin
    span.outer.children += took
    row = step.regions.get(region)
    if row is None:
        row = step.regions[region] = [0, 0, 0]
    row[0] += 1
    row[1] += took
    row[2] += took - span.children
    if region in WANT_CALLS:
        step.calls.setdefault(region, []).append(took)
    if step.spans is not None and len(step.spans) < MOST_SPANS:
        step.spans.append([region, span.depth - 1, span.begin, end])


def enter_around(outer):
    # type: (Span) -> Span
    """Opens a call that only has time of its own: between the regions inside it."""
    span = Span(outer.step, outer, outer.depth)
    current.set(span)
    span.begin = now()
    return span


def leave_around(region, span):
    # type: (str, Span) -> None
    """What lay between goes to `region`, without a call more."""
    took = now() - span.begin
    current.set(span.outer)
    span.outer.children += took
    row = span.step.regions.setdefault(region, [0, 0, 0])
    row[1] += took - span.children
    row[2] += took - span.children


def enter_step(step, outer):
    # type: (Step, Span) -> Span
    """Opens (or opens again) the step itself."""
    span = Span(step, outer, 0)
    current.set(span)
    span.begin = now()
    return span


def leave_step(span):
    # type: (Span) -> None
    """Closes what `enter_step` opened. The time of a worker's step inside an engine's is no region of the engine's."""
    end = now()
    current.set(span.outer)
    took = end - span.begin
    if span.outer.step is not None:
        span.outer.children += took
    step = span.step
    step.t1 = end
    step.busy += took
    step.unnamed += took - span.children
