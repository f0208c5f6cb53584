"""scripts/read_profile.py: any profile in, one JSON or table out; and traces as evidence and as exports."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import read_profile

from decodelab import step_export, step_read, step_shares, step_table, step_trace
from decodelab.step_table import Profile
from tests.unit import gpu_traces, step_files
from tests.unit.test_step_plain import KERNELS, REGIONS


def trace_file(folder: Path, **kinds: Any) -> Path:
    path = folder / "rank0.pt.trace.json.gz"
    path.write_bytes(gzip.compress(gpu_traces.text(gpu_traces.decode_trace(**kinds)).encode()))
    return path


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = read_profile.main([str(a) for a in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_trace_is_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _err = run(capsys, trace_file(tmp_path))
    told = json.loads(out)
    assert code == 0 and told["schema"] == step_table.SCHEMA and told["source"] == "trace"
    again = tmp_path / "again.json"
    again.write_text(out, encoding="utf-8")
    assert json.loads(run(capsys, again)[1]) == told


def test_several_runs_are_printed_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.tsv"
    file.write_text(REGIONS, encoding="utf-8")
    told = json.loads(run(capsys, file)[1])
    assert told["schema"] == step_read.MANY and set(told["profiles"]) == {"a", "b"}
    one = json.loads(run(capsys, "--run", "b", file)[1])
    assert one["schema"] == step_table.SCHEMA and one == told["profiles"]["b"]
    code, _out, err = run(capsys, "--run", "c", file)
    assert code == 1 and "no run c in it, but a, b" in err


def test_the_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _code, out, _err = run(capsys, "--table", trace_file(tmp_path))
    lines = [line.split() for line in out.splitlines()]
    assert ["moe", "2", "0.120", "0.120", "0.120", "32.3%", "1.48x"] in lines
    assert "phase decode, rank 0: 4 steps, step 0.372 ms P50, 0.372 P90" in out
    assert "GPU busy 77.7%, idle 0.083 ms a step" in out
    kernels = tmp_path / "k.tsv"
    kernels.write_text(KERNELS, encoding="utf-8")
    _code, out, _err = run(capsys, "--table", kernels)
    assert "are no device time and counted in no class: cudaLaunchKernel" in out


def test_shares_of_synchronising_timers_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sync.tsv"
    file.write_text(REGIONS, encoding="utf-8")
    _code, out, _err = run(capsys, "--table", file)
    assert "mode sync" in out and "%" not in out and "30.000" in out


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.txt", b"nothing\n", "columns ['nothing']"),
        ("a.json", b'{"answer": 42}', 'without an array "traceEvents"'),
        ("a.json", b'{"schema": "decodelab.step_profile/1"}', "a damaged profile"),
        ("a.json", b"[]", "neither kernels nor CPU ops in its 0 events"),
        ("a.json.gz", b"\x1f\x8bdamaged", "damaged gzip"),
        ("a.csv", b"\xff\xfe\x00", "can't decode"),
    ],
)
def test_what_is_none_of_these_says_where_what_allowed_and_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, says: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    code, out, err = run(capsys, file)
    assert code == 1 and not out
    assert str(file) in err and says in err and "allowed:" in err and "hint:" in err


def test_a_missing_file_and_files_of_several_sorts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _out, err = run(capsys, tmp_path / "none.json")
    assert code == 1 and "No such file" in err
    table = tmp_path / "t.csv"
    table.write_text("name,share\na,1\n", encoding="utf-8")
    code, _out, err = run(capsys, table, trace_file(tmp_path))
    assert code == 1 and "t.csv: table, rank0.pt.trace.json.gz: trace" in err


# export -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_an_exported_timeline_reads_back_with_equal_times(tmp_path: Path, suffix: str) -> None:
    spans = [["prepare", 0, 0.0, 0.25], ["forward", 0, 0.25, 2.0], ["attention", 1, 0.5, 0.700001]]
    steps = [
        {"rank": 0, "step": n, "phase": "decode", "begin_ms": 3.0 * n, "end_ms": 3.0 * n + 2.5}
        | {"spans": [[r, d, 3.0 * n + a, 3.0 * n + b] for r, d, a, b in spans]}
        for n in range(3)
    ]
    profile = Profile("events", "event", (), 1, (), timeline=tuple(steps))
    out = tmp_path / f"t{suffix}"
    step_export.write(profile, out)
    told = step_trace.read([out])
    (table,) = told.tables
    found = {r.region: r for r in table.regions}
    assert (table.phase, table.rank, table.steps) == ("decode", 0, 3)
    assert table.step_ms_p50 == pytest.approx(2.5)
    assert found["prepare"].ms_p50 == pytest.approx(0.25, abs=1e-9)
    assert found["attention"].ms_p50 == pytest.approx(0.200001, abs=1e-9)
    assert found["forward"].ms_p50 == pytest.approx(1.75 - 0.200001, abs=1e-9)
    assert [s["spans"] for s in told.timeline] == [s["spans"] for s in steps]


def test_the_timeline_of_a_trace_goes_round(tmp_path: Path) -> None:
    told = step_trace.read([trace_file(tmp_path)])
    out = tmp_path / "out.json"
    step_export.write(told, out)
    events = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(kernels) == sum(len(step["spans"]) for step in told.timeline)
    for event, span in zip(kernels, [s for t in told.timeline for s in t["spans"]], strict=True):
        assert (event["ts"] / 1000, event["dur"] / 1000) == pytest.approx(
            (span[2], span[3] - span[2])
        )


def test_without_a_timeline_there_is_nothing_to_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.csv"
    file.write_text("name,share\na,1\n", encoding="utf-8")
    code, _out, err = run(capsys, "--perfetto", tmp_path / "o.json", file)
    assert code == 1 and "no timeline" in err and not (tmp_path / "o.json").exists()


# evidence -----------------------------------------------------------------------------------------


def test_a_trace_as_evidence_by_region_and_by_kernel(tmp_path: Path) -> None:
    shares = step_shares.of_profile(step_read.one([trace_file(tmp_path)]))
    cycle = 0.372
    for pattern in ("moe", "moe*", "*fused_moe*", "MoE"):
        assert step_shares.share_of(shares, pattern)[0] == pytest.approx(0.120 / cycle)
    assert step_shares.share_of(shares, "*nccl*")[0] == pytest.approx(0.030 / cycle)
    assert step_shares.share_of(shares, "engine")[0] == pytest.approx(0.050 / cycle)
    assert sum(shares.values()) == pytest.approx(1)


def test_kernels_of_no_known_class_may_be_anyones(tmp_path: Path) -> None:
    trace = gpu_traces.decode_trace()
    for event in trace["traceEvents"]:
        if event["name"] == "fused_moe_kernel":
            event["name"] = "vendor_secret"
    path = tmp_path / "t.json"
    path.write_text(gpu_traces.text(trace), encoding="utf-8")
    least, most = step_shares.share_of(step_shares.of_profile(step_read.one([path])), "moe*")
    assert least == 0 and most == pytest.approx(0.120 / 0.372)


# our own event files ------------------------------------------------------------------------------

# A run of the embedded host's simulated server, its last steps left out: folder, profile.json, one process.
EVENTS = Path(__file__).resolve().parents[1] / "golden" / "step_events"


def test_a_runs_folder_is_printed_and_its_table_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _err = run(capsys, EVENTS)
    told = json.loads(out)
    assert code == 0 and told["schema"] == step_table.SCHEMA
    assert (told["source"], told["mode"], told["valid"]) == ("events", "event", True)
    assert (
        told["files"] == ["profile-1.jsonl"] and told["model"]["config"]["num_hidden_layers"] == 2
    )
    decode = next(table for table in told["tables"] if table["phase"] == "decode")
    calls = {region["region"]: region["calls_per_step"] for region in decode["regions"]}
    assert (calls["attention"], calls["moe"], calls["sampler"]) == (2, 2, 1)
    assert abs(decode["closure"]) <= 0.03 and "handover" not in calls
    shown = [line.split() for line in run(capsys, "--table", EVENTS)[1].splitlines()]
    for table in told["tables"]:
        for region in table["regions"]:
            share = f"{region['share']:.1%}"
            row = [region["region"], f"{region['ms_p50']:.3f}", f"{region['ms_p90']:.3f}", share]
            assert any(line[:1] + line[2:4] + line[5:6] == row for line in shown), row


def test_the_timeline_of_a_runs_folder_opens_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.json.gz"
    assert run(capsys, "--perfetto", out, EVENTS)[0] == 0
    drawn = step_trace.read([out])
    (table,) = drawn.tables
    found = {region.region: region.calls_per_step for region in table.regions}
    assert drawn.valid and table.steps and (found["attention"], found["moe"]) == (2, 2)


def test_problems_and_doubts_of_events_are_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same files without most of their steps, and cut in a line."""
    text = (EVENTS / "profile-1.jsonl").read_text(encoding="utf-8")
    steps = [line for line in text.splitlines() if '"kind":"step"' in line]
    rest = [line for line in text.splitlines() if line not in steps]
    file = tmp_path / "profile-1.jsonl"
    file.write_text("\n".join([*rest, *steps[-12:], steps[-1][:50]]), encoding="utf-8")
    told = json.loads(run(capsys, file)[1])
    assert [one["code"] for one in told["problems"]] == ["too_few_steps"]
    assert {"incomplete", "targets_not_found"} <= {one["code"] for one in told["doubts"]}
    shown = run(capsys, "--table", file)[1]
    assert "events, mode event: INVALID" in shown
    names = {region["region"] for table in told["tables"] for region in table["regions"]}
    rows = [
        cells for line in shown.splitlines() if (cells := line.split())[:1] and cells[0] in names
    ]
    assert rows and all(cells[-2:] == ["-", "-"] for cells in rows), "no shares"
    assert "at least 20 are needed. Use more requests or longer outputs." in shown
    for kind in ("problems", "doubts"):
        for one in told[kind]:
            assert one["code"] not in shown
    for region in told["tables"][0]["regions"]:
        assert region["share"] is None is region["ceiling"]


