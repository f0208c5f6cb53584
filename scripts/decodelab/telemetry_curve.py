"""One SMI metric of one accelerator over time, and spans of time to look at it in.

In: samples (`telemetry.Sample`), spans in seconds on their clock. Out: curves ((t, value) in time
order), their areas (unit x s), means and holes. Between two samples a curve is the straight line;
at the edges of a span it is interpolated, and a span that has no sample on either side has no
figure. Nothing is extrapolated.
"""

from __future__ import annotations

import bisect
import itertools
import operator
import statistics
from collections.abc import Callable, Iterable, Sequence

from decodelab.telemetry import Reading, Sample

Points = list[tuple[float, float]]
Span = tuple[float, float]
Value = Callable[[Reading], float | None]
_T = operator.itemgetter(0)


def curve(samples: Iterable[Sample], metric: str | Value) -> Points:
    """(t, value) of one accelerator in time order; without time or value: left out."""
    value = of(metric)
    points = [(s.t, v) for s in samples if s.t is not None and (v := value(s.reading)) is not None]
    return sorted(points)


def of(metric: str | Value) -> Value:
    """What to take from a reading: one of its metrics by name, or whatever a function makes of it."""
    return metric if callable(metric) else lambda reading: reading.values[metric]


def clipped(points: Points, span: Span) -> Points | None:
    """The curve inside the span with both edges interpolated; None unless samples lie on both
    sides.
    """
    begin, end = span
    if not points or points[0][0] > begin or points[-1][0] < end or end <= begin:
        return None
    first = bisect.bisect_right(points, begin, key=_T)
    last = bisect.bisect_left(points, end, key=_T)
    return [(begin, _at(points, begin)), *points[first:last], (end, _at(points, end))]


def integral(points: Points) -> float:
    """Area under the curve by trapezoids."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def area(points: Points, spans: Sequence[Span]) -> float | None:
    """Area under the curve inside all spans; None unless each is covered."""
    parts = [clipped(points, span) for span in spans]
    if not parts or any(part is None for part in parts):
        return None
    return sum(integral(part) for part in parts if part is not None)


def length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def count(points: Points, spans: Iterable[Span]) -> int:
    """Samples of the curve that lie inside the spans."""
    return sum(len(inside(points, span)) for span in spans)


def inside(points: Points, span: Span) -> list[float]:
    """What the samples inside the span say: nothing that no tool printed."""
    first = bisect.bisect_left(points, span[0], key=_T)
    last = bisect.bisect_right(points, span[1], key=_T)
    return [value for _, value in points[first:last]]


def hole(points: Points, span: Span) -> float:
    """The longest time without a sample that touches the span, in seconds. An edge is interpolated
    from the sample beyond it, so the time to that one counts whole.
    """
    begin, end = span
    first = max(bisect.bisect_right(points, begin, key=_T) - 1, 0)
    last = bisect.bisect_left(points, end, key=_T)
    times = [t for t, _ in points[first : last + 1]]
    marks = [min(begin, times[0]), *times, max(end, times[-1])] if times else [begin, end]
    return max(b - a for a, b in itertools.pairwise(marks))


def time_of(points: Points, span: Span, wanted: Callable[[float], bool]) -> float | None:
    """Seconds of the span in which the nearest sample is wanted; None unless samples lie on both
    sides. For what a line between two samples cannot tell, such as whether it stood still.
    """
    begin, end = span
    if clipped(points, span) is None:
        return None
    times = [t for t, _ in points]
    borders = [begin, *((a + b) / 2 for a, b in itertools.pairwise(times)), end]
    cells = zip(points, itertools.pairwise(min(max(t, begin), end) for t in borders), strict=True)
    return sum(b - a for (_, value), (a, b) in cells if wanted(value))


def spacing(groups: Iterable[Sequence[Sample]]) -> float:
    """The usual time between two samples of an accelerator."""
    steps: list[float] = []
    for group in groups:
        times = sorted(s.t for s in group if s.t is not None)
        steps.extend(b - a for a, b in itertools.pairwise(times))
    return statistics.median(steps) if steps else 0.0


def _at(points: Points, t: float) -> float:
    """The value at t by linear interpolation between the samples around it."""
    place = bisect.bisect_left(points, t, key=_T)
    after = points[place]
    if after[0] == t:
        return after[1]
    before = points[place - 1]
    return before[1] + (after[1] - before[1]) * (t - before[0]) / (after[0] - before[0])
