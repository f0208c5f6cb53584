"""Steps and the spans inside them, with exclusive time.

The open step is a context variable, so that a coroutine keeps its own while others run on its thread. A step
has a stack: for each open span the time that its inner ones took, which is taken off its exclusive time.
Times are CLOCK_MONOTONIC nanoseconds. This runs in the engine's thread some ten times a step: it is kept short.
"""

import time
from contextvars import ContextVar
from typing import Any, Dict, List, Optional

MOST_SPANS = 20000  # of one step's timeline

now = time.monotonic_ns


class Step:
    """One step of a worker or of an engine, while it runs and until it is written."""

    __slots__ = (
        "begin",
        "busy",
        "calls",
        "device",
        "failed",
        "index",
        "nested",
        "opened",
        "outer",
        "phase",
        "regions",
        "reqs",
        "role",
        "spans",
        "stack",
        "t0",
        "t1",
        "tokens",
        "unnamed",
        "untimed",
    )

    def __init__(self, role, index, keep_spans, device):
        self.role = role
        self.index = index
        self.phase: Optional[str] = None
        self.reqs: Optional[int] = None
        self.tokens: Optional[int] = None
        self.begin = 0  # of the call that runs now: a worker's step may be two
        self.t0 = 0
        self.t1 = 0
        self.busy = 0  # ns inside the calls that are the step
        self.unnamed = 0  # of these, in no region
        self.regions: Dict[str, List[int]] = {}  # calls, inclusive, exclusive ns
        self.calls: Dict[str, List[int]] = {}  # ns of each call in order, of WANT_CALLS
        self.opened: Any = set()  # regions open now: a call inside its own region is part of it
        self.stack = [0]  # ns that inner spans took, of the step and of each open span
        self.spans: Optional[List[Any]] = [] if keep_spans else None  # [region, depth, begin, end]
        self.device = device  # what times the device in this step; None on a CPU
        self.outer: Optional[Step] = None
        self.nested = False  # inside an engine's step of the same process
        self.failed = False
        self.untimed = False  # a device that could not be asked: its times are not known


class _Everything:
    def __contains__(self, name):
        return True


MUTED = Step("muted", -1, False, None)  # nothing may be timed or become a step here
MUTED.opened = _Everything()
current: ContextVar[Optional[Step]] = ContextVar("decodelab_step", default=None)

WANT_CALLS = frozenset(["collective"])


def close(step: Step, region: str, begin: int, mark: Any) -> None:
    """Ends the innermost span of `step`; `mark`: the device's, or None."""
    if mark is not None:
        step.device.leave(mark)  # in mode sync the end is when the device is done
    end = now()
    stack = step.stack
    inner = stack.pop()
    took = end - begin
    stack[-1] += took
    step.opened.discard(region)
    try:
        row = step.regions[region]
    except KeyError:
        row = step.regions[region] = [0, 0, 0]
    row[0] += 1
    row[1] += took
    row[2] += took - inner
    if region in WANT_CALLS:
        step.calls.setdefault(region, []).append(took)
    if step.spans is not None and len(step.spans) < MOST_SPANS:
        step.spans.append([region, len(stack) - 1, begin, end])


def close_around(step: Step, region: str, begin: int) -> None:
    """As `close`, but of time of its own alone: what lay between inner spans goes to `region`, without a call."""
    took = now() - begin
    own = took - step.stack.pop()
    step.stack[-1] += took
    row = step.regions.setdefault(region, [0, 0, 0])
    row[1] += own
    row[2] += own


def enter_step(step: Step) -> None:
    """Opens (or opens again) the step itself."""
    step.outer = current.get()
    current.set(step)
    step.begin = now()


def leave_step(step: Step) -> None:
    """Closes what `enter_step` opened. A worker's step inside an engine's is no region of the engine's."""
    end = now()
    took = end - step.begin
    if step.outer is not None:
        step.outer.stack[-1] += took
    current.set(step.outer)
    step.outer = None
    step.t1 = end
    step.busy += took
    step.unnamed += took - step.stack[0]
    step.stack[0] = 0
