"""What differs is found and named: of data, of tables, of pages; and of the whole study of 2026-07-14."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import import_raw
import pytest
import verify
import write_evidence
from reading_chain import Chain

from decodelab import difference, difference_html, difference_tables, difference_text
from decodelab.store import write_json
from decodelab.study import EVIDENCE_NAME, Study, open_study

REPO = Path(__file__).resolve().parents[2]
CONFIG = "config/2026-07-14-decode.yaml"
RAW = "resources/2026-07-14-decode/decode_noparser_short_c1_t128_r4.json"


def test_data_is_compared_leaf_by_leaf() -> None:
    old = {"a": [{"id": "x", "v": 1.0}, {"id": "y", "v": 2}], "gone": 1}
    new = {"a": [{"id": "y", "v": 2.0}], "b": True}
    lines = [one.line() for one in difference.of_json(old, new, "f")]
    assert lines == [
        'f: a.x: {"id": "x", "v": 1.0} -> (not there)',
        "f: a.y.v: 2 -> 2.0",
        "f: gone: 1 -> (not there)",
        "f: b: (not there) -> true",
    ]
    assert list(difference.of_json(old, json.loads(json.dumps(old)), "f")) == []


def test_a_page_is_compared_number_by_number() -> None:
    old = "# One\n\n| a | 8.66 tok/s | 3 |\n\nThe same 1.\n"
    new = "# One\n\n| a | 8.67 tok/s | 3 |\n\nThe same 1.\n"
    (found,) = difference_text.compare(old, new, "p")
    assert (found.old, found.new) == ("8.66", "8.67")
    assert "line 3" in found.place and "“One”" in found.place
    assert difference_text.compare(old, old, "p") == []


def test_a_table_is_compared_cell_by_cell(tmp_path: Path) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("run,x\na,1\nb,2\n", encoding="utf-8")
    new.write_text("run,x\na,1.0\nc,2\n", encoding="utf-8")
    made = difference_tables.compare(old, new, "runs", "t")
    assert [one.line() for one in made.differences] == [
        "t: row a, column x: 1 -> 1.0",
        "t: row b: a row -> (not there)",
        "t: row c: (not there) -> a row",
    ]


def test_html_is_compared_by_text_and_data() -> None:
    page = '<h1>A</h1><style>1</style><p>7 s</p><script id="data">{"y": [1]}</script>'
    assert difference_html.compare(page, page.replace(">1<", ">2<"), "h") == []
    (said,) = difference_html.compare(page, page.replace("7 s", "8 s"), "h")
    assert (said.old, said.new) == ("7", "8")
    (data,) = difference_html.compare(page, page.replace("[1]", "[2]"), "h")
    assert data.place == "figures.y[0]"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A checkout, with a space in its path, that holds the report of 2026-07-14."""
    root = tmp_path / "a checkout"
    root.mkdir()
    for name in ("scripts", "workflow", "config"):
        (root / name).symlink_to(REPO / name)
    shutil.copytree(REPO / "resources", root / "resources")
    monkeypatch.chdir(root)
    made = open_study([CONFIG], {}, root)
    results, report, plan = Path(made.results), Path(made.report), Path(made.plan_file)
    write_json(plan, made.plan)
    assert import_raw.main(["--plan", str(plan), "--out-dir", str(results / "runs")]) == 0
    Chain(plan, results, report, list(made.plan["languages"])).all()
    given = ["--plan", str(plan), "--results", str(results), "--report", str(report)]
    assert write_evidence.main([*given, "--out", str(report / EVIDENCE_NAME)]) == 0
    return made


def sums(root: Path) -> dict[str, str]:
    files = [f for top in ("results", "report") for f in (root / top).rglob("*") if f.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_fresh_report_is_verified_and_each_edit_is_named(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    def verified() -> tuple[int, str]:
        before = sums(study.root)
        capsys.readouterr()
        code = verify.main(["--config", CONFIG])
        assert sums(study.root) == before
        return code, capsys.readouterr().out

    code, told = verified()
    assert code == 0, told
    page, table = Path(study.report, "report.md"), Path(study.results, "tables/runs.csv")
    kept = page.read_bytes(), table.read_bytes()
    change(page, "7.90 tok/s", "7.91 tok/s")
    change(table, "7.8965576945718645", "7.8965576945718646")
    code, told = verified()
    assert code == 1 and "7.91 -> 7.90" in told
    assert "e2e_tps_p10: 7.8965576945718646 -> 7.8965576945718645" in told
    page.write_bytes(kept[0])
    table.write_bytes(kept[1])
    change(Path(RAW), '"completion_tokens": 128', '"completion_tokens": 127')
    code, told = verified()
    assert code == 1 and f"{RAW}: changed" in told and "8.00 -> 7.98" in told


def test_without_a_report_there_is_nothing_to_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("scripts", "workflow", "config", "resources"):
        (tmp_path / name).symlink_to(REPO / name)
    monkeypatch.chdir(tmp_path)
    assert verify.main(["--config", CONFIG]) == 2
    told = capsys.readouterr().err
    assert "evidence.json is missing" in told and "snakemake --cores 1 report" in told
