"""results/<study>/traces: a file for Perfetto of each profiled run, linked from the report, that opens again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import write_report

from decodelab import step_events, step_export, step_trace
from decodelab.step_table import Profile
from tests.unit import profile_samples
from tests.unit import step_files as made


def profile() -> Profile:
    workers = made.worker_steps()
    told = [*made.one_process(workers=workers), *made.lines(made.spans(workers[:3]))]
    return step_events.of_lines([told])


def test_a_run_has_the_trace_of_its_timeline_and_what_is_gone_goes(tmp_path: Path) -> None:
    own = profile()
    assert own.valid and len(own.timeline) == 3, own.problems
    step_export.write_all({"a": own, "b": own, "none": profile_samples.event()}, tmp_path / "t")
    assert [f.name for f in sorted((tmp_path / "t").iterdir())] == ["a.json.gz", "b.json.gz"]
    before = (tmp_path / "t" / "a.json.gz").read_bytes()
    step_export.write_all({"a": own}, tmp_path / "t")
    (file,) = (tmp_path / "t").iterdir()
    assert file.read_bytes() == before


def test_the_trace_reads_back(tmp_path: Path) -> None:
    step_export.write_all({"a": profile()}, tmp_path)
    told = step_trace.read([tmp_path / "a.json.gz"])
    (table,) = told.tables
    assert told.valid and (table.phase, table.rank, table.steps) == ("decode", 0, 3)
    found = {region.region: region.ms_p50 for region in table.regions}
    for name, (_calls, ms) in made.WORK.items():
        assert found[name] == pytest.approx(ms)


def test_the_timeline_is_of_steps_in_a_row() -> None:
    """On every rank the same ones."""
    workers = made.worker_steps()
    for kept, shown in (
        ([0, 9, 10, 11, 20], [9, 10, 11]),
        (range(30), range(8)),
        ([3, 7], [3]),
    ):
        told = [
            *made.one_process(workers=workers),
            *made.lines(made.spans([workers[n] for n in kept])),
        ]
        assert [step["step"] for step in step_events.of_lines([told]).timeline] == list(shown)


@pytest.mark.parametrize("place", ["", "partial"])
def test_the_reports_link_leads_to_the_file(tmp_path: Path, place: str) -> None:
    run = "decode_noparser_short_c1_t128_r3"
    results, report = (tmp_path / name / "small" / place for name in ("results", "report"))
    shutil.copytree(profile_samples.FIXTURE, results)
    profile_samples.write(results, {run: profile()})
    step_export.write_all({run: profile()}, results / step_export.FOLDER)
    (report / "figures").mkdir(parents=True)
    (report / "figures" / "figures.json").write_text('{"figures": []}', encoding="utf-8")
    page = report / "report.md"
    given = ["--plan", results / "plan.json", "--tables", results / "tables"]
    given += ["--verdicts", results / "verdicts.json", "--figures", report / "figures"]
    assert write_report.main([*map(str, given), "--language", "zh", "--out", str(page)]) == 0
    ((text, link),) = re.findall(
        r"\[`([^`]*json\.gz)`\]\(([^)]*json\.gz)\)", page.read_text(encoding="utf-8")
    )
    assert (report / link).resolve() == (results / "traces" / f"{run}.json.gz").resolve()
    assert (tmp_path / text).is_file()
