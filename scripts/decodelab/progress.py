"""The lines a person watches while a launch runs.

In:  the agent's events. Out: one line per step on stderr: which launch, which run, how many of
how many, elapsed, expected end. The expected end scales the plan's own estimate by how the study
has gone so far.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from decodelab.forecast import StartHistory

STAGE_SHOWN_S = 1.0  # a start that is over sooner needs no line for each stage


@dataclass
class Progress:
    """Prints for one launch. `position` and `of` count launches of the queue; estimates are in seconds."""

    label: str
    position: int
    of: int
    estimate_s: float
    rest_s: float
    out: TextIO = field(default_factory=lambda: sys.stderr)
    begin_s: float = field(default_factory=time.monotonic)
    earlier: StartHistory | None = None  # of this server, or one of the same model
    _last: str = ""

    def show(self, event: Mapping[str, Any]) -> None:
        """Print the event if a person wants to know it."""
        text = self._text(event)
        if text and text != self._last:
            self._last = text
            elapsed = time.monotonic() - self.begin_s
            self.say(f"{text}  [{_clock(elapsed)}]")

    def say(self, text: str) -> None:
        print(f"[{self.position}/{self.of}] {self.label}: {text}", file=self.out, flush=True)

    def expected_end(self) -> str:
        """When the rest of the queue should be done, as local wall time."""
        elapsed = time.monotonic() - self.begin_s
        left = max(0.0, self.estimate_s - elapsed) + self.rest_s
        return time.strftime("%H:%M:%S", time.localtime(time.time() + left))

    def _text(self, event: Mapping[str, Any]) -> str | None:
        kind = event.get("event")
        if kind == "lock_wait":
            return f"waiting for the host, in use by {event.get('owner')}"
        if kind == "calibrating":
            return "measuring the load client's own floor on this host, once (about 3 s)"
        if kind == "calibrated" and event.get("problem"):
            return f"the load client's own floor could not be measured: {event['problem']}"
        if kind == "start_begin":
            return f"attached to {event['attach']}" if event.get("attach") else "server starts"
        if kind == "stage":
            return self._stage(event)
        if kind == "device_check_begin":
            return None
        if kind == "device_check" and event.get("new"):
            return f"accelerators {event.get('state')}: {event.get('found')}"
        if kind == "ready":
            return f"server ready after {float(event.get('seconds') or 0):.1f} s"
        if kind == "run_begin":
            return (
                f"run {event.get('i')}/{event.get('n')} {event.get('name')}"
                f"  (all done about {self.expected_end()})"
            )
        if kind == "run_end":
            return _run_end(event)
        if kind == "screened_out":
            return screened_out(event)
        if kind == "server_died":
            return f"server died (exit code {event.get('exit_code')})"
        if kind == "launch_end" and event.get("status") not in (None, "done"):
            return f"{str(event['status']).replace('_', ' ')}: {event.get('reason')}"
        if kind == "stop_end":
            return f"server stopped in {float(event.get('seconds') or 0):.1f} s"
        return None

    def _stage(self, event: Mapping[str, Any]) -> str | None:
        """What the start works on, and when it should be ready by the earlier ones."""
        stage, t_s = str(event.get("stage")), float(event.get("t_s") or 0)
        left_s = self.earlier.ready_in_s(stage) if self.earlier else None
        expected = ""
        if self.earlier and left_s is not None:
            at = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
            starts = f"{self.earlier.starts} earlier start{'s' * (self.earlier.starts > 1)}"
            expected = f"; ready about {at} by {starts} of this {self.earlier.same}"
            if t_s < STAGE_SHOWN_S and left_s < STAGE_SHOWN_S:
                return None
        elif t_s < STAGE_SHOWN_S:
            return None
        return f"start: {event.get('words') or stage}, {t_s:.0f} s after its begin{expected}"


def _run_end(event: Mapping[str, Any]) -> str:
    summary = event.get("summary") or {}
    rate = (summary.get("decode_rate") or {}).get("p50")
    shown = f", decode rate P50 {rate:.1f} tok/s" if isinstance(rate, int | float) else ""
    seconds = float(event.get("seconds") or 0)
    return f"  {event.get('status')} in {seconds:.1f} s{shown}"


def screened_out(event: Mapping[str, Any]) -> str:
    """In words, of an event or of an entry of a receipt: both figures and what was not made."""
    value, best = float(event.get("value") or 0), float(event.get("best") or 0)
    runs = len(event.get("runs") or [])
    within = float(event.get("within") or 0)
    return (
        f"screened out: {event.get('metric')} {value:.3g} against {best:.3g}, not within {within:.0%}; "
        f"{runs} full run{'s' * (runs != 1)} not made"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
