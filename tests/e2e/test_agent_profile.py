"""The host agent and a profiled server: its environment, each run's own steps, and profilers and servers
that do not do as they should.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fakes.agent_lab import Lab, digest

PROFILE = {"mode": "event", "regions": {"norm": "a.b:C.d"}, "skip": ["moe"], "timeline_steps": 8}
SLOW = {"max_tokens": 2000}  # 10 s a request


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")
    module = lab.cargo / "profiling.py"
    module.write_text(module.read_text().replace("FLUSH_S = 10.0", "FLUSH_S = 0.5"))
    yield lab
    assert lab.close() == []


def profiled(lab: Lab, *flags: str, runs: Any = 2, **changes: Any) -> dict[str, Any]:
    order = lab.order(1, *flags, runs=runs, **changes)
    order["server"]["profile"] = PROFILE
    return order


def attempts(lab: Lab) -> list[Path]:
    found = (lab.folder(1) / "runs").glob("*/*")
    return sorted(f for f in found if not f.name.startswith("."))


def start(lab: Lab) -> Path:
    (found,) = lab.folder(1).glob("start-*")
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob("profile-*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def told(folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((folder / "profile.json").read_text())
    return made


def test_each_run_has_its_own_steps_and_the_start_none(lab: Lab) -> None:
    order = profiled(lab, "--profiler", "answers", "--print-env", env={"PYTHONPATH": "/its/own"})
    order["runs"][0]["warmup"] = 1
    lab.submit(order)
    lab.until_idle()
    assert lab.outcome(1)["status"] == "done"  # type: ignore[index]
    numbers = []
    for folder in attempts(lab):
        facts, said = told(folder), lines(folder)
        steps = [line for line in said if line["kind"] == "step"]
        assert facts["complete"] and facts["processes"][0]["steps"] == len(steps) > 1
        assert all(facts["begin_ns"] <= s["t0"] <= facts["end_ns"] for s in steps)
        assert facts["begin_ns"] < facts["requests_begin_ns"] < facts["end_ns"]
        assert said[0]["kind"] == "header"
        mine = {s["i"] for s in steps}
        assert {s["i"] for s in said if s["kind"] == "spans"} <= mine
        assert facts["spec"].items() >= PROFILE.items() and facts["mode"] == "event"
        done = json.loads((folder / "DONE.json").read_text())
        assert {"profile.json", facts["processes"][0]["file"]} <= set(done["files"])
        numbers.append(mine)
    assert len(numbers) == 2 and not numbers[0] & numbers[1]
    run = json.loads((attempts(lab)[0] / "run.json").read_text())
    counted = [r["t_start_s"] for r in run["requests"] if not r["warmup"]]
    zero = run["clock"]["t0_monotonic_s"]
    assert told(attempts(lab)[0])["requests_begin_ns"] == round((zero + min(counted)) * 1e9)
    assert {line["kind"] for line in lines(start(lab))} == {"header"}
    assert not (start(lab) / "profile").exists()
    log = (start(lab) / "server.log").read_text()
    assert f"PYTHONPATH={lab.cargo / 'profiler'}{os.pathsep}/its/own" in log
    assert f"DECODELAB_PROFILE={start(lab)}/profile/spec.json" in log


def test_without_a_profile_nothing_is_set_or_kept(lab: Lab) -> None:
    lab.submit(lab.order(1, "--print-env"))
    lab.until_idle()
    assert "DECODELAB_PROFILE" not in (start(lab) / "server.log").read_text()
    assert not list(lab.folder(1).rglob("profile*"))


def test_a_profiler_that_never_answers_is_not_waited_for_long(lab: Lab) -> None:
    lab.submit(profiled(lab, "--profiler", "deaf"))
    lab.until_idle()
    assert lab.outcome(1)["status"] == "done"  # type: ignore[index]
    for folder in attempts(lab):
        facts = told(folder)
        assert facts["complete"] is False and facts["processes"][0]["answered"] is False
        assert facts["processes"][0]["steps"] > 1, "what was written is kept"


def test_a_server_that_never_loads_the_profiler_keeps_its_runs(lab: Lab) -> None:
    lab.submit(profiled(lab))
    lab.until_idle()
    assert lab.outcome(1)["status"] == "done"  # type: ignore[index]
    for folder in attempts(lab):
        assert told(folder)["processes"] == [] and told(folder)["complete"] is False
        assert told(folder)["requests_begin_ns"] is not None


def test_a_server_that_dies_leaves_the_steps_before(lab: Lab) -> None:
    flags = ["--profiler", "answers", "--die-at-request", "2"]
    lab.submit(profiled(lab, *flags, runs=[lab.run(17)]))
    lab.until_idle()
    first = attempts(lab)[0]
    done = json.loads((first / "DONE.json").read_text())
    assert done["status"] == "invalid" and "server_died" in done["reasons"]
    assert told(first)["complete"] is False and told(first)["processes"][0]["steps"] > 1
    assert [line["kind"] for line in lines(first)].count("step") == told(first)["processes"][0][
        "steps"
    ]


def test_a_dead_agent_leaves_a_start_that_can_be_sealed(lab: Lab) -> None:
    order = profiled(lab, "--profiler", "answers", runs=[lab.run(17), lab.run(18, **SLOW)])
    lab.submit(order)
    lab.until_event(1, "run_end")
    lab.kill(lab.agent_pid())
    lab.until(lambda: not lab.processes())
    lab.submit(lab.order(2))  # another agent seals what it finds
    lab.until(lambda: lab.outcome(2))
    lab.call("forget", "--launch", digest(1))
    lab.submit({**order, "runs": [lab.run(17)]})
    lab.until_idle()
    (half, *_) = sorted(lab.folder(1).glob("start-*"))
    assert (half / "DONE.json").exists() and not (half / "profile").exists()


def test_secrets_are_masked_in_profiles(lab: Lab) -> None:
    flags = ["--profiler", "answers", "--profiler-says", "HIDDEN"]
    order = {**profiled(lab, *flags), "secrets": ["HIDDEN"]}
    lab.call("secrets", stdin={"owner": "me", "values": {"HIDDEN": "a-secret-of-this-test"}})
    lab.submit(order)
    lab.until_idle()
    assert lab.outcome(1)["status"] == "done"  # type: ignore[index]
    for file in lab.folder(1).rglob("profile*"):
        assert "a-secret-of-this-test" not in file.read_text(), file
    assert lines(attempts(lab)[0])[0]["argv0"] == "***"


@pytest.mark.parametrize("wrong", [{**PROFILE, "mode": "x"}, [], {"mode": "event"}])
def test_an_order_with_half_a_profile_is_refused(lab: Lab, wrong: Any) -> None:
    order = lab.order(1)
    order["server"]["profile"] = wrong
    words = lab.refused("submit", stdin={"owner": "me", "orders": [order]})
    assert "profile needs mode, regions, skip and timeline_steps" in words
