"""The server's own counters: names of each era, restarts, what a page does not say, and whether the
totals agree with the client's usage."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import aggregate
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_study import Study, request, run_record

from decodelab import reasons, server_metrics
from decodelab.columns import SERVER

NOTHING = dict.fromkeys([*server_metrics.NAMES, *server_metrics.PERCENTILES, "server_cache_hit"])
UNKNOWN = dict.fromkeys(server_metrics.PERCENTILES)
V1 = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {prompt}
vllm:prompt_tokens_created{{engine="0",model_name="m"}} 1.79e+09
vllm:generation_tokens_total{{engine="0",model_name="m"}} {output}
vllm:num_preemptions_total{{engine="0",model_name="m"}} 0.0
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {prompt}
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}
vllm:request_queue_time_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} {count}
vllm:request_queue_time_seconds_sum{{engine="0",model_name="m"}} {queue}
vllm:request_queue_time_seconds_count{{engine="0",model_name="m"}} {count}
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="m"}} {ttft}
vllm:time_to_first_token_seconds_count{{engine="0",model_name="m"}} {count}
vllm:inter_token_latency_seconds_sum{{engine="0",model_name="m"}} {itl}
vllm:inter_token_latency_seconds_count{{engine="0",model_name="m"}} {output}
"""
_FIELDS = ("prompt", "output", "hits", "count", "queue", "ttft", "itl")
PROBED = dict(zip(_FIELDS, (5.0, 1.0, 0.0, 1.0, 0.25, 0.5, 0.0), strict=True))
AFTER = dict(zip(_FIELDS, (165.0, 405.0, 40.0, 5.0, 4.25, 2.5, 40.4), strict=True))


def found(folder: Path, before: str | None, after: str | None) -> dict[str, float | None]:
    for when, text in (("before", before), ("after", after)):
        if text is not None:
            (folder / f"metrics_{when}.txt").write_text(text)
    return server_metrics.deltas(folder)


def test_v1_counters_and_means_are_of_the_run_alone(tmp_path: Path) -> None:
    assert found(tmp_path, V1.format(**PROBED), V1.format(**AFTER)) == {
        "server_prompt_tokens": 160,
        "server_generation_tokens": 404,
        "server_preemptions": 0,
        "server_cache_queries": 160,
        "server_cache_hits": 40,
        "server_cache_hit": 0.25,
        "queue_s": 1.0,
        "server_ttft_s": 0.5,
        "server_itl_s": pytest.approx(0.1),
        **UNKNOWN,  # a histogram of one bucket without bounds
    }


def test_v0_names_and_what_v0_does_not_count(tmp_path: Path) -> None:
    page = """\
vllm:prompt_tokens_total{{model_name="m"}} {0}
vllm:generation_tokens_total{{model_name="m"}} {0}
vllm:gpu_prefix_cache_hit_rate{{model_name="m"}} 0.5
vllm:time_in_queue_requests_sum{{model_name="m"}} {0}
vllm:time_in_queue_requests_count{{model_name="m"}} {0}
vllm:time_per_output_token_seconds_sum{{model_name="m"}} {0}
vllm:time_per_output_token_seconds_count{{model_name="m"}} {0}
"""
    got = found(tmp_path, page.format(1.0), page.format(9.0))
    assert (got["server_prompt_tokens"], got["queue_s"], got["server_itl_s"]) == (8, 1.0, 1.0)
    for name in ("server_preemptions", "server_cache_hits", "server_cache_hit", "server_ttft_s"):
        assert got[name] is None, name


