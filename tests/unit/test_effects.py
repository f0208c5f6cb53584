"""Effects and intervals: exact small cases, and the judge's calibration by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import effects, question_kinds
from decodelab.vocabulary import METRICS


def arm(*values: float, name: str = "a") -> dict[str, float]:
    return {f"{name}{n}": value for n, value in enumerate(values)}


def test_one_launch_an_arm_is_the_estimate_and_the_restart_floor() -> None:
    found = effects.compared(arm(8.74), arm(8.33, name="b"), "decode_rate")
    assert found.effect == pytest.approx(8.33 / 8.74 - 1)
    assert found.interval == pytest.approx((found.effect - 0.04, found.effect + 0.04))
    assert (found.floor, found.floor_source, found.method) == (0.04, "field", "floor")
    assert question_kinds.word(found, 0.05) == "refuted"


def test_ttft_has_its_own_floor_and_shares_have_none() -> None:
    assert effects.compared(arm(1.0), arm(2.0, name="b"), "ttft_s").floor == 0.30
    assert effects.floor_of("ttft_s_p90") == 0.30 and effects.floor_of("e2e_tps_p10") == 0.04
    assert effects.alone([0.99], "success_rate").interval == (0.99, 0.99)


def test_direction_lower_makes_a_fall_positive() -> None:
    found = effects.compared(arm(2.0), arm(1.0, name="b"), "ttft_s", sign=-1)
    assert found.effect == pytest.approx(0.5) and found.interval == pytest.approx((0.2, 0.8))


def test_pooled_interval_against_a_hand_worked_case() -> None:
    base, cand = [math.exp(x) for x in (0.0, 0.02, 0.04)], [math.exp(x) for x in (0.10, 0.12, 0.14)]
    found = effects.compared(arm(*base), arm(*cand, name="b"), "decode_rate")
    error = math.sqrt(0.0004 * 2 / 3)  # both arms have a standard deviation of 0.02
    assert found.effect == pytest.approx(math.expm1(0.10))
    assert found.interval == pytest.approx(
        (math.expm1(0.10 - 2.7764451 * error), math.expm1(0.10 + 2.7764451 * error))
    )
    assert found.method == "pooled_t"


def test_the_same_launches_are_compared_within_each_launch() -> None:
    base, cand = arm(10.0, 12.0, 8.0), arm(11.0, 13.2, 8.8)
    found = effects.compared(base, cand, "decode_rate")
    assert found.method == "paired_t" and found.interval == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_no_relative_change_of_a_value_that_has_none(value: float) -> None:
    with pytest.raises(effects.NoRelativeChange):
        effects.compared(arm(value), arm(1.0, name="b"), "decode_rate")


rates = st.lists(st.floats(0.5, 500.0), min_size=1, max_size=4)


@given(rates, rates, st.floats(0.1, 10.0))
def test_effects_do_not_depend_on_the_unit(
    base: list[float], cand: list[float], factor: float
) -> None:
    one = effects.compared(arm(*base), arm(*cand, name="b"), "decode_rate")
    two = effects.compared(
        arm(*[v * factor for v in base]), arm(*[v * factor for v in cand], name="b"), "decode_rate"
    )
    assert two.effect == pytest.approx(one.effect, rel=1e-6, abs=1e-9)
    assert one.interval[0] <= one.effect <= one.interval[1]


def test_one_launch_an_arm_must_also_exceed_the_drift_that_its_order_does_not_balance() -> None:
    """A claim of 5-8 % could be one restart and a host that warms up; a refutation keeps METRICS'
    rule.
    """
    within = effects.compared(arm(10.0), arm(10.75, name="b"), "decode_rate")
    beyond = effects.compared(arm(10.0), arm(10.85, name="b"), "decode_rate")
    assert within.interval[0] > 0 and question_kinds.word(within, 0.05) == "inconclusive"
    assert question_kinds.word(beyond, 0.05) == "supported"
    assert within.drift == effects.DRIFT and within.detectable == pytest.approx(0.08)


def test_two_workloads_of_one_start_have_no_drift_between_starts() -> None:
    found = effects.compared(arm(10.0), arm(10.6), "decode_rate")
    assert found.drift == 0.0 and question_kinds.word(found, 0.05) == "supported"


def test_one_launch_with_a_measured_scatter_is_the_estimate_and_that_floor() -> None:
    scatter = effects.Scatter(0.01, 5)
    found = effects.compared(arm(10.0), arm(11.0, name="b"), "decode_rate", scatter=scatter)
    half = 2.5705818 * 0.01 * math.sqrt(2)
    assert found.method == "aa_floor" and found.floor_source == "measured"
    assert found.interval == pytest.approx((1.1 * math.exp(-half) - 1, 1.1 * math.exp(half) - 1))
    assert found.floor == pytest.approx(math.expm1(half)) and found.drift == 0.0


def test_a_measured_floor_shrinks_with_the_launches_it_is_asked_for() -> None:
    scatter = effects.Scatter(0.02, 5)
    base, cand = arm(10.0, 10.1, 9.9), arm(10.7, 10.8, 10.9, name="b")
    found = effects.compared(base, cand, "decode_rate", scatter=scatter)
    assert found.floor == pytest.approx(math.expm1(2.5705818 * 0.02 * math.sqrt(2 / 3)))
    assert found.method == "pooled_t" and found.floor_source == "measured"


# one arm ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "metric", "method"),
    [
        ([0.1, 2.0, 0.3], "ttft_s", "log_t"),
        ([0.0, 2.0, 0.3], "queue_s", "bounded_t"),
        ([99.0, 70.0, 98.0], "util_pct_mean_all", "logit_t"),
        ([100.0, 70.0, 98.0], "util_pct_mean_all", "bounded_t"),
        ([0.9, 0.5, 0.99], "cache_hit", "logit_t"),
        ([1.0, 0.5, 1.0], "success_rate", "bounded_t"),
        ([1.0, 1.0, 1.0], "success_rate", "counted"),
        ([99.0], "util_pct_mean_all", "floor"),
    ],
)
def test_an_interval_stays_inside_what_its_metric_can_be(
    values: list[float], metric: str, method: str
) -> None:
    found = effects.alone(values, metric)
    low, high = found.interval
    top = {"share": 1.0, "%": 100.0}.get(METRICS[metric].unit, math.inf)
    assert found.method == method
    assert 0.0 <= low <= found.effect <= high <= top


def test_the_interval_of_a_rate_is_students_t_of_its_logarithms() -> None:
    found = effects.alone([math.exp(x) for x in (0.0, 0.02, 0.04)], "decode_rate")
    half = 4.3026527 * 0.02 / math.sqrt(3)
    assert found.effect == pytest.approx(math.exp(0.02))
    assert found.interval == pytest.approx((math.exp(0.02 - half), math.exp(0.02 + half)))


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=6))
def test_percentages_never_leave_their_range(values: list[float]) -> None:
    low, high = effects.alone(values, "util_pct_mean_window").interval
    assert 0.0 <= low <= high <= 100.0


def test_one_launch_of_one_arm_takes_a_measured_scatter_too() -> None:
    found = effects.alone([10.0], "decode_rate", effects.Scatter(0.01, 5))
    ratio = math.exp(2.5705818 * 0.01)
    assert found.interval == pytest.approx((10 / ratio, 10 * ratio)) and found.method == "aa_floor"


def test_calibration_intervals_hold_at_three_starts() -> None:
    random = np.random.default_rng(6)
    held = 0
    for _ in range(1500):
        a, b = (np.exp(random.normal(0, 0.02, 3)) for _ in range(2))
        low, high = effects.compared(arm(*a), arm(*b, name="b"), "decode_rate").interval
        held += low <= 0 <= high
    assert held / 1500 >= 0.935  # 0.95 less three standard errors
