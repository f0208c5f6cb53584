"""Times what a step does on the device: events of torch.cuda, or the clock between two synchronisations.

Mode event: two events a span on the caller's stream, read after one synchronise at the step's end. Mode sync:
torch.cuda.synchronize before and after every span; the host's clock then has the device's time in it, and
the sum of a step is longer than without. On a CPU neither is used.
"""

import sys

from . import spans

_pool: list = []  # events at rest: making one costs more than recording it


def torch_with_device(device: object) -> object:
    """torch when the model is on a device that torch.cuda drives (CoreX, ROCm and MetaX too), else None.

    `device`: the runner's torch.device, or None when nobody told.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None:
        return None
    kind = getattr(device, "type", None)
    if kind is not None:
        return torch if kind == "cuda" else None
    return torch if cuda.is_available() and cuda.is_initialized() else None


class Synchronised:
    """Mode sync."""

    def __init__(self, torch):
        self._synchronize = torch.cuda.synchronize
        self._fault = None

    def enter(self, region):
        self._wait()
        return True

    def leave(self, mark):
        self._wait()

    def _wait(self):
        try:
            self._synchronize()
        except Exception as fault:  # the engine's own next call will meet it
            self._fault = fault

    def finish(self):
        """Raises RuntimeError when the device could not be asked."""
        if self._fault is not None:
            raise RuntimeError("the device could not be timed: %r" % (self._fault,))
        return {}


class Events:
    """Mode event: the events of one step."""

    def __init__(self, torch):
        self._make = torch.cuda.Event
        self._marks = []  # [region, index of the one around it, begin event, end event]
        self._open = -1
        self._fault = None
        self._first = self._take()

    def _take(self):
        event = _pool.pop() if _pool else self._make(enable_timing=True)
        event.record()
        return event

    def enter(self, region):
        try:
            mark = [region, self._open, self._take(), None]
        except Exception as fault:
            self._fault = fault
            return None
        self._open = len(self._marks)
        self._marks.append(mark)
        return mark

    def leave(self, mark):
        if mark is None:
            return
        self._open = mark[1]
        try:
            mark[3] = self._take()
        except Exception as fault:
            self._fault = fault

    def finish(self):
        """Waits for the device once; what was timed, as the fields of the step's line.

        Raises RuntimeError when an event could not be recorded: the step's device times would have holes.
        """
        if self._fault is not None:
            raise RuntimeError("the device could not be timed: %r" % (self._fault,))
        last = self._take()
        before = spans.now()
        last.synchronize()
        waited = spans.now() - before
        told = self._told()
        told["sync_ns"] = waited
        _pool.extend(e for m in self._marks for e in m[2:] if e is not None)
        _pool.extend((self._first, last))
        return told

    def _told(self):
        regions: dict = {}
        calls: dict = {}
        lines = []
        inside = [0] * len(self._marks)
        for place in reversed(range(len(self._marks))):  # inner ones before the one around them
            region, outer, begin, end = self._marks[place]
            if end is None:
                continue
            at = _ns(self._first, begin)
            took = _ns(begin, end)
            if outer >= 0:
                inside[outer] += took
            row = regions.setdefault(region, [0, 0, 0])
            row[0] += 1
            row[1] += took
            row[2] += max(0, took - inside[place])  # the device's clock ticks in half microseconds
            if region in spans.WANT_CALLS:
                calls.setdefault(region, []).insert(0, took)
            lines.append([region, self._depth(place), at, at + took])
        told = {"device": regions, "device_span": None, "device_spans": lines[::-1]}
        if calls:
            told["calls"] = calls
        if lines:
            begin = min(line[2] for line in lines)
            told["device_span"] = [begin, max(line[3] for line in lines) - begin]
        return told

    def _depth(self, place):
        depth = 0
        while self._marks[place][1] >= 0:
            place = self._marks[place][1]
            depth += 1
        return depth


def _ns(begin, end):
    return int(begin.elapsed_time(end) * 1e6)
