"""Anomalies found by rule; suspects ranked by evidence, by prior where it cannot order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample_study import Study, request, run_record

from decodelab import anomalies, bottleneck, vocabulary
from decodelab.evidence import Known


def found(study: Study, folder: Path) -> dict[str, dict[str, Any]]:
    return {item["code"]: item for item in anomalies.find(study.plan, study.tables(folder))}


def one_run(
    folder: Path, requests: list[dict[str, Any]], **planned: Any
) -> dict[str, dict[str, Any]]:
    study = Study({"base": {"--max-num-seqs": 2}})
    study.add("r", requests, **planned)
    return found(study, folder)


def test_first_request_dominates_ttft(tmp_path: Path) -> None:
    cold = [request(0, ttft=6.0), request(1, ttft=1.0), request(2, ttft=1.0)]
    item = one_run(tmp_path / "a", cold)["first_request_dominates_ttft"]
    assert item["values"]["first"] == 6.0 and item["runs"] == ["r"]
    assert "6.00s" in item["zh"] and "6.00s" in item["en"]
    assert one_run(tmp_path / "b", [request(i, ttft=1.0 + 0.1 * i) for i in range(3)]) == {}
    assert one_run(tmp_path / "c", cold, concurrency=2) == {}  # others waited beside it


def test_queueing_beyond_max_num_seqs(tmp_path: Path) -> None:
    study = Study({"base": {"--max-num-seqs": 2}})
    study.add("c2", [request(i, ttft=0.9) for i in range(4)], concurrency=2)
    study.add("c4", [request(i, ttft=0.9 if i < 2 else 50.0) for i in range(4)], concurrency=4)
    item = found(study, tmp_path)["queueing_beyond_max_num_seqs"]
    assert item["runs"] == ["c4"] and item["values"]["max_num_seqs"] == 2


def test_several_tokens_per_event(tmp_path: Path) -> None:
    burst = request()
    burst["events"] = {
        "t_s": [0.5, 1.0, 1.5],
        "kind": ["content"] * 3,
        "tokens": [1, 4, 4],
        "t_user_s": [],
    }
    item = one_run(tmp_path, [burst])["several_tokens_per_event"]
    assert item["values"]["share"] == 1.0


def test_idle_accelerators_and_none_without_telemetry(tmp_path: Path) -> None:
    study = Study()
    study.add("r", [request()])
    tables = study.tables(tmp_path)
    assert anomalies.find(study.plan, tables) == []
    tables.runs["r"].update(util_pct_mean_all=28.9, util_pct_max_all=100.0, smi_samples_gpu=9)
    assert anomalies.find(study.plan, tables) == []  # a few moments are no level
    tables.runs["r"].update(smi_samples_gpu=10)
    codes = [item["code"] for item in anomalies.find(study.plan, tables)]
    assert codes == ["gpus_idle"]
    assert "n = 10" in anomalies.find(study.plan, tables)[0]["zh"]
    tables.runs["r"].update(smi_samples_gpu_window=2)  # where there is a window, it counts
    assert anomalies.find(study.plan, tables) == []
    tables.runs["r"].update(smi_samples_gpu_window=12)
    assert "n = 12" in anomalies.find(study.plan, tables)[0]["en"]
    study.plan["variants"]["base"] = {"attach": "http://gpu:8000"}
    assert anomalies.find(study.plan, tables) == []
    study.plan["variants"]["base"] = {}
    tables.runs["r"].update(util_pct_mean_all=95.0)
    assert anomalies.find(study.plan, tables) == []


def curve(folder: Path, limit: int | None, *points: tuple[int, float, float]) -> dict[str, Any]:
    """(concurrency, rate of a request, total rate) -> findings by code."""
    study = Study({"base": {} if limit is None else {"--max-num-seqs": limit}})
    for level, rate, _total in points:
        study.add(f"c{level}", [request(i, rate=rate) for i in range(4)], concurrency=level)
    tables = study.tables(folder)
    for level, _rate, total in points:
        tables.runs[f"c{level}"].update(output_tps_total=total)
    return {item["code"]: item for item in anomalies.find(study.plan, tables)}


def test_the_rate_falls_at_an_equal_running_batch(tmp_path: Path) -> None:
    """The report's own case, and those beside it."""
    reported = [(1, 8.30, 8.0), (2, 3.68, 7.23), (4, 2.57, 5.08)]
    item = curve(tmp_path / "a", 2, *reported)["rate_falls_at_equal_batch"]
    assert (item["values"]["low"], item["values"]["high"], item["values"]["max_num_seqs"]) == (
        2,
        4,
        2,
    )
    assert "3.68" in item["en"] and "2.57" in item["zh"] and "−30%" in item["en"]
    for limit, points in (
        (2, [(2, 3.68, 7.23), (4, 3.40, 7.2)]),  # within the noise between starts
        (4, reported),  # four run at once: each may be slower
        (None, reported),  # how many run at once is not known
    ):
        assert "rate_falls_at_equal_batch" not in curve(tmp_path / str(limit), limit, *points)


