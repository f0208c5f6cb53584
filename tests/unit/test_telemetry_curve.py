"""Curves and spans: exact areas, additive whatever the cut, nothing from outside the samples."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import telemetry_curve as curves
from decodelab.telemetry import Reading, Sample
from decodelab.telemetry_curve import Points, Span

RAMP: Points = [(0.0, 0.0), (1.0, 10.0), (4.0, 40.0), (5.0, 50.0)]
SQUARE: Points = [(0.0, 100.0), (10.0, 100.0), (10.5, 200.0), (20.0, 200.0)]

numbers = st.floats(0.0, 400.0, allow_subnormal=False)


@st.composite
def sampled(draw: st.DrawFn) -> Points:
    """At least two samples, at times that a tool could give."""
    steps = draw(st.lists(st.integers(1, 5000), min_size=2, max_size=20))
    times = itertools.accumulate(steps)
    return [(t / 1000, draw(numbers)) for t in times]


@st.composite
def cut(draw: st.DrawFn) -> tuple[Points, list[float]]:
    """A curve and three times in order that it covers."""
    points = draw(sampled())
    inside = st.floats(points[0][0], points[-1][0])
    times = sorted(draw(st.lists(inside, min_size=3, max_size=3, unique=True)))
    return points, times


def test_the_area_of_a_ramp_is_that_of_its_middle() -> None:
    assert curves.area(RAMP, [(0.5, 4.5)]) == pytest.approx(4.0 * 25.0)
    assert curves.area(RAMP, [(1.0, 4.0)]) == pytest.approx(3.0 * 25.0)


def test_the_area_of_a_step_by_hand() -> None:
    # 8 s x 100 W, the half second of the step at its mean of 150 W, 1.5 s x 200 W
    assert curves.area(SQUARE, [(2.0, 12.0)]) == pytest.approx(800.0 + 75.0 + 300.0)


def test_what_lies_inside_are_samples_alone() -> None:
    assert curves.inside(RAMP, (1.0, 4.5)) == [10.0, 40.0]
    assert curves.inside(RAMP, (1.5, 3.5)) == [] and curves.count(RAMP, [(0.0, 1.0)]) == 2


def test_several_spans_are_a_sum() -> None:
    # 1 s x 100 W and 2 s x 200 W
    assert curves.area(SQUARE, [(3.0, 4.0), (12.0, 14.0)]) == pytest.approx(500.0)
    assert curves.length([(3.0, 4.0), (12.0, 14.0)]) == 3.0


@pytest.mark.parametrize("span", [(-0.1, 3.0), (1.0, 5.1), (6.0, 7.0), (2.0, 2.0), (3.0, 2.0)])
def test_a_span_without_a_sample_on_each_side_has_no_area(span: Span) -> None:
    assert curves.clipped(RAMP, span) is None
    assert curves.area(RAMP, [(1.0, 2.0), span]) is None


def test_no_samples_or_no_spans_are_no_area() -> None:
    assert curves.area([], [(0.0, 1.0)]) is None
    assert curves.area(RAMP, []) is None


def test_samples_are_counted_at_both_edges() -> None:
    assert curves.count(RAMP, [(1.0, 4.0)]) == 2
    assert curves.count(RAMP, [(1.1, 3.9)]) == 0
    assert curves.count(RAMP, [(0.0, 0.5), (3.5, 9.0)]) == 3


@pytest.mark.parametrize(
    ("span", "longest"),
    [
        ((0.5, 4.5), 3.0),
        ((2.0, 3.0), 3.0),  # both edges are interpolated across three seconds
        ((4.2, 4.8), 1.0),
        ((4.5, 9.0), 4.0),  # nothing after 5 s
        ((-2.0, 0.5), 2.0),  # nothing before 0 s
        ((7.0, 8.0), 3.0),  # from the last sample to the span's end
    ],
)
def test_the_longest_hole_by_hand(span: Span, longest: float) -> None:
    assert curves.hole(RAMP, span) == pytest.approx(longest)


def test_without_any_sample_the_hole_is_the_span() -> None:
    assert curves.hole([], (2.0, 5.0)) == 3.0


def test_a_curve_leaves_out_what_has_no_time_or_value() -> None:
    samples = []
    for t, util in ((2.0, 5.0), (None, 7.0), (1.0, None), (0.0, 3.0)):
        reading = Reading()
        reading.values["util_pct"] = util
        samples.append(Sample(0, t, reading))
    assert curves.curve(samples, "util_pct") == [(0.0, 3.0), (2.0, 5.0)]


@given(cut())
def test_energy_is_additive_over_a_split_window(given: tuple[Points, list[float]]) -> None:
    points, (begin, middle, end) = given
    parts = [curves.area(points, [span]) for span in ((begin, middle), (middle, end))]
    assert None not in parts
    whole = curves.area(points, [(begin, end)])
    assert whole == pytest.approx(sum(p for p in parts if p is not None), rel=1e-9, abs=1e-6)
    assert whole == pytest.approx(
        curves.area(points, [(begin, middle), (middle, end)]), rel=1e-9, abs=1e-6
    )


@given(cut())
def test_a_sample_on_the_line_changes_nothing(given: tuple[Points, list[float]]) -> None:
    points, (begin, middle, end) = given
    part = curves.clipped(points, (begin, middle))
    assert part is not None
    more = sorted([*points, part[-1]])
    before, after = (curves.area(p, [(begin, end)]) for p in (points, more))
    assert after == pytest.approx(before, rel=1e-9, abs=1e-6)


@given(cut())
def test_a_mean_lies_between_least_and_greatest(given: tuple[Points, list[float]]) -> None:
    points, (begin, _, end) = given
    part = curves.clipped(points, (begin, end))
    assert part is not None
    values = [v for _, v in part]
    mean = curves.integral(part) / (end - begin)
    assert min(values) - 1e-6 <= mean <= max(values) + 1e-6
    assert min(v for _, v in points) - 1e-6 <= min(values)
    assert max(values) <= max(v for _, v in points) + 1e-6


@given(cut(), st.floats(0.0, 100.0))
def test_what_lies_outside_the_window_does_not_matter(
    given: tuple[Points, list[float]], value: float
) -> None:
    """But for the neighbours of its edges."""
    points, (begin, _, end) = given
    more = [(points[0][0] - 1.0, value), *points, (points[-1][0] + 1.0, value)]
    assert curves.area(more, [(begin, end)]) == curves.area(points, [(begin, end)])
