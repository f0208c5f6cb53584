"""Effects and intervals: exact small cases, and the judge's calibration by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import effects, verdict_making
from decodelab.vocabulary import METRICS


def arm(*values: float, name: str = "a") -> dict[str, float]:
    return {f"{name}{n}": value for n, value in enumerate(values)}


def test_one_launch_an_arm_is_the_estimate_and_the_restart_floor() -> None:
    found = effects.compared(arm(8.74), arm(8.33, name="b"), "decode_rate")
    assert found.effect == pytest.approx(8.33 / 8.74 - 1)
    assert found.interval == pytest.approx((found.effect - 0.04, found.effect + 0.04))
    assert (found.floor, found.floor_source, found.method) == (0.04, "field", "floor")
    assert verdict_making.word(found, 0.05) == "refuted"


def test_ttft_has_its_own_floor_and_counted_shares_have_none() -> None:
    assert effects.compared(arm(1.0), arm(2.0, name="b"), "ttft_s").floor == 0.30
    assert effects.floor_of("ttft_s_p90") == 0.30 and effects.floor_of("e2e_tps_p10") == 0.04
    assert effects.floor_of("success_rate") == effects.floor_of("goodput") == 0.0
    assert effects.floor_of("idle_share_window") == 0.04  # telemetry, no count


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
    assert within.interval[0] > 0 and verdict_making.word(within, 0.05) == "inconclusive"
    assert verdict_making.word(beyond, 0.05) == "supported"
    assert within.drift == effects.DRIFT and within.detectable is not None


def test_two_workloads_of_one_start_have_no_drift_between_starts() -> None:
    found = effects.compared(arm(10.0), arm(10.6), "decode_rate")
    assert found.drift == 0.0 and verdict_making.word(found, 0.05) == "supported"


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


# one launch against several -----------------------------------------------------------------------


def test_one_launch_against_several_takes_the_scatter_that_the_several_show() -> None:
    many = arm(*[math.exp(x) for x in (-0.08, 0.0, 0.08)])
    found = effects.compared(many, arm(1.1, name="b"), "decode_rate")
    half = 4.3026527 * 0.08 * math.sqrt(1 + 1 / 3)
    assert found.method == "own_t" and found.drift == effects.DRIFT
    assert found.interval == pytest.approx((1.1 * math.exp(-half) - 1, 1.1 * math.exp(half) - 1))
    assert verdict_making.word(found, 0.05) == "inconclusive"


def test_launches_that_agree_do_not_narrow_the_restart_floor() -> None:
    found = effects.compared(arm(10.0, 10.0, 10.001), arm(11.0, name="b"), "decode_rate")
    assert found.method == "floor" and found.interval == pytest.approx(
        (found.effect - 0.04, found.effect + 0.04)
    )


def test_five_scattering_starts_against_one_are_rarely_called_a_win() -> None:
    random, wins = np.random.default_rng(1), 0
    for _ in range(1500):
        many, one = np.exp(random.normal(0, 0.08, 5)), np.exp(random.normal(0, 0.08, 1))
        found = effects.compared(arm(*many), arm(*one, name="b"), "decode_rate")
        wins += verdict_making.word(found, 0.05) == "supported"
    assert wins / 1500 <= 0.05


# the smallest effect that is found ----------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("starts", "scatter"), [(1, 0.02), (3, 0.005), (3, 0.01), (3, 0.02), (5, 0.01)]
)
def test_what_is_called_detectable_is_found_in_four_of_five(
    starts: int, scatter: float, sign: int
) -> None:
    """Median of what studies print; at that true effect the studies' verdicts are counted."""
    random = np.random.default_rng(3)

    def study(effect: float) -> effects.Estimate:
        base, cand = (10 * np.exp(random.normal(0, scatter, starts)) for _ in range(2))
        moved = arm(*(cand * (1 + sign * effect)), name="b")
        return effects.compared(arm(*base), moved, "decode_rate", sign, smallest=0.05)

    sizes = [size for _ in range(300) if (size := study(0.0).detectable) is not None]
    found = [verdict_making.word(study(float(np.median(sizes))), 0.05) for _ in range(1500)]
    # A scatter of few starts is itself an estimate, more often too small than too large.
    assert 0.70 <= found.count("supported") / 1500 <= 0.93


def test_a_fall_that_is_detectable_is_no_more_than_all() -> None:
    base, cand = arm(1.0, 1.3, 0.8), arm(0.5, 0.7, 0.6, name="b")
    rise = effects.compared(base, cand, "ttft_s", 1).detectable
    fall = effects.compared(base, cand, "ttft_s", -1).detectable
    assert rise is not None and fall is not None
    assert 0.8 < rise < 1.0
    assert 0.45 < fall < 0.5  # and not 0.8 to 1.0, the rise of the same size in logarithms
    assert effects.compared(base, cand, "ttft_s", -1, smallest=1.0).detectable is None


