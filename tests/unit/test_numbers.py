"""How numbers are written."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decodelab import columns, numbers
from decodelab.vocabulary import METRICS


@pytest.mark.parametrize(
    ("metric", "value", "printed"),
    [
        ("ttft_s_p90", 1.85, "1.85s"),
        ("ttft_s_p90", 51.6005, "51.60s"),
        ("ttft_s_p90", 0.0123, "0.012s"),
        ("ttft_s_p90", 0.00987, "0.0099s"),
        ("ttft_s_p90", 0.0, "0.00s"),
        ("decode_tps_p10", 8.7422, "8.74 tok/s"),
        ("output_tps_total", 8.0, "8.00 tok/s"),
        ("success_rate", 1.0, "100%"),
        ("success_rate", 0.0, "0%"),
        ("success_rate", 0.9999, "99.99%"),
        ("success_rate", 2 / 3, "66.7%"),
        ("util_pct_mean_all", 28.9087, "28.91%"),
        ("util_pct_max_all", 100.0, "100%"),
        ("util_pct_max_all", 99.5, "99.50%"),
        ("mem_used_mib_mean_all", 30477.2, "30477 MiB"),
        ("power_w_mean_all", 49.67, "49.67 W"),
        ("power_w_max_all", 51.0, "51 W"),
        ("completion_tokens", 768.0, "768"),
        ("smi_samples", 208.0, "208"),
        ("smi_interval_s", 6.2, "6.20s"),
        ("smi_cost_s", 0.031, "0.031s"),
        ("tokens_per_joule", 0.0312, "0.031 tok/J"),
        ("tokens_per_joule", 0.0004, "0.00040 tok/J"),
        ("tokens_per_joule", 0.0, "0.000 tok/J"),
        ("joules_per_token", 32.2277, "32.23 J/tok"),
        ("joules_per_token", 0.0123, "0.012 J/tok"),
        ("energy_j_window", 0.31, "0.31 J"),  # what is not 0 is not printed as 0
        ("decode_rate_p50", 0.0041, "0.0041 tok/s"),
    ],
)
def test_tables_print_these_digits(metric: str, value: float, printed: str) -> None:
    assert numbers.show(metric, value) == printed


@pytest.mark.parametrize(
    ("value_s", "printed"),
    [
        (0.0000631, "0.063 ms"),
        (0.0011, "1.10 ms"),
        (0.11532, "115.3 ms"),
        (4.4, "4400.0 ms"),
        (0.0, "0.000 ms"),
        (None, numbers.DASH),
    ],
)
def test_short_times_are_milliseconds(value_s: float | None, printed: str) -> None:
    assert numbers.milliseconds(value_s) == printed


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("metric", ["ttft_s_p90", "success_rate", "completion_tokens", "power_w"])
def test_unknown_is_a_dash_and_never_zero(metric: str, value: float | None) -> None:
    assert numbers.show(metric, value) == numbers.DASH
    assert numbers.show_range(metric, [value, None]) == numbers.DASH
    assert numbers.count(value) == numbers.DASH
    assert numbers.effect(value) == numbers.DASH


def test_sentences_print_one_digit_less() -> None:
    assert numbers.show("util_pct_mean_all", 28.9087, coarse=True) == "28.9%"
    assert numbers.show("ttft_s_p90", 51.6005, coarse=True) == "51.6s"
    assert numbers.show_range("decode_tps_p10", [8.742, 8.302], coarse=True) == "8.3-8.7 tok/s"
    assert numbers.power_of_cap(49.67, 250.0) == "49.7W / 250W"
    assert numbers.power_of_cap(None, 250.0) == f"{numbers.DASH} / 250W"
    assert numbers.about("util_pct_mean_all", 28.9087) == "29%"


def test_a_range_of_equal_prints_is_one_number() -> None:
    assert numbers.show_range("decode_tps_p10", [8.741, 8.744]) == "8.74 tok/s"
    assert numbers.show_range("decode_tps_p10", [None, 8.741]) == "8.74 tok/s"


def test_a_percentile_on_a_failed_request_is_infinite() -> None:
    assert numbers.show("adj_ttft_s_p90", math.inf) == numbers.INFINITE
    assert numbers.show_range("adj_ttft_s_p90", [0.5, math.inf]) == "0.50-∞"


@pytest.mark.parametrize(
    ("value", "printed"), [(-0.0472, "−4.7%"), (1.3, "+130.0%"), (0.0, "0.0%"), (-0.0001, "0.0%")]
)
def test_effects_carry_their_sign(value: float, printed: str) -> None:
    assert numbers.effect(value) == printed


def test_an_interval_needs_both_ends() -> None:
    assert numbers.interval([-0.087, -0.007]) == "−8.7% … −0.7%"
    assert numbers.interval([-0.087, None]) == numbers.DASH
    assert numbers.interval(None) == numbers.DASH


def test_targets_print_as_they_were_written() -> None:
    assert numbers.target("e2e_tps_p10", {"op": ">=", "value": 20.0}) == ">= 20 tok/s"
    assert numbers.target("ttft_p90_s", 5.0, "<=") == "<= 5s"
    assert numbers.target("success_rate", 0.99, ">=") == ">= 99%"
    assert numbers.target("success_rate", None) == numbers.DASH
    assert numbers.expected("util_pct_mean_all", [70, 100]) == "70%-100%"
    assert numbers.expected("util_pct_mean_all", [70, None]) == ">= 70%"


def test_metric_names_come_apart() -> None:
    assert numbers.split("adj_ttft_s_p90") == (True, "ttft_s", "p90")
    assert numbers.split("ttft_p90_s") == (False, "ttft_s", "p90")
    assert numbers.split("server_itl_p99_s") == (False, "server_itl_s", "p99")
    assert numbers.split("util_pct_mean_all") == (False, "util_pct", "mean_all")
    assert numbers.split("output_tps_total") == (False, "output_tps_total", None)
    assert numbers.split("decode_rate_median") == (False, "decode_rate", "median")


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_units_are_those_of_the_vocabulary(metric: str) -> None:
    """A share is printed in percent; everything else in the unit that the column has."""
    unit = METRICS[metric].unit
    assert numbers.unit(metric) == ("%" if unit == "share" else unit)


def test_units_are_those_of_the_tables() -> None:
    for name, column in columns.COLUMNS["runs"].items():
        if column.unit in ("s", "tok/s", "MiB", "W", "%"):
            assert numbers.unit(name) == column.unit, name


@pytest.mark.parametrize(("which", "least"), [("p10", 29), ("p90", 29), ("p50", 6)])
def test_percentiles_say_when_values_are_too_few(which: str, least: int) -> None:
    assert not numbers.enough_for_percentile(0, which)
    assert not numbers.enough_for_percentile(least - 1, which)
    assert numbers.enough_for_percentile(least, which)


def test_the_limit_for_percentiles_holds_in_a_simulation() -> None:
    """At this n the interval from least to greatest value covers the P10 in 95 % of samples."""
    draws = np.random.default_rng(1).random((20_000, 29))
    covered = (draws.min(axis=1) <= 0.1) & (draws.max(axis=1) >= 0.1)
    assert covered.mean() == pytest.approx(1 - 0.9**29 - 0.1**29, abs=0.005)
    assert covered.mean() >= 0.945


def test_round_figures_keep_what_there_is_to_tell() -> None:
    assert numbers.about("ttft_s_p90", 0.1912) == "0.19s"
    assert numbers.about("ttft_s_p90", 0.0123) == "0.012s"
    assert numbers.about("ttft_s_p90", 41.2) == "41s"
    assert numbers.about("decode_rate", 8.72) == "8.7 tok/s"
    assert numbers.about("decode_rate", 0.0) == "0 tok/s"
    assert numbers.about("util_pct_mean_all", 0.4) == "0.40%"
    assert numbers.about("decode_rate", 9.96) == "10 tok/s"
    assert numbers.about("completion_tokens", 3.0) == "3"
