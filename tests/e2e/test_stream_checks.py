"""Experiment A's stream checks on real streams: bursts of k tokens, tokens behind a stop, tags and calls."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.lab import Lab
from tests.e2e.small import study

PARSERS = {
    "--reasoning-parser": "qwen3",
    "--enable-auto-tool-choice": True,
    "--tool-call-parser": "qwen3_coder",
}


def config() -> dict[str, Any]:
    found = study()
    found["languages"] = ["zh", "en"]
    found["server"]["env"] = {"VLLM_ATTENTION_BACKEND": "SIM_ATTN"}
    found["server"]["flags"] |= {**PARSERS, "--enable-chunked-prefill": False}
    steps = {"--num-scheduler-steps": 4}
    found["variants"] = {
        "single": {},
        "steps": {"flags": steps},
        "faulty": {
            "flags": {**steps, "--multi-step-stream-outputs": False},
            "env": {"SIM_FAULTS": "leak"},
        },
        # a step of five does not end with the reply's 673 tokens, as one of four does
        "behind": {"flags": {"--num-scheduler-steps": 5}, "env": {"SIM_FAULTS": "overshoot"}},
    }
    found["workloads"] = {
        "ends": {
            "prompt": "short",
            "tools": 1,
            "concurrency": 1,
            "requests": 1,
            "max_tokens": 700,
            "ignore_eos": False,
            "continuous_usage_stats": True,
            "telemetry": False,
        }
    }
    found["experiments"] = {
        "A": {
            "runs": {name: ["ends"] for name in found["variants"]},
            "question": {
                "kind": "compare_variants",
                "metric": "decode_rate",
                "workload": "ends",
                "baseline": "single",
                "candidate": "steps",
                "smallest_effect": "5%",
            },
        }
    }
    return found


def test_what_the_streams_of_multi_step_arms_show(lab: Lab) -> None:
    lab.write_config(config())
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    judged = json.loads((lab.root / "results/small/verdicts.json").read_text(encoding="utf-8"))
    arms = {entry["variant"]: entry for entry in judged["experiments"]["A"]["stream"]}
    assert set(arms) == {"steps", "faulty", "behind"}
    assert {entry["control"] for entry in arms.values()} == {"single"}

    steps = arms["steps"]
    assert steps["usable"] == "usable", steps
    assert (steps["arrivals"]["kind"], steps["arrivals"]["k"]) == ("at_once", 4)
    assert steps["tool_calls"] == 1

    faulty = arms["faulty"]
    assert (faulty["arrivals"]["kind"], faulty["arrivals"]["k"]) == ("one_event", 4)
    assert [fault["code"] for fault in faulty["faults"]] == ["think_leak"]

    behind = {fault["code"]: fault["n"] for fault in arms["behind"]["faults"]}
    assert behind == {"after_finish": 3, "late_tokens": 3}
    assert arms["behind"]["arrivals"]["k"] == 5

    page = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
    assert "**usable**" in page and page.count("**not usable**") == 2
    assert "4 events at once" in page and "4 in one event" in page
    page = (lab.root / "report/small/report.md").read_text(encoding="utf-8")
    assert page.count("**不可用**") == 2
    assert lab.wait_for_no_process() == {}
