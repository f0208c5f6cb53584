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

from decodelab import records, stats, tables
from decodelab.columns import COLUMNS

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
    ],
)
def test_late_stamps(client: dict[str, object], late: bool) -> None:
    assert records.stamps_late(client) is late


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
    assert plain - tables.TEXT == {"start", "index", "gpu", "record", "line"}


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
