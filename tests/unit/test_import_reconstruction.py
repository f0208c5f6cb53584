"""The reconstructed raw logs of 2026-07-14: deterministic, honest, and possible as events."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "resources" / "2026-07-14-decode"
SCRIPT = FOLDER / "reconstruct.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reconstruct_2026_07_14", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, Any]]:
    return {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in FOLDER.glob("decode_*.json")}


def test_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    for _ in range(2):  # the second call overwrites the first with the same bytes
        command = [sys.executable, "-I", str(SCRIPT), "--out", str(tmp_path)]
        assert subprocess.run(command, timeout=60, cwd=tmp_path).returncode == 0
        made = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        kept = {p.name: p.read_bytes() for p in FOLDER.iterdir() if p.suffix in (".json", ".log")}
        assert made == kept


def test_check_prints_every_published_figure_and_finds_none_wrong(
    generator: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generator.main(["--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 30 and not [line for line in lines if line.startswith("!")]


def test_check_fails_on_records_that_miss_a_figure(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = generator.RUNS["decode_noparser_short_c1_t128_r4"]
    monkeypatch.setitem(
        spec, "requests_ms", [(902, 15444), (530, 15370), (525, 15357), (529, 15500)]
    )
    assert generator.main(["--out", str(tmp_path / "none")]) == 1
    assert not (tmp_path / "none").exists()


def test_the_generator_shares_no_code_with_what_it_checks() -> None:
    roots = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").split(".")[0])
    assert roots <= set(sys.stdlib_module_names)


def test_every_file_says_that_it_is_reconstructed() -> None:
    files = [p for p in FOLDER.iterdir() if p.suffix == ".json"]
    assert len(files) == 8
    for path in files:
        document = json.loads(path.read_text(encoding="utf-8"))
        assert document["source"] == "reconstructed", path.name
        assert document["provenance"] == "reconstructed from the published tables", path.name
    (log,) = FOLDER.glob("*.log")
    assert ".reconstructed." in log.name and log.read_text().startswith("# reconstructed from")
    provenance = (FOLDER / "PROVENANCE.md").read_text(encoding="utf-8")
    assert all(path.name in provenance for path in [*files, log])


def test_nothing_is_stated_that_nobody_published(runs: dict[str, dict[str, Any]]) -> None:
    assert len(runs) == 7
    for run in runs.values():
        assert run["client"] is None and run["clock"]["t0_wall"] is None
        for request in run["requests"]:
            for name in ("t_last_s", "events", "n_events", "usage", "finish_reason", "connect_s"):
                assert request[name] is None, name
            assert request["decode_end"] == "stream_end"
    reasoning = {
        name for name, run in runs.items() if run["summary"]["reasoning_tokens"] is not None
    }
    assert reasoning == {"decode_full_parser_short_c1_t256_r3"}
    prompts = {name for name, run in runs.items() if run["summary"]["prompt_tokens"] is not None}
    assert prompts == {"decode_full_parser_tool_c1_t128_r3"}


def at_once(spans: list[tuple[float, float]]) -> int:
    return max(sum(a <= start < b for a, b in spans) for start, _ in spans)


def test_requests_run_as_a_closed_loop(runs: dict[str, dict[str, Any]]) -> None:
    for name, run in runs.items():
        requests = run["requests"]
        spans = [(r["t_start_s"], r["t_end_s"]) for r in requests]
        assert at_once(spans) == run["run"]["concurrency"], name
        starts = [start for start, _ in spans]
        assert starts == sorted(starts) and starts[0] > 0, name
        begun = {starts[0], *(end for _, end in spans)}
        assert all(start in begun for start in starts), f"{name}: a request waits for nothing"


def test_never_more_than_two_sequences_decode(runs: dict[str, dict[str, Any]]) -> None:
    """--max-num-seqs 2 held on the server; at concurrency 4 the others wait inside their TTFT."""
    for name, run in runs.items():
        assert at_once([(r["t_first_s"], r["t_end_s"]) for r in run["requests"]]) <= 2, name
    waiting = runs["decode_noparser_short_c4_t128_r4"]["requests"][2:]
    first_end = min(r["t_end_s"] for r in runs["decode_noparser_short_c4_t128_r4"]["requests"])
    assert all(r["t_first_s"] > first_end for r in waiting)


def test_the_capture_begins_before_and_ends_after_the_run(runs: dict[str, dict[str, Any]]) -> None:
    name = "ixsmi_noparser_short_c2_t128_r4_monitor.json"
    capture = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    stamps = [record["m0"] for record in capture["records"]]
    requests = runs["decode_noparser_short_c2_t128_r4_monitor"]["requests"]
    assert len(stamps) == 52
    assert stamps[0] < min(r["t_start_s"] for r in requests) < stamps[1]
    assert stamps[-2] < max(r["t_end_s"] for r in requests) < stamps[-1]
    gaps = [b - a for a, b in itertools.pairwise(stamps)]
    assert all(1.3 < gap < 1.4 for gap in gaps)
    assert all(
        record["w0"] is None and "Timestamp" not in record["out"] for record in capture["records"]
    )