# ------------------------------------------------------------------ files that somebody else wrote or cut
STEPS = "\n".join(step_files.one_process()) + "\n"


def test_a_process_given_twice_is_no_second_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, copy = tmp_path / "steps-7.jsonl", tmp_path / "profile-7.jsonl"
    file.write_text(STEPS, encoding="utf-8")
    copy.write_text(STEPS + "\n", encoding="utf-8")
    code, _out, err = run(capsys, file, file)
    assert code == 1 and "steps-7.jsonl is given twice" in err
    trace = trace_file(tmp_path)
    other = trace.with_name("other.json.gz")
    other.write_bytes(trace.read_bytes())
    code, _out, err = run(capsys, trace, other)
    assert code == 1 and "is given twice, as other.json.gz" in err
    code, _out, err = run(capsys, file, copy)
    assert code == 1 and "steps-7.jsonl and profile-7.jsonl are of one process" in err


@pytest.mark.parametrize("data", [b"", b"\x00\xff" * 50, b'{"answer": 42}\n'])
def test_an_event_file_without_a_line_of_ours_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    file = tmp_path / "steps-1.jsonl"
    file.write_bytes(data)
    code, _out, err = run(capsys, file)
    assert code == 1 and "no line of the step profiler" in err


def test_files_of_another_schema_are_not_read_as_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "steps-7.jsonl"
    file.write_text(STEPS.replace("decodelab.steps/1", "decodelab.steps/2"), encoding="utf-8")
    told = json.loads(run(capsys, file)[1])
    assert not told["valid"] and not told["tables"]
    assert told["problems"][0]["figures"] == {
        "found": ["decodelab.steps/2"],
        "known": "decodelab.steps/1",
    }


