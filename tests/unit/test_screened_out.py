"""What was not measured in full, or not started: how long that holds, and how the report tells it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cargo import race, screening
from decodelab import (
    figure_grid,
    findings,
    races,
    receipts,
    report,
    report_beforehand,
    report_stream,
    report_targets,
    report_verdicts,
    words,
)
from decodelab.findings import Findings
from decodelab.store import Store, write_json

FIXTURE = Path(__file__).resolve().parents[1] / "golden" / "report" / "fixture"
FIGURES = {"slow": race.Figure(172.0, True), "quick": race.Figure(226.0, True)}
EN = words.load("en")


def load(folder: Path = FIXTURE) -> Findings:
    return findings.load(
        folder / "plan.json", folder / "tables", folder / "verdicts.json", folder / "runs"
    )


RECEIPT = {"schema": receipts.SCHEMA}


# ---------------------------------------------------------------------- how long it holds
@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The runs in the store."""
    here: set[str] = set()
    monkeypatch.setattr(races, "_figure", lambda _screen, server, _start, _store: FIGURES[server])
    monkeypatch.setattr(races, "_has", lambda _launch, run, _store: run in here)
    return here


def launch(*members: str) -> dict[str, Any]:
    screen = {"race": "r", "experiment": "D", "metric": race.TOTAL, "within": 0.1, "run": "cheap"}
    whole = {**screen, "then": ["full"], "members": [[name, 1] for name in members]}
    return {"digest": "d", "server": "slow", "start": 1, "screens": [whole]}


def test_a_receipt_screens_out_by_present_members_alone(tmp_path: Path, made: set[str]) -> None:
    store, both, alone = Store(tmp_path), launch("quick", "slow"), launch("slow")
    told = races.left_out(both, store)
    assert told[0]["best"] == 226.0 and receipts.current(both, store, tmp_path) == "d"
    write_json(tmp_path / "d.json", {**RECEIPT, "screened_out": told})
    assert receipts.current(both, store, tmp_path) == "d"
    assert receipts.current(alone, store, tmp_path) == "d.2"
    write_json(tmp_path / "d.2.json", RECEIPT)
    assert receipts.current(alone, store, tmp_path) == "d.2"  # made: nothing to be done
    write_json(tmp_path / "d.2.json", {**RECEIPT, "screened_out": [{**told[0], "best": 500.0}]})
    assert receipts.current(both, store, tmp_path) == "d.3"  # by one who left
    assert receipts.current({"digest": "e"}, store, tmp_path) == "e"


def test_a_full_run_that_is_in_the_store_is_used(tmp_path: Path, made: set[str]) -> None:
    store, both = Store(tmp_path), launch("quick", "slow")
    write_json(tmp_path / "d.json", {**RECEIPT, "screened_out": races.left_out(both, store)})
    made.add("full")
    assert receipts.current(both, store, tmp_path) == "d.2"


def test_a_host_knows_who_races(made: set[str], tmp_path: Path) -> None:
    (one,) = races.for_order(launch("quick", "slow"), Store(tmp_path))
    (other,) = races.for_order(launch("slow"), Store(tmp_path))
    keys = [screening._key({"owner": "o"}, screen) for screen in (one, other)]
    assert keys[0] != keys[1]


# ---------------------------------------------------------------------- the words
def test_no_noise_is_told_of_what_was_not_measured() -> None:
    verdict = {"kind": "threshold", "verdict": "inconclusive", "metric": race.TOTAL, "id": "q"}
    verdict |= {"experiment": "D", "reasons": [{"code": "screened_out"}]}
    said = report_verdicts.answer(load(), verdict, EN)
    assert "screened out" in said and "noise" not in said and "—" not in said


def known_beforehand(folder: Path) -> str:
    """The fixture's first refused start as one that was never made."""
    with (folder / "tables/starts.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    variant = next(row["variant"] for row in rows if row["status"] == "not_possible")
    for row in rows:
        if row["variant"] == variant:
            row |= {"start_id": "", "log": "", "line": "", "hint_en": "x", "hint_zh": "x"}
    with (folder / "tables/starts.csv").open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    index = json.loads((folder / "runs/decode_runs.json").read_text(encoding="utf-8"))
    told = {"kind": "constraint", "name": "c", "source": "vllm/config.py"}
    item = {"name": "none", "variant": variant, "why": "not_possible", "known_from": told}
    index["missing"].append(item)
    (folder / "runs/decode_runs.json").write_text(json.dumps(index), encoding="utf-8")
    return variant


def test_what_was_not_started_has_no_log(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "study"))
    variant = known_beforehand(folder)
    found = load(folder)
    (bullet,) = report_beforehand.bullets(found, EN)
    assert bullet.text.startswith(f"`{variant}`: known beforehand, not started (source `vllm/")
    assert bullet.under == [f"hint: `--config retry={variant}` starts it all the same"]
    text = report.write(found, [], "figures", EN)
    assert text.count("Not started, since the engine is known to refuse it") >= 1
    assert f"`{variant}`: `not_possible`" not in text


def test_an_arm_without_streams_is_not_praised() -> None:
    found = load()
    entry = {
        "variant": "grid",
        "flags": {"--num-scheduler-steps": "4"},
        "runs": [],
        "faults": [],
        "control_not_told": [],
    }
    entry |= {"usable": "not_told", "split_tags": 0, "tool_calls": 0, "also_in_control": []}
    found.judged["experiments"] = {"X": {"stream": [{**entry, "not_told": ["no_runs"]}]}}
    (bullet,) = report_stream.bullets(found, "X", EN)
    assert "no usable run" in bullet.text and "nothing against it" not in bullet.text
    assert bullet.under == []
    cell = {"grid": "grid", "canonical": {"--num-scheduler-steps": "4"}}
    found.plan["variants"] = {**found.plan["variants"], "grid-nss4": cell}
    found.starts.append({"variant": "grid-nss4", "status": "not_possible"})
    assert report_stream.bullets(found, "X", EN) == []  # said in the section already


def test_the_summary_says_whose_runs_it_leaves_out() -> None:
    found = load()
    first = found.judged["gates"][0]
    workload = next(iter(found.planned.values()))["workload"]
    mine = found.planned[first["run"]]["variant"]
    found.judged["gates"] = [{**first, "workload": workload, "validity": "valid", "value": 1.0}]
    for row in found.runs.values():
        row |= {"workload": workload, "validity": "valid"}
    others = list(dict.fromkeys(r["variant"] for r in found.runs.values() if r["variant"] != mine))
    assert others
    told = ", ".join(f"`{name}`" for name in others)
    said = "".join(report_targets.lines(found, EN))
    assert f"not in this: {told}, held against the targets at a lower concurrency" in said
    for row in found.runs.values():
        row["variant"] = mine
    assert "not in this" not in "".join(report_targets.lines(found, EN))


def test_the_colour_bar_names_the_metric_as_the_report_does() -> None:
    assert figure_grid._bar_label(race.TOTAL) == "total Output TPS (tok/s)"
