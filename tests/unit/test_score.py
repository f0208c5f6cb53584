"""The weighted score: every reading by hand, and what keeps runs from being ranked together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample_study import Study, run_record

from cargo import record
from decodelab import score, score_table, ttft_buckets
from decodelab.vocabulary import METRICS, SCORES


def ok(
    index: int, start: float, ttft: float, e2e: float, tokens: int, prompt: int, cached: int
) -> dict[str, Any]:
    out = record.blank_request(index)
    times = (start, start + ttft, None, start + e2e)
    out.update(
        outcome="ok",
        t_start_s=start,
        t_first_s=start + ttft,
        t_end_s=start + e2e,
        prompt_tokens=prompt,
        completion_tokens=tokens,
        cached_tokens=cached,
        n_first_delta=1,
        **record.derive(*times, prompt, tokens, 1),
    )
    return out


PAIR = [ok(0, 0.0, 2.0, 10.0, 100, 1000, 0), ok(1, 10.0, 1.0, 10.0, 200, 1000, 800)]


def test_every_reading_by_hand() -> None:
    """Wall 20 s: 300 tokens out (15 a second), 1200 uncached (60), 800 cached (40). Means: Output TPS 10 and
    20 -> 15, Input TPS 500 and 1000 -> 750, P10 11. Warm: 800 tokens in 1 s of TTFT.
    """
    found = score.figures(PAIR, None)
    assert found["batch_wall_s"] == 20.0 and found["cache_tps_warm"] == 800.0
    assert found["platform_score"] == pytest.approx(60 * (10.8 * 15 + 1.8 * 60 + 0.36 * 40))
    cache = {"": 0.56 * 40, "_warm": 0.56 * 800}
    rates = {
        "wall": 16.796 * 15 + 2.799 * 60,
        "mean": 16.796 * 15 + 2.799 * 750,
        "p10": 16.796 * 11 + 2.799 * 750,
    }
    for reading, value in rates.items():
        for warm, more in cache.items():
            assert found[f"weighted_{reading}{warm}"] == pytest.approx(value + more)


def test_no_success_has_no_score_whatever_is_told() -> None:
    failed = {**record.blank_request(0), "outcome": "connection", "t_end_s": 3.0}
    told = {"cached_tokens": 5.0, "input_tps_mean": 7.0}
    found = score.figures([failed], 3.0, told)
    assert all(found[name] is None for name in SCORES)
    assert found["input_tps_mean"] is None and found["cache_tps_wall"] is None


def test_failures_are_in_the_wall_time_and_nowhere_else() -> None:
    late = {**record.blank_request(2), "outcome": "connection", "t_end_s": 40.0}
    found = score.figures([*PAIR, late], None)
    assert found["batch_wall_s"] == 40.0 and found["output_tps_wall"] == 7.5
    assert found["e2e_tps_mean"] == 15.0


def test_an_unknown_part_is_no_zero() -> None:
    lost = [{**PAIR[0], "cached_tokens": None}, PAIR[1]]
    found = score.figures(lost, None)
    assert all(found[name] is None for name in SCORES)
    told = score.figures(lost, None, {"cached_tokens": 800.0})
    assert told["platform_score"] == score.figures(PAIR, None)["platform_score"]
    assert told["weighted_mean_warm"] is None  # whose TTFT were warm nobody tells


def test_every_reading_can_be_a_target() -> None:
    assert set(SCORES) <= set(METRICS)


# populations --------------------------------------------------------------------------------------


def study_of(tmp_path: Path, **runs: list[dict[str, Any]]) -> Any:
    study = Study()
    for name, requests in runs.items():
        study.add(name, requests, variant=name, max_tokens=500)
    return score_table.table(study.tables(tmp_path))


def test_runs_of_one_population_are_ranked(tmp_path: Path) -> None:
    slow = [ok(0, 0.0, 2.0, 12.0, 100, 1010, 0), ok(1, 12.0, 1.0, 10.0, 200, 1010, 800)]
    found = study_of(tmp_path, one=PAIR, two=slow)
    assert [row["population"] for row in found["runs"]] == [1, 1]
    order = {r["reading"]: r["runs"] for r in found["rankings"]}
    assert order["weighted_wall"] == ["one", "two"] and set(order) == set(SCORES)


def test_a_submission_without_a_success_is_told_and_has_no_score(tmp_path: Path) -> None:
    failed = [{**record.blank_request(0), "outcome": "connection", "t_end_s": 3.0}]
    for source, told in (("imported", 1), ("measured", 0)):
        study = Study()
        study.add("r", None, data=run_record(failed, source=source))
        found = score_table.table(study.tables(tmp_path / source))
        assert len(found["runs"]) == told
        assert all(row[name] is None for row in found["runs"] for name in SCORES)


@pytest.mark.parametrize("other", ["fewer", "longer", "another_prompt"])
def test_another_population_is_never_ranked(tmp_path: Path, other: str) -> None:
    requests = {
        "fewer": [PAIR[0], {**record.blank_request(1), "outcome": "connection", "t_end_s": 20.0}],
        "longer": [PAIR[0], ok(1, 10.0, 1.0, 10.0, 210, 1000, 800)],
        "another_prompt": [PAIR[0], ok(1, 10.0, 1.0, 10.0, 200, 1100, 800)],
    }[other]
    found = study_of(tmp_path, one=PAIR, two=requests)
    assert [row["population"] for row in found["runs"]] == [1, 2]
    assert found["rankings"] == []


@pytest.mark.parametrize("other", [{"concurrency": 4}, {"rate": 2.0}, {"source": "simulated"}])
def test_another_load_or_source_is_never_ranked(tmp_path: Path, other: dict[str, Any]) -> None:
    """Four streams at half the rate each score twice as much by the wall clock."""
    study = Study()
    study.add("one", PAIR, variant="one", max_tokens=500)
    data = run_record(PAIR, source=other.get("source", "measured"))
    data["run"] |= {name: value for name, value in other.items() if name != "source"}
    study.add("two", None, data=data, variant="two", max_tokens=500, **other)
    found = score_table.table(study.tables(tmp_path))
    assert [row["population"] for row in found["runs"]] == [1, 2]
    assert found["rankings"] == []


def test_the_contests_buckets_have_their_lower_edges() -> None:
    k = 1024
    edges = {0: "lt_6k", 6 * k - 1: "lt_6k", 6 * k: "6k_16k", 16 * k: "16k_32k", 32 * k: "32k_64k"}
    edges |= {
        64 * k: "64k_128k",
        128 * k: "128k_256k",
        256 * k - 1: "128k_256k",
        256 * k: "ge_256k",
    }
    assert {n: ttft_buckets.of(n) for n in edges} == edges
    found = ttft_buckets.split([*PAIR, {**PAIR[0], "outcome": "timeout"}])
    assert found["lt_6k"] == {"n": 2, "n_ttft": 2, "p50_s": 1.5, "p90_s": 1.9, "mean_s": 1.5}
    assert all(f["n"] == 0 and f["p90_s"] is None for n, f in found.items() if n != "lt_6k")
