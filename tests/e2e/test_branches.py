"""Experiments behind a `when:`: exactly the branch that the verdicts choose is measured, whatever
happens between the decision and the branch.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study

NOTHING = Count(0, 0)
SAYS = "WARNING 07-12 09:51:28 [sampler.py:7] NaN found in the logits, replaced by zero"


def branching(target: str) -> dict[str, Any]:
    """A asks whether a target is met; B goes on if it is, C if not, E after C."""
    config = study()
    for name, seqs in (("b", 4), ("c", 1), ("e", 3)):
        config["variants"][name] = {"flags": {"--max-num-seqs": seqs}}
    asks = {"kind": "threshold", "metric": "decode_rate_p10", "workload": "one"}
    config["experiments"] = {
        "A": {
            "runs": {"parser": ["one"]},
            "question": {**asks, "variant": "parser", "target": target},
        },
        "B": {"when": "A is supported", "runs": {"b": ["one"]}},
        "C": {
            "when": "A is not supported",
            # The run on `parser` is wanted behind the condition alone: a launch of its own.
            "runs": {"c": ["one"], "parser": ["two"]},
            "question": {**asks, "variant": "c", "target": ">= 1"},
        },
        "E": {"when": "C is supported", "runs": {"e": ["one"]}},
    }
    return config


def report(lab: Lab) -> str:
    return (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")


def servers(lab: Lab) -> set[str]:
    """The variants of which a receipt is there."""
    plan = lab.json(
        str(next((lab.root / "results/small/plan").glob("*.json")).relative_to(lab.root))
    )
    made = {file.stem for file in (lab.root / "results/small/launches").glob("*.json")}
    return {x["variant"] for x in plan["launches"] if x["digest"] in made}


def decision(lab: Lab, experiment: str) -> Path:
    newest = max(
        (lab.root / "results/small/decisions").glob(f"{experiment}.*.json"),
        key=lambda file: file.stat().st_mtime,
    )
    return newest


def test_each_branch_by_its_verdict_and_what_was_measured_is_kept(lab: Lab) -> None:
    lab.write_config(branching(">= 100000"))
    dry = lab.run("-n", "report")
    assert dry.exit_code == 0 and lab.count() == NOTHING, dry.text
    assert "C: undecided: A has no verdict yet (when: A is not supported): 2 launches" in dry.text
    assert "E: undecided: C is undecided itself" in dry.text or "E: undecided: A" in dry.text

    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert servers(lab) == {"parser", "c", "e"} and lab.count() == Count(4, 4), call.text
    text = report(lab)
    assert "1. **A: refuted**" in text and "2. **C: supported**" in text
    assert (
        "B: not chosen, since `A` is refuted" in text
        and "E: chosen, since `C` is supported" in text
    )
    again = lab.run("report")
    assert "Nothing to be done" in again.text, again.text

    before = lab.count()
    lab.write_config(branching(">= 1"))  # another question of the same data
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert lab.count() - before == Count(1, 1), "the other branch alone"
    text = report(lab)
    assert "**A: supported**" in text and "B: chosen" in text and "E: not chosen, since" in text
    assert "decode_c_short_c1_t16_r2.json` (not chosen" in text
    assert "Nothing to be done" in lab.run("report").text

    before = lab.count()
    lab.write_config(branching(">= 100000"))
    call = lab.run("report")
    assert call.exit_code == 0 and lab.count() == before, "the first branch lies in the store"
    assert "C: chosen" in report(lab)
    assert lab.wait_for_no_process() == {}


def test_invalid_decides_nothing_until_it_is_valid(lab: Lab) -> None:
    config = branching(">= 1")
    words = ["/bin/sh", "-c", f"echo '{SAYS}'; exec \"$@\"", "sh", "{python}", "{simulator}"]
    config["variants"]["parser"]["command"] = words
    lab.write_config(config)
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert lab.count() == Count(1, 1), call.text
    text = report(lab)
    assert "B: undecided, since `A` is invalid" in text and "--config retry=A" in text
    again = lab.run("report")
    assert "Nothing to be done" in again.text and "B: undecided: A is invalid" in again.text
    asked = lab.run("experiment_B")
    assert asked.exit_code == 0 and lab.count() == Count(1, 1), asked.text
    status = lab.run("status")
    assert "1 launches (+ 4 kept back)" in status.text, status.text

    plan = lab.json(
        str(next((lab.root / "results/small/plan").glob("*.json")).relative_to(lab.root))
    )
    (digest,) = [x["digest"] for x in plan["launches"] if x["variant"] == "b"]
    forced = lab.run(f"results/small/launches/{digest}.json")
    assert forced.exit_code != 0 and "not to be measured" in forced.text
    assert lab.count() == Count(1, 1)

    retried = lab.run("report", "--config", "retry=A")
    assert retried.exit_code == 0, retried.text
    config["server"]["accepts"] = ["nan_replaced"]
    lab.write_config(config)
    before = lab.count()
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert lab.count() - before == Count(1, 1), "decided by reading alone, then B"
    assert "B: chosen, since `A` is supported" in report(lab)
    partial = lab.run("report_partial")
    assert "B: chosen" in partial.text and "runs pending" not in partial.text, partial.text
    assert lab.wait_for_no_process() == {}


def test_kill_9_between_the_decision_and_its_branch(lab: Lab) -> None:
    lab.write_config(branching(">= 1"))
    call = lab.start("report")
    try:
        folder = lab.root / "results/small/decisions"
        while call.poll() is None and not list(folder.glob("A.*.json")):
            time.sleep(0.02)
        assert decision(lab, "A").is_file()
    finally:
        call.kill()
        call.communicate()
    assert lab.wait_for_no_process() == {}
    assert lab.run("--unlock").exit_code == 0
    made = lab.count()
    assert made.runs >= 1
    done = lab.run("report")
    assert done.exit_code == 0, done.text
    assert lab.count() == Count(2, 2), "A was not measured again, B once"
    assert "B: chosen" in report(lab)
    assert "Nothing to be done" in lab.run("report").text


def test_the_cause_of_a_refused_start_chooses_and_a_target_brings_its_chain(lab: Lab) -> None:
    """Not possible because of the backend: B first; the branch for another cause is not chosen."""
    config = branching(">= 1")
    config["variants"]["parser"] = {"flags": {"--num-scheduler-steps": 4}}
    refused = {"experiment": "A", "verdict": "not_possible"}
    backend = {**refused, "start_class": "feature_not_supported_by_backend"}
    experiments = config["experiments"]
    asks = {**experiments["A"]["question"], "variant": "b"}
    experiments["B"] = {**experiments["B"], "when": backend, "question": asks}
    experiments["C"] = {"when": {**refused, "start_class": "bad_argument"}, "runs": {"c": ["one"]}}
    experiments["E"]["when"] = "B is supported"
    lab.write_config(config)
    asked = lab.run("experiment_E")
    assert asked.exit_code == 0, asked.text
    assert servers(lab) == {"parser", "b", "e"}, asked.text
    assert "C: not chosen: A is not_possible for another cause" in lab.run("-n", "report").text
    assert lab.count().runs == 2, "of the refused server there is none"
    assert lab.wait_for_no_process() == {}


def test_what_is_damaged_is_made_again_and_nothing_is_measured(lab: Lab) -> None:
    lab.write_config(branching(">= 1"))
    assert lab.run("report").exit_code == 0
    before, text = lab.count(), report(lab)
    receipts = sorted((lab.root / "results/small/launches").glob("*.json"))
    assert "B: chosen" in text and len(receipts) == 2
    for file in (decision(lab, "A"), *receipts):
        file.write_text('{"broken', encoding="utf-8")
        status = lab.run("status")
        assert file.name in status.text, status.text
        dry = lab.run("-n", "report")
        assert file.name in dry.text and "Nothing to be done" not in dry.text, dry.text
        assert "A has no verdict yet" not in dry.text + status.text
        call = lab.run("report")
        assert call.exit_code == 0 and file.name in call.text, call.text
        assert lab.count() == before and report(lab) == text
        lab.json(str(file.relative_to(lab.root)))
        assert "Nothing to be done" in lab.run("report").text
    assert lab.wait_for_no_process() == {}