def histogram(name: str, *counts: float, bounds: tuple[str, ...] = ("0.1", "0.2", "0.4")) -> str:
    """The buckets of two engines, of which each saw half."""
    lines = [f"# TYPE {name} histogram"]
    for engine in (0, 1):
        for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
            lines.append(f'{name}_bucket{{engine="{engine}",le="{bound}"}} {count / 2}')
        lines += [f'{name}_sum{{engine="{engine}"}} {counts[-1] / 10}']
        lines += [f'{name}_count{{engine="{engine}"}} {counts[-1] / 2}']
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("vllm:inter_token_latency_seconds", "server_itl"),  # V1
        ("vllm:time_per_output_token_seconds", "server_itl"),  # V0 and early V1
        ("vllm:request_queue_time_seconds", "queue"),  # both
        ("vllm:time_in_queue_requests", "queue"),  # V0
    ],
)
def test_percentiles_come_from_the_growth_of_the_buckets(
    tmp_path: Path, name: str, column: str
) -> None:
    """50 gaps of the start lie in the lowest bucket already; of the run's 100, 80 lie up to 0.2."""
    got = found(tmp_path, histogram(name, 50, 50, 50, 50), histogram(name, 50, 130, 150, 150))
    assert got[f"{column}_p50_s"] == pytest.approx(0.1 + 0.1 * 50 / 80)
    assert got[f"{column}_p99_s"] == pytest.approx(0.2 + 0.2 * 19 / 20)
    known = {f"{column}_p50_s", f"{column}_p99_s", f"{column}_s"}
    assert {key for key, value in got.items() if value is not None} == known


def test_a_percentile_without_an_upper_bound_is_not_known(tmp_path: Path) -> None:
    name = "vllm:inter_token_latency_seconds"
    got = found(tmp_path, histogram(name, 0, 0, 0, 0), histogram(name, 60, 90, 98, 100))
    assert got["server_itl_p50_s"] == pytest.approx(0.1 * 50 / 60) and got["server_itl_s"]
    assert got["server_itl_p99_s"] is None  # of 100, two lie beyond the last bound


def test_buckets_that_went_backwards_or_cannot_be_placed_say_nothing(tmp_path: Path) -> None:
    name = "vllm:inter_token_latency_seconds"
    whole = histogram(name, 10, 20, 30, 40)
    got = found(tmp_path, whole, histogram(name, 5, 40, 60, 80))
    assert (got["server_itl_p50_s"], got["server_itl_p99_s"]) == (None, None)
    assert got["server_itl_s"] is not None
    strange = ("0.1", "wide", "0.4")
    got = found(
        tmp_path, "# TYPE " + name + " histogram\n", histogram(name, 1, 2, 3, 4, bounds=strange)
    )
    assert got["server_itl_p50_s"] is None
    got = found(tmp_path, whole, whole)  # nothing in between
    assert (got["server_itl_p50_s"], got["server_itl_s"]) == (None, None)


@pytest.mark.parametrize(
    ("q", "buckets", "value"),
    [
        (0.5, {1.0: 10, math.inf: 10}, 0.5),  # from zero: no time is negative
        (1.0, {1.0: 10, 2.0: 10, math.inf: 10}, 1.0),  # not the bound of an empty bucket
        (0.5, {1.0: 5, 2.0: 10, math.inf: 10}, 1.0),
        (0.5, {1.0: 0, 2.0: 0, math.inf: 10}, None),
        (0.5, {1.0: 9, 2.0: 3, math.inf: 20}, None),  # no histogram
        (0.5, {1.0: 10}, None),  # without +Inf the total is not known
        (0.5, {math.inf: 0}, None),
        (0.5, {}, None),
    ],
)
def test_a_quantile_is_linear_inside_its_bucket(
    q: float, buckets: dict[float, float], value: float | None
) -> None:
    assert server_metrics.quantile(q, buckets) == value


