"""The run record's formulas, against figures worked out by hand and against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cargo import record


def test_derive_by_hand() -> None:
    found = record.derive(1.0, 1.5, 3.5, 4.0, 100, 11, 1)
    assert found == {
        "ttft_s": 0.5,
        "e2e_s": 3.0,
        "decode_tps": 11 / 2.0,
        "decode_rate": 10 / 2.0,
        "e2e_tps": 11 / 3.0,
        "tpot_s": 2.0 / 10,
        "input_tps": 200.0,
        "decode_end": "last_delta",
    }
    assert tuple(found) == record.DERIVED


def test_a_burst_flatters_decode_tps_and_not_decode_rate() -> None:
    """128 tokens in bursts of 4, one burst each 0.4 s: 10 tok/s."""
    found = record.derive(0.0, 1.0, 1.0 + 31 * 0.4, 14.0, None, 128, 4)
    assert found["decode_rate"] == pytest.approx(10.0)
    assert found["decode_tps"] == pytest.approx(10.0 * 128 / 124)


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"t_first": None}, {"ttft_s", "decode_tps", "decode_rate", "tpot_s", "input_tps"}),
        ({"t_start": None}, {"ttft_s", "e2e_s", "e2e_tps", "input_tps"}),
        ({"t_end": None}, {"e2e_s", "e2e_tps"}),
        ({"completion_tokens": None}, {"decode_tps", "decode_rate", "e2e_tps", "tpot_s"}),
        ({"prompt_tokens": None}, {"input_tps"}),
        ({"n_first_delta": None}, {"decode_rate", "tpot_s"}),
        ({"t_last": 1.5}, {"decode_tps", "decode_rate", "tpot_s"}),  # one delta: no span
        ({"completion_tokens": 1, "t_last": 3.5}, {"decode_rate", "tpot_s"}),
    ],
)
def test_what_is_not_known_is_none_and_never_zero(changes: Any, unknown: set[str]) -> None:
    known = {
        "t_start": 1.0,
        "t_first": 1.5,
        "t_last": 3.5,
        "t_end": 4.0,
        "prompt_tokens": 100,
        "completion_tokens": 11,
        "n_first_delta": 1,
    }
    found = record.derive(**{**known, **changes})
    figures = {name for name, value in found.items() if name != "decode_end" and value is None}
    assert figures == unknown


def test_a_count_that_no_float_can_hold_is_unknown() -> None:
    found = record.derive(0.0, 1.0, 2.0, 3.0, 10**400, 10**400, 1)
    figures = ("decode_tps", "decode_rate", "e2e_tps", "tpot_s", "input_tps")
    assert [found[name] for name in figures] == [None, None, None, None, None]
    assert found["ttft_s"] == 1.0


def test_where_only_the_end_of_the_stream_is_known_it_is_used_and_marked() -> None:
    found = record.derive(0.0, 1.0, None, 3.0, None, 10, 1)
    assert found["decode_tps"] == 5.0
    assert found["decode_end"] == "stream_end"


def test_percentile_is_type_7() -> None:
    assert record.percentile([1.0, 0.975, 5.97], 90) == pytest.approx(1.0 + 0.8 * 4.97)
    assert record.percentile(range(1, 11), 90) == pytest.approx(9.1)  # nearest rank says 9
    assert record.percentile([], 50) is None
    assert record.percentile([7.0], 10) == 7.0
    with pytest.raises(ValueError, match=r"0\.\.100"):
        record.percentile([1.0], 101)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 100))
def test_percentile_equals_numpy(values: list[float], q: float) -> None:
    found = record.percentile(values, q)
    assert found == pytest.approx(float(np.percentile(values, q)), rel=1e-9, abs=1e-9)


def test_percentile_with_failures_as_infinity_is_never_nan() -> None:
    values = [1.0, 2.0, math.inf]
    assert record.percentile(values, 50) == 2.0
    assert record.percentile(values, 90) == math.inf
    assert record.percentile([math.inf, math.inf], 90) == math.inf


def request(index: int, **fields: Any) -> dict[str, Any]:
    found = record.blank_request(index)
    found.update(
        outcome="ok",
        t_start_s=float(index),
        t_end_s=index + 2.0,
        ttft_s=0.1 * (index + 1),
        decode_rate=10.0 + index,
        completion_tokens=20,
        prompt_tokens=50,
        cached_tokens=10,
    )
    found.update(fields)
    return found


def test_summary_counts_by_outcome_and_only_successes_enter_the_figures() -> None:
    requests = [
        request(0),
        request(1),
        request(2, outcome="timeout", ttft_s=99.0, t_end_s=500.0, completion_tokens=3),
        request(3, outcome="http_error", ttft_s=None),
        record.blank_request(4),
        {**request(9), "warmup": True, "ttft_s": 1000.0, "t_start_s": -50.0},
    ]
    found = record.summarise(requests)
    assert (found["n_attempted"], found["n_ok"], found["n_not_started"]) == (4, 2, 1)
    assert found["outcomes"] == {"ok": 2, "timeout": 1, "http_error": 1, "not_started": 1}
    assert found["success_rate"] == 0.5
    assert found["wall_s"] == 3.0  # 0.0 to 3.0: the timeout's end and the warm-up are not in it
    assert found["completion_tokens"] == 40
    assert found["output_tps_total"] == pytest.approx(40 / 3)
    assert found["ttft_s"] == {
        "p10": pytest.approx(0.11),
        "p50": pytest.approx(0.15),
        "p90": pytest.approx(0.19),
        "n": 2,
    }
    assert found["e2e_tps"] is None


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    found = record.summarise([request(0), request(1, cached_tokens=None, completion_tokens=None)])
    assert found["cached_tokens"] is None
    assert found["completion_tokens"] is None
    assert found["output_tps_total"] is None
    assert found["prompt_tokens"] == 100


def test_summary_of_nothing() -> None:
    found = record.summarise([record.blank_request(0)])
    assert found["success_rate"] is None
    assert found["wall_s"] is None
    assert found["n_not_started"] == 1
    assert set(found) == set(record.SUMMARY_FIELDS)


def test_a_wall_that_is_given_stands_in_only_where_times_are_unknown() -> None:
    timeless = [request(0, t_start_s=None, t_end_s=None)]
    assert record.summarise(timeless, wall_s=8.0)["output_tps_total"] == 2.5
    assert record.summarise([request(0)], wall_s=8.0)["wall_s"] == 2.0


def test_gaps_are_between_output_bearing_deltas_only() -> None:
    events = {
        "t_s": [0.0, 1.0, 1.5, 2.0, 3.0, 9.0],
        "kind": ["role", "reasoning", "empty", "content", "tool", "usage"],
        "tokens": [0, 1, None, 2, None, None],
    }
    assert record.output_gaps(events) == [(1.0, 2), (1.0, None)]


def test_every_field_has_a_meaning() -> None:
    for section, fields in record.FIELDS.items():
        for name, field in fields.items():
            assert len(field.meaning) > 3, (section, name)
            if name.endswith("_s"):
                assert field.unit == "s", (section, name)


def test_problems_of_what_is_no_record() -> None:
    good: dict[str, Any] = {
        "schema": record.SCHEMA,
        "source": "measured",
        "run": {},
        "summary": {},
        "requests": [record.blank_request(0)],
    }
    assert record.problems(good) == []
    assert record.problems([]) == ["not a JSON object"]
    assert "schema" in record.problems({**good, "schema": "decodelab.run/2"})[0]
    assert "source" in record.problems({**good, "source": "guessed"})[0]
    assert "requests" in record.problems({**good, "requests": None})[0]
    assert "outcome" in record.problems({**good, "requests": [{"outcome": "fine"}]})[0]
