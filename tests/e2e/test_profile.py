"""A profiled variant on the embedded host, from the config to the raw files that a report reads."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import yaml

from decodelab import step_trace
from sim.parts import LAYERS
from tests.e2e.lab import Count, Lab
from tests.e2e.small import study

TOKENS = 24


def profiled(**changes: Any) -> dict[str, Any]:
    config = study()
    config["variants"]["profiled"] = {"extends": "noparser", "profile": {"mode": "event"}}
    config["workloads"]["one"].update(max_tokens=TOKENS, warmup=1)
    config["experiments"] = {"C": {"runs": {"profiled": ["one"]}, **changes}}
    return config


def published(lab: Lab) -> dict[str, Path]:
    """Variant -> the raw folder of its run, as the index names it."""
    runs = lab.json("results/small/runs/decode_runs.json")["runs"]
    return {name.split("_")[1]: lab.root / entry["raw"] for name, entry in runs.items()}


def lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("profile-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_profiled_run_and_its_twin_and_what_is_not_measured_twice(lab: Lab) -> None:
    config = profiled()
    del config["variants"]["profiled"]
    config["experiments"]["C"]["runs"] = {"noparser": ["one"]}
    lab.write_config(config)
    assert lab.run("report").exit_code == 0
    before = lab.count()
    lab.write_config(profiled())
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert lab.count() - before == Count(1, 1), "its twin lies in the store already"
    again = lab.run("report")
    assert "Nothing to be done" in again.text, again.text

    raw = published(lab)
    assert set(raw) == {"profiled", "noparser"}
    assert not list(raw["noparser"].glob("profile*"))
    told = json.loads((raw["profiled"] / "profile.json").read_text())
    assert told["complete"] and told["mode"] == "event", told
    steps = [line for line in lines(raw["profiled"]) if line["kind"] == "step"]
    mine = [s for s in steps if s["role"] == "worker" and s["t0"] >= told["requests_begin_ns"]]
    assert len(mine) == 2 * TOKENS and {s["reqs"] for s in mine} == {1}, "a forward a token"
    assert len([s for s in steps if s["role"] == "worker"]) == 3 * TOKENS, "the warm-up apart"
    for region in ("attention", "moe"):
        assert sum(s["regions"][region][0] for s in mine) == LAYERS * 2 * TOKENS
    (model,) = [line for line in lines(raw["profiled"]) if line["kind"] == "model"]
    assert model["config"]["num_hidden_layers"] == LAYERS
    (trace,) = (lab.root / "results/small/traces").glob("*.json.gz")
    (drawn,) = step_trace.read([trace]).tables
    assert drawn.steps and {"attention", "moe", "sampler"} <= {r.region for r in drawn.regions}
    assert (
        f"../../results/small/traces/{trace.name}"
        in (lab.root / "report/small/report.en.md").read_text()
    )
    missing = [x for x in lines(raw["profiled"]) if x["kind"] == "target" and not x["found"]]
    assert not missing
    assert lab.wait_for_no_process() == {}


def test_an_old_server_never_loads_it_and_is_measured_all_the_same(lab: Lab) -> None:
    config = profiled()
    words = ["/usr/bin/env", "-u", "PYTHONPATH", "{python}", "{simulator}"]
    config["variants"]["noparser"]["command"] = words
    lab.write_config(config)
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    told = json.loads((published(lab)["profiled"] / "profile.json").read_text())
    assert told["processes"] == [] and told["complete"] is False
    assert lab.wait_for_no_process() == {}


def test_a_server_that_is_killed_in_its_run_leaves_its_steps(lab: Lab) -> None:
    config = profiled()
    config["workloads"]["one"].update(requests=1, warmup=0, max_tokens=3000)
    lab.write_config(config)
    call = lab.start("report")
    try:
        workdir = lab.workdir()
        while call.poll() is None and not _steps(workdir):
            time.sleep(0.05)
        for pid in lab.servers():
            os.kill(pid, signal.SIGKILL)
        kept = _kept(lab, call)
    finally:
        call.kill()
        said = call.communicate()[0]
    assert kept, said
    assert lab.wait_for_no_process() == {}


def _steps(workdir: Path) -> bool:
    """Whether a profiled run is well under way."""
    files = workdir.glob("done/*/start-*/profile/steps-*.jsonl")
    return any(file.read_bytes().count(b'"step"') > 300 for file in files)


def _kept(lab: Lab, call: Any) -> bool:
    while call.poll() is None:
        for file in (lab.root / "results" / "raw").glob("*/start1/*/*/profile.json"):
            told = json.loads(file.read_text())
            done = json.loads((file.parent / "DONE.json").read_text())
            if "server_died" in done["reasons"]:
                steps = sum(process["steps"] for process in told["processes"])
                return steps > 200 and told["complete"] is False
        time.sleep(0.05)
    return False


def test_experiment_c_of_the_embedded_study_runs_when_it_is_chosen(lab: Lab) -> None:
    """In the default study A is supported, so C is not chosen; here A is not."""
    config = yaml.safe_load((lab.root / "config/config.yaml").read_text(encoding="utf-8"))
    asks = {"kind": "threshold", "metric": "decode_rate_p10", "target": ">= 100000"}
    once = {"runs": {"noparser": ["screen"]}, "title": "A"}
    config["experiments"] = {
        "A": {**once, "question": {**asks, "variant": "noparser", "workload": "screen"}},
        "C": config["experiments"]["C"],
    }
    for suspect in config["suspects"].values():
        suspect["evidence"] = [r for r in suspect["evidence"] if "profile" in r["when"]]
    config["next_steps"], config["actions"], config["languages"] = [], [], ["en", "zh"]
    lab.write_config(config)
    dry = lab.run("-n", "report")
    assert "C: undecided" in dry.text, dry.text
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    runs = lab.json("results/embedded/runs/decode_runs.json")["runs"]
    made = {name: entry["raw"] for name, entry in runs.items() if "profile" in name}
    assert len(made) == 2, "C's own run and its twin's"
    (raw,) = [lab.root / path for name, path in made.items() if "noparser_profiled" in name]
    assert json.loads((raw / "profile.json").read_text())["complete"] is True
    assert lab.wait_for_no_process() == {}