def test_no_gain_from_concurrency(tmp_path: Path) -> None:
    flat = [(1, 8.3, 8.00), (2, 3.68, 7.23), (4, 2.57, 5.08)]
    item = curve(tmp_path / "a", 2, *flat)["no_gain_from_concurrency"]
    assert all(f"{total:.2f}" in item["en"] for _c, _r, total in flat)
    none = "no_gain_from_concurrency"
    assert none not in curve(tmp_path / "b", 2, (1, 8.3, 8.0), (2, 4.3, 8.5))  # 6 % is a gain
    assert none not in curve(tmp_path / "c", 1, (1, 8.3, 8.0), (2, 8.3, 8.0))  # it runs one alone
    assert none not in curve(
        tmp_path / "d", 2, (2, 4.0, 8.0), (4, 4.0, 8.0)
    )  # full from the first on


def test_the_first_of_many_requests_decides_no_percentile(tmp_path: Path) -> None:
    many = [request(0, ttft=6.0), *(request(i, ttft=1.0 + 0.01 * i) for i in range(1, 30))]
    assert "first_request_dominates_ttft" not in one_run(tmp_path / "a", many)
    twice = [request(0, ttft=1.9), request(1, ttft=1.0), request(2, ttft=1.0)]
    assert one_run(tmp_path / "b", twice) == {}  # TTFT varies that much


def test_queueing_is_told_with_what_it_is_held_against(tmp_path: Path) -> None:
    study = Study({"base": {"--max-num-seqs": 2}})
    study.add("c4", [request(i, ttft=2.0) for i in range(4)], concurrency=4)
    tables = study.tables(tmp_path)
    assert anomalies.find(study.plan, tables) == []  # nothing to hold it against
    tables.runs["c4"].update(queue_s=1.0)
    (item,) = anomalies.find(study.plan, tables)
    assert item["code"] == "queueing_beyond_max_num_seqs" and "queue 1.00s" in item["en"]
    tables.runs["c4"].update(queue_s=0.2)
    assert anomalies.find(study.plan, tables) == []


def test_idle_by_share_of_samples_says_so(tmp_path: Path) -> None:
    study = Study()
    study.add("r", [request()])
    tables = study.tables(tmp_path)
    sampled = {
        "util_pct_mean_window": 62.0,
        "smi_samples_gpu_window": 40,
        "util_pct_max_all": 100.0,
    }
    tables.runs["r"].update(sampled, idle_share_window=0.35)
    (item,) = anomalies.find(study.plan, tables)
    assert "is 62.0 %" in item["en"] and "35% of samples at 0 %" in item["en"]
    tables.runs["r"].update(idle_share_window=0.2)
    assert anomalies.find(study.plan, tables) == []
    tables.runs["r"].update(util_pct_mean_window=20.0, smi_validity="invalid")
    assert anomalies.find(study.plan, tables) == []


def test_several_tokens_per_event_without_counts(tmp_path: Path) -> None:
    merged = [{**request(i), "n_events": 26} for i in range(3)]
    item = one_run(tmp_path / "a", merged)["several_tokens_per_event"]
    assert item["values"]["tokens"] == pytest.approx(101 / 26) and "3.9 tokens" in item["en"]
    few = [{**request(i), "n_events": 85} for i in range(3)]  # tokens without text of their own
    assert one_run(tmp_path / "b", few) == {}


def test_invalid_runs_are_not_looked_at(tmp_path: Path) -> None:
    study = Study()
    cold = [request(0, ttft=9.0), request(1), request(2)]
    study.add("r", None, data=run_record(cold, planned=5))
    assert found(study, tmp_path) == {}


def test_codes_are_those_of_the_vocabulary(tmp_path: Path) -> None:
    text = Path(anomalies.__file__).read_text(encoding="utf-8")
    assert all(f'"{code}"' in text for code in vocabulary.ANOMALIES)


def suspect(name: str, prior: int, *rules: tuple[dict[str, Any] | None, str]) -> dict[str, Any]:
    evidence = [
        {"when": when, "effect": effect, "text": {"zh": "证", "en": "ev"}} for when, effect in rules
    ]
    return {"id": name, "title": {"zh": name, "en": name}, "prior": prior, "evidence": evidence}


