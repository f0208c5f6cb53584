"""The public evaluator's rows: what is read, what is refused, and the check against its own account.

The sample's accounts were computed with numpy from the times and tokens behind the rows, not by this
product.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import aggregate
import import_raw
import judge as judge_step
import pytest
import write_report
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodelab import evaluator_check, evaluator_rows, records
from decodelab.raw_shape import RawShapeError
from decodelab.study import open_study

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "resources" / "official-eval-sample"
STUDY = "config/official-eval.example.yaml"
PLANNED = {
    "name": "r",
    "variant": "v",
    "workload": "official",
    "start": 1,
    "scenario": "official",
    "concurrency": 1,
    "requests": 14,
    "max_tokens": 262144,
}


def rows_of(name: str) -> Path:
    return SAMPLE / f"{name}_requests.tsv"


def judged(record: dict[str, Any]) -> records.Run:
    run = records.make_run(PLANNED, {}, record)
    records.judge_validity(run)
    return run


def copy(tmp_path: Path, name: str = "died", account: bool = True) -> Path:
    for path in SAMPLE.glob(f"{name}_*"):
        if account or path.suffix == ".tsv":
            shutil.copy(path, tmp_path)
    return tmp_path / f"{name}_requests.tsv"


def edited(path: Path, line: int, **cells: str) -> Path:
    """The file with cells of one line (1-based) changed."""
    lines = path.read_text(encoding="utf-8").split("\n")
    head, row = lines[0].split("\t"), lines[line - 1].split("\t")
    for name, cell in cells.items():
        row[head.index(name)] = cell
    lines[line - 1] = "\t".join(row)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


# reading ------------------------------------------------------------------------------------------


def test_outcomes_are_typed_and_nothing_is_invented() -> None:
    record = evaluator_rows.read(rows_of("died"))
    outcomes = [request["outcome"] for request in record["requests"]]
    assert outcomes == (
        ["http_error", *["ok"] * 4, "http_error", "ok", "ok", "aborted", *["connection"] * 5]
    )
    refused, good = record["requests"][0], record["requests"][1]
    assert refused["error"] == {"kind": "http", "status": 400, "message": None}
    assert good["index"] == 1 and good["finish_reason"] == "tool_calls"
    assert good["e2e_tps"] == pytest.approx(385 / 24.8007)
    assert (good["ttft_s"], good["cached_tokens"], good["decode_rate"]) == (None, None, None)
    assert refused["t_start_s"] is None and refused["e2e_s"] is None


def test_ttft_and_cached_tokens_are_read_where_there_are_columns() -> None:
    request = evaluator_rows.read(rows_of("whole"))["requests"][4]
    assert request["ttft_s"] == pytest.approx(5.1967, abs=0.1)
    assert request["cached_tokens"] == 0 and request["decode_rate"] is not None


def test_a_server_that_never_came_back_makes_the_run_invalid() -> None:
    run = judged(evaluator_rows.read(rows_of("died")))
    assert (run.validity, run.reasons) == ("invalid", ["server_died"])


def test_single_failures_to_connect_are_no_dead_server(tmp_path: Path) -> None:
    path = copy(tmp_path, account=False)
    lines = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join(lines[:12]) + "\n", encoding="utf-8")  # two of them, at the end
    assert judged(evaluator_rows.read(path)).validity == "valid"


def test_a_dead_server_by_other_words(tmp_path: Path) -> None:
    path = copy(tmp_path, account=False)
    text = path.read_text(encoding="utf-8")
    for word in ("connection_error", "ConnectError", "connection_refused"):
        path.write_text(text.replace("\tconnection\t", f"\t{word}\t"), encoding="utf-8")
        assert judged(evaluator_rows.read(path)).reasons == ["server_died"]


def test_a_point_that_may_part_thousands_is_refused(tmp_path: Path) -> None:
    path = edited(copy(tmp_path), 3, total_ms="5.000", printed_tps="")
    with pytest.raises(RawShapeError, match=r"0\.1 ms"):
        evaluator_rows.read(path)


def test_no_success_is_invalid_whatever_the_account_says(tmp_path: Path) -> None:
    path = copy(tmp_path, "nobody")
    account = tmp_path / "nobody_replay_metrics.json"
    data = json.loads(account.read_text(encoding="utf-8"))
    data["score"] = 60000.0
    data["metrics"] |= {"successful_requests": 12, "cache_hit_rate": 0.9, "uptime": 1.0}
    account.write_text(json.dumps(data), encoding="utf-8")
    run = judged(evaluator_rows.read(path))
    assert run.validity == "invalid" and "no_success" in run.reasons
    lines = {line["metric"]: line for line in evaluator_check.lines(run)}
    assert lines["score"]["state"] == "no_score" and lines["score"]["ours"] is None
    assert lines["successful_requests"]["state"] == "differs"


def test_requests_never_sent_are_counted_and_not_held_against_the_success_rate(
    tmp_path: Path,
) -> None:
    path = copy(tmp_path, "whole")
    account = tmp_path / "whole_replay_metrics.json"
    data = json.loads(account.read_text(encoding="utf-8"))
    data["metrics"] |= {"total_requests": 20, "not_started_requests": 8}
    account.write_text(json.dumps(data), encoding="utf-8")
    run = judged(evaluator_rows.read(path))
    assert (run.summary["n_attempted"], run.summary["n_not_started"]) == (12, 8)
    assert run.summary["success_rate"] == 1.0
    assert "attempted_below_planned" in run.reasons


@pytest.mark.parametrize("name", ["total_requests", "attempted_requests", "not_started_requests"])
@pytest.mark.parametrize("value", ["12", [1], True, -1, 0.5, float("nan"), float("inf"), 1e9])
def test_an_account_counts_in_whole_numbers(tmp_path: Path, name: str, value: Any) -> None:
    path = copy(tmp_path, "whole")
    account = evaluator_rows.account_file(path)
    data = json.loads(account.read_text(encoding="utf-8"))
    data["metrics"][name] = value
    account.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(RawShapeError, match=name) as told:
        evaluator_rows.read(path)
    assert account.name in str(told.value)


def test_no_more_requests_are_unsent_than_there_were(tmp_path: Path) -> None:
    path = copy(tmp_path, "whole")
    account = evaluator_rows.account_file(path)
    data = json.loads(account.read_text(encoding="utf-8"))
    data["metrics"]["not_started_requests"] = 1000
    account.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(RawShapeError, match="12 requests in all"):
        evaluator_rows.read(path)


def test_a_duration_that_begins_before_all_clocks_is_refused(tmp_path: Path) -> None:
    path = edited(copy(tmp_path), 2, total_ms="999999999999999")
    with pytest.raises(RawShapeError, match="line 2"):
        evaluator_rows.read(path)


# the check ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "compared"), [("died", 35), ("nobody", 20), ("whole", 35)])
def test_every_figure_of_the_account_is_reproduced(name: str, compared: int) -> None:
    lines = evaluator_check.lines(judged(evaluator_rows.read(rows_of(name))))
    states = [line["state"] for line in lines]
    assert states.count("differs") == 0 and states.count("agrees") >= compared
    of = {line["metric"]: line for line in lines}
    if name != "nobody":
        for figure in ("output_tps_p10", "output_tps_p50", "output_tps_p90", "uptime", "score"):
            assert of[figure]["state"] == "agrees"
        assert of["cache_hit_rate"]["state"] == "agrees"
    if name == "died":  # the rows hold no TTFT: it is not compared, and not called equal
        assert of["ttft_p90_ms"]["state"] == "not_compared"
        assert of["score"]["basis"] == "rows_and_account"


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("output_tps_p10", 6.0),
        ("total_input_tokens", 77671),
        ("ttft_lt_6k_count", 1),
        ("wall_time_s", 170.0),
        ("uptime", 0.5),
    ],
)
def test_a_figure_that_is_not_the_rows_is_found(tmp_path: Path, figure: str, value: float) -> None:
    path = copy(tmp_path)
    account = tmp_path / "died_replay_metrics.json"
    data = json.loads(account.read_text(encoding="utf-8"))
    data["metrics"][figure] = value
    account.write_text(json.dumps(data), encoding="utf-8")
    lines = evaluator_check.lines(judged(evaluator_rows.read(path)))
    assert figure in {line["metric"] for line in lines if line["state"] == "differs"}
    assert evaluator_check.disagrees(lines)


# mangled rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cells", "said"),
    [
        (3, {"success": "yes"}, "line 3: 'yes'"),
        (3, {"success": "0"}, "line 3: success 0, http_status 200"),
        (2, {"success": "1"}, "line 2: success 1, http_status 400"),
        (3, {"completion_tokens": "38S"}, "line 3: '38S'"),
        (3, {"completion_tokens": "3850"}, "line 3: printed_tps 15.5, but 3850 tokens"),
        (3, {"total_ms": ""}, "line 3: None s"),
        (3, {"total_ms": "nan"}, "line 3: 'nan'"),
        (3, {"prompt_tokens": "-5"}, "line 3: '-5'"),
        (4, {"request": "r0002"}, "line 4: request 2 again, as in line 3"),
        (4, {"request": "x"}, "line 4: 'x'"),
        (4, {"end_time": "yesterday"}, "line 4: 'yesterday'"),
        (4, {"end_time": "2026-08-01 08:00:00,000"}, "line 4"),
        (2, {"http_status": "500"}, "line 2: http_status 500, error_class http_400"),
        (3, {"error_class": "a\tb"}, "line 3: 12 cells"),
    ],
)
def test_a_row_that_contradicts_itself_is_named(
    tmp_path: Path, line: int, cells: dict[str, str], said: str
) -> None:
    path = edited(copy(tmp_path), line, **cells)
    with pytest.raises(RawShapeError) as caught:
        evaluator_rows.read(path)
    assert said in str(caught.value)


def test_rows_that_are_lost_are_missed(tmp_path: Path) -> None:
    path = copy(tmp_path)
    whole = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join(whole[:-3]) + "\n", encoding="utf-8")
    with pytest.raises(RawShapeError, match="14 rows, as attempted_requests"):
        evaluator_rows.read(path)
    bare = tmp_path / "bare"
    bare.mkdir()
    path = copy(bare, account=False)
    path.write_text("\n".join([*whole[:4], *whole[5:]]), encoding="utf-8")
    with pytest.raises(RawShapeError, match="no row of 4"):
        evaluator_rows.read(path)
    path.write_text("\n".join(whole).rstrip("\n")[:-1], encoding="utf-8")
    with pytest.raises(RawShapeError, match="no end of line"):
        evaluator_rows.read(path)


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    path = copy(tmp_path)
    text = path.read_text(encoding="utf-8").replace("\tprompt_tokens\t", "\tprompt\t", 1)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RawShapeError, match="missing prompt_tokens"):
        evaluator_rows.read(path)


MANGLED = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=8),
    st.sampled_from(["", "None", "0", "1", "-1", "nan", "1e9", "\t", "200", "r0003", "http_500"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(line=st.integers(2, 15), column=st.integers(0, 10), cell=MANGLED)
def test_a_mangled_cell_is_refused_or_shown_and_never_a_wrong_count(
    tmp_path: Path, line: int, column: int, cell: str
) -> None:
    """Beside the evaluator's account: an error names the line or a lost row, or the check differs, or
    every count that is held against the account is what it was.
    """
    path = copy(tmp_path)
    name = path.read_text(encoding="utf-8").split("\n")[0].split("\t")[column]
    edited(path, line, **{name: cell})
    try:
        record = evaluator_rows.read(path)
    except RawShapeError as error:
        assert f"line {line}" in str(error) or f"line {line + 1}" in str(error)
        return
    assert len(record["requests"]) == 14
    run = judged(record)
    lines = evaluator_check.lines(run)
    if not evaluator_check.disagrees(lines):
        true = judged(evaluator_rows.read(rows_of("died")))
        assert run.summary["outcomes"] == true.summary["outcomes"]
        for figure in ("n_ok", "prompt_tokens", "completion_tokens", "success_rate"):
            assert run.summary[figure] == true.summary[figure]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, 1500))
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    path = copy(tmp_path)
    text = path.read_text(encoding="utf-8")
    if cut >= len(text.rstrip("\n")):
        return
    path.write_text(text[:cut], encoding="utf-8")
    with pytest.raises(RawShapeError):
        evaluator_rows.read(path)


# the whole way ------------------------------------------------------------------------------------


def test_the_example_study_tells_gates_scores_and_the_check(tmp_path: Path) -> None:
    """Plan -> import -> tables -> verdicts -> report, as the workflow runs them."""
    plan = dict(open_study([STUDY], {}, ROOT).plan)
    plan["replay"] = {"folder": str(SAMPLE), "raw_dir": None}
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan), encoding="utf-8")
    runs, tables, verdicts = (tmp_path / name for name in ("runs", "tables", "verdicts.json"))
    given = ["--plan", str(plan_file)]
    assert import_raw.main([*given, "--out-dir", str(runs)]) == 0
    assert aggregate.main([*given, "--runs", str(runs), "--out", str(tables)]) == 0
    assert judge_step.main([*given, "--tables", str(tables), "--out", str(verdicts)]) == 0
    found = json.loads(verdicts.read_text(encoding="utf-8"))

    gates = {(gate["variant"], gate["metric"]): gate for gate in found["gates"]}
    assert len(gates) == 15
    assert gates["whole", "e2e_tps_p10"]["met"] is False
    assert gates["whole", "weighted_mean"]["met"] is True
    assert not any(gate["told"] for gate in gates.values() if gate["variant"] == "whole")
    assert gates["died", "weighted_mean"]["told"] is True
    assert gates["whole", "e2e_tps_p10"]["interval_possible"] is False
    died = gates["died", "e2e_tps_p10"]
    assert (died["met"], died["adjusted"], died["n"]) == (None, 0.0, 6)
    assert gates["died", "success_rate"]["met"] is False
    assert gates["died", "cache_hit"]["told"] is True
    nobody = gates["nobody", "weighted_mean"]
    assert (nobody["value"], nobody["met"]) == (None, None)
    assert found["scores"]["rankings"] == []

    drawings = tmp_path / "figures"
    drawings.mkdir()
    (drawings / "figures.json").write_text('{"figures": []}', encoding="utf-8")
    for language, word in (("en", "sits on the requests 7, 0"), ("zh", "落在请求 7, 0 上")):
        out = tmp_path / f"report.{language}.md"
        more = ["--tables", str(tables), "--verdicts", str(verdicts), "--figures", str(drawings)]
        more += ["--runs", str(runs), "--language", language, "--out", str(out)]
        assert write_report.main([*given, *more]) == 0
        text = out.read_text(encoding="utf-8")
        assert word in text and "38387" in text


def test_explain_shows_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert import_raw.main(["--explain", str(rows_of("died"))]) == 0
    said = capsys.readouterr().out
    assert "agrees        output_tps_p10" in said and "differs" not in said