def _ours(**more: Any) -> dict[str, Any]:
    region = {"region": "moe", "calls_per_step": 1, "ms_p50": 1, "ms_p90": 1, "ms_mean": 1}
    table = {"phase": "decode", "rank": None, "steps": 3, "step_ms_p50": 1, "step_ms_p90": 1}
    told: dict[str, Any] = {"schema": step_table.SCHEMA, "source": "events", "mode": "event"}
    told |= {"files": ["x"], "ranks": 1}
    told["tables"] = [{**table, "step_ms_mean": 2, "regions": [{**region, "share": 0.5, **more}]}]
    return told


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (_ours(share="much"), "share: much is no number"),
        (_ours(share=float("nan")), "share: nan is no number"),
        (_ours(ms_mean=10**400), "is no number"),
        (_ours(region=None), "region: None is no text"),
        ({**_ours(), "problems": [{"code": "x", "figures": [1]}]}, "figures: [1] is no object"),
        ({**_ours(), "timeline": [{"step": 1}]}, "a damaged profile: 'phase'"),
        (
            {
                **_ours(),
                "timeline": [{"step": 1, "phase": "decode", "spans": [["moe", 0, "x", 1]]}],
            },
            "timeline: a damaged span in step 1",
        ),
        ({"schema": step_read.MANY, "profiles": {}}, "no profile in it"),
    ],
)
def test_json_that_was_damaged_since_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: dict[str, Any], says: str
) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(told), encoding="utf-8")
    for args in ((), ("--table",)):
        code, out, err = run(capsys, *args, file)
        assert code == 1 and not out and says in err


def test_json_nested_without_end_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.json"
    file.write_text(f'{{"schema": "{step_table.SCHEMA}", "x": ' + "[" * 100_000, encoding="utf-8")
    code, _out, err = run(capsys, file)
    assert code == 1 and "nested too deep" in err


def test_names_are_text_that_any_writer_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lone surrogate, which JSON can spell, is no UTF-8; a line break would end a row."""
    file = tmp_path / "p.json"
    file.write_text(json.dumps(_ours(region="\ud800\nx")), encoding="utf-8")
    code, out, _err = run(capsys, file)
    assert code == 0 and out.encode("utf-8")
    code, out, _err = run(capsys, "--table", file)
    assert code == 0 and "  \\ud800 x " in out
    traced = tmp_path / "t.json"
    event = {"ph": "X", "cat": "kernel", "name": "\udc01", "ts": 1, "dur": 5, "pid": 0, "tid": 7}
    traced.write_text(json.dumps([event]), encoding="utf-8")
    assert run(capsys, traced)[1].encode("utf-8")