@given(
    st.lists(st.floats(0.001, 7.9), min_size=1, max_size=60),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_an_estimate_lies_in_the_bucket_of_the_true_value(times: list[float], q: float) -> None:
    bounds = [0.01, 0.1, 1.0, 2.0, 8.0, math.inf]
    buckets = {bound: float(sum(t <= bound for t in times)) for bound in bounds}
    true = sorted(times)[math.ceil(q * len(times)) - 1]
    upper = next(bound for bound in bounds if true <= bound)
    lower = max([0.0, *(bound for bound in bounds if bound < upper)])
    estimate = server_metrics.quantile(q, buckets)
    assert estimate is not None and lower - 1e-9 <= estimate <= upper + 1e-9


def test_a_counter_under_two_names_is_counted_once_and_total_may_be_left_out(
    tmp_path: Path,
) -> None:
    page = "vllm:gpu_prefix_cache_hits_total {0}\nvllm:prefix_cache_hits {0}\n"
    assert found(tmp_path, page.format(1), page.format(4))["server_cache_hits"] == 3


def test_early_v1_names_of_the_prefix_cache(tmp_path: Path) -> None:
    page = "vllm:gpu_prefix_cache_hits_total {0}\nvllm:gpu_prefix_cache_queries_total {1}\n"
    assert found(tmp_path, page.format(0, 0), page.format(3, 4))["server_cache_hit"] == 0.75


def test_engines_and_models_are_summed_and_labels_may_hold_anything(tmp_path: Path) -> None:
    page = (
        'vllm:prompt_tokens_total{{engine="0",model_name="a}} 7"}} {0}\n'
        'vllm:prompt_tokens_total{{engine="1",model_name="say \\"m\\""}} {1} 1700000000000\n'
    )
    got = found(tmp_path, page.format(1.0, 2.0), page.format(11.0, 5.0))
    assert got["server_prompt_tokens"] == 13


def test_a_counter_that_went_backwards_says_nothing(tmp_path: Path) -> None:
    got = found(tmp_path, V1.format(**AFTER), V1.format(**{**AFTER, "prompt": 3.0}))
    assert got["server_prompt_tokens"] is None and got["server_cache_hit"] is None
    assert got["server_generation_tokens"] == 0  # known, and none: not the same as unknown
    assert got["queue_s"] is None  # no request in between


def test_one_engine_of_two_that_began_anew_says_nothing(tmp_path: Path) -> None:
    page = (
        'vllm:prompt_tokens_total{{engine="0"}} {0}\nvllm:prompt_tokens_total{{engine="1"}} {1}\n'
    )
    got = found(tmp_path, page.format(10, 10), page.format(900, 4))
    assert got["server_prompt_tokens"] is None


def test_another_process_says_nothing_though_its_counters_are_higher(tmp_path: Path) -> None:
    before, after = (V1.format(**values) for values in (PROBED, AFTER))
    start = "process_start_time_seconds {}\n"
    assert found(tmp_path, before + start.format(1), after + start.format(2)) == NOTHING


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, V1.format(**AFTER)),
        (V1.format(**PROBED), None),
        ("", V1.format(**AFTER)),
        (V1.format(**PROBED), "<html>not found</html>"),
    ],
)
def test_missing_is_none_never_zero(tmp_path: Path, before: str | None, after: str | None) -> None:
    assert found(tmp_path, before, after) == NOTHING


def test_a_series_that_was_declared_and_empty_began_at_zero(tmp_path: Path) -> None:
    name = "vllm:time_per_output_token_seconds"
    after = f"# TYPE {name} histogram\n{name}_sum 3.0\n{name}_count 6.0\n"
    got = found(tmp_path, f"# TYPE {name} histogram\n", after)
    assert got["server_itl_s"] == 0.5
    assert found(tmp_path, "# TYPE other counter\n", after)["server_itl_s"] is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    server_metrics.read_page(text)


def counted(**more: Any) -> dict[str, float | None]:
    whole = {"server_prompt_tokens": 160, "server_generation_tokens": 404}
    return {**NOTHING, **whole, "server_cache_queries": 160, "server_preemptions": 0, **more}


def four() -> list[dict[str, Any]]:
    """A warm-up and three counted requests of 40 + 101 tokens."""
    return [{**request(), "warmup": True}, *(request(i) for i in range(3))]


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"server_generation_tokens": 404 + 4 * 7}, []),  # a burst past the end of each
        ({"server_generation_tokens": 600}, ["server_counted_more"]),
        ({"server_prompt_tokens": 400}, ["server_counted_more"]),
        ({"server_prompt_tokens": 400, "server_preemptions": 2}, []),  # V0 reads them again
        ({"server_generation_tokens": 303}, ["server_counted_less"]),  # the warm-up is missing
        ({"server_generation_tokens": 101, "server_cache_queries": None}, []),  # V0, multi-step
        ({"server_generation_tokens": None, "server_prompt_tokens": None}, []),
    ],
)
def test_server_and_usage_are_held_to_each_other(change: dict[str, Any], codes: list[str]) -> None:
    assert server_metrics.disagreements(four(), 101, counted(**change)) == codes


