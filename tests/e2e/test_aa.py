"""An A/A arm, measured: its starts, the floor that they give, and what the report says of it."""

from __future__ import annotations

import csv
import json

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study


def test_an_aa_arm_measures_the_floor_of_the_study(lab: Lab) -> None:
    config = study()
    config["languages"] = ["en", "zh"]
    experiment = config["experiments"]["parser"]
    experiment["runs"] = {"parser": ["one"], "noparser": ["one"]}
    experiment |= {"repeats": 2, "aa": "parser"}
    experiment["question"]["guard"] = ["success_rate", {"metric": "ttft_s", "worse_by": "50%"}]
    lab.write_config(config)
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert lab.count() == Count(6, 6), "two starts of each arm, and two of the A/A arm"

    measured_again(lab)
    found = json.loads((lab.root / "results/small/verdicts.json").read_text(encoding="utf-8"))
    (verdict,) = found["verdicts"]
    assert verdict["floor_source"] == "measured" and verdict["floor_basis"]["df"] == 3
    assert verdict["n_launches"] == [4, 2]
    assert [arm["attempted"] for arm in verdict["population"]] == [8, 4]
    assert [guard["metric"] for guard in verdict["guards"]] == ["success_rate", "ttft_s"]
    judged = found["experiments"]["parser"]
    (aa,), (drift,) = judged["aa"], judged["drift"]
    assert aa["n_launches"] == [2, 2] and drift["n_launches"] == 4
    assert drift["span_s"] > 0 and drift["first"] < drift["last"], "by the clock of the starts"

    text = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
    assert "A/A of `parser`" in text and "Drift of `parser`" in text
    assert "measured by this study's A/A" in text and "Guard success rate" in text
    assert lab.wait_for_no_process() == {}


def measured_again(lab: Lab) -> None:
    """On a busy machine a client may be late for a run of some tenths of a second, and says so."""
    for _ in range(3):
        with (lab.root / "results/small/tables/runs.csv").open(encoding="utf-8") as f:
            late = [row["run"] for row in csv.DictReader(f) if row["reasons"] == "stamps_late"]
        for run in late:
            call = lab.run("report", "--config", f"retry={run}")
            assert call.exit_code == 0, call.text
