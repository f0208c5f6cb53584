"""A server that degrades in silence: its runs are invalid until the study accepts it, at the reading alone."""

from __future__ import annotations

import csv
import json
from typing import Any

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study

SAYS = "WARNING 07-12 09:51:28 [sampler.py:7] NaN found in the logits, replaced by zero"


def rows(lab: Lab, table: str) -> list[dict[str, str]]:
    with (lab.root / f"results/small/tables/{table}.csv").open(encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def verdict(lab: Lab) -> dict[str, Any]:
    found = json.loads((lab.root / "results/small/verdicts.json").read_text(encoding="utf-8"))
    (question,) = found["verdicts"]
    return dict(question)


def test_a_degraded_start_spoils_its_runs_and_questions(lab: Lab) -> None:
    config = study()
    words = ["/bin/sh", "-c", f"echo '{SAYS}'; exec \"$@\"", "sh", "{python}", "{simulator}"]
    config["variants"]["noparser"]["command"] = words
    lab.write_config(config)
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    by_variant = {row["variant"]: row for row in rows(lab, "runs")}
    assert by_variant["parser"]["validity"] == "valid", by_variant["parser"]["reasons"]
    assert by_variant["noparser"]["validity"] == "invalid"
    assert "degraded_nan_replaced" in by_variant["noparser"]["reasons"]
    assert verdict(lab)["verdict"] == "invalid"
    page = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
    assert "the engine found NaN and replaced them" in page

    before = lab.count()
    config["server"]["accepts"] = ["nan_replaced"]
    lab.write_config(config)
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert lab.count() - before == Count(0, 0), "what the log says is judged, never measured anew"
    by_variant = {row["variant"]: row for row in rows(lab, "runs")}
    assert "degraded_nan_replaced" not in by_variant["noparser"]["reasons"]
    assert verdict(lab)["verdict"] != "invalid"
    assert lab.wait_for_no_process() == {}
