"""The server's own counters: names of each era, restarts, what a page does not say, and whether the
totals agree with the client's usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aggregate
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_study import Study, request, run_record

from decodelab import reasons, server_metrics
from decodelab.columns import SERVER

NOTHING = dict.fromkeys([*server_metrics.NAMES, "server_cache_hit"])
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


def test_every_figure_has_a_column_and_every_code_its_words() -> None:
    assert set(SERVER) == set(NOTHING)
    assert {"server_counted_more", "server_counted_less"} <= set(reasons.TEXTS)
