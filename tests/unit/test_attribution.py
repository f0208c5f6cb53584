"""What a percentile sits on: decomposition and needs, held against answers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_study import Study, request

from cargo import record
from decodelab import attribution, judge, queue_estimate

AT_LEAST_20 = {"op": ">=", "value": 20.0}
AT_MOST_5 = {"op": "<=", "value": 5.0}


def timed(
    start: float,
    ttft: float,
    decode: float,
    tokens: int = 101,
    rest: float = 0.0,
    index: int = 0,
    first: int | None = 1,
) -> dict[str, Any]:
    """A success by its spans in seconds; `rest`: from the last output to the end of the stream."""
    times = (start, start + ttft, start + ttft + decode, start + ttft + decode + rest)
    out = record.blank_request(index)
    out.update(outcome="ok", prompt_tokens=1000, completion_tokens=tokens, n_first_delta=first)
    out.update(
        zip(("t_start_s", "t_first_s", "t_last_s", "t_end_s"), times, strict=True),
        **record.derive(*times, 1000, tokens, first),
    )
    return out


def one(request: dict[str, Any], base: str, target: dict[str, Any], queue: float | None) -> Any:
    waits = {} if queue is None else {request["index"]: queue}
    found = attribution.attribute([request], base, request[base], target, waits)
    return found["requests"][0]


def test_the_needs_of_a_slow_start() -> None:
    """101 tokens at 20 tok/s may take 5.05 s. TTFT 6 s of which 2 s in the queue, 4 s of decode (25 tok/s):
    TTFT may be 5.05 - 4 = 1.05 s; no decode makes up for 6 s.
    """
    told = one(timed(0, 6.0, 4.0), "e2e_tps", AT_LEAST_20, 2.0)
    assert (told["queue_s"], told["prefill_s"], told["decode_s"]) == pytest.approx((2.0, 4.0, 4.0))
    assert told["e2e_s"] == pytest.approx(10.0) and told["rest_s"] == pytest.approx(0.0)
    assert told["ttft_alone"] == "reachable" and told["needed_ttft_s"] == pytest.approx(1.05)
    assert told["decode_alone"] == "not_reachable" and told["needed_decode_rate"] is None


def test_the_needs_of_a_slow_decode() -> None:
    """TTFT 1.05 s and 10 s of decode: even TTFT 0 leaves 10 s > 5.05 s; decode has 4 s for 100 tokens: 25 tok/s."""
    told = one(timed(0, 1.05, 10.0), "e2e_tps", AT_LEAST_20, None)
    assert told["ttft_alone"] == "not_reachable" and told["needed_ttft_s"] is None
    assert told["decode_alone"] == "reachable"
    assert told["needed_decode_rate"] == pytest.approx(25.0)
    assert told["queue_s"] is None and told["prefill_s"] is None  # not known, and not 0


def test_the_end_of_the_stream_is_part_of_the_time() -> None:
    """0.05 s from the last output to the end: 5.05 - 0.05 - 4 = 1 s for TTFT, 5.05 - 0.05 - 1 = 4 s to decode."""
    told = one(timed(0, 1.0, 5.0, rest=0.05), "e2e_tps", AT_LEAST_20, 0.0)
    assert told["rest_s"] == pytest.approx(0.05)
    assert told["needed_decode_rate"] == pytest.approx(25.0)
    assert one(timed(0, 2.0, 4.0, rest=0.05), "e2e_tps", AT_LEAST_20, 0.0)[
        "needed_ttft_s"
    ] == pytest.approx(1.0)


def test_the_needs_of_ttft() -> None:
    """TTFT 8 s = 2 s queue + 6 s prefill, target 5 s: prefill 3 s would do; 6 s of prefill need no queue."""
    told = one(timed(0, 8.0, 1.0), "ttft_s", AT_MOST_5, 2.0)
    assert told["prefill_alone"] == "reachable" and told["needed_prefill_s"] == pytest.approx(3.0)
    assert told["queue_alone"] == "not_reachable" and told["needed_queue_s"] is None
    told = one(timed(0, 8.0, 1.0), "ttft_s", AT_MOST_5, 6.0)
    assert told["prefill_alone"] == "not_reachable"
    assert told["queue_alone"] == "reachable" and told["needed_queue_s"] == pytest.approx(3.0)


@pytest.mark.parametrize("lost", ["ttft_s", "e2e_s", "completion_tokens"])
def test_what_is_not_on_record_has_no_need(lost: str) -> None:
    request = {**timed(0, 6.0, 4.0), lost: None}
    request["e2e_tps"] = 10.1  # as an imported file may state it
    told = one(request, "e2e_tps", AT_LEAST_20, 1.0)
    assert told["ttft_alone"] is None and told["needed_ttft_s"] is None
    assert told["decode_alone"] is None and told["needed_decode_rate"] is None


def test_without_the_first_deltas_tokens_a_rate_is_not_named() -> None:
    told = one(timed(0, 1.05, 10.0, first=None), "e2e_tps", AT_LEAST_20, None)
    assert told["decode_alone"] is None and told["needed_decode_rate"] is None


@given(
    ttft=st.floats(0.01, 50),
    decode=st.floats(0.01, 50),
    rest=st.floats(0, 1),
    tokens=st.integers(2, 3000),
)
def test_a_need_met_meets_the_target(ttft: float, decode: float, rest: float, tokens: int) -> None:
    """Whatever the request: with the needed TTFT, or decode rate, it stands exactly at the target."""
    told = one(timed(0, ttft, decode, tokens, rest), "e2e_tps", AT_LEAST_20, None)
    if told["ttft_alone"] == "reachable":
        again = timed(0, told["needed_ttft_s"], decode, tokens, rest)
        assert again["e2e_tps"] == pytest.approx(20.0, rel=1e-6)
    else:
        assert timed(0, 1e-12, decode, tokens, rest)["e2e_tps"] <= 20.0 * (1 + 1e-9)
    if told["decode_alone"] == "reachable":
        span = (tokens - 1) / told["needed_decode_rate"]
        again = timed(0, ttft, span, tokens, rest)
        assert again["e2e_tps"] == pytest.approx(20.0, rel=1e-6)
    else:
        assert tokens / (ttft + rest) <= 20.0 * (1 + 1e-9)


def test_the_requests_at_or_beyond_the_percentile_come_worst_first() -> None:
    requests = [timed(0, 1, 99 / rate, 100, index=i) for i, rate in enumerate((30, 5, 20, 10))]
    values = [r["e2e_tps"] for r in requests]
    p50 = record.percentile(values, 50)
    assert p50 is not None
    told = attribution.attribute(requests, "e2e_tps", p50, AT_LEAST_20, {})["requests"]
    assert [r["index"] for r in told] == [1, 3]
    slow = attribution.attribute(requests, "ttft_s", 1.0, AT_MOST_5, {})["requests"]
    assert [r["index"] for r in slow] == [0, 1, 2, 3]


# the queue ----------------------------------------------------------------------------------------


def test_who_waits_where_two_may_run() -> None:
    """Four at once, two slots, 10 s each: the third waits for the first end (10 s), the fourth for the
    second (12 s, minus its own start at 1 s).
    """
    requests = [
        timed(0, 1, 9, index=0),
        timed(0, 1, 11, index=1),
        timed(0, 11, 9, index=2),
        timed(1, 12, 9, index=3),
    ]
    waits = queue_estimate.queue_s(requests, 2, 4)
    assert waits == pytest.approx({0: 0.0, 1: 0.0, 2: 10.0, 3: 11.0})


def test_of_requests_sent_at_once_the_first_tokens_tell_who_waited() -> None:
    """Sent within a millisecond, answered in another order than that of their indexes."""
    requests = [
        timed(0.0, 1, 9, index=0),
        timed(0.001, 11, 9, index=1),
        timed(0.002, 1, 9, index=2),
        timed(0.003, 11, 9, index=3),
    ]
    waits = queue_estimate.queue_s(requests, 2, 4)
    assert waits == pytest.approx({0: 0.0, 1: 10.0, 2: 0.0, 3: 10.0}, abs=0.01)


def test_requests_sent_apart_keep_their_order_whatever_their_first_tokens_say() -> None:
    """The second sent overtakes by a shorter prefill, not by an earlier start."""
    requests = [timed(0.0, 8, 2, index=0), timed(0.5, 1, 4, index=1), timed(1.0, 9, 1, index=2)]
    waits = queue_estimate.queue_s(requests, 2, 3)
    assert waits == pytest.approx({0: 0.0, 1: 0.0, 2: 4.5})


def test_a_queue_is_no_longer_than_the_ttft() -> None:
    requests = [timed(0, 1, 9, index=0), timed(0, 3, 9, index=1)]
    assert queue_estimate.queue_s(requests, 1, 2) == pytest.approx({0: 0.0, 1: 3.0})


def test_no_estimate_without_the_limit_or_the_times() -> None:
    requests = [timed(0, 1, 9, index=0), timed(0, 3, 9, index=1)]
    assert queue_estimate.queue_s(requests, None, 2) == {}
    unknown = [requests[0], {**requests[1], "t_end_s": None}]
    assert queue_estimate.queue_s(unknown, 1, 2) == {}


def test_one_stream_cannot_queue_behind_itself_unless_it_was_more_than_one() -> None:
    apart = [timed(0, 1, 9, index=0), timed(9.9999, 3, 9, index=1)]  # stamps are rounded
    assert queue_estimate.queue_s(apart, None, 1) == {0: 0.0, 1: 0.0}
    together = [timed(0, 1, 9, index=0), timed(2, 3, 9, index=1)]
    assert queue_estimate.queue_s(together, None, 1) == {}


# the whole way ------------------------------------------------------------------------------------


def test_verdicts_hold_the_attribution_of_each_run_held_to_the_targets(tmp_path: Path) -> None:
    study = Study()
    study.add("c1", [request(i, start=20.0 * i, rate=10.0) for i in range(4)])
    study.add("c2", [request(i, start=20.0 * i, rate=5.0) for i in range(4)], concurrency=2)
    found = judge.judge(study.plan, study.tables(tmp_path))["attribution"]
    assert {row["run"] for row in found} == {"c1"}
    by = {row["metric"]: row for row in found}
    assert set(by) == {"e2e_tps_p10", "ttft_s_p90"}
    row = by["e2e_tps_p10"]
    assert row["met"] is False and row["n"] == 4 and row["n_failed"] == 0
    assert row["shares"]["queue_s"] == 0.0
    parts = sum(
        row["shares"][name] or 0.0 for name in ("queue_s", "prefill_s", "decode_s", "rest_s")
    )
    assert parts == pytest.approx(1.0)