def test_a_failed_request_may_have_used_up_to_its_limit() -> None:
    lost = {**request(3), "outcome": "timeout", "completion_tokens": None, "prompt_tokens": None}
    never = {**request(4), "outcome": "not_started", "completion_tokens": None}
    for output in (404, 404 + 101):
        got = counted(server_generation_tokens=output, server_prompt_tokens=200)
        assert server_metrics.disagreements([*four(), lost, never], 101, got) == []


def test_the_columns_and_the_verdict_of_a_run(tmp_path: Path) -> None:
    study = Study()
    study.add("r", None, data=run_record(four(), planned=3))
    study.index["runs"]["r"]["raw"] = "raw/r"
    (tmp_path / "raw/r").mkdir(parents=True)
    found(tmp_path / "raw/r", V1.format(**PROBED), V1.format(**AFTER))
    folder = study.write(tmp_path / "runs")
    row = aggregate.build(study.plan, folder, tmp_path)["runs"][0]
    assert (row["validity"], row["server_prompt_tokens"], row["queue_s"]) == ("valid", 160, 1.0)
    found(tmp_path / "raw/r", V1.format(**PROBED), V1.format(**{**AFTER, "output": 900.0}))
    row = aggregate.build(study.plan, folder, tmp_path)["runs"][0]
    assert (row["validity"], row["reasons"]) == ("suspect", "server_counted_more")


@pytest.mark.parametrize(
    ("cache", "cached", "hits", "code"),
    [
        ("cold", None, 40.0, "cached_tokens_not_as_declared"),
        ("cold", None, 0.0, ""),
        ("cold", 0, 40.0, ""),  # usage knows better than a counter that holds the warm-up
        ("warm", None, 0.0, "cached_tokens_not_as_declared"),
        ("warm", None, 40.0, ""),
        ("as_is", None, 40.0, ""),
        (None, None, 40.0, ""),
    ],
)
def test_the_servers_own_hits_stand_in_where_usage_names_none(
    tmp_path: Path, cache: str | None, cached: int | None, hits: float, code: str
) -> None:
    study = Study()
    sent = [{**r, "cached_tokens": cached} for r in four()]
    data = run_record(sent, planned=3)
    data["run"]["cache"] = cache
    study.add("r", None, data=data)
    study.index["runs"]["r"]["raw"] = "raw/r"
    (tmp_path / "raw/r").mkdir(parents=True)
    found(tmp_path / "raw/r", V1.format(**PROBED), V1.format(**{**AFTER, "hits": hits}))
    row = aggregate.build(study.plan, study.write(tmp_path / "runs"), tmp_path)["runs"][0]
    assert row["reasons"] == code
    assert row["validity"] == ("suspect" if code else "valid")


def test_what_was_sent_is_summed_over_all_requests() -> None:
    lost = {**request(3), "outcome": "timeout", "completion_tokens": 7, "prompt_tokens": None}
    never = {**request(4), "outcome": "not_started"}
    assert server_metrics.sent([*four(), lost, never], "completion_tokens") == 404 + 7
    assert server_metrics.sent([*four(), lost, never], "prompt_tokens") == 160
    silent = {**request(5), "completion_tokens": None}
    assert server_metrics.sent([*four(), silent], "completion_tokens") is None
    assert server_metrics.sent([never], "prompt_tokens") is None


def test_every_figure_has_a_column_and_every_code_its_words() -> None:
    assert set(SERVER) == set(NOTHING)
    assert {"server_counted_more", "server_counted_less"} <= set(reasons.TEXTS)


def test_where_no_request_reported_anything_the_sum_is_unknown() -> None:
    """Not 0: a request that timed out may have cost the server its whole prompt."""
    lost = {**request(), "outcome": "timeout", "completion_tokens": None}
    assert server_metrics.sent([lost, lost], "completion_tokens") is None
    assert server_metrics.sent([{**lost, "completion_tokens": 0}], "completion_tokens") == 0
