"""Records read and tables made: figures from times, given ones where times are null, validity."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import aggregate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_study import Study, request, run_record

from decodelab import findings, instrument, records, stats, tables
from decodelab.columns import CLIENT, COLUMNS, DECLARED, SECOND

ROOT = Path(__file__).parents[2]


def one(study: Study, folder: Path) -> stats.Row:
    return next(iter(study.tables(folder).runs.values()))


def test_figures_come_from_times_not_from_the_file(tmp_path: Path) -> None:
    data = run_record([request(rate=10.0)])
    data["requests"][0].update(ttft_s=99.0, decode_rate=99.0, decode_tps=99.0, e2e_tps=99.0)
    study = Study()
    study.add("r", None, data=data)
    row = one(study, tmp_path)
    assert row["ttft_s_p50"] == pytest.approx(0.5)
    assert row["decode_rate_median"] == pytest.approx(10.0)
    assert row["decode_tps_p50"] == pytest.approx(10.1)  # N, not N - 1, over the same span


def test_given_figures_stand_where_times_are_null(tmp_path: Path) -> None:
    bare = {**request(), "t_start_s": None, "t_first_s": None, "t_last_s": None, "t_end_s": None}
    data = run_record([bare])
    data["requests"][0].update(ttft_s=1.5, decode_tps=8.7)
    data["summary"]["wall_s"] = 20.0
    study = Study()
    study.add("r", None, data=data)
    row = one(study, tmp_path)
    assert (row["ttft_s_p50"], row["decode_tps_p50"]) == (1.5, 8.7)
    assert row["decode_rate_median"] is None
    assert row["output_tps_total"] == pytest.approx(101 / 20)


def test_a_figure_that_cannot_be_worked_out_stays_unknown() -> None:
    together = {**request(), "t_last_s": 0.5, "decode_tps": 77.0}  # all tokens in one delta
    assert records.worked_out(together)["decode_tps"] is None


def test_warm_up_requests_are_in_no_table(tmp_path: Path) -> None:
    warm = {**request(ttft=9.0), "warmup": True}
    study = Study()
    study.add("r", None, data=run_record([warm, request(1)], planned=1))
    found = study.tables(tmp_path)
    assert [r["index"] for r in found.requests["r"]] == [1]
    assert found.runs["r"]["ttft_s_p90"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "validity", "code"),
    [
        ({}, "valid", ""),
        ({"n_events": 200}, "suspect", "usage_and_events_disagree"),
        ({"outcome": "timeout"}, "invalid", "no_success"),
        ({"outcome": "not_started"}, "invalid", "attempted_below_planned"),
        ({"outcome": "server_gone"}, "invalid", "server_died"),
    ],
)
def test_validity_of_a_run(
    tmp_path: Path, change: dict[str, object], validity: str, code: str
) -> None:
    study = Study()
    study.add("r", None, data=run_record([{**request(), **change}]))
    row = one(study, tmp_path)
    assert row["validity"] == validity
    assert code in row["reasons"].split(";")


def kernel(late: float, merged: int) -> dict[str, object]:
    """1,000 reads with kernel stamps, so many of them with several output events."""
    client: dict[str, object] = {"stamp_source": "kernel", "loop_late_max_s": late}
    return {**client, "reads": 1000, "coalesced_reads": merged}


@pytest.mark.parametrize(
    ("client", "late"),
    [
        (
            {"stamp_source": "kernel", "loop_late_max_s": 0.5, "reads": 100, "coalesced_reads": 0},
            False,
        ),
        ({"stamp_source": "kernel", "lag_p99_s": 0.5, "reads": 100, "coalesced_reads": 20}, True),
        ({"stamp_source": "user", "loop_late_max_s": 0.5}, True),
        ({"stamp_source": "user", "loop_late_max_s": 0.001}, False),
        ({}, False),
        *((kernel(late=0.06, merged=n), late) for n, late in ((0, False), (50, False), (51, True))),
        (kernel(late=0.05, merged=1000), False),  # the loop kept up: the server sent them together
        (kernel(late=0.0501, merged=1000), True),
        ({**kernel(late=0.06, merged=0), "reads": None}, False),
        ({**kernel(late=0.0, merged=100), "lag_p99_s": 0.06}, True),  # late reads, loop on time
        ({**kernel(late=0.0, merged=10), "lag_p99_s": 0.06}, False),
        ({**kernel(late=0.06, merged=0), "stamp_source": "user"}, True),
        ({**kernel(late=0.05, merged=1000), "stamp_source": "user"}, False),
        # a client that counts events: merged reads of a loop on time are the server's own doing
        ({**kernel(late=0.5, merged=1000), "output_events": 100, "blurred_events": 5}, False),
        ({**kernel(late=0.5, merged=9), "output_events": 100, "blurred_events": 6}, True),
        ({"stamp_source": "kernel", "output_events": 0, "blurred_events": 0}, False),
        ({"stamp_source": "user", "output_events": 9, "blurred_events": 0}, False),
    ],
)
def test_late_stamps(client: dict[str, object], late: bool) -> None:
    assert records.stamps_late(client) is late


def test_a_late_loop_is_invalid_with_that_reason_or_not_at_all(tmp_path: Path) -> None:
    study = Study()
    for name, client in (
        ("kept", kernel(late=0.2, merged=10)),
        ("merged", kernel(late=0.2, merged=100)),
        ("user", {**kernel(late=0.2, merged=0), "stamp_source": "user"}),
    ):
        study.add(name, None, data=run_record([request()], client=client))
    rows = study.tables(tmp_path).runs
    found = {name: (row["validity"], row["reasons"]) for name, row in rows.items()}
    late = ("invalid", "stamps_late")
    assert found == {"kept": ("valid", ""), "merged": late, "user": late}
    assert rows["merged"]["coalesced_share"] == pytest.approx(0.1)


THOUGHT = {"t_s": [0.5, 0.6], "kind": ["reasoning", "content"], "tokens": [1, 1]}
COLD = {"cache": "cold"}
WARM = {"cache": "warm"}
OFF = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
SIZED = {"prompt_sizing": {"asked": 1000, "tokens": 1000, "by": "tokenize"}}
OPEN = {"rate": 10.0}
AS_DECLARED = ""


@pytest.mark.parametrize(
    ("run", "client", "change", "codes"),
    [
        (COLD, {}, {"cached_tokens": 0}, AS_DECLARED),
        (COLD, {}, {"cached_tokens": 16}, "cached_tokens_not_as_declared"),
        (COLD, {}, {"cached_tokens": None}, AS_DECLARED),
        (WARM, {}, {"cached_tokens": 0}, "cached_tokens_not_as_declared"),
        (WARM, {}, {"cached_tokens": 19}, "cached_tokens_not_as_declared"),
        (WARM, {}, {"cached_tokens": 20}, AS_DECLARED),  # of 40
        (WARM, {}, {"cached_tokens": None}, AS_DECLARED),
        ({"cache": "as_is"}, {}, {"cached_tokens": 39}, AS_DECLARED),
        ({}, {}, {"cached_tokens": 39}, AS_DECLARED),
        (OFF, {}, {"events": THOUGHT}, "thinking_not_as_declared"),
        (OFF, {}, {"reasoning_tokens": 5}, "thinking_not_as_declared"),
        (OFF, {}, {"reasoning_tokens": 0}, AS_DECLARED),
        ({"chat_template_kwargs": {"enable_thinking": True}}, {}, {"events": THOUGHT}, AS_DECLARED),
        ({"chat_template_kwargs": {}}, {}, {"events": THOUGHT}, AS_DECLARED),
        (SIZED, {}, {"prompt_tokens": 1020}, AS_DECLARED),
        (SIZED, {}, {"prompt_tokens": 1021}, "prompt_not_as_sized"),
        (SIZED, {}, {"prompt_tokens": 979}, "prompt_not_as_sized"),
        (SIZED, {}, {"prompt_tokens": None}, AS_DECLARED),
        (OPEN, {"schedule_late_p99_s": 0.010}, {}, AS_DECLARED),
        (OPEN, {"schedule_late_p99_s": 0.011}, {}, "schedule_not_kept"),
        ({"rate": 100.0}, {"schedule_late_p99_s": 0.005}, {}, AS_DECLARED),  # half the mean gap
        ({"rate": 100.0}, {"schedule_late_p99_s": 0.006}, {}, "schedule_not_kept"),
        ({"rate": None}, {"schedule_late_p99_s": 9.0}, {}, AS_DECLARED),
        ({}, {}, {"completion_tokens": None}, "usage_missing"),
    ],
)
def test_a_run_is_held_to_what_its_workload_declared(
    tmp_path: Path,
    run: dict[str, object],
    client: dict[str, object],
    change: dict[str, object],
    codes: str,
) -> None:
    other = {**request(1), "cached_tokens": 20 if run is WARM else 0}
    if run is SIZED:
        other["prompt_tokens"] = 1000
    data = run_record([{**request(), **change}, other])
    data["run"].update(run)
    data["client"].update(client)
    study = Study()
    study.add("r", None, data=data)
    row = one(study, tmp_path)
    assert row["reasons"] == codes
    assert row["validity"] == ("suspect" if codes else "valid")


def test_only_counted_successes_are_held_to_the_cache(tmp_path: Path) -> None:
    warm_up = {**request(0), "warmup": True, "cached_tokens": 0}
    lost = {**request(1), "outcome": "timeout", "cached_tokens": 0, "completion_tokens": None}
    data = run_record([warm_up, lost, {**request(2), "cached_tokens": 32}], planned=2)
    data["run"]["cache"] = "warm"
    study = Study()
    study.add("r", None, data=data)
    assert one(study, tmp_path)["reasons"] == ""


def test_what_gaps_are_made_of() -> None:
    def events(*tokens: int | None) -> dict[str, object]:
        kinds = ["role", *["content"] * len(tokens)]
        return {"t_s": list(range(len(kinds))), "kind": kinds, "tokens": [None, *tokens]}

    first, second = {"events": events(1, 1, 4, None)}, {"events": events(None, 1)}
    assert instrument.gaps([first, second]) == [1, 1, 1, 1]
    assert instrument.gap_shares([first, second]) == {
        "itl_counted_share": 0.75,
        "itl_single_share": 0.5,
    }
    assert instrument.multi_token_share([first, second]) == pytest.approx(1 / 3)
    unknown = instrument.gap_shares([{"events": events(None, None)}])
    assert unknown == {"itl_counted_share": 0.0, "itl_single_share": None}
    nothing = instrument.gap_shares([{"events": events(1)}, {"events": None}])
    assert set(nothing.values()) == {None}


def test_the_client_and_its_schedule_have_columns(tmp_path: Path) -> None:
    sent = {**request(), "t_due_s": 0.0, "late_s": 0.002}
    data = run_record([sent])
    data["run"].update(rate=4.0, arrivals="poisson", cache="cold", http="epoll", **SIZED)
    data["client"] = {
        "digest": "1234567890123456",  # hex digits that read as a number are still a name
        "stamp_source": "kernel",
        "cpu_share": 0.125,
        "lag_p99_s": 0.0001,
        "reads": 200,
        "coalesced_reads": 4,
        "output_events": 400,
        "blurred_events": 8,
        "concurrency_mean": 1.5,
        "concurrency_max": 3,
        "schedule_late_p99_s": 0.002,
        "schedule_late_max_s": 0.003,
    }
    study = Study()
    study.add("r", None, data=data)
    (tmp_path / "plan.json").write_text(json.dumps(study.plan))
    folder, out = study.write(tmp_path / "runs"), tmp_path / "tables"
    given = ["--plan", str(tmp_path / "plan.json"), "--runs", str(folder), "--out", str(out)]
    assert aggregate.main(given) == 0
    found = tables.load(out)
    row = found.runs["r"]
    assert {name: row[name] for name in ("rate", "arrivals", "cache", "http")} == {
        "rate": 4.0,
        "arrivals": "poisson",
        "cache": "cold",
        "http": "epoll",
    }
    assert (row["client_digest"], row["stamp_source"]) == ("1234567890123456", "kernel")
    assert (row["cpu_share"], row["client_lag_p99_s"], row["coalesced_share"]) == (
        0.125,
        1e-4,
        0.02,
    )
    assert row["blurred_share"] == 0.02
    assert (row["concurrency_mean"], row["concurrency_max"]) == (1.5, 3)
    assert (row["schedule_late_p99_s"], row["schedule_late_max_s"]) == (0.002, 0.003)
    assert (row["prompt_asked_tokens"], row["prompt_sized_by"]) == (1000, "tokenize")
    assert (row["prompt_least_tokens"], row["prompt_most_tokens"]) == (40, 40)
    assert [(r["t_due_s"], r["late_s"]) for r in found.requests["r"]] == [(0.0, 0.002)]
    assert {n for n in tables.TEXT if n in COLUMNS["runs"]} <= findings.TEXT_COLUMNS


def test_an_older_record_says_nothing_of_its_client(tmp_path: Path) -> None:
    data = run_record([request()], client={"cpu_s": 1.0, "wall_s": 8.0})
    study = Study()
    study.add("r", None, data=data)
    row = one(study, tmp_path)
    assert row["cpu_share"] == 0.125 and row["validity"] == "valid"
    silent = {*DECLARED, *CLIENT, *SECOND} - {"cpu_share", "prompt_least_tokens"}
    assert {row[name] for name in silent - {"prompt_most_tokens"}} == {None}


def test_the_cross_check_has_columns_and_never_spoils_the_run(tmp_path: Path) -> None:
    study = Study()
    for name in ("checked", "refused", "torn", "alone"):
        study.add(name, [request(rate=10.0)])
    second = run_record([request(0, rate=9.0), {**request(1), "outcome": "timeout"}])
    second["run"]["http"] = "httpx"
    study.files["checked.cross_check.json"] = second
    study.files["refused.cross_check.json"] = {"problem": "no record came"}
    study.files["torn.cross_check.json"] = {"schema": "something/1"}
    for name in ("checked", "refused", "torn"):
        study.index["runs"][name]["cross_check"] = f"{name}.cross_check.json"
    rows = study.tables(tmp_path).runs
    checked = rows["checked"]
    assert (checked["cross_http"], checked["cross_n_ok"], checked["cross_n_attempted"]) == (
        "httpx",
        1,
        2,
    )
    assert checked["cross_decode_rate_median"] == pytest.approx(9.0)
    assert checked["decode_rate_median"] == pytest.approx(10.0)
    assert checked["cross_ttft_s_p50"] == pytest.approx(0.5) and checked["cross_itl_s_p50"] is None
    assert rows["refused"]["cross_problem"] == "no record came"
    assert rows["torn"]["cross_problem"] == "torn.cross_check.json is no run record"
    assert {rows["alone"][name] for name in SECOND} == {None}
    assert {row["validity"] for row in rows.values()} == {"valid"}


def test_percentiles_are_over_successes_and_their_twins_count_failures(tmp_path: Path) -> None:
    lost = {
        **request(3),
        "outcome": "http_error",
        "t_first_s": None,
        "t_last_s": None,
        "t_end_s": None,
    }
    study = Study()
    study.add("r", [request(i, rate=10.0) for i in range(3)] + [lost])
    row = one(study, tmp_path)
    assert row["success_rate"] == 0.75 and row["n_http_error"] == 1
    assert row["decode_tps_p10"] == pytest.approx(10.1)
    assert row["adj_decode_tps_p10"] < 10.1 * 0.4
    assert row["adj_ttft_s_p90"] == math.inf
    assert row["goodput"] == 0.0  # none reaches 20 tok/s end to end


def test_goodput_counts_requests_that_meet_every_limit(tmp_path: Path) -> None:
    study = Study()
    study.add(
        "r",
        [
            request(0, rate=50.0),
            request(1, rate=50.0, ttft=9.0),
            request(2, rate=5.0),
            request(3, rate=40.0),
        ],
    )
    assert one(study, tmp_path)["goodput"] == 0.5


def test_every_table_is_held_to_the_dictionary(tmp_path: Path) -> None:
    study = Study()
    study.add("r", [request()])
    study.refuse("cand")
    (tmp_path / "plan.json").write_text(json.dumps(study.plan))
    study.write(tmp_path / "runs")
    command = [sys.executable, ROOT / "scripts/aggregate.py", "--plan", tmp_path / "plan.json"]
    command += ["--runs", tmp_path / "runs", "--out", tmp_path / "tables"]
    subprocess.run(command, check=True, timeout=60, cwd=tmp_path)
    for name, columns in COLUMNS.items():
        with (tmp_path / "tables" / f"{name}.csv").open(newline="") as handle:
            reader = csv.DictReader(handle)
            assert reader.fieldnames == list(columns)
            for row in reader:
                assert None not in row and "None" not in row.values() and "nan" not in row.values()
    back = tables.load(tmp_path / "tables")
    assert back.runs["r"]["decode_rate_median"] == pytest.approx(10.0)
    assert back.runs["r"]["smi_records"] is None  # no capture: empty, never 0
    assert back.starts[0]["root_cause"] == "ValueError: no"


def test_a_column_without_a_unit_is_text_or_a_number_of_something() -> None:
    """numbers_or_text: the reader of the tables must know which columns are words."""
    plain = {n for columns in COLUMNS.values() for n, c in columns.items() if not c.unit}
    assert plain - tables.TEXT == {
        "start",
        "index",
        "gpu",
        "record",
        "line",
        "rank",
        "ceiling",
        "valid",
    }


def test_every_column_has_a_meaning_and_a_name_that_agrees_with_its_unit() -> None:
    for table, columns in COLUMNS.items():
        for name, column in columns.items():
            assert column.meaning, f"{table}.{name}"
            for tail, unit in (
                ("_s", "s"),
                ("_pct", "%"),
                ("_mib", "MiB"),
                ("_w", "W"),
                ("_mhz", "MHz"),
            ):
                if name.endswith(tail):
                    assert column.unit == unit, f"{table}.{name}"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "decodelab.run/1"}', "{not json"])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    study = Study()
    study.add("r", [request()])
    folder = study.write(tmp_path)
    (folder / "r.json").write_text(text)
    with pytest.raises(ValueError, match=r"r\.json"):
        aggregate.build(study.plan, folder, folder)


def test_an_attempt_without_a_record_is_missing_not_a_crash(tmp_path: Path) -> None:
    study = Study()
    study.add("r", [request()])
    study.index["runs"]["r"].update(file=None, status="invalid", reasons=["x"])
    assert study.tables(tmp_path).runs == {}


def test_a_folder_without_an_index_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(records.UnreadableRecord, match=r"decode_runs\.json"):
        records.load_index(tmp_path)


known = st.one_of(st.none(), st.floats(0, 1e4))


@settings(max_examples=150, deadline=None)
@given(
    known,
    known,
    known,
    known,
    st.one_of(st.none(), st.integers(0, 10**6)),
    st.one_of(st.none(), st.integers(1, 8)),
)
def test_worked_out_figures_are_never_invented(
    t0: float | None,
    t1: float | None,
    t2: float | None,
    t3: float | None,
    tokens: int | None,
    first: int | None,
) -> None:
    given_request = {**request(), "t_start_s": t0, "t_first_s": t1, "t_last_s": t2, "t_end_s": t3}
    given_request |= {"completion_tokens": tokens, "n_first_delta": first}
    out = records.worked_out(given_request)
    if t0 is None or t1 is None:
        assert out["ttft_s"] is None
    if tokens is None:
        assert out["decode_tps"] is None and out["e2e_tps"] is None
    for name in ("decode_tps", "decode_rate", "e2e_tps", "tpot_s"):
        assert out[name] is None or (math.isfinite(out[name]) and out[name] >= 0)


# counts that are not there --------------------------------------------------------------------------


def in_events(n: int, count: int | None) -> dict[str, object]:
    times = [0.5 + 0.1 * k for k in range(n)]
    return {"t_s": times, "kind": ["content"] * n, "tokens": [count] * n, "t_user_s": []}


def test_a_first_event_without_a_count_is_not_taken_for_one_token() -> None:
    """101 tokens in 26 events: how many the first held is unknown, and so is the rate after it."""
    older = {**request(), "n_events": 26, "events": in_events(26, None), "decode_rate": 10.0}
    found = records.worked_out(older)
    assert (found["n_first_delta"], found["decode_rate"], found["tpot_s"]) == (None, None, None)
    assert found["decode_tps"] == pytest.approx(10.1)
    assert records.worked_out({**older, "events": None})["decode_rate"] is None
    counted = {**older, "events": in_events(26, 4)}
    assert records.worked_out(counted)["decode_rate"] == pytest.approx(10.0)
    merged = {**older, "n_events": 90}  # a held-back character or two
    assert records.worked_out(merged)["decode_rate"] == pytest.approx(10.0)


def test_a_record_without_events_keeps_its_first_delta() -> None:
    imported = {**request(), "n_events": None, "events": None}
    assert records.worked_out(imported)["decode_rate"] == pytest.approx(10.0)
    timeless = {**imported, **dict.fromkeys(("t_start_s", "t_first_s", "t_last_s", "t_end_s"))}
    assert records.worked_out({**timeless, "decode_rate": 8.7})["decode_rate"] == 8.7


@pytest.mark.parametrize(
    ("asked", "count", "reasons"),
    [
        ({"return_token_ids": True}, None, "token_counts_missing"),
        ({"continuous_usage_stats": True}, None, "token_counts_missing"),
        ({"continuous_usage_stats": True}, 1, ""),
        ({"continuous_usage_stats": False, "return_token_ids": False}, None, ""),
        ({}, None, ""),
    ],
)
def test_counts_that_were_asked_for_and_did_not_come(
    tmp_path: Path, asked: dict[str, object], count: int | None, reasons: str
) -> None:
    events = in_events(101, count)
    lost = {**request(1), "outcome": "timeout", "events": in_events(2, None)}
    data = run_record([{**request(), "events": events}, lost])
    data["run"].update(asked)
    study = Study()
    study.add("r", None, data=data)
    row = one(study, tmp_path)
    assert (row["reasons"], row["validity"]) == (reasons, "suspect" if reasons else "valid")


def test_the_rate_at_which_requests_really_began(tmp_path: Path) -> None:
    """Three that were due a second apart and began two seconds apart."""
    sent = [{**request(i), "t_due_s": 1.0 * i, "late_s": 1.0 * i} for i in range(3)]
    warm_up = {**request(9), "warmup": True, "t_due_s": -50.0, "late_s": 0.0}
    data = run_record([warm_up, *sent], planned=3)
    data["run"]["rate"] = 1.0
    study = Study()
    study.add("r", None, data=data)
    assert one(study, tmp_path)["rate_kept"] == pytest.approx(0.5)
    assert instrument.rate_kept(sent[:1]) is None  # one request has no rate
    assert instrument.rate_kept([request(0), request(1)]) is None  # a closed loop


def test_the_cross_check_is_judged_too_and_spoils_nothing(tmp_path: Path) -> None:
    study = Study()
    for name in ("late", "fine"):
        study.add(name, [request()])
        study.index["runs"][name]["cross_check"] = f"{name}.cross_check.json"
    user = {**kernel(late=0.2, merged=0), "stamp_source": "user"}
    study.files["late.cross_check.json"] = run_record([request()], client=user)
    study.files["fine.cross_check.json"] = run_record([request()])
    study.plan["runs"][1]["telemetry"] = True  # the cross-check never has samples
    rows = study.tables(tmp_path).runs
    late, fine = rows["late"], rows["fine"]
    assert (late["cross_validity"], late["cross_reasons"]) == ("invalid", "stamps_late")
    assert (fine["cross_validity"], fine["cross_reasons"]) == ("valid", None)
    assert late["validity"] == "valid"


def test_a_problem_of_sizing_has_a_column(tmp_path: Path) -> None:
    data = run_record([{**request(), "prompt_tokens": 100}])
    data["run"]["prompt_sizing"] = {"asked": 100, "by": "estimate", "problem": "HTTP 500"}
    study = Study()
    study.add("r", None, data=data)
    assert one(study, tmp_path)["prompt_problem"] == "HTTP 500"
