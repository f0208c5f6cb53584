"""Phases: the window in three parts, from the requests' times alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import telemetry_phases
from decodelab.telemetry_curve import Span, length
from decodelab.telemetry_phases import Phases, minus, union, within


def request(
    begin: float | None,
    first: float | None,
    last: float | None,
    outcome: str = "ok",
    end: float | None = None,
) -> dict[str, Any]:
    times = {"t_start_s": begin, "t_first_s": first, "t_last_s": last, "t_end_s": end}
    return {"outcome": outcome, **times}


def test_one_request_after_the_other() -> None:
    found = telemetry_phases.split([request(0, 1, 5), request(6, 8, 10)], (0.0, 10.0))
    assert found == Phases(prefill=((0, 1), (6, 8)), decode=((1, 5), (8, 10)), between=((5, 6),))


def test_a_prefill_beside_a_decode_is_prefill() -> None:
    found = telemetry_phases.split([request(0, 1, 9), request(4, 6, 10)], (0.0, 10.0))
    assert found == Phases(((0, 1), (4, 6)), ((1, 4), (6, 10)), ())


def test_the_zero_of_the_requests_is_moved_to_the_windows_clock() -> None:
    found = telemetry_phases.split([request(0, 1, 2)], (100.0, 102.0), zero=100.0)
    assert found == Phases(((100, 101),), ((101, 102),), ())


def test_a_failed_request_without_a_token_waited_to_its_end() -> None:
    lost = request(2, None, None, "timeout", end=4)
    found = telemetry_phases.split([request(0, 1, 5), lost], (0.0, 5.0))
    assert found == Phases(((0, 1), (2, 4)), ((1, 2), (4, 5)), ())


def test_time_outside_the_window_is_left_out() -> None:
    """A failure that outlasts the last token of the successes."""
    lost = request(4, 6, None, "truncated", end=20)
    found = telemetry_phases.split([request(0, 1, 5), lost], (0.0, 5.0))
    assert found == Phases(((0, 1), (4, 5)), ((1, 4),), ())


def test_a_request_that_was_never_sent_is_in_no_phase() -> None:
    never = request(None, None, None, "not_started")
    found = telemetry_phases.split([request(0, 1, 2), never], (0.0, 2.0))
    assert found is not None and found.prefill == ((0, 1),)


@pytest.mark.parametrize(
    "unknown",
    [
        request(None, 1, 2),
        request(0, None, 2),  # a success has a first token; when is not known
        request(0, 1, None),
        request(0, None, None, "connection"),
    ],
)
def test_a_time_that_is_not_known_makes_every_phase_unknown(unknown: dict[str, Any]) -> None:
    assert telemetry_phases.split([request(0, 1, 2), unknown], (0.0, 2.0)) is None


times = st.integers(0, 40).map(lambda n: n / 4)
spans = st.lists(st.tuples(times, times).map(lambda pair: (min(pair), max(pair))), max_size=8)


@st.composite
def loads(draw: st.DrawFn) -> list[dict[str, Any]]:
    three = st.lists(times, min_size=3, max_size=3).map(sorted)
    return [request(*draw(three)) for _ in range(draw(st.integers(1, 6)))]


def holds(span: Span, t: float) -> bool:
    return span[0] <= t < span[1]


@given(loads())
def test_the_phases_are_the_window_and_agree_with_a_look_at_each_moment(
    requests: list[dict[str, Any]],
) -> None:
    window = (min(r["t_start_s"] for r in requests), max(r["t_last_s"] for r in requests))
    found = telemetry_phases.split(requests, window)
    assert found is not None
    assert sum(map(length, found)) == pytest.approx(window[1] - window[0])
    for quarter in range(40):
        t = quarter / 4 + 0.1  # between the times that are drawn
        if not holds(window, t):
            continue
        waits = any(r["t_start_s"] <= t < r["t_first_s"] for r in requests)
        decodes = any(r["t_first_s"] <= t < r["t_last_s"] for r in requests)
        told = "prefill" if waits else "decode" if decodes else "between"
        for name, parts in found._asdict().items():
            assert any(holds(part, t) for part in parts) == (name == told)


@given(spans, spans)
def test_the_algebra_of_spans(some: list[Span], others: list[Span]) -> None:
    one, two = union(some), union(others)
    assert union(one) == one and all(a < b for a, b in one)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(one))
    left = minus(one, two)
    common = length(one) - length(left)
    assert length(union([*one, *two])) == pytest.approx(length(one) + length(two) - common)
    assert minus(left, two) == left
    assert within(one, (0.0, 10.0)) == one and within(one, (20.0, 30.0)) == ()
