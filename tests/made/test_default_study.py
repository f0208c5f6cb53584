"""What `make report` made here: the default study's results say what the simulated engine's rules predict.

Reads results/embedded and report/embedded of this checkout, so it is called after `make report` (as .ci/run does).
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages

REPO = Path(__file__).resolve().parents[2]
RESULTS = REPO / "results" / "embedded"
REPORT = REPO / "report" / "embedded"

pytestmark = pytest.mark.skipif(
    not (REPORT / "report.md").is_file(), reason="needs the default study's report: `make report`"
)


def verdicts() -> dict[str, Any]:
    made: dict[str, Any] = json.loads((RESULTS / "verdicts.json").read_text(encoding="utf-8"))
    return made


def plan() -> dict[str, Any]:
    newest = max((RESULTS / "plan").glob("*.json"), key=lambda p: p.stat().st_mtime)
    made: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
    return made


def starts() -> list[dict[str, str]]:
    with (RESULTS / "tables" / "starts.csv").open(encoding="utf-8") as f:
        return list(csv.DictReader(f))


def test_the_grid_fails_in_exactly_the_cells_that_combine_multi_step_and_chunking() -> None:
    failed = {r["variant"] for r in starts() if r["status"] == "not_possible"}
    expected = {
        f"grid-mns{seqs}-mnbt{tokens}-ecp1-nss4" for seqs in (1, 2, 4) for tokens in (4096, 8192)
    }
    assert {name for name in failed if name.startswith("grid-")} == expected
    assert failed - expected == {"multistep_xformers", "flash_multistep"}


def test_every_refusal_has_its_root_cause_line() -> None:
    refused = [r for r in starts() if r["status"] == "not_possible"]
    assert len(refused) == 9
    for row in refused:
        assert row["cause_class"] == "feature_not_supported_by_backend"
        if row["log"]:
            assert (
                "not supported for attention backend" in row["root_cause"] and int(row["line"]) > 0
            )
        else:  # known beforehand, from what the engine itself said that its backend takes
            assert "does not take multi-step" in row["root_cause"], row


def test_cells_that_the_other_experiments_measured_were_not_started_again() -> None:
    """What waited for a verdict, E's launches, is another start of the same server."""
    waited = {launch["digest"] for launch in plan()["launches"] if launch["when"]}
    rows = [row for row in starts() if row["launch"] not in waited]
    by_server: dict[str, set[str]] = {}
    for row in rows:
        by_server.setdefault(f"{row['server']} {row['start']}", set()).add(row["start_id"])
    assert all(len(ids) == 1 for ids in by_server.values())
    shared = {r["variant"]: r["start_id"] for r in rows if r["start"] == "1"}
    assert shared["multistep"] == shared["grid-mns2-mnbt8192-ecp0-nss4"]
    assert shared["unchunked"] == shared["grid-mns2-mnbt8192-ecp0-nss1"]


def test_verdicts() -> None:
    """Those that the simulated engine's rules force; what noise decides is left open."""
    made = verdicts()
    by_experiment = {name: e["verdict"] for name, e in made["experiments"].items()}
    assert by_experiment["parser"] in ("refuted", "inconclusive")
    assert by_experiment["concurrency"] == "refuted"
    assert by_experiment["A"] == "supported"
    assert by_experiment["B"] == "invalid", "a backend that fell back measured nothing"
    xformers = [v for v in made["verdicts"] if v["id"].startswith("A_xformers")]
    assert xformers and all(v["verdict"] == "not_possible" for v in xformers)


def test_the_report_says_simulated_and_its_figures_are_there() -> None:
    for page in ("report.md", "report.en.md", "summary.md", "summary.en.md"):
        text = (REPORT / page).read_text(encoding="utf-8")
        assert "SIMULATED" in text[:600]
        for link in {part.split(")")[0] for part in text.split("](")[1:]}:
            if not link.startswith("http"):
                file, _, anchor = link.partition("#")
                target = REPORT / (file or page)
                assert target.is_file(), link
                if anchor:
                    assert anchor in pages.anchors(str(target.relative_to(REPO))), link
    kinds = {p.name.split("_")[0] for p in (REPORT / "figures").glob("*.svg")}
    assert {"curve", "timeline", "telemetry", "grid"} <= kinds
