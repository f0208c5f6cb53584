"""Profiles that the config names by file: in the plan, in profiles.json, as evidence, and in the report."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import aggregate
import pytest
import yaml
from small_config import SMALL

from decodelab import (
    config,
    evidence,
    findings,
    given_profiles,
    plan,
    profiled_runs,
    region_metric,
    report_profile,
    step_table,
    tables,
    words,
)
from decodelab.step_table import Problem
from tests.unit import gpu_traces, profile_samples
from tests.unit.sample_study import Study

REPO = Path(__file__).resolve().parents[2]
REGIONS = "region\tms_mean\tstep_ms\nmoe\t30\t100\nattention\t50\t100\n"


def planned(root: Path, **profile: Any) -> dict[str, Any]:
    data = yaml.safe_load(SMALL)
    data["profiles"] = {"p": {**profile, "file": str(root / profile["file"])}}
    document = plan.expand(config.fill(data), REPO)
    document["profiles"]["p"]["file"] = profile["file"]
    return document


def trace(path: Path, **more: Any) -> Path:
    told = json.dumps({**gpu_traces.decode_trace(), **more})
    path.write_bytes(gzip.compress(told.encode()))
    return path


def made(folder: Path, **profile: Any) -> tables.Tables:
    """A study without runs that names the file, aggregated."""
    found = Study(variants={"base": {"server": "s0"}})
    found.plan["profiles"] = planned(folder, **profile)["profiles"]
    aggregate.make(found.plan, found.write(folder / "runs"), folder, folder / "tables")
    (folder / "plan.json").write_text(json.dumps(found.plan), encoding="utf-8")
    return tables.load(folder / "tables")


def look(folder: Path, read: tables.Tables, op: str, limit: float) -> evidence.Outcome:
    told = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    profiles = region_metric.declared_profiles(told, read)
    condition = {"profile": "p", "op": op, "is": {"op": ">=", "limit": limit}}
    return evidence.look(condition, evidence.Known([], {}, [], [], profiles=profiles))


def test_the_plan_holds_the_digest_of_a_file_and_nothing_of_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "t.json.gz"
    assert planned(tmp_path, file=file.name)["profiles"]["p"]["sha256"] is None
    trace(file)
    monkeypatch.setattr(given_profiles.step_read, "read", lambda files: pytest.fail("read"))
    before = planned(tmp_path, file=file.name, run="a")
    assert before["profiles"]["p"] | {"sha256": ""} == {
        "file": "t.json.gz",
        "sha256": "",
        "run": "a",
        "variant": None,
        "workload": None,
        "concurrency": None,
        "phase": "decode",
        "runs": [],
    }
    trace(file, more=1)
    after = planned(tmp_path, file=file.name, run="a")
    assert before != after
    before["profiles"] = after["profiles"] = {}
    assert before == after, "no launch, run or question is another for it"


def test_of_a_folder_the_files_of_the_profile_count(tmp_path: Path) -> None:
    (tmp_path / "profile-7.jsonl").write_text("{}\n")
    before = given_profiles.digest(tmp_path)
    (tmp_path / "client.log").write_text("x")
    assert given_profiles.digest(tmp_path) == before
    (tmp_path / "profile-8.jsonl").write_text("{}\n")
    assert given_profiles.digest(tmp_path) not in (before, None)


@pytest.mark.parametrize(
    ("name", "text", "op", "least"),
    [
        ("s.csv", "name,share\nfused_moe,0.3\nattention,0.5\n", "*moe*", 0.3),
        ("r.tsv", REGIONS, "moe", 0.3),
        ("k.csv", "kernel,cuda_time_ms,pct_of_cuda\nfused_moe,3,30\nflash,7,70\n", "*moe*", 0.3),
    ],
)
def test_a_files_shares_are_evidence(
    tmp_path: Path, name: str, text: str, op: str, least: float
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    read = made(tmp_path, file=name)
    assert read.given["p"].files == (name,)
    found = look(tmp_path, read, op, 0.25)
    assert found.holds is True and found.figure and found.figure["value"] == pytest.approx(least)


def test_a_traces_shares_are_evidence_and_read_from_the_tables_alone(tmp_path: Path) -> None:
    file = trace(tmp_path / "t.json.gz")
    read = made(tmp_path, file=file.name)
    file.unlink()
    found = look(tmp_path, read, "*fused_moe*", 0.3)
    assert found.holds is True and found.figure
    assert found.figure["value"] == pytest.approx(0.120 / 0.372)


def test_of_a_file_with_several_runs_one_is_meant(tmp_path: Path) -> None:
    rows = ["run\tregion\tms_mean\tstep_ms", "a\tmoe\t10\t100", "b\tmoe\t60\t100"]
    (tmp_path / "r.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert look(tmp_path, made(tmp_path, file="r.tsv", run="b"), "moe", 0.5).holds is True
    both = look(tmp_path, made(tmp_path, file="r.tsv"), "moe", 0.5)
    assert (both.holds, both.why) == (None, "profile_unreadable")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (None, None, "no_profile"),
        ("t.json", '{"traceEvents": []}', "profile_unreadable"),
        ("t.json.gz", "no gzip at all", "profile_unreadable"),
        ("sync.tsv", REGIONS, "profile_sync"),
        ("r.tsv", "region\tms_mean\nmoe\t30\n", "profile_no_shares"),
        ("p.json", "invalid", "profile_invalid"),
    ],
)
def test_what_states_no_shares_is_not_known_for_its_reason(
    tmp_path: Path, name: str | None, text: str | None, why: str
) -> None:
    if text == "invalid":
        bad = profile_samples.event(problems=(Problem("dropped", {"steps": 3}),))
        text = json.dumps(step_table.to_json(bad))
    if name is not None:
        (tmp_path / name).write_text(text or "", encoding="utf-8")
    read = made(tmp_path, file=name or "none.csv")
    outcome = look(tmp_path, read, "moe", 0.1)
    assert (outcome.holds, outcome.why) == (None, why)
    for language in words.LANGUAGES:
        assert f"bottleneck.why_{why}" in words.load(language)
    assert (read.given == {}) == (why == "no_profile")


def test_a_file_that_goes_between_plan_and_table_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("name,share\na,1\n", encoding="utf-8")
    told = planned(tmp_path, file="s.csv")
    (tmp_path / "s.csv").unlink()
    (one,) = given_profiles.read(told, tmp_path).values()
    assert one.problems == (Problem("unreadable", {"why": "No such file or directory"}),)


def test_profiles_json_without_files_is_as_it_was() -> None:
    assert set(profiled_runs.document({})) == {"schema", "profiles"}


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_the_report_shows_a_file_but_no_table_of_shares_alone(
    tmp_path: Path, language: str
) -> None:
    study = Path(shutil.copytree(profile_samples.FIXTURE, tmp_path / "study"))
    (tmp_path / "s.csv").write_text("name,share\nmoe,0.3\n", encoding="utf-8")
    (tmp_path / "r.tsv").write_text(REGIONS, encoding="utf-8")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    given = {}
    for name, file in (("shares", "s.csv"), ("regions", "r.tsv"), ("bad", "bad.json")):
        told = planned(tmp_path, file=file)["profiles"]["p"]
        given |= given_profiles.read({"profiles": {name: told}}, tmp_path)
    profile_samples.write(study, {}, given)
    found = findings.load(
        study / "plan.json", study / "tables", study / "verdicts.json", study / "runs"
    )
    regions, bad = report_profile.blocks(found, None, words.load(language))
    assert "`regions`" in regions.title and [len(t.rows) for t in regions.tables] == [3]
    assert not bad.tables and "traceEvents" in str(bad.facts)
