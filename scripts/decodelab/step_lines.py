"""The lines of the step profiler's files, read.

In: the lines of one process's file (`steps-<pid>.jsonl` or a run's `profile-<pid>.jsonl`). Out: a
`Process`. Times are CLOCK_MONOTONIC ns, one clock for all processes of a host. A process that was
killed may leave half a line at its end: that and whatever else is no line of ours is counted in
`damaged`, never guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "decodelab.steps/1"
ROLES = ("worker", "engine")
STEP_PHASES = ("prefill", "decode", "mixed", "dummy")
UNTOLD = "untold"
LATEST = 1 << 63  # ns
Spans = tuple[tuple[str, int, int, int], ...]  # region, depth, begin, end: ns


class Unusable(ValueError):
    """A line that is no line of the profiler."""


@dataclass(frozen=True)
class Timed:
    """A region within one step."""

    calls: int
    inclusive: int
    exclusive: int


@dataclass(frozen=True)
class Step:
    i: int
    role: str
    phase: str
    reqs: int | None
    tokens: int | None
    t0: int
    t1: int
    own: int  # in the step and in none of its regions
    regions: Mapping[str, Timed]
    device: Mapping[str, Timed] | None = None  # by the device's clock; None: no device
    device_begin: int | None = None  # since t0
    device_ns: int | None = None  # from the first to the last of what the device did
    collectives: tuple[int, ...] = ()  # of each call, in order

    @property
    def ns(self) -> int:
        return self.t1 - self.t0

    @property
    def end(self) -> int:
        """When the worker was done: the device may go on for longer than the host's code."""
        if self.device_ns is None:
            return self.t1
        return max(self.t1, self.t0 + max(0, self.device_begin or 0) + self.device_ns)


@dataclass(frozen=True)
class Spanned:
    """Every region of one step as it came."""

    i: int
    role: str
    spans: Spans
    device: bool = False


@dataclass
class Process:
    pid: int | None = None
    ppid: int | None = None
    mode: str | None = None
    schema: str | None = None  # another than ours, of which no line is read
    model: dict[str, Any] | None = None
    targets: list[dict[str, Any]] = field(default_factory=list)
    table: list[tuple[str, str, str]] = field(default_factory=list)  # region, target, era
    steps: list[Step] = field(default_factory=list)
    spans: list[Spanned] = field(default_factory=list)
    dropped: int = 0  # steps for which the buffer had no room
    failed: int = 0  # steps that raised
    untold: int = 0  # steps of a worker whose phase could not be read
    untimed: int = 0  # steps of a worker whose device could not be asked
    damaged: int = 0  # lines that are none of ours
    troubles: list[str] = field(default_factory=list)
    ended: bool = False

    def of(self, role: str) -> list[Step]:
        """The steps of a role in order of time."""
        return sorted((s for s in self.steps if s.role == role), key=lambda s: (s.t0, s.t1))


def read(lines: Iterable[str | bytes]) -> Process:
    """A process of all lines that are whole."""
    process = Process()
    for line in lines:
        if not line.strip():
            continue
        try:
            _take(process, _object(line))
        except (KeyError, TypeError, ValueError, AttributeError):  # Unusable is a ValueError
            process.damaged += 1
    return process


def _object(line: str | bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(line, parse_constant=lambda _name: None)  # NaN is no value
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Unusable("no JSON") from error
    if not isinstance(told, dict):
        raise Unusable("no object")
    return told


def _take(process: Process, told: Mapping[str, Any]) -> None:
    kind = told["kind"]
    if process.schema is not None:
        return  # what a later version means by its lines is not known here
    if kind == "header":
        if told.get("schema") != SCHEMA:
            process.schema = str(told.get("schema"))
        process.pid, process.ppid = told.get("pid"), told.get("ppid")
        process.mode = told.get("mode")
    elif kind == "model":
        process.model = {name: value for name, value in told.items() if name != "kind"}
    elif kind == "target":
        process.targets.append(_target(told))
    elif kind == "table":
        process.table += [(str(r), str(t), str(e)) for r, t, e in told["targets"]]
    elif kind == "step":
        _take_step(process, told)
    elif kind == "spans":
        process.spans += _spanned(told)
    elif kind == "dropped":
        process.dropped += _count(told["steps"])
    elif kind == "trouble":
        process.troubles.append(str(told["text"]))
    elif kind == "end":
        process.ended = True
    elif not isinstance(kind, str):
        raise Unusable("no kind")  # a kind of a later profiler is left alone


def _target(told: Mapping[str, Any]) -> dict[str, Any]:
    found = told["found"]
    if not isinstance(found, bool):
        raise Unusable("found")
    return {
        "region": str(told["region"]),
        "target": str(told["target"]),
        "found": found,
        "why": told.get("why"),
        "era": told.get("era"),
    }


def _take_step(process: Process, told: Mapping[str, Any]) -> None:
    step = _step(told)
    if told.get("failed"):
        process.failed += 1
    elif told.get("untimed"):
        process.untimed += 1
    elif step.role == "worker" and step.phase == UNTOLD:
        process.untold += 1
    elif step.role == "engine" or step.phase != "dummy":
        process.steps.append(step)


def _step(told: Mapping[str, Any]) -> Step:
    role, t0, t1 = told["role"], _ns(told["t0"]), _ns(told["t1"])
    phase = UNTOLD if told.get("phase") is None else told["phase"]
    if role not in ROLES or phase not in (*STEP_PHASES, UNTOLD) or t1 < t0:
        raise Unusable("step")
    device = told.get("device")
    begin, ns = told.get("device_span") or (None, None)
    calls = (told.get("calls") or {}).get("collective") or ()
    return Step(
        i=_count(told["i"]),
        role=role,
        phase=phase,
        reqs=None if told.get("reqs") is None else _count(told["reqs"]),
        tokens=None if told.get("tokens") is None else _count(told["tokens"]),
        t0=t0,
        t1=t1,
        own=_count(told["self"]),
        regions=_regions(told["regions"]),
        device=_regions(device) if device else None,
        device_begin=None if begin is None else _ns(begin),
        device_ns=None if ns is None else _count(ns),
        collectives=tuple(_count(ns) for ns in calls),
    )


def _regions(told: Any) -> dict[str, Timed]:
    if not isinstance(told, dict):
        raise Unusable("regions")
    out = {}
    for name, given in told.items():
        calls, inclusive, exclusive = given
        out[name] = Timed(_count(calls), _count(inclusive), _count(exclusive))
    return out


def _spanned(told: Mapping[str, Any]) -> list[Spanned]:
    i, role = _count(told["i"]), told["role"]
    if role not in ROLES:
        raise Unusable("role")
    out = []
    for key in ("spans", "device_spans"):
        given = told.get(key)
        if given:
            spans = tuple((str(r), _count(d), _ns(b), _ns(e)) for r, d, b, e in given)
            out.append(Spanned(i, role, spans, key == "device_spans"))
    return out


def _ns(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LATEST:
        raise Unusable("no number")
    return round(value)


def _count(value: Any) -> int:
    number = _ns(value)
    if number < 0:
        raise Unusable("negative")
    return number
