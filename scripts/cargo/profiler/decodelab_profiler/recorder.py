"""What becomes a step of this process: counting, phases, the two halves of a worker's step, the timeline.

The engine's thread does as little as it can: a closed step goes to the writer as it is.
"""

import threading
from typing import Any, Dict

from . import device, model_facts, phases, spans

QUIET_NS = 200_000_000  # without a step: what comes next is a new load
# A load's first steps are its warm-up's. So the timeline is kept again after this long, then twice as long, and on.
AGAIN_NS = QUIET_NS
WORKER, ENGINE = "worker", "engine"


class Recorder:
    def __init__(self, spec: Dict[str, Any], sink: Any) -> None:
        self._mode = spec.get("mode") or "event"
        self._timeline = int(spec.get("timeline_steps", 8))
        self._sink = sink
        self.has_rest = False  # the worker's step has a second half in this engine
        self.found_model: Any = None  # called with the model once it is loaded
        self.forget()

    def forget(self) -> None:
        """As in a new process; also after a fork, in the child."""
        self._counted = {WORKER: 0, ENGINE: 0}
        self._prompts = {WORKER: phases.Prompts(), ENGINE: phases.Prompts()}
        self._to_keep = {WORKER: 0, ENGINE: 0}
        self._last_end = {WORKER: -QUIET_NS, ENGINE: -QUIET_NS}
        self._again = {WORKER: 0, ENGINE: 0}  # when the timeline is to be kept again
        self._pause = {WORKER: AGAIN_NS, ENGINE: AGAIN_NS}
        self._half: Any = None  # a worker's step that waits for its second half
        self._runner = None
        self._torch: Any = None
        self._asked_for_torch = False
        self._aside: dict = {}
        self._aside_lock = threading.Lock()
        self._faults = 0

    def guarded(self, do, *args):
        """do(*args), or None after a fault of our own, which is told and never reaches the server."""
        try:
            return do(*args)
        except Exception as fault:
            self._faults += 1
            if self._faults <= 20:
                self._sink.trouble("%s: %r" % (getattr(do, "__name__", do), fault))
            return None

    # ------------------------------------------------------------------ a step's life
    def begin(self, role, outer, args, kwargs):
        if role == WORKER:
            if self._half is not None:  # its second half never came: it was whole
                self._close(self._half)
            self._ask_once()
        index = self._counted[role]
        self._counted[role] += 1
        told = self._prompts[role].of(_order(args, kwargs)) if role == WORKER else (None,) * 3
        step = spans.Step(
            role, index, self._keeps(role), self._device() if role == WORKER else None
        )
        step.untimed = role == WORKER and self._torch is not None and step.device is None
        step.nested = outer is not None
        step.phase, step.reqs, step.tokens = told
        spans.enter_step(step)
        step.t0 = step.begin
        return step

    def _keeps(self, role):
        now = spans.now()
        quiet = now - self._last_end[role] > QUIET_NS
        if quiet or now > self._again[role]:
            self._pause[role] = AGAIN_NS if quiet else 2 * self._pause[role]
            self._again[role] = now + self._pause[role]
            self._to_keep[role] = self._timeline
        return self._to_keep[role] > 0

    def called(self, step, result):
        """The step's call returned."""
        spans.leave_step(step)
        if step.role == WORKER and self.has_rest and result is None and step.phase != "dummy":
            self._half = step
        else:
            self._close(step)

    def resume(self, outer):
        """Opens the waiting half again; None when none waits."""
        step, self._half = self._half, None
        if step is None or (outer is not None and outer.role == WORKER):
            return None
        spans.enter_step(step)
        return step

    def finished(self, step):
        spans.leave_step(step)
        self._close(step)

    def failed(self, step):
        spans.leave_step(step)
        step.failed = True
        self._close(step)

    def _close(self, step):
        if self._half is step:
            self._half = None
        self._last_end[step.role] = step.t1
        if step.role == WORKER and step.phase is None:
            return  # V0's other ranks: the loop was ended, no order came
        told: Dict[str, Any] = {}
        if step.device is not None and not step.failed:
            found = self.guarded(step.device.finish)
            step.untimed = (
                found is None
            )  # the host's clock alone would call its wait for the device work
            told = found or {}
        if self._aside and step.role == WORKER:
            with self._aside_lock:
                told["aside"], self._aside = self._aside, {}
        if step.spans is not None:
            if step.phase == "decode":
                self._to_keep[step.role] -= 1
            else:
                step.spans = None
        self._sink.step(step, told)

    # ------------------------------------------------------------------ looks
    def order_made(self, step, args, kwargs, result):
        """The scheduler's answer says what the engine's step is."""
        if step.phase is None and result is not None:
            step.phase, step.reqs, step.tokens = self._prompts[ENGINE].of(result)

    def order_given(self, step, args, kwargs, result):
        """So does what goes to the executor, where the scheduler was not asked (V0, several steps at once)."""
        if step.role == ENGINE and step.phase is None:
            step.phase, step.reqs, step.tokens = self._prompts[ENGINE].of(_order(args, kwargs))

    def input_seen(self, step, args, kwargs, result):
        if step.role == WORKER and step.phase is None:
            step.phase, step.reqs, step.tokens = phases.of_model_input(_order(args, kwargs))

    def aside(self, region, took):
        """A wait outside of any step, on a thread of its own (the output of asynchronous scheduling)."""
        with self._aside_lock:
            row = self._aside.setdefault(region, [0, 0])
            row[0] += 1
            row[1] += took

    # ------------------------------------------------------------------ model and device
    def loaded(self, runner):
        if self._runner is None:
            self._runner = runner
            if self.found_model is not None:
                self.found_model(runner)

    def _ask_once(self):
        """At the first step: by then the engine has settled its graphs and its device."""
        if self._asked_for_torch:
            return
        self._asked_for_torch = True
        runner = self._runner
        self._torch = device.torch_with_device(getattr(runner, "device", None))
        if runner is not None:
            self._sink.tell(self.guarded(model_facts.of_runner, runner))

    def _device(self):
        if self._torch is None:
            return None
        kind = device.Synchronised if self._mode == "sync" else device.Events
        return self.guarded(kind, self._torch)


def _order(args, kwargs):
    """The first argument after self, however it was given."""
    return args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
