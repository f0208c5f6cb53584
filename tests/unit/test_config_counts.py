"""Where arms differ in what puts several tokens into one event, each event must say how many."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_config import study_with

from decodelab import arms, config, flags
from decodelab.mistakes import ConfigError

REPO = Path(__file__).resolve().parents[2]


def asking(metric: str, fast: dict[str, Any], engine: str = "vllm-v0", **keys: Any) -> list[str]:
    data = study_with(**keys)
    data["server"]["engine"] = engine
    data["variants"]["fast"] = fast
    data["experiments"]["A"]["question"]["metric"] = metric
    try:
        config.complete(data, lambda path: "here", REPO, [])
    except ConfigError as error:
        return [str(m.path) for m in error.mistakes if not isinstance(m, str)]
    return []


NEEDED = ["('workloads', 'short', 'continuous_usage_stats')"]
STEPS = {"flags": {"--num-scheduler-steps": 4}}


@pytest.mark.parametrize(
    "metric", ["decode_rate", "decode_tps", "tpot_s", "decode_rate_p10", "tpot_p90_s"]
)
def test_metrics_that_rest_on_events_need_counts(metric: str) -> None:
    assert asking(metric, STEPS) == NEEDED
    assert asking(metric, STEPS, continuous_usage_stats=True) == []
    assert asking(metric, {"flags": {"--max-num-batched-tokens": 4096}}) == []


@pytest.mark.parametrize("metric", ["itl_s", "itl_s_p50", "itl_p90_s"])
def test_gaps_of_bursts_are_no_time_per_token_whatever_is_counted(metric: str) -> None:
    wrong = ["('experiments', 'A', 'question', 'metric')"]
    assert asking(metric, STEPS) == wrong
    assert asking(metric, STEPS, continuous_usage_stats=True) == wrong
    assert asking(metric, {"vary": {"--num-scheduler-steps": [1, 4]}}) == wrong
    assert asking(metric, {"flags": {"--max-num-batched-tokens": 4096}}) == []


def test_gaps_of_arms_that_burst_alike_may_be_asked() -> None:
    data = study_with()
    data["server"]["flags"]["--num-scheduler-steps"] = 4
    data["variants"]["fast"] = {"flags": {"--max-num-batched-tokens": 4096}}
    data["experiments"]["A"]["question"]["metric"] = "itl_s_p50"
    config.complete(data, lambda path: "here", REPO, [])


@pytest.mark.parametrize("metric", ["e2e_tps", "output_tps_total", "ttft_s", "success_rate"])
def test_other_metrics_need_none(metric: str) -> None:
    assert asking(metric, STEPS) == []


@pytest.mark.parametrize(
    ("engine", "told", "needed"),
    [
        ("vllm-v0", {"--speculative-model": "[ngram]", "--num-speculative-tokens": 3}, True),
        ("vllm-v0", {"--num_scheduler_steps": 1}, False),
        ("vllm-v1", {"-sc": {"method": "ngram", "num_speculative_tokens": 3}}, True),
        ("vllm-v1", {"--speculative-config.method": "ngram"}, True),
        ("vllm-v1", {"--spec-method": "ngram"}, True),
        ("vllm-v1", {"--stream_interval": 4}, True),
        ("vllm-v1", {"--stream-interval": 1, "--max-num-batched-tokens": 4096}, False),
        ("other", {"--speculative-algorithm": "EAGLE"}, True),
        ("other", {"--speculate": True}, False),
    ],
)
def test_flags_of_every_generation(engine: str, told: dict[str, Any], needed: bool) -> None:
    fast = {"flags": {"--trace": "x", **told}}  # a server of its own, whatever is folded
    assert asking("decode_rate", fast, engine) == (NEEDED if needed else [])


def test_token_ids_count_as_well() -> None:
    fast = {"flags": {"--stream-interval": 4}}
    assert asking("decode_rate", fast, "vllm-v1", return_token_ids=True) == []
    # V0 has none to give.
    assert "return_token_ids" in asking("decode_rate", STEPS, return_token_ids=True)[0]


def test_arms_that_burst_alike_need_no_counts() -> None:
    data = study_with()
    data["server"]["flags"]["--num-scheduler-steps"] = 4
    data["variants"]["fast"] = {"flags": {"--max-num-batched-tokens": 4096}}
    data["experiments"]["A"]["question"]["metric"] = "decode_rate"
    config.complete(data, lambda path: "here", REPO, [])


def test_a_grid_is_all_its_cells() -> None:
    vary = {"vary": {"--num-scheduler-steps": [1, 4]}}
    assert asking("decode_rate", vary) == NEEDED
    data = study_with()
    data["variants"]["fast"] = vary
    data["experiments"]["A"]["question"] = {
        "kind": "threshold",
        "metric": "decode_rate_p10",
        "variant": "fast",
        "workload": "short",
        "target": ">= 20",
    }
    with pytest.raises(ConfigError, match="write continuous_usage_stats: true"):
        config.complete(data, lambda path: "here", REPO, [])


def test_a_replay_reads_what_there_is(tmp_path: Path) -> None:
    data = study_with()
    data["replay"] = "resources/2026-07-14-decode"
    del data["host"]
    data["hosts"] = {}
    data["experiments"]["A"]["question"]["metric"] = "decode_rate"
    config.complete(data, lambda path: "here", REPO, [])


def test_bursts_are_read_from_canonical_flags() -> None:
    told = {"--stream-interval": 2, "--speculative-config.method": "ngram", "-tp": 4}
    assert flags.bursts(flags.canonical(told, "vllm-v1")) == {
        "--speculative-config.method": "ngram",
        "--stream-interval": "2",
    }
    assert flags.bursts({"--num-scheduler-steps": "1"}) == {}


# the judge goes by the same flags and metrics


@pytest.mark.parametrize(
    ("metric", "told", "refused"),
    [
        ("decode_rate", {"--num-scheduler-steps": "4"}, True),
        ("tpot_s_p90", {"--stream-interval": "4"}, True),
        ("tpot_s", {"--spec-method": "ngram"}, True),
        ("e2e_tps", {"--num-scheduler-steps": "4"}, False),
        ("decode_rate", {"--max-num-seqs": "4"}, False),
    ],
)
def test_what_the_judge_refuses_without_counts(
    metric: str, told: dict[str, str], refused: bool
) -> None:
    row = {"source": "measured", "start_id": "s", "multi_token_share": None}
    sent = {"n_events": 8, "completion_tokens": 32}
    plan = {"variants": {"base": {"canonical": {}}, "fast": {"canonical": told}}}
    base, cand = (arms.Arm(name, [], [row], [sent], metric=metric) for name in plan["variants"])
    tables: Any = SimpleNamespace(starts=[])
    found = arms.mismatches(base, cand, plan, tables, same_workload=False)
    assert [reason["code"] for reason in found] == (["token_counts_needed"] if refused else [])
    row["multi_token_share"] = 0.9
    assert arms.mismatches(base, cand, plan, tables, same_workload=False) == []


@pytest.mark.parametrize(
    ("told", "codes"), [({"--stream-interval": "4"}, ["events_in_bursts"]), ({}, [])]
)
def test_what_the_judge_refuses_whatever_is_counted(told: dict[str, str], codes: list[str]) -> None:
    row = {"source": "measured", "start_id": "s", "multi_token_share": 0.9}
    row |= {"itl_s_p50": 0.01, "tpot_s_p50": 0.01}
    sent = {"n_events": 8, "completion_tokens": 8}
    plan = {"variants": {"base": {"canonical": {}}, "fast": {"canonical": told}}}
    base, cand = (arms.Arm(n, [], [row], [sent], metric="itl_s_p90") for n in plan["variants"])
    tables: Any = SimpleNamespace(starts=[])
    found = arms.mismatches(base, cand, plan, tables, same_workload=False)
    assert [reason["code"] for reason in found] == codes
