"""The pure parts of benchmarks/vllm_metrics.py: definitions, the server's account, agreement within a spread."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from engine_metrics import definitions, live, page, recorded, server_side
from engine_metrics.recorded import Stream

CHUNK = 'data: {"choices": [{"index": 0, "delta": %s, "finish_reason": %s}]}\n\n'
USAGE = (
    'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": %d, '
    '"prompt_tokens_details": {"cached_tokens": 4}}}\n\n'
)


def stream(role_s: float, texts_s: list[float], finish_s: float | None = None) -> Stream:
    """A role, an event a token, perhaps a finish reason by itself, usage and [DONE] at once."""
    told = [(role_s, CHUNK % ('{"role": "assistant", "content": ""}', "null"))]
    last = "null" if finish_s is not None else '"length"'
    told += [(t, CHUNK % ('{"content": "a"}', "null")) for t in texts_s[:-1]]
    told.append((texts_s[-1], CHUNK % ('{"content": "z"}', last)))
    if finish_s is not None:
        told.append((finish_s, CHUNK % ("{}", '"stop"')))
    end = told[-1][0] + 0.25
    told.append((end, USAGE % len(texts_s) + "data: [DONE]\n\n"))
    return Stream("made", "", {}, 1.0, told)


def bench_of(**values: float) -> dict[str, float]:
    names = ("total_input", "total_output", "mean_ttft_ms", "mean_itl_ms", "median_itl_ms")
    more = ("mean_tpot_ms", "mean_e2el_ms", "output_throughput")
    return dict.fromkeys((*names, *more), 1.0) | values


def test_ours_and_ours_by_their_definition() -> None:
    request = recorded.ours(stream(1.5, [2.0, 3.0, 5.0]))
    assert request["outcome"] == "ok"
    # by hand: their clock runs from the role to the last event with choices
    theirs = bench_of(
        total_input=9, total_output=3, mean_ttft_ms=500.0, mean_itl_ms=3500.0 / 3,
        median_itl_ms=1000.0, mean_tpot_ms=1750.0, mean_e2el_ms=4000.0, output_throughput=3 / 4.25,
    )  # fmt: skip
    found = {pair.metric: pair for pair in definitions.pairs([request], theirs)}
    ours = {metric: pair.ours for metric, pair in found.items()}
    assert ours[definitions.TTFT] == 1.0 and ours[definitions.ITL] == 1.5
    assert ours[definitions.TPOT] == 1.5 and ours[definitions.E2E] == 4.25
    words = {metric.name: page.verdict(pair) for metric, pair in found.items()}
    assert words == {
        "prompt tokens": page.EQUAL, "output tokens": page.EQUAL, "TTFT": page.THEIR_WAY,
        "ITL, mean": page.THEIR_WAY, "ITL, P50": page.THEIR_WAY, "TPOT, mean": page.THEIR_WAY,
        "decode rate": page.THEIR_WAY, "request time": page.THEIR_WAY, "output tokens per second": page.EQUAL,
    }  # fmt: skip


def test_a_finish_reason_by_itself_is_one_more_gap_of_theirs() -> None:
    request = recorded.ours(stream(2.0, [2.0, 3.0], finish_s=7.0))
    assert definitions.span_their_way(request) == (1.0, [0.0, 1.0, 4.0], 6.0)
    assert request["t_last_s"] == 3.0


def test_what_is_not_accounted_for_is_said() -> None:
    request = recorded.ours(stream(1.5, [2.0, 3.0, 5.0]))
    (ttft,) = (
        pair
        for pair in definitions.pairs([request], bench_of(mean_ttft_ms=501.0))
        if pair.metric is definitions.TTFT
    )
    assert page.verdict(ttft) == page.UNEQUAL
    assert page.UNEQUAL in page.streams({"made": [ttft]})


def metrics(**values: float) -> str:
    return "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in values.items())


def page_of(n: int, tokens: int) -> str:
    times = ("time_to_first_token", "inter_token_latency", "request_time_per_output_token",
             "e2e_request_latency", "request_queue_time")  # fmt: skip
    counts = {f"{name}_seconds_count": n for name in times}
    sums = {f"{name}_seconds_sum": n * 0.5 for name in times}
    totals = {"request_success_total": n, "generation_tokens_total": tokens, "prompt_tokens_total": 9 * n,
              "prompt_tokens_cached_total": 4 * n, "prefix_cache_hits_total": 4 * n,
              "prefix_cache_queries_total": 9 * n, "num_preemptions_total": 0,
              "request_num_preemptions_sum": 0}  # fmt: skip
    return metrics(**counts, **sums, **totals)


def run_of(texts_s: list[float]) -> dict[str, Any]:
    return {"requests": [recorded.ours(stream(1.5, texts_s))]}


def test_the_servers_growth_beside_ours() -> None:
    before, after = page_of(5, 100), page_of(6, 103)
    told = {
        one.counter: one for one in server_side.beside(run_of([2.0, 3.0, 5.0]), before, after, 2, 1)
    }
    assert all(one.ours == one.theirs for counter, one in told.items() if counter.exact)
    assert told[server_side.TTFT].theirs == 0.5 and told[server_side.TTFT].ours == 1.0
    assert told[server_side.QUEUE].ours == 0.0
    wrong = server_side.beside(run_of([2.0, 3.0]), before, after, 2, 1)
    assert page.server_verdict([wrong[1]]) == "UNEQUAL"


def test_a_counter_that_is_not_there_is_no_zero() -> None:
    with pytest.raises(KeyError):
        server_side.beside(run_of([2.0, 3.0]), "", metrics(generation_tokens_total=2), 2, 1)


def test_agreement_is_within_what_two_runs_of_one_client_differ() -> None:
    apart = live.Compared("x", "s", [1.0, 1.2], [1.0, 1.2], [1.25, 1.3])
    assert apart.spread == pytest.approx(0.2) and apart.difference == pytest.approx(-0.175)
    assert apart.agrees and page.live_verdict(apart) == "within the A/A spread"
    far = apart._replace(theirs=[1.5, 1.6])
    assert not far.agrees and page.live_verdict(far).startswith("BEYOND")


def test_the_order_falls_on_both_alike() -> None:
    assert list(live.order(3)) == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]


def test_the_recorded_streams_are_of_a_real_engine_and_whole() -> None:
    names = []
    for name, one in recorded.all_streams():
        names.append(name)
        request = recorded.ours(one)
        assert one.engine.startswith("vLLM ") and request["outcome"] == "ok"
        assert request["completion_tokens"] == one.options["max_tokens"]
    assert {"plain", "merged", "running_usage", "reasoning_by_four"} <= set(names)


def test_a_run_too_late_to_tell_is_left_out_and_never_agrees_by_that() -> None:
    """Tokens merged by a late server, their number not told: no TPOT of ours, and none is made up."""
    late = stream(1.5, [2.0])
    role, text, _ = late.chunks
    merged = Stream("made", "", {}, 1.0, [role, text, (3.0, USAGE % 8 + "data: [DONE]\n\n")])
    request = recorded.ours(merged)
    assert request["outcome"] == "ok" and request["tpot_s"] is None
    turns = [
        live.Turn("ours", {"requests": [request]}, None, []),
        live.Turn("theirs", None, bench_of(), []),
    ]
    tpot = next(one for one in live.compare(turns) if one.name == definitions.TPOT.name)
    assert not tpot.is_known and not tpot.agrees
    assert "| TPOT, mean | not known |" in page.live(live.Load(1, 1, 8), [tpot])
    unknown = server_side.Beside(server_side.TPOT, None, 0.1)
    assert page.server_verdict([unknown]) == "not known"
    assert page.server_line([unknown])[-1] == "not known"
