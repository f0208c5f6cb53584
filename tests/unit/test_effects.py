"""Effects and intervals: exact small cases, and the judge's calibration by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import effects, question_kinds


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


def verdicts(
    true: float, starts: int, studies: int, seed: int, spread: float = 0.02
) -> dict[str, float]:
    """Shares of verdicts over simulated studies: 0.3 % within a launch, `spread` across, drift."""
    random = np.random.default_rng(seed)
    order = [side for n in range(starts) for side in ("ab" if n % 2 == 0 else "ba")]
    counts: dict[str, float] = {}
    for _ in range(studies):
        slope = random.choice([-1.0, 1.0]) * 0.03 / 5  # 3 % over a queue of six launches
        drift = slope * np.arange(len(order))
        arms: dict[str, dict[str, float]] = {"a": {}, "b": {}}
        for position, side in enumerate(order):
            level = (
                8.7
                * (1 + true * (side == "b"))
                * math.exp(random.normal(0, spread) + drift[position])
            )
            requests = level * np.exp(random.normal(0, 0.003, 4))
            requests[0] *= 0.8  # the first request is an outlier; the median does not follow it
            arms[side][f"{side}{position}"] = float(np.median(requests))
        word = question_kinds.word(effects.compared(arms["a"], arms["b"], "decode_rate"), 0.05)
        counts[word] = counts.get(word, 0) + 1 / studies
    return counts


def test_calibration_same_arms_are_rarely_called_different() -> None:
    for starts, seed in ((2, 2), (3, 3)):
        assert verdicts(0.0, starts, 1000, seed).get("supported", 0.0) <= 0.05


def test_calibration_of_one_launch_an_arm_is_what_the_field_floor_is_worth() -> None:
    """2 % a restart is 2.8 % on a difference, so a chance 5 % is a one in twenty: no better."""
    assert 0.03 <= verdicts(0.0, 1, 4000, seed=1)["supported"] <= 0.06


def test_calibration_a_true_eight_percent_is_found_with_three_starts() -> None:
    found = verdicts(0.08, 3, 1000, seed=4)
    assert found["supported"] >= 0.80
    assert found.get("refuted", 0.0) <= 0.01


def test_calibration_an_effect_that_is_there_is_rarely_refuted() -> None:
    assert verdicts(0.05, 3, 800, seed=5).get("refuted", 0.0) <= 0.05


def test_calibration_intervals_hold_at_three_starts() -> None:
    random = np.random.default_rng(6)
    held = 0
    for _ in range(1500):
        a, b = (np.exp(random.normal(0, 0.02, 3)) for _ in range(2))
        low, high = effects.compared(arm(*a), arm(*b, name="b"), "decode_rate").interval
        held += low <= 0 <= high
    assert held / 1500 >= 0.935  # 0.95 less three standard errors