KNOWN = Known(
    verdicts=[
        {"id": "A_1.c1", "question": "A_1", "verdict": "refuted"},
        {"id": "A_1.c2", "question": "A_1", "verdict": "supported"},
    ],
    experiments={"parser": "refuted", "A": "supported", "B": None},
    anomalies=[{"code": "gpus_idle"}],
    starts=[{"cause_class": "port_in_use"}],
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (None, True),
        ({"experiment": "parser", "verdict": ["refuted"]}, True),
        ({"experiment": "parser", "verdict": ["supported"]}, False),
        ({"experiment": "B", "verdict": ["refuted"]}, False),
        ({"experiment": "absent", "verdict": ["refuted"]}, False),
        ({"question": "A_1", "verdict": ["supported"]}, True),
        ({"question": "A_1.c1", "verdict": ["refuted"]}, True),
        ({"anomaly": "gpus_idle", "verdict": None}, True),
        ({"anomaly": "no_gain_from_concurrency"}, False),
        ({"start_class": "port_in_use"}, True),
        ({"start_class": "gpu_oom"}, False),
        (
            {"anomaly": "gpus_idle", "experiment": "parser", "verdict": ["supported"]},
            False,
        ),  # all must hold
    ],
)
def test_conditions(condition: dict[str, Any] | None, expected: bool) -> None:
    assert bottleneck.holds(condition, KNOWN) is expected


def test_ranking_by_evidence_then_prior_and_the_excluded_last() -> None:
    ranked = bottleneck.rank(
        [
            suspect("a", 1),
            suspect("b", 2),
            suspect("c", 3, ({"anomaly": "gpus_idle"}, "raise")),
            suspect(
                "d",
                1,
                ({"experiment": "parser", "verdict": ["refuted"]}, "exclude"),
                ({"anomaly": "gpus_idle"}, "raise"),
            ),
            suspect("e", 4, ({"experiment": "A", "verdict": ["refuted"]}, "raise")),
        ],
        KNOWN,
    )
    assert [(r["id"], r["rank"], r["by"], r["excluded"]) for r in ranked] == [
        ("c", 1, "evidence", False),
        ("a", 2, "prior", False),
        ("b", 3, "prior", False),
        ("e", 4, "prior", False),
        ("d", 5, "evidence", True),
    ]
    assert ranked[0]["evidence"][0]["weight"] == 1 and ranked[3]["evidence"] == []


def test_steps_need_all_their_conditions() -> None:
    step = {"id": "C", "title": {"zh": "做", "en": "do"}, "reason": {"zh": "因", "en": "why"}}
    both = [{"anomaly": "gpus_idle"}, {"experiment": "parser", "verdict": ["supported"]}]
    chosen = bottleneck.steps([{**step, "when": []}, {**step, "id": "D", "when": both}], KNOWN)
    assert [(s["id"], s["en"], s["reason"]["en"]) for s in chosen] == [("C", "do", "why")]


def test_an_open_loop_leaves_the_accelerators_idle_by_its_own_rate(tmp_path: Path) -> None:
    study = Study()
    study.add("r", [request()])
    tables = study.tables(tmp_path)
    tables.runs["r"].update(util_pct_mean_all=20.0, util_pct_max_all=90.0, smi_samples_gpu=50)
    assert [item["code"] for item in anomalies.find(study.plan, tables)] == ["gpus_idle"]
    tables.runs["r"].update(rate=0.1)
    assert anomalies.find(study.plan, tables) == []


def test_the_limit_is_what_took_effect_else_the_flag_in_any_spelling(tmp_path: Path) -> None:
    study = Study({"base": {"--max_num_seqs": "2"}})
    study.add("c4", [request()], concurrency=4)
    tables = study.tables(tmp_path)
    row = tables.runs["c4"]
    assert anomalies.max_num_seqs(study.plan, row, tables.starts) == 2
    row["start_id"] = "s"
    tables.starts.append({"start_id": "s", "effective": '{"max_num_seqs": ["8"]}'})
    assert anomalies.max_num_seqs(study.plan, row, tables.starts) == 8
    study.plan["variants"]["base"]["canonical"]["--data-parallel-size"] = "2"
    assert anomalies.max_num_seqs(study.plan, row, tables.starts) is None


def test_a_rate_that_falls_little_by_little(tmp_path: Path) -> None:
    steps = [(2, 4.0, 8.0), (4, 3.68, 9.0), (8, 3.39, 10.0), (16, 3.12, 11.0)]
    values = curve(tmp_path / "a", 2, *steps)["rate_falls_at_equal_batch"]["values"]
    assert (values["low"], values["high"]) == (2, 8)
    assert "rate_falls_at_equal_batch" not in curve(tmp_path / "b", 2, *steps[:2])


def test_no_gain_is_not_looked_for_where_all_only_wait(tmp_path: Path) -> None:
    for name, levels, wanted in (("a", (2, 4), False), ("b", (1, 4), True)):
        study = Study({"base": {"--max-num-seqs": 2}})
        for level in levels:
            study.add(f"c{level}", [request(i) for i in range(4)], concurrency=level)
        tables = study.tables(tmp_path / name)
        seen = anomalies.looked(study.plan, tables)["no_gain_from_concurrency"]
        assert ("base" in seen) is wanted
