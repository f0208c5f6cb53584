"""What a torch.profiler trace of one process says, as columns: device work, host calls, ops, annotations.

In: the events of `trace_stream`. Out: `Trace`, its times in ns since the trace's first event. Only what a profile needs
is kept, some 40 bytes an event; Python functions and metadata are passed over. Categories are those of torch 1.13 to
2.13 and, for CoreX and older builds, their elder spellings.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decodelab.plain_shares import writable
from decodelab.trace_time import Ints

# category in lower case -> what it is here
CATEGORIES = {
    "kernel": "device",
    "concurrent_kernel": "device",
    "gpu_memcpy": "device",
    "memcpy": "device",
    "gpu_memset": "device",
    "memset": "device",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "hip_runtime": "call",
    "runtime": "call",
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "mark",
    "gpu_user_annotation": "device_mark",
}
# of the profiler before Kineto, which names no category
_OLD_PLACES = {"CPU functions": "op", "CUDA functions": "device"}
_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|GraphLaunch|ModuleLaunch|LaunchGridAsync", re.I)
_BLOCKING = re.compile(r"Synchronize|Memcpy(?!.*Async)|MemcpyWithStream", re.I)
_PAGEABLE = re.compile(r"DtoH.*Pageable|Device -> Pageable|Device -> Host", re.I)
NO_LINK = -1
LATEST = 4e15  # µs: 126 years


@dataclass(frozen=True)
class Columns:
    """Events of one sort, ordered by their begin. `name` indexes Trace.names; `place` is the stream of
    device work and the thread of the others; `link` ties a call to what it launched."""

    begin: Ints
    end: Ints
    name: Ints
    place: Ints
    link: Ints
    device: Ints

    def __len__(self) -> int:
        return len(self.begin)

    def take(self, which: Any) -> Columns:
        return Columns(*(getattr(self, c)[which] for c in self.__dataclass_fields__))


@dataclass(frozen=True)
class Trace:
    names: list[str]
    device: Columns
    calls: Columns
    ops: Columns
    marks: Columns
    device_marks: Columns
    skipped: int  # events of these categories without a usable time
    head: Mapping[str, Any]

    def launches(self) -> Columns:
        """Calls that put kernels on the device; one within another (driver in runtime) counts once."""
        calls = self.calls.take(self._named(self.calls, _LAUNCH))
        inner = np.zeros(len(calls), bool)
        for place in np.unique(calls.place):
            mine = np.flatnonzero(calls.place == place)
            reach = np.maximum.accumulate(calls.end[mine])
            inner[mine[1:]] = calls.end[mine[1:]] <= reach[:-1]
        return calls.take(~inner)

    def blocking(self) -> Columns:
        """Calls that wait for the device; a copy to pageable memory waits, whatever it is called."""
        waits = self._named(self.calls, _BLOCKING)
        links = self.device.link[self._named(self.device, _PAGEABLE)]
        waits |= np.isin(self.calls.link, links[links != NO_LINK])
        return self.calls.take(waits)

    def _named(self, columns: Columns, pattern: re.Pattern[str]) -> np.ndarray[Any, Any]:
        fits = np.array([bool(pattern.search(n)) for n in self.names] or [False])
        return fits[columns.name] if len(columns) else np.zeros(0, bool)


@dataclass
class _Growing:
    columns: list[array[int]] = field(default_factory=lambda: [array("q") for _ in range(6)])

    def add(self, begin: int, end: int, name: int, place: int, link: int, device: int) -> None:
        a, b, c, d, e, f = self.columns
        a.append(begin)
        b.append(end)
        c.append(name)
        d.append(place)
        e.append(link)
        f.append(device)

    def done(self, origin: int) -> Columns:
        arrays = [np.array(c, np.int64) for c in self.columns]
        arrays[0] -= origin
        arrays[1] -= origin
        # of two that begin together the longer holds the other
        order = np.lexsort((-arrays[1], arrays[0]))
        return Columns(*(a[order] for a in arrays))


class _Numbers:
    """Small numbers for names and places."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __call__(self, key: Any) -> int:
        return self.of.setdefault(key, len(self.of))


def read(events: Iterable[Mapping[str, Any]], head: Mapping[str, Any]) -> Trace:
    """`head` may fill up while the events are read."""
    sorts = {s: _Growing() for s in ("device", "call", "op", "mark", "device_mark")}
    names, places = _Numbers(), _Numbers()
    flows = {"s": _Growing(), "f": _Growing()}
    skipped = 0
    for event in events:
        phase = event.get("ph")
        if phase in flows:
            _flow(event, flows[phase], places)
            continue
        category = event.get("cat")
        sort = (
            CATEGORIES.get(category.lower())
            if isinstance(category, str)
            else _OLD_PLACES.get(str(event.get("pid")))
        )
        if sort is None or phase != "X":
            continue
        span = _span(event.get("ts"), event.get("dur"))
        if span is None:
            skipped += 1
            continue
        args = event.get("args")
        args = args if isinstance(args, Mapping) else {}
        place = places((str(event.get("pid")), str(event.get("tid"))))
        device = _int(args.get("device"), _int(event.get("pid"), 0)) if "dev" in sort else 0
        sorts[sort].add(*span, names(str(event.get("name"))), place, _link(args), device)
    origin = min((c for s in sorts.values() for c in s.columns[0]), default=0)
    _by_flow(sorts["call"], flows["s"])
    _by_flow(sorts["device"], flows["f"])
    done = {s: columns.done(origin) for s, columns in sorts.items()}
    return Trace(
        list(map(writable, names.of)),
        done["device"],
        done["call"],
        done["op"],
        done["mark"],
        done["device_mark"],
        skipped,
        head,
    )


def _span(ts: Any, dur: Any) -> tuple[int, int] | None:
    """Begin and end in ns; None where the event tells none (it never ended)."""
    try:
        begin, took = float(ts), float(dur)
    except (TypeError, ValueError):
        return None
    if not (0 <= begin < LATEST and 0 <= took < LATEST):  # nor where it is no number
        return None
    start = round(begin * 1000)
    return start, start + round(took * 1000)


def _link(args: Mapping[str, Any]) -> int:
    for key in ("correlation", "correlation_id", "correlationId"):
        if key in args:
            return _int(args[key], NO_LINK)
    return NO_LINK


def _int(value: Any, without: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return without
    return number if abs(number) < 1 << 62 else without


def _flow(event: Mapping[str, Any], flows: _Growing, places: _Numbers) -> None:
    """An arrow of category ac2g ties the call that begins at its one end to the work at the other."""
    if event.get("cat") not in ("ac2g", "async_cpu_to_gpu"):
        return
    span = _span(event.get("ts"), 0)
    if span is not None:
        place = places((str(event.get("pid")), str(event.get("tid"))))
        flows.add(*span, 0, place, _int(event.get("id"), NO_LINK), 0)


def _by_flow(events: _Growing, flows: _Growing) -> None:
    """The links of events that tell none themselves."""
    begin, _end, _name, place, link, _device = events.columns
    if NO_LINK not in link:
        return
    at, _at, _none, where, ids, _nothing = flows.columns
    known = dict(zip(zip(where, at, strict=True), ids, strict=True))
    for i, own in enumerate(link):
        if own == NO_LINK:
            link[i] = known.get((place[i], begin[i]), NO_LINK)
