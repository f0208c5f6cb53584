"""Foreign result files become run records: what is read, what stays unknown, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cargo import record as run_record
from decodelab.fieldmap import DEFAULT_MAPPING, FieldMap, MappingError, plain, without_unit
from decodelab.importing import RawShapeError, Reading, read_run


@pytest.fixture(scope="module")
def mapping() -> FieldMap:
    return FieldMap.load()


class Importer:
    def __init__(self, folder: Path, mapping: FieldMap):
        self.folder, self.mapping = folder, mapping

    def __call__(self, data: Any, name: str = "result.json") -> Reading:
        path = self.folder / name
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        reading = read_run(path, self.mapping)
        assert run_record.problems(reading.record) == []
        assert reading.record["source"] == "imported"
        return reading

    def request(self, **fields: Any) -> dict[str, Any]:
        return self({"requests": [fields]}).record["requests"][0]


@pytest.fixture
def importer(tmp_path: Path, mapping: FieldMap) -> Importer:
    return Importer(tmp_path, mapping)


BENCH_PERF = {
    "label": "short",
    "requests": 3,
    "workers": 1,
    "success_rate": 0.6667,
    "wall_s": 40.0,
    "ttft_p90_s": 1.9,
    "output_tps_p10": 4.1,
    "errors": ["reset"],
    "request_metrics": [
        {
            "ok": True,
            "latency_s": 16.7,
            "ttft_s": 2.0,
            "prompt_tokens": 1800,
            "completion_tokens": 128,
            "cached_tokens": 0,
            "error": None,
            "output_event_times_s": [2.0, 9.0, 16.6],
        },
        {
            "ok": True,
            "latency_s": 15.7,
            "ttft_s": 1.0,
            "prompt_tokens": 1800,
            "completion_tokens": 128,
            "cached_tokens": 1700,
            "error": None,
        },
        {
            "ok": False,
            "latency_s": 5.0,
            "ttft_s": None,
            "error": "ConnectionResetError: reset by peer",
        },
    ],
}


def test_request_metrics_with_a_summary_around_them(importer: Importer) -> None:
    reading = importer(BENCH_PERF)
    first, second, third = reading.record["requests"]
    assert [r["outcome"] for r in reading.record["requests"]] == ["ok", "ok", "connection"]
    assert (first["ttft_s"], first["e2e_s"]) == (2.0, 16.7)
    assert (
        first["decode_tps"] == pytest.approx(128 / (16.6 - 2.0))
        and first["decode_end"] == "last_delta"
    )
    assert (
        second["decode_tps"] == pytest.approx(128 / (15.7 - 1.0))
        and second["decode_end"] == "stream_end"
    )
    assert second["e2e_tps"] == pytest.approx(128 / 15.7)
    assert third["error"]["message"].startswith("ConnectionResetError")
    assert first["n_events"] == 3 and first["events"] is None  # no time of its start
    run, summary = reading.record["run"], reading.record["summary"]
    assert (run["concurrency"], run["requests"], run["label"]) == (1, 3, "short")
    assert summary["wall_s"] == 40.0 and summary["output_tps_total"] == pytest.approx(256 / 40)
    assert summary["cached_tokens"] == 1700
    assert "definitions" in reading.account.ignored["output_tps_p10"]
    assert reading.account.notes == [
        "n_first_delta: not in the file; taken as 1 (request_defaults)"
    ]


BENCH_SERVE = {
    "model_id": "m",
    "num_prompts": 3,
    "max_concurrency": 2,
    "duration": 0.62,
    "completed": 2,
    "total_output_tokens": 8,
    "mean_ttft_ms": 110.0,
    "input_lens": [10, 11, 10],
    "output_lens": [4, 4, 0],
    "ttfts": [0.1, 0.12, 0.0],
    "itls": [[0.1, 0.1, 0.1], [0.1, 0.2, 0.1], []],
    "start_times": [100.0, 100.1, 100.2],
    "generated_texts": ["a", "b", ""],
    "errors": ["", "", "Traceback ... TimeoutError"],
}


def test_arrays_side_by_side_as_vllm_bench_serve_writes_them(importer: Importer) -> None:
    reading = importer(BENCH_SERVE)
    first, second, third = reading.record["requests"]
    assert reading.shape.startswith("arrays side by side")
    assert (first["t_start_s"], second["t_start_s"]) == (0.0, pytest.approx(0.1))
    assert reading.record["clock"] == {"t0_monotonic_s": 100.0, "t0_wall": None}
    assert first["decode_tps"] == pytest.approx(4 / 0.3) and first["decode_end"] == "last_delta"
    assert second["decode_rate"] == pytest.approx(3 / 0.4)
    assert second["events"]["t_s"] == pytest.approx([0.22, 0.32, 0.52, 0.62])
    assert run_record.output_gaps(second["events"])[1] == (pytest.approx(0.2), None)
    assert third["outcome"] == "timeout" and third["ttft_s"] is None  # 0.0 stands for "none"
    assert reading.record["summary"]["wall_s"] == pytest.approx(0.62)
    assert reading.record["run"]["concurrency"] == 2
    assert any("e2e_s is TTFT + the token gaps" in note for note in reading.account.notes)


def test_arrays_without_start_times_still_give_rates(importer: Importer) -> None:
    data = {k: v for k, v in BENCH_SERVE.items() if k != "start_times"}
    reading = importer(data)
    first = reading.record["requests"][0]
    assert first["t_start_s"] is None and first["events"] is None
    assert first["decode_tps"] == pytest.approx(4 / 0.3)
    assert reading.record["summary"]["wall_s"] == 0.62  # the file's own, since no times are known
    assert "inter-token latency" in [figure for figure, *_ in reading.not_computable]


def test_a_failed_request_of_arrays_is_no_success_though_it_names_no_error(
    importer: Importer,
) -> None:
    data = {"ttfts": [0.1, 0.0], "output_lens": [4, 0], "itls": [[0.1], []], "errors": ["", ""]}
    outcomes = [r["outcome"] for r in importer(data).record["requests"]]
    assert outcomes == ["ok", "stream_error"]


@pytest.mark.parametrize(
    "fields",
    [
        {"ttft_s": 0.5, "latency_s": 2.5},
        {"ttft_ms": 500, "total_ms": 2500},
        {"ttftMs": 500, "e2eLatencyMs": 2500},
        {"time_to_first_token": 0.5, "e2e": 2.5},
        {"TTFT (ms)": "500", "latency-us": 2500000},
        {"timing": {"ttft_ms": 500.0, "total_ms": 2500.0}},
        {"start_time": 100.0, "first_token_time": 100.5, "end_time": 102.5},
        {"start_time_ms": 100000, "first_token_time_ms": 100500, "end_time_ms": 102500},
        {"t0": 1.7e12, "t_first": 1.7e12 + 500, "t_end": 1.7e12 + 2500},
        {
            "start": "2026-07-14T10:00:00Z",
            "first_token": "2026-07-14T10:00:00.500Z",
            "end": "2026-07-14T10:00:02.500Z",
        },
        {"end_time": "2026-07-14 10:00:02,500", "total_ms": 2500, "ttft_s": 0.5},
    ],
)
def test_spellings_and_units_of_times(importer: Importer, fields: dict[str, Any]) -> None:
    request = importer.request(usage={"completion_tokens": 128}, **fields)
    assert request["ttft_s"] == pytest.approx(0.5, abs=1e-6)
    assert request["e2e_s"] == pytest.approx(2.5, abs=1e-6)
    assert request["decode_tps"] == pytest.approx(64.0, abs=1e-3)
    assert request["decode_end"] == "stream_end" and request["t_last_s"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {
            "usage": {
                "prompt_tokens": 7,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            }
        },
        {
            "usage": {"input_tokens": 7, "completion_tokens": 9},
            "cached_tokens": 4,
            "reasoning_tokens": 3,
        },
        {"input_tokens": 7, "output_tokens": "9", "cached_tokens": 4.0, "reasoning_tokens": 3},
        {"prompt_len": 7, "outputLen": 9, "prompt_cache_hit_tokens": 4, "reasoningTokens": 3},
    ],
)
def test_spellings_of_token_counts(importer: Importer, fields: dict[str, Any]) -> None:
    request = importer.request(ttft_s=1.0, **fields)
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
    assert [request[name] for name in names] == [7, 9, 4, 3]


@pytest.mark.parametrize(
    "value", [None, "", "None", "N/A", "nan", float("nan"), True, [], {}, 1.5, -3]
)
def test_a_count_that_is_none_stays_unknown(importer: Importer, value: Any) -> None:
    assert importer.request(ttft_s=1.0, completion_tokens=value)["completion_tokens"] is None


@pytest.mark.parametrize("value", [None, "", "NaN", 0, 0.0, -1, "soon", [0.5]])
def test_a_duration_that_is_none_stays_unknown(importer: Importer, value: Any) -> None:
    request = importer.request(latency_s=2.0, ttft_s=value, completion_tokens=10)
    assert request["ttft_s"] is None and request["decode_tps"] is None
    assert request["e2e_tps"] == 5.0


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"ttft_s": 1.0, "completion_tokens": 5}, "ok"),
        ({"ttft_s": 1.0, "completion_tokens": 5, "success": True, "error": ""}, "ok"),
        ({"ttft_s": 1.0, "completion_tokens": 5, "success": "1", "status": 200}, "ok"),
        ({"ttft_s": 1.0, "completion_tokens": 5, "status": "ok"}, "ok"),
        ({"ttft_s": 1.0, "completion_tokens": 5, "status": "failed"}, "stream_error"),
        ({"status_code": 503, "ttft_s": None}, "http_error"),
        ({"http_status": "400", "error_class": "http_400"}, "http_error"),
        ({"ok": False, "error": "Read timed out"}, "timeout"),
        ({"error": "connection"}, "connection"),
        ({"error": {"code": 500, "message": "internal"}}, "http_error"),
        ({"ttft_s": 1.0, "completion_tokens": 5, "error": {"message": "odd"}}, "stream_error"),
        ({"ttft_s": 1.0, "completion_tokens": 5, "error": {}}, "ok"),
        ({"ttft_s": 1.0, "finish_reason": "abort", "completion_tokens": 2}, "aborted"),
        ({"ok": False}, "stream_error"),
        ({"ok": True, "ttft_s": None, "prompt_tokens": 5}, "stream_error"),
        ({"outcome": "short", "ttft_s": 1.0}, "short"),
    ],
)
def test_outcomes(importer: Importer, fields: dict[str, Any], outcome: str) -> None:
    request = importer({"requests": [{"ttft_s": 9.0}, fields]}).record["requests"][1]
    assert request["outcome"] == outcome
    assert (request["error"] is None) == (outcome == "ok")


def test_a_warm_up_request_is_kept_and_not_counted(importer: Importer) -> None:
    rows = [{"ttft_s": 9.0, "warmup": True}, {"ttft_s": 1.0}]
    record = importer({"requests": rows}).record
    assert record["summary"]["n_attempted"] == 1 and record["summary"]["ttft_s"]["p90"] == 1.0


def test_event_times_count_from_the_request_or_from_the_clock(importer: Importer) -> None:
    common = {"start_time": 50.0, "ttft_s": 1.0, "latency_s": 4.0, "completion_tokens": 6}
    relative = importer.request(**common, output_event_times_s=[1.0, 2.0, 3.0])
    absolute = importer.request(**common, output_event_times_s=[51.0, 52.0, 53.0])
    for request in (relative, absolute):
        assert request["decode_tps"] == pytest.approx(3.0) and request["decode_end"] == "last_delta"
        assert request["events"]["t_s"] == pytest.approx([1.0, 2.0, 3.0])
        assert request["t_last_s"] == pytest.approx(3.0) and request["t_end_s"] == pytest.approx(
            4.0
        )
    neither = importer.request(**common, output_event_times_s=[7.0, 8.0, 9.0])
    assert neither["decode_end"] == "stream_end" and neither["events"] is None


def test_a_lone_decode_span_gives_the_decode_rates(importer: Importer) -> None:
    request = importer.request(decode_ms=2000, completion_tokens=100)
    assert request["decode_tps"] == 50.0 and request["decode_rate"] == 49.5
    assert request["ttft_s"] is None and request["e2e_tps"] is None


def test_a_unit_left_out_is_noticed(importer: Importer) -> None:
    notes = importer({"requests": [{"ttft": 800, "latency_s": 9.0}]}).account.notes
    assert any("is a unit missing" in note for note in notes)


def test_a_summary_that_its_requests_do_not_bear_out_is_noticed(importer: Importer) -> None:
    rows = [{"start_time": 0.0, "ttft_s": 1.0, "latency_s": 2.0, "completion_tokens": 10}]
    reading = importer({"success_rate": 0.5, "output_throughput": 5.0, "requests": rows})
    assert [n for n in reading.account.notes if n.startswith("success_rate")] == [
        "success_rate: the file says 0.5, its requests give 1"
    ]
    assert not [n for n in reading.account.notes if n.startswith("output_tps_total")]


def test_what_the_file_name_says_fills_what_the_file_leaves_out(importer: Importer) -> None:
    reading = importer([{"ttft_s": 1.0}], "decode_noparser_short_c2_t128_r4_monitor.json")
    run = reading.record["run"]
    assert (run["concurrency"], run["max_tokens"], run["requests"]) == (2, 128, 4)


def test_json_lines_csv_and_tsv(importer: Importer) -> None:
    lines = '{"ttft_s": 1.0, "latency_s": 3.0}\n{"ttft_s": 2.0, "latency_s": 4.0}\n'
    csv = "ttft_s,latency_s,error\n1.0,3.0,\n2.0,4.0,None\n"
    for text, name in ((lines, "r.jsonl"), (csv, "r.csv"), (csv.replace(",", "\t"), "r.tsv")):
        requests = importer(text, name).record["requests"]
        assert [(r["outcome"], r["ttft_s"], r["e2e_s"]) for r in requests] == [
            ("ok", 1.0, 3.0),
            ("ok", 2.0, 4.0),
        ]


def test_our_own_record_passes_unchanged(tmp_path: Path, mapping: FieldMap) -> None:
    request = {**run_record.blank_request(0), "outcome": "ok"}
    own = {
        "schema": run_record.SCHEMA,
        "source": "measured",
        "run": {},
        "requests": [request],
        "summary": {},
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(own))
    assert read_run(path, mapping).record == own
    path.write_text(json.dumps({**own, "source": "guessed"}))
    with pytest.raises(RawShapeError, match="source: one of"):
        read_run(path, mapping)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            '{"module": "replay", "metrics": {"ttft_p90_ms": 3}}',
            "keys module (str), metrics (object)",
        ),
        (
            '{"requests": [{"id": 1}, {"id": 2}]}',
            "2 objects, the first an object with the keys id (int)",
        ),
        ('{"requests": []}', "requests (list of 0)"),
        ('{"ttfts": [1, 2], "output_lens": [1]}', "ttfts (list of 2), output_lens (list of 1)"),
        ("[1, 2]", "a list of 2, the first is int"),
        ("[]", "a list of 0"),
        ("3", "int"),
        ("", "a list of 0"),
        ("not json", "no JSON"),
    ],
)
def test_an_unknown_shape_names_the_file_and_what_was_looked_for(
    importer: Importer, tmp_path: Path, text: str, found: str
) -> None:
    with pytest.raises(RawShapeError) as caught:
        importer(text, "odd.json")
    message = str(caught.value)
    assert str(tmp_path / "odd.json") in message and "looked for: " in message
    assert found in message
    assert "resources/import_mapping.yaml" in message


def test_bytes_that_are_no_text_are_an_unknown_shape(tmp_path: Path, mapping: FieldMap) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"\x80\x81")
    with pytest.raises(RawShapeError, match="UTF-8"):
        read_run(path, mapping)


# ---------------------------------------------------------------- the mapping file


def test_a_user_extends_the_mapping_by_one_word(tmp_path: Path, importer: Importer) -> None:
    rows = {"requests": [{"erste_antwort_ms": 500, "latency_s": 2.5}]}
    assert importer(rows).record["requests"][0]["ttft_s"] is None
    tables = yaml.safe_load(DEFAULT_MAPPING.read_text(encoding="utf-8"))
    tables["request"]["ttft_s"].append("erste_antwort")
    extended = tmp_path / "mapping.yaml"
    extended.write_text(yaml.safe_dump(tables), encoding="utf-8")
    again = Importer(tmp_path, FieldMap.load(extended))
    assert again(rows).record["requests"][0]["ttft_s"] == 0.5


def test_a_wrong_mapping_file_names_every_fault(tmp_path: Path) -> None:
    tables = yaml.safe_load(DEFAULT_MAPPING.read_text(encoding="utf-8"))
    tables["requets"] = tables.pop("request")
    tables["containers"] = "usage"
    path = tmp_path / "mapping.yaml"
    path.write_text(yaml.safe_dump(tables), encoding="utf-8")
    with pytest.raises(MappingError) as caught:
        FieldMap.load(path)
    message = str(caught.value)
    assert "requets: unknown key" in message
    assert "request: a dict expected, NoneType found" in message
    assert "containers: a list expected, str found" in message


def test_the_mapping_names_only_fields_that_exist(mapping: FieldMap) -> None:
    private = {"success", "http_status", "decode_s", "gaps_s", "event_times_s"}
    assert set(mapping.fields("request")) <= set(run_record.REQUEST_FIELDS) | private
    assert set(mapping.fields("run")) <= set(run_record.RUN_FIELDS)
    assert set(mapping.fields("summary")) - {"ttft_s_p90"} <= set(run_record.SUMMARY_FIELDS)
    outcomes = {outcome for _, outcome in mapping.tables["outcome_patterns"]}
    assert outcomes | {mapping.tables["outcome_default"]} <= set(run_record.OUTCOMES)


def test_names_are_compared_without_case_and_separators() -> None:
    assert {plain(n) for n in ("firstTokenTime", "First-Token Time", "first_token_time")} == {
        "first_token_time"
    }
    assert without_unit("latency_ms") == ("latency", 1e-3)
    assert without_unit("latency") == ("latency", None)
    assert without_unit("s") == ("s", None)
