"""Questions to verdicts: each kind, each guard, the overall rules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sample_study import Study, compare, request, run_record

from decodelab import anomalies, decisions, judge, reasons

ROOT = Path(__file__).parents[2]


def requests(rate: float, n: int = 4, **more: Any) -> list[dict[str, Any]]:
    return [request(i, start=20.0 * i, rate=rate, **more) for i in range(n)]


def two_arms(
    base: float, cand: float, starts: int = 1, flags: dict[str, dict[str, Any]] | None = None
) -> Study:
    study = Study(flags)
    names: dict[str, list[str]] = {"base": [], "cand": []}
    for k in range(1, starts + 1):
        for variant, rate in (("base", base), ("cand", cand)):
            name = f"{variant}_{k}"
            study.add(name, requests(rate * (1 + 0.002 * k)), variant=variant, start=k)
            names[variant].append(name)
    study.ask(
        "E",
        {
            "kind": "compare_variants",
            "metric": "decode_rate",
            "points": [compare(names["base"], names["cand"])],
        },
    )
    return study


def only(study: Study, folder: Path) -> dict[str, Any]:
    found = judge.judge(study.plan, study.tables(folder))
    assert len(found["verdicts"]) == 1
    return found["verdicts"][0]


def codes(verdict: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in verdict["reasons"]}


@pytest.mark.parametrize(
    ("base", "cand", "starts", "expected"),
    [
        (8.74, 8.33, 1, "refuted"),
        (10.0, 11.0, 1, "supported"),
        (10.0, 10.45, 1, "inconclusive"),  # 4.5 %: the interval reaches beyond 5 %
        (10.0, 10.3, 3, "refuted"),  # 3 %, well measured, is less than 5 %
        (10.0, 10.8, 3, "supported"),
    ],
)
def test_compare_variants(
    tmp_path: Path, base: float, cand: float, starts: int, expected: str
) -> None:
    verdict = only(two_arms(base, cand, starts), tmp_path)
    assert verdict["verdict"] == expected
    assert verdict["effect"] == pytest.approx(cand / base - 1)
    assert verdict["n_launches"] == [starts, starts] and verdict["n_requests"] == [
        4 * starts,
        4 * starts,
    ]
    assert ("one_launch" in codes(verdict)) == (starts == 1)
    assert verdict["floor"] == 0.04 and verdict["floor_source"] == "field"


def test_unit_of_inference_is_the_launch_not_the_request(tmp_path: Path) -> None:
    """A hundred agreeing requests of one launch say no more about restarts than four."""
    few, many = two_arms(10.0, 10.45), Study()
    for variant, rate in (("base", 10.0), ("cand", 10.45)):
        many.add(f"{variant}_1", requests(rate * 1.002, n=100), variant=variant)
    many.plan["experiments"] = few.plan["experiments"]
    a, b = only(few, tmp_path / "a"), only(many, tmp_path / "b")
    assert a["interval"] == pytest.approx(b["interval"]) and b["verdict"] == "inconclusive"


def test_an_arm_that_cannot_start_is_a_result_with_its_root_cause(tmp_path: Path) -> None:
    study = Study()
    study.add("base_1", requests(10.0))
    study.add("cand_1", None, variant="cand")
    study.refuse("cand", "ValueError: Multi-Step not supported")
    study.ask(
        "E",
        {
            "kind": "compare_variants",
            "metric": "decode_rate",
            "points": [compare(["base_1"], ["cand_1"])],
        },
    )
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == "not_possible" and verdict["effect"] is None
    assert (
        "Multi-Step" in verdict["reasons"][0]["zh"] and "Multi-Step" in verdict["reasons"][0]["en"]
    )


def test_a_start_that_failed_for_the_hosts_sake_is_invalid(tmp_path: Path) -> None:
    study = Study()
    study.add("base_1", requests(10.0))
    study.add("cand_1", None, variant="cand")
    study.refuse("cand", "OSError: [Errno 98]", status="failed")
    study.ask(
        "E",
        {
            "kind": "compare_variants",
            "metric": "decode_rate",
            "points": [compare(["base_1"], ["cand_1"])],
        },
    )
    verdict = only(study, tmp_path)
    assert (verdict["verdict"], codes(verdict)) == ("invalid", {"start_invalid"})


def test_not_measured_yet_is_invalid_and_says_so(tmp_path: Path) -> None:
    study = Study()
    study.add("base_1", requests(10.0))
    study.add("cand_1", None, variant="cand")
    study.ask(
        "E",
        {
            "kind": "compare_variants",
            "metric": "decode_rate",
            "points": [compare(["base_1"], ["cand_1"])],
        },
    )
    verdict = only(study, tmp_path)
    assert (verdict["verdict"], codes(verdict)) == ("invalid", {"not_measured"})


def changed(study: Study, name: str, **values: Any) -> None:
    data = study.files[f"{name}.json"]
    for r in data["requests"]:
        r.update(values)


def test_an_invalid_run_makes_the_question_invalid_and_a_suspect_one_is_named(
    tmp_path: Path,
) -> None:
    study = two_arms(10.0, 11.0)
    changed(study, "cand_1", n_events=500)
    verdict = only(study, tmp_path / "a")
    assert verdict["verdict"] == "supported" and verdict["suspect_runs"] == ["cand_1"]
    study.index["runs"]["cand_1"].update(status="invalid", reasons=["server_died"])
    verdict = only(study, tmp_path / "b")
    assert (verdict["verdict"], codes(verdict)) == ("invalid", {"run_invalid"})
    assert "cand_1" in verdict["reasons"][0]["en"] and "died" in verdict["reasons"][0]["en"]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"completion_tokens": 90}, "tokens_differ"),
        ({"prompt_tokens": 400, "cached_tokens": 0}, "tokens_differ"),
        ({"cached_tokens": 32}, "cache_state_differs"),
    ],
)
def test_arms_that_differ_in_what_was_not_varied(
    tmp_path: Path, values: dict[str, int], code: str
) -> None:
    study = two_arms(10.0, 11.0)
    changed(study, "cand_1", n_events=10, **values)
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == "invalid" and code in codes(verdict) and verdict["effect"] is None


def test_sources_are_never_mixed(tmp_path: Path) -> None:
    study = two_arms(10.0, 11.0)
    study.files["cand_1.json"]["source"] = "simulated"
    assert codes(only(study, tmp_path)) == {"sources_differ"}


def test_an_arm_that_differs_in_steps_needs_token_counts(tmp_path: Path) -> None:
    flags = {"base": {}, "cand": {"--num-scheduler-steps": 4}}
    fine = only(two_arms(10.0, 11.0, flags=flags), tmp_path / "a")
    assert fine["verdict"] == "supported"
    study = two_arms(10.0, 11.0, flags=flags)
    changed(study, "cand_1", n_events=26)  # four tokens an event, and none of them counted
    assert codes(only(study, tmp_path / "b")) >= {"token_counts_needed"}


def test_bursts_are_found_in_the_data_whatever_the_flags_say(tmp_path: Path) -> None:
    """The same server rate in events of four tokens would look 3 % faster at 101 tokens."""
    study = two_arms(10.0, 10.3)
    changed(study, "cand_1", n_events=26)
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == "invalid" and codes(verdict) >= {"token_counts_needed"}


def test_more_tokens_than_asked_for_cannot_be(tmp_path: Path) -> None:
    study = two_arms(10.0, 11.0)
    changed(study, "cand_1", completion_tokens=100_000, n_events=100_000)
    assert only(study, tmp_path)["verdict"] == "invalid"


@pytest.mark.parametrize(
    ("asked", "used", "ignored", "code"),
    [
        ("FLASH_ATTN", "XFormers", None, "backend_not_in_effect"),
        ("FLASH_ATTN", "Flash Attention", None, None),
        ("FLASH_ATTN_VLLM_V1", "Flash Attention", None, None),
        ("xformers", "XFormers", None, None),
        ("FLASHINFER", None, "FLASHINFER", "option_ignored"),
        ("FLASHINFER", None, "VLLM_ATTENTION_BACKEND", "option_ignored"),
        ("FLASHINFER", None, "VLLM_USE_V1", None),  # not what this variant asked for
        ("FLASHINFER", None, None, None),  # the log does not say
    ],
)
def test_a_backend_that_did_not_take_effect_is_no_result(
    tmp_path: Path, asked: str, used: str | None, ignored: str | None, code: str | None
) -> None:
    study = two_arms(10.0, 11.0, flags={"base": {}, "cand": {}})
    study.plan["variants"]["cand"]["env"] = {"VLLM_ATTENTION_BACKEND": asked}
    tables = study.tables(tmp_path)
    start = {"variant": "cand", "start_id": "cand-1", "status": "ready", "version": None}
    tables.starts.append({**start, "backend": used, "ignored": ignored})
    verdict = judge.judge(study.plan, tables)["verdicts"][0]
    assert verdict["verdict"] == ("invalid" if code else "supported")
    assert code is None or code in codes(verdict)


def test_an_ignored_option_is_told_though_the_run_is_invalid_too(tmp_path: Path) -> None:
    study = two_arms(10.0, 11.0, flags={"base": {}, "cand": {}})
    study.plan["variants"]["cand"]["env"] = {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    study.index["runs"]["cand_1"].update(status="invalid", reasons=["stamps_late"])
    tables = study.tables(tmp_path)
    start = {"variant": "cand", "start_id": "cand-1", "status": "ready", "version": None}
    tables.starts.append({**start, "backend": None, "ignored": "VLLM_ATTENTION_BACKEND"})
    verdict = judge.judge(study.plan, tables)["verdicts"][0]
    assert verdict["verdict"] == "invalid"
    assert codes(verdict) == {"run_invalid", "option_ignored"}


def test_a_curve_gives_one_verdict_a_point_and_supported_wins(tmp_path: Path) -> None:
    study = Study()
    for c, rate in ((1, 10.0), (2, 12.0)):
        study.add(f"b{c}", requests(10.0), concurrency=c)
        study.add(f"c{c}", requests(rate), variant="cand", concurrency=c)
    points = [compare([f"b{c}"], [f"c{c}"], concurrency=c) for c in (1, 2)]
    study.ask(
        "A",
        {"kind": "compare_variants", "metric": "decode_rate", "points": points},
        then={"supported": {"zh": "是", "en": "yes"}},
    )
    found = judge.judge(study.plan, study.tables(tmp_path))
    assert [(v["id"], v["verdict"]) for v in found["verdicts"]] == [
        ("A_1.c1", "refuted"),
        ("A_1.c2", "supported"),
    ]
    assert found["experiments"]["A"]["verdict"] == "supported"
    assert found["experiments"]["A"]["text"] == {"zh": "是", "en": "yes"}


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (["refuted", "supported", "invalid"], "supported"),
        (["refuted", "refuted"], "refuted"),
        (["refuted", "inconclusive"], "inconclusive"),  # that point may hold the effect
        (["refuted", "not_possible"], "inconclusive"),
        (["inconclusive", "not_possible"], "inconclusive"),
        (["not_possible", "not_possible"], "not_possible"),
        (["not_possible", "invalid"], "invalid"),
        (["refuted", "inconclusive", "invalid"], "invalid"),
        (["invalid"], "invalid"),
        ([], None),
    ],
)
def test_overall(points: list[str], expected: str | None) -> None:
    assert decisions.overall(points) == expected


def test_an_experiment_that_only_starts_is_not_possible_where_nothing_starts(
    tmp_path: Path,
) -> None:
    study = Study()
    study.ask("S", variants=["cand"])
    study.refuse("cand")
    found = judge.judge(study.plan, study.tables(tmp_path))
    assert found["experiments"]["S"]["verdict"] == "not_possible"
    study.plan["experiments"]["S"]["variants"] = ["cand", "base"]
    assert judge.judge(study.plan, study.tables(tmp_path))["experiments"]["S"]["verdict"] is None


def test_later_questions_are_controls_unless_they_say_they_decide(tmp_path: Path) -> None:
    tables = Study().tables(tmp_path)
    verdicts = [
        {"question": "E_1", "verdict": "refuted"},
        {"question": "E_2", "verdict": "supported"},
    ]
    experiment: dict[str, Any] = {"questions": [{"id": "E_1"}, {"id": "E_2"}]}
    assert judge.summary(experiment, verdicts, tables)["verdict"] == "refuted"
    experiment["questions"] = [{"id": "E_1"}, {"id": "E_2", "decides": True}]
    assert judge.summary(experiment, verdicts, tables)["verdict"] == "supported"


def alone(study: Study, runs: dict[str, list[str]], **question: Any) -> None:
    study.ask("T", {"points": [{"variant": "base", "runs": runs}], "variant": "base", **question})


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"op": ">=", "value": 20.0}, "refuted"),
        ({"op": ">=", "value": 5.0}, "supported"),
        ({"op": ">=", "value": 9.6}, "inconclusive"),
        ({"op": "<=", "value": 5.0}, "refuted"),
    ],
)
def test_threshold(tmp_path: Path, target: dict[str, Any], expected: str) -> None:
    study = Study()
    study.add("r", requests(10.0))
    alone(study, {"1": ["r"]}, kind="threshold", metric="e2e_tps_p10", target=target)
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == expected
    value = 101 / (0.5 + 10.0 + 0.01)
    assert verdict["value"] == pytest.approx(value)
    if target["op"] == ">=":
        assert verdict["needed_effect"] == pytest.approx(target["value"] / value - 1)
        assert verdict["interval"][0] <= verdict["effect"] <= verdict["interval"][1]


@pytest.mark.parametrize(
    ("expected", "word"),
    [([80, 100], "refuted"), ([9, 11], "supported"), ([10.0, 12.0], "inconclusive")],
)
def test_level(tmp_path: Path, expected: list[float], word: str) -> None:
    study = Study()
    study.add("r", requests(10.0))
    alone(study, {"1": ["r"]}, kind="level", metric="decode_rate", expected=expected)
    assert only(study, tmp_path)["verdict"] == word


def curve(folder: Path, rates: dict[int, float]) -> dict[str, Any]:
    study = Study({"base": {"--max-num-seqs": 2}})
    for c, rate in rates.items():
        study.add(f"r{c}", [request(i, rate=rate) for i in range(c)], concurrency=c)
    alone(
        study,
        {str(c): [f"r{c}"] for c in rates},
        kind="scaling",
        metric="output_tps_total",
        smallest_effect=0.2,
    )
    return judge.judge(study.plan, study.tables(folder))


def test_scaling_refuted_where_the_total_does_not_rise(tmp_path: Path) -> None:
    found = curve(tmp_path, {1: 8.3, 2: 3.7, 4: 1.3})
    verdict = found["verdicts"][0]
    assert verdict["verdict"] == "refuted" and verdict["effect"] < 0
    assert [p["concurrency"] for p in verdict["points"]] == [2, 4] and len(verdict["runs"]) == 3
    assert {"no_gain_from_concurrency", "rate_falls_at_equal_batch"} <= {
        a["code"] for a in found["anomalies"]
    }


def test_scaling_supported_where_it_rises(tmp_path: Path) -> None:
    found = curve(tmp_path, {1: 8.3, 2: 8.0, 4: 7.9})
    assert found["verdicts"][0]["verdict"] == "supported"
    assert not {"no_gain_from_concurrency", "rate_falls_at_equal_batch"} & {
        a["code"] for a in found["anomalies"]
    }


def test_could_it_explain_the_gap_to_the_target(tmp_path: Path) -> None:
    study = two_arms(8.7, 8.3)
    study.plan["experiments"]["E"]["questions"][0]["explains_gap_to"] = "e2e_tps_p10"
    verdict = only(study, tmp_path)
    assert verdict["needed_effect"] == pytest.approx(20 / (101 / (0.51 + 100 / (8.7 * 1.002))) - 1)
    assert verdict["explains_gap"] is False


def test_compare_workloads_within_one_launch_may_differ_in_tokens(tmp_path: Path) -> None:
    study = Study()
    study.add("short", requests(8.71), workload="short")
    study.add("tool", requests(8.63, tokens=64), workload="tool")
    point = {
        **compare(["tool"], ["short"], cand="base"),
        "baseline_workload": "tool",
        "candidate_workload": "short",
    }
    study.ask("W", {"kind": "compare_workloads", "metric": "decode_rate", "points": [point]})
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == "refuted" and (verdict["baseline"], verdict["candidate"]) == (
        "tool",
        "short",
    )


def test_logs_without_first_delta_counts_fall_back_in_both_arms_and_say_so(tmp_path: Path) -> None:
    study = two_arms(8.74, 8.33)
    changed(study, "cand_1", n_first_delta=None, decode_rate=None)
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == "refuted" and "metric_substituted" in codes(verdict)
    assert verdict["baseline_value"] == pytest.approx(
        8.74 * 1.002 * 1.01
    )  # decode_tps: N over the span


def test_question_without_points_is_invalid_not_a_crash(tmp_path: Path) -> None:
    study = Study()
    study.ask("E", {"kind": "compare_variants", "metric": "decode_rate"})
    assert codes(only(study, tmp_path)) == {"nothing_to_compare"}


def test_gates(tmp_path: Path) -> None:
    study = Study()
    study.add("c1", requests(10.0))
    study.add("c2", requests(5.0), concurrency=2)
    found = judge.judge(study.plan, study.tables(tmp_path))["gates"]
    assert {gate["run"] for gate in found} == {"c1"}  # a gate is read at the lowest concurrency
    by = {gate["metric"]: gate for gate in found}
    assert by["e2e_tps_p10"]["met"] is False and by["e2e_tps_p10"]["margin"] < 0
    assert by["ttft_s_p90"]["met"] is True and by["ttft_s_p90"]["margin"] == pytest.approx(0.9)
    assert by["success_rate"]["n"] == 4


def test_a_run_without_a_success_meets_no_gate(tmp_path: Path) -> None:
    study = Study()
    study.add("r", None, data=run_record([{**request(), "outcome": "server_gone"}]))
    found = judge.judge(study.plan, study.tables(tmp_path))["gates"]
    assert found and all(gate["met"] is None for gate in found)


def test_no_success_of_any_request_is_a_success_rate(tmp_path: Path) -> None:
    """The run is invalid for every other metric; that it failed is the answer to this one."""
    study = Study()
    study.add("r", None, data=run_record([{**request(), "outcome": "timeout"}]))
    target = {"op": ">=", "value": 0.99}
    alone(study, {"1": ["r"]}, kind="threshold", metric="success_rate", target=target)
    judged = judge.judge(study.plan, study.tables(tmp_path))
    verdict = judged["verdicts"][0]
    assert (verdict["verdict"], verdict["value"]) == ("refuted", 0.0)
    met = {gate["metric"]: gate["met"] for gate in judged["gates"]}
    assert met["success_rate"] is False and met["e2e_tps_p10"] is None


def test_the_variant_that_cannot_start_is_named(tmp_path: Path) -> None:
    study = two_arms(10.0, 11.0)
    study.index["runs"].pop("base_1")
    study.refuse("base")
    assert only(study, tmp_path)["refused"] == ["base"]


def test_every_reason_speaks_both_languages() -> None:
    import re

    for code, (zh, en) in reasons.TEXTS.items():
        assert set(re.findall(r"{(\w+)}", zh)) == set(re.findall(r"{(\w+)}", en)), code


def test_command_line_writes_strict_json(tmp_path: Path) -> None:
    study = two_arms(8.74, 8.33)
    lost = {
        **request(9),
        "outcome": "timeout",
        "t_first_s": None,
        "t_last_s": None,
        "t_end_s": None,
    }
    study.files["base_1.json"]["requests"].append(
        lost
    )  # an infinite adjusted percentile in the table
    (tmp_path / "plan.json").write_text(json.dumps(study.plan))
    study.write(tmp_path / "runs")
    run = [
        sys.executable,
        ROOT / "scripts/aggregate.py",
        "--plan",
        "plan.json",
        "--runs",
        "runs",
        "--out",
        "tables",
    ]
    subprocess.run(run, check=True, timeout=60, cwd=tmp_path)
    run = [
        sys.executable,
        ROOT / "scripts/judge.py",
        "--plan",
        "plan.json",
        "--tables",
        "tables",
        "--out",
        "v/verdicts.json",
    ]
    subprocess.run(run, check=True, timeout=60, cwd=tmp_path)
    text = (tmp_path / "v" / "verdicts.json").read_text()
    found = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    assert found["schema"] == "decodelab.verdicts/1"
    assert set(found) == {
        "schema",
        "verdicts",
        "experiments",
        "decisions",
        "path",
        "anomalies",
        "ranking",
        "gates",
        "attribution",
        "scores",
        "ttft_buckets",
        "bottleneck",
        "next",
        "actions",
    }


@pytest.mark.parametrize(("rate", "told"), [(None, True), (0.5, False)])
def test_the_concurrency_of_an_open_loop_makes_no_curve(
    tmp_path: Path, rate: float | None, told: bool
) -> None:
    """It is a cap on what may be open at once, so waiting beyond max-num-seqs is not its doing."""
    study = Study({"base": {"--max-num-seqs": 2}})
    for name, concurrency, ttft in (("c2", 2, 0.9), ("c4", 4, 50.0)):
        data = run_record([request(i, ttft=ttft) for i in range(4)])
        data["run"].update(rate=rate, arrivals="poisson" if rate else None)
        study.add(name, None, data=data, concurrency=concurrency)
    found = anomalies.find(study.plan, study.tables(tmp_path))
    codes = {item["code"] for item in found}
    assert ("queueing_beyond_max_num_seqs" in codes) is told


# gaps between events --------------------------------------------------------------------------------


def streamed(index: int, gaps: list[float]) -> dict[str, Any]:
    """A success of one token an event, whose events lie so far apart."""
    out = request(index, start=100.0 * index, tokens=len(gaps) + 1)
    times = [out["t_first_s"]]
    for gap in gaps:
        times.append(times[-1] + gap)
    out.update(t_last_s=times[-1], t_end_s=times[-1] + 0.01)
    n = len(times)
    out["events"] = {"t_s": times, "kind": ["content"] * n, "tokens": [1] * n, "t_user_s": []}
    return out


EVEN = [0.1] * 100
IN_FOURS = [0.0005, 0.0005, 0.0005, 0.4] * 25


def asked_of_gaps(
    base: list[float], cand: list[float], metric: str, flags: dict[str, dict[str, Any]]
) -> Study:
    study = Study(flags)
    for variant, gaps in (("base", base), ("cand", cand)):
        study.plan["variants"][variant]["canonical"] = flags[variant]
        study.add(f"{variant}_1", [streamed(i, gaps) for i in range(4)], variant=variant)
    point = compare(["base_1"], ["cand_1"])
    question = {"kind": "compare_variants", "metric": metric, "points": [point]}
    study.ask("E", {**question, "direction": "lower"})
    return study


@pytest.mark.parametrize(
    ("cand", "metric", "steps", "why"),
    [
        (IN_FOURS, "itl_s_p50", 4, "events_in_bursts"),  # a fourfold gain that is none
        (IN_FOURS, "itl_s", 4, "events_in_bursts"),
        (EVEN, "itl_s_p90", 4, "events_in_bursts"),
        (IN_FOURS, "itl_s_p50", None, "events_in_bursts"),  # no flag says so, the data does
        (IN_FOURS, "tpot_s", 4, "one_launch"),
        ([0.08] * 100, "itl_s_p50", None, "one_launch"),
    ],
)
def test_gaps_are_compared_only_where_events_come_alike(
    tmp_path: Path, cand: list[float], metric: str, steps: int | None, why: str
) -> None:
    told = {"base": {}, "cand": {"--num-scheduler-steps": steps} if steps else {}}
    verdict = only(asked_of_gaps(EVEN, cand, metric, told), tmp_path)
    assert codes(verdict) - {"refuted_within_drift"} == {why}
    assert (verdict["verdict"] == "invalid") is (why == "events_in_bursts")


def test_two_arms_of_like_bursts_may_be_compared_by_their_gaps(tmp_path: Path) -> None:
    told = {name: {"--num-scheduler-steps": 4} for name in ("base", "cand")}
    verdict = only(asked_of_gaps(IN_FOURS, IN_FOURS, "itl_s_p90", told), tmp_path)
    assert verdict["verdict"] == "refuted"


# open loops -----------------------------------------------------------------------------------------


def arriving(rate: float | None) -> dict[str, Any]:
    data = run_record(requests(10.0))
    data["run"]["rate"] = rate
    return data


def test_an_open_loop_is_held_against_the_targets_though_its_cap_is_high(tmp_path: Path) -> None:
    study = Study()
    study.add("c1", requests(10.0))
    study.add("c4", requests(9.0), concurrency=4)
    for name, cap in (("slow", 100), ("fast", 200)):
        study.add(name, None, data=arriving(2.0), concurrency=cap, workload=name)
    gates = judge.judge(study.plan, study.tables(tmp_path))["gates"]
    assert {gate["run"] for gate in gates} == {"c1", "slow", "fast"}


def test_the_cap_of_an_open_loop_hides_no_closed_one(tmp_path: Path) -> None:
    study = Study()
    study.add("c4", requests(9.0), concurrency=4)
    study.add("open", None, data=arriving(2.0), concurrency=1, workload="open")
    gates = judge.judge(study.plan, study.tables(tmp_path))["gates"]
    assert {gate["run"] for gate in gates} == {"c4", "open"}


def test_a_point_of_an_open_loop_is_told_by_its_rate(tmp_path: Path) -> None:
    study = Study()
    for variant in ("base", "cand"):
        study.add(f"{variant}_1", None, data=arriving(2.0), variant=variant, concurrency=100)
    point = compare(["base_1"], ["cand_1"], concurrency=100)
    study.ask("E", {"kind": "compare_variants", "metric": "decode_rate", "points": [point]})
    assert only(study, tmp_path / "a")["point"] == {"rate": 2.0}
    caps = {"100": ["base_1"], "200": ["wide"]}
    study.add("wide", None, data=arriving(2.0), concurrency=200)
    alone(study, caps, kind="level", metric="decode_rate", expected=[1.0, 20.0])
    found = judge.judge(study.plan, study.tables(tmp_path / "b"))["verdicts"]
    asked = [v for v in found if v["kind"] == "level"]
    assert [v["point"] for v in asked] == [
        {"rate": 2.0, "concurrency": 100},
        {"rate": 2.0, "concurrency": 200},
    ]
    assert [v["id"].split(".", 1)[1] for v in asked] == ["2rps.c100", "2rps.c200"]


def test_a_point_that_was_not_measured_has_its_rate_from_the_plan(tmp_path: Path) -> None:
    study = Study()
    for variant in ("base", "cand"):
        study.add(f"{variant}_1", None, variant=variant, concurrency=100, run="d")
    study.plan["points"] = {"d": {"rate": 0.5}}
    point = compare(["base_1"], ["cand_1"], concurrency=100)
    study.ask("E", {"kind": "compare_variants", "metric": "decode_rate", "points": [point]})
    assert only(study, tmp_path)["point"] == {"rate": 0.5}


def test_workloads_that_differ_in_their_load_stand_at_no_point(tmp_path: Path) -> None:
    study = Study()
    study.add("closed", requests(10.0), concurrency=4)
    study.add("open", None, data=arriving(2.0), concurrency=4, workload="open")
    point = {**compare(["closed"], ["open"], cand="base", concurrency=4)}
    point["candidate_workload"] = "open"
    study.ask("E", {"kind": "compare_workloads", "metric": "decode_rate", "points": [point]})
    assert only(study, tmp_path)["point"] is None


def test_no_success_is_said_once_and_is_still_a_success_rate(tmp_path: Path) -> None:
    """The host names it too, by a code of its own."""
    study = Study()
    study.add("r", None, data=run_record([{**request(), "outcome": "timeout"}]))
    study.index["runs"]["r"].update(status="invalid", reasons=["no_ok_request"])
    target = {"op": ">=", "value": 0.99}
    alone(study, {"1": ["r"]}, kind="threshold", metric="success_rate", target=target)
    tables = study.tables(tmp_path)
    assert tables.runs["r"]["reasons"] == "no_success"
    assert judge.judge(study.plan, tables)["verdicts"][0]["verdict"] == "refuted"


def test_codes_that_say_the_same_are_told_once() -> None:
    assert reasons.validity("no_ok_request;no_success;limit", 1) == (
        "no request succeeded; the run did not end within its limit"
    )


# what a curve may compare --------------------------------------------------------------------------


def asked_curve(study: Study, metric: str = "decode_rate", **more: Any) -> None:
    runs: dict[str, list[str]] = {}
    for run in study.plan["runs"]:
        runs.setdefault(str(run["concurrency"]), []).append(run["name"])
    alone(study, runs, kind="scaling", metric=metric, **more)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"cached_tokens": 39}, "cache_state_differs"),
        ({"completion_tokens": 51}, "tokens_differ"),
        ({"prompt_tokens": 80, "cached_tokens": 0}, "tokens_differ"),
    ],
)
def test_a_curve_compares_like_work_only(tmp_path: Path, values: dict[str, int], code: str) -> None:
    """A cache that is warm at the higher concurrency makes no gain of concurrency."""
    study = Study()
    study.add("c1", requests(10.0))
    study.add("c4", requests(12.0, ttft=0.1), concurrency=4)
    changed(study, "c4", **values)
    asked_curve(study, "ttft_s", direction="lower")
    verdict = only(study, tmp_path)
    assert (verdict["verdict"], verdict["effect"]) == ("invalid", None)
    assert code in codes(verdict) and verdict["reasons"][0]["en"].startswith("concurrency 4: ")


def test_a_curve_never_mixes_sources(tmp_path: Path) -> None:
    study = Study()
    study.add("c1", requests(10.0))
    study.add("c4", requests(12.0), concurrency=4)
    study.files["c4.json"]["source"] = "simulated"
    asked_curve(study)
    assert codes(only(study, tmp_path)) == {"sources_differ"}


def test_an_unlike_level_is_named_beside_one_that_counts(tmp_path: Path) -> None:
    study = Study()
    study.add("c1", requests(10.0))
    study.add("c2", requests(12.0), concurrency=2)
    study.add("c4", requests(14.0, tokens=51), concurrency=4)
    asked_curve(study)
    verdict = only(study, tmp_path)
    assert (verdict["verdict"], verdict["point"]) == ("supported", {"concurrency": 2})
    assert [p["verdict"] for p in verdict["points"]] == ["supported", "invalid"]
    assert "tokens_differ" in codes(verdict)
    study.files["c2.json"] = run_record(requests(10.0))
    assert only(study, tmp_path / "flat")["verdict"] == "invalid"  # c4 might have been supported


def test_a_curve_shows_the_figures_that_its_verdict_rests_on(tmp_path: Path) -> None:
    """The largest effect, at 4, scatters too much to say anything."""
    study = Study()
    rates = {1: (10.0, 10.0, 10.0), 2: (11.5, 11.55, 11.52), 4: (9.0, 16.0, 12.0)}
    for c, values in rates.items():
        for k, rate in enumerate(values, 1):
            study.add(f"c{c}_{k}", requests(rate), start=k, concurrency=c)
    asked_curve(study)
    verdict = only(study, tmp_path)
    assert (verdict["verdict"], verdict["point"]) == ("supported", {"concurrency": 2})
    assert verdict["effect"] == pytest.approx(0.152, abs=1e-3) and verdict["interval"][0] > 0.1
    assert verdict["candidate_value"] == verdict["value"] == verdict["points"][0]["value"]


# requests that do not tell all ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("differing", "name", "code"),
    [
        ({"completion_tokens": 51, "n_events": 51}, "completion_tokens", "tokens_differ"),
        ({"cached_tokens": 39}, "cached_tokens", "cache_state_differs"),
        ({"prompt_tokens": 400}, "prompt_tokens", "tokens_differ"),
    ],
)
def test_one_request_that_does_not_tell_hides_no_difference(
    tmp_path: Path, differing: dict[str, int], name: str, code: str
) -> None:
    study = two_arms(10.0, 12.0)
    changed(study, "cand_1", **differing)
    study.files["cand_1.json"]["requests"][3][name] = None
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == "invalid" and code in codes(verdict)


def test_what_one_arm_does_not_tell_is_said_to_be_unchecked(tmp_path: Path) -> None:
    study = two_arms(10.0, 12.0)
    changed(study, "cand_1", cached_tokens=None)
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == "supported" and "not_compared" in codes(verdict)
    changed(study, "base_1", cached_tokens=None)
    assert "not_compared" not in codes(only(study, tmp_path / "both"))


def test_starts_without_a_name_are_no_pair(tmp_path: Path) -> None:
    """Start 1 of one variant and start 1 of another are two launches."""
    study = two_arms(10.0, 10.6)
    for run in study.index["runs"].values():
        run["start_id"] = None
    verdict = only(study, tmp_path)
    assert (verdict["verdict"], verdict["drift_allowance"]) == ("inconclusive", 0.04)


def test_a_target_that_is_met_leaves_no_gap_to_explain(tmp_path: Path) -> None:
    study = two_arms(30.0, 30.0)
    study.plan["experiments"]["E"]["questions"][0]["explains_gap_to"] = 20.0
    verdict = only(study, tmp_path)
    assert verdict["needed_effect"] < 0 and verdict["explains_gap"] is None


# shares of requests -------------------------------------------------------------------------------


def two_shares(good: int, of: int, better: int, folder: Path, **more: Any) -> dict[str, Any]:
    """success_rate of base against cand: so many good of so many requests each."""
    study = Study()
    for variant, ok in (("base", good), ("cand", better)):
        rows = requests(10.0, n=of)
        for row in rows[ok:]:
            row.update(outcome="http_error")
        study.add(f"{variant}_1", rows, variant=variant)
    points = [compare(["base_1"], ["cand_1"])]
    asked = {"kind": "compare_variants", "metric": "success_rate", "points": points, **more}
    study.ask("E", asked)
    return only(study, folder)


def test_one_failure_less_in_twenty_proves_nothing(tmp_path: Path) -> None:
    guard = {"metric": "success_rate", "worse_by": 0.01}
    verdict = two_shares(19, 20, 20, tmp_path, guard=[guard])
    assert verdict["verdict"] == "inconclusive" and verdict["in_points"]
    assert verdict["effect"] == pytest.approx(0.05) and "counted_share" in codes(verdict)
    # A question and a guard of the same data say the same.
    assert verdict["guards"][0]["interval"] == verdict["interval"]


def test_a_success_rate_that_fell_to_nothing_is_an_answer(tmp_path: Path) -> None:
    verdict = two_shares(4, 4, 0, tmp_path)
    assert (verdict["verdict"], verdict["effect"]) == ("refuted", -1.0)
    assert (verdict["baseline_value"], verdict["candidate_value"]) == (1.0, 0.0)


def test_the_gap_of_a_share_is_in_points_too(tmp_path: Path) -> None:
    verdict = two_shares(10, 100, 90, tmp_path, explains_gap_to=0.8)
    assert verdict["verdict"] == "supported" and verdict["needed_effect"] == pytest.approx(0.7)
    assert verdict["interval"][0] < 0.7 < verdict["interval"][1]
    assert verdict["explains_gap"] is None


@pytest.mark.parametrize(("n", "word"), [(4, "inconclusive"), (400, "supported")])
def test_a_few_good_requests_do_not_meet_a_rate_of_99_percent(
    n: int, word: str, tmp_path: Path
) -> None:
    study = Study()
    study.add("r", requests(10.0, n=n))
    target = {"op": ">=", "value": 0.99}
    alone(study, {"1": ["r"]}, kind="threshold", metric="success_rate", target=target)
    verdict = only(study, tmp_path)
    assert verdict["verdict"] == word and verdict["value"] == 1.0
    assert verdict["value_interval"][0] == pytest.approx(n / (n + 1.959964**2))
