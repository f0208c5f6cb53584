"""Rounding by uncertainty: value and interval agree, and no digit is dropped that would tell something
else.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import numbers

RATE = "decode_rate_p50"
FINITE = st.floats(-1e12, 1e12, allow_nan=False)
WIDTH = st.floats(1e-6, 1e9)


def read(text: str) -> float:
    return float(text.split()[0].rstrip("%").replace(numbers.MINUS, "-").replace("+", ""))


def places(text: str) -> int:
    return len(text.rstrip("%").partition(".")[2])


@pytest.mark.parametrize(
    ("value", "half", "shown", "within"),
    [
        (308.85, 4.3, "309 tok/s", "305-313 tok/s"),
        (308.85, 1.3, "308.9 tok/s", "307.6-310.2 tok/s"),
        (308.85, 43.0, "310 tok/s", "270-350 tok/s"),
        (8.7422, 0.096, "8.74 tok/s", "8.65-8.84 tok/s"),
        (8.7422, 0.0021, "8.742 tok/s", "8.740-8.744 tok/s"),
    ],
)
def test_a_value_has_the_digits_of_its_half_width(
    value: float, half: float, shown: str, within: str
) -> None:
    found = numbers.estimate(RATE, value, [value - half, value + half])
    assert (found.value, found.interval) == (shown, within)


@pytest.mark.parametrize(
    ("half", "expected"),
    [(4.3, 0), (1.3, 1), (1.96, 0), (0.96, 1), (0.94, 1), (43.0, -1), (130.0, -1), (0.02, 2)],
)
def test_two_digits_only_where_the_first_is_a_one(half: float, expected: int) -> None:
    assert numbers.places_of(half) == expected


@given(FINITE, WIDTH)
def test_value_and_interval_agree_in_digits(value: float, half: float) -> None:
    found = numbers.change(value, [value - half, value + half])
    low, _, high = found.interval.partition(f" {numbers.ELLIPSIS} ")
    assert "e" in found.interval or places(found.value) == places(low) == places(high)


@given(st.floats(0.0, 1e6), st.floats(1e-3, 1e6), st.floats(0.0, 1e6))
def test_rounding_never_crosses_a_target(value: float, half: float, target: float) -> None:
    target = round(target, 3)
    if math.isclose(value, target, rel_tol=1e-6, abs_tol=1e-6):
        return
    bounds = [value - half, value + half]
    for shown in (
        numbers.estimate(RATE, value, bounds, against=[target]).value,
        numbers.show(RATE, value, against=[target]),
        numbers.show(RATE, value, coarse=True, against=[target]),
        numbers.about(RATE, value, [target]),
    ):
        assert (read(shown) >= target) is (value >= target), shown


@given(st.floats(-10, 10), st.floats(1e-4, 10), st.floats(0.01, 0.5))
def test_an_effect_never_reaches_a_size_that_it_misses(
    value: float, half: float, size: float
) -> None:
    size = round(size, 3)
    if math.isclose(value, size, rel_tol=1e-6, abs_tol=1e-6):
        return
    shown = numbers.change(value, [value - half, value + half], against=[size]).value
    assert (read(shown) >= round(size * 100, 1)) is (value >= size)


def test_a_miss_by_little_is_printed_as_a_miss() -> None:
    assert numbers.show("e2e_tps_p10", 19.9996, coarse=True, against=[20.0]) == "19.9996 tok/s"
    assert numbers.show("e2e_tps_p10", 19.2, against=[20.0]) == "19.20 tok/s"
    assert numbers.estimate(RATE, 18.7, [10.0, 27.4], against=[20.0]).value == "19 tok/s"
    assert numbers.effect(-0.0002, against=[0.0]) == f"{numbers.MINUS}0.02%"
    assert numbers.about("util_pct_mean_all", 79.7, [80.0]) == "79.7%"


def test_an_end_keeps_its_side_of_zero_for_two_digits_at_most() -> None:
    assert numbers.change(0.04, [0.002, 0.078]).interval == "+0.2% … +7.8%"
    assert numbers.change(0.04, [1e-7, 0.08]).interval == "0% … +8%"


@given(st.floats(-1e-3, 1e-3), st.floats(1e-3, 1e3))
def test_there_is_no_minus_zero(value: float, half: float) -> None:
    found = numbers.change(value, [value - half, value + half])
    for text in (found.value, *found.interval.split(f" {numbers.ELLIPSIS} ")):
        assert read(text) != 0 or not text.startswith((numbers.MINUS, "+"))


def test_a_share_below_one_is_not_a_hundred_percent() -> None:
    assert numbers.estimate("success_rate", 0.997, [0.93, 1.0]).value == "99.7%"
    assert numbers.estimate("success_rate", 1.0, [0.93, 1.0]).value == "100%"


@pytest.mark.parametrize("value", [1e-12, 1e-7, 1e15, 1e200, -1e200])
def test_tiny_and_huge_values_are_numbers(value: float) -> None:
    found = numbers.estimate(RATE, value, [value - abs(value) / 3, value + abs(value) / 3])
    assert math.isfinite(read(found.value)) and len(found.value) < 40
    assert math.isfinite(read(numbers.show(RATE, value)))


@pytest.mark.parametrize("bounds", [None, [], [None, None], [1.0, None], [2.0, 2.0]])
def test_without_an_uncertainty_the_digits_are_the_metrics_own(
    bounds: list[float | None] | None,
) -> None:
    assert numbers.estimate(RATE, 8.7422, bounds).value == "8.74 tok/s"
    assert numbers.change(0.0472, bounds).value == "+4.7%"


@pytest.mark.parametrize("value", [None, math.nan])
def test_unknown_stays_a_dash(value: float | None) -> None:
    assert numbers.estimate(RATE, value, [1.0, 2.0]).value == numbers.DASH
    assert numbers.change(value, [0.1, 0.2]).value == numbers.DASH
    infinite = numbers.estimate(RATE, math.inf, [1.0, math.inf])
    assert infinite.value == numbers.INFINITE
    assert numbers.change(0.1, [math.nan, 0.2]).interval == numbers.DASH