# counted shares -----------------------------------------------------------------------------------


def test_a_share_is_compared_in_points_by_the_score_interval_of_its_counts() -> None:
    """Newcombe 1998, table II, method 10: 56/70 against 48/80."""
    found = effects.compared(
        arm(48 / 80), arm(56 / 70, name="b"), "goodput", counts=((48, 80), (56, 70))
    )
    assert found.in_points and found.method == "score" and found.effect == pytest.approx(0.2)
    assert found.interval == pytest.approx((0.0524, 0.3339), abs=5e-5)
    fall = effects.compared(
        arm(48 / 80), arm(56 / 70, name="b"), "goodput", -1, counts=((48, 80), (56, 70))
    )
    assert fall.interval == pytest.approx((-0.3339, -0.0524), abs=5e-5)


def test_starts_that_differ_by_more_than_counts_do_widen_the_interval() -> None:
    base, cand = arm(1.0, 0.5, 1.0), arm(1.0, 1.0, 1.0, name="b")
    counts = ((2500.0, 3000.0), (3000.0, 3000.0))
    found = effects.compared(base, cand, "goodput", counts=counts)
    assert found.method == "score_t" and found.interval[0] < 0 < found.interval[1]


@pytest.mark.parametrize("starts", [1, 3])
def test_a_share_without_its_counts_is_not_certain(starts: int) -> None:
    base, cand = arm(*[0.95] * starts), arm(*[1.0] * starts, name="b")
    found = effects.compared(base, cand, "success_rate")
    assert found.interval == (-1.0, 1.0) and found.method == "starts_t"
    assert effects.alone([1.0] * starts, "success_rate").interval == (0.0, 1.0)


def test_all_failed_against_none_is_an_answer() -> None:
    found = effects.compared(arm(1.0), arm(0.0, name="b"), "success_rate", counts=((4, 4), (0, 4)))
    assert found.effect == -1.0 and verdict_making.word(found, 0.05) == "refuted"


@pytest.mark.parametrize(("share", "n", "starts"), [(0.97, 40, 1), (0.9, 20, 1), (0.9, 20, 3)])
def test_the_same_share_twice_is_rarely_called_better(share: float, n: int, starts: int) -> None:
    random, wins, held = np.random.default_rng(7), 0, 0
    for _ in range(1500):
        good = random.binomial(n, share, (2, starts))
        base, cand = (arm(*(row / n), name=name) for row, name in zip(good, "ab", strict=True))
        sums = [(float(row.sum()), float(n * starts)) for row in good]
        found = effects.compared(base, cand, "goodput", counts=(sums[0], sums[1]))
        wins += verdict_making.word(found, 0.02) == "supported"
        held += found.interval[0] <= 0 <= found.interval[1]
    assert wins / 1500 <= 0.05 and held / 1500 >= 0.935


# one arm ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "metric", "method"),
    [
        ([0.1, 2.0, 0.3], "ttft_s", "log_t"),
        ([0.0, 2.0, 0.3], "queue_s", "bounded_t"),
        ([99.0, 70.0, 98.0], "util_pct_mean_all", "logit_t"),
        ([100.0, 70.0, 98.0], "util_pct_mean_all", "bounded_t"),
        ([0.9, 0.5, 0.99], "idle_share_window", "logit_t"),
        ([1.0, 0.5, 1.0], "idle_share_window", "bounded_t"),
        ([1.0, 1.0, 1.0], "success_rate", "starts_t"),
        ([0.9, 0.5, 0.99], "cache_hit", "starts_t"),
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


@pytest.mark.parametrize("value", [20.0, 31234.0, 0.7, 8.74])
@pytest.mark.parametrize("metric", ["decode_rate", "mem_used_mib_max_all", "util_pct_mean_all"])
def test_starts_that_agree_are_that_very_value(value: float, metric: str) -> None:
    """exp(mean(log)) of three times 20 is 19.999999999999996, which misses a target of 20."""
    found = effects.alone([value] * 3, metric)
    top = effects.top_of(metric)
    if top is None or value <= top:
        assert (found.effect, found.interval) == (value, (value, value))


def test_a_share_of_time_has_the_floor_of_telemetry() -> None:
    assert effects.alone([0.3], "idle_share_window").interval == pytest.approx((0.288, 0.312))


def test_a_few_good_requests_leave_a_share_open() -> None:
    low, high = effects.alone([1.0], "success_rate", counts=(4, 4)).interval
    assert low == pytest.approx(0.5101, abs=1e-4) and high == 1.0
