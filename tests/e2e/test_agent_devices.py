"""The host agent on devices that do not compute, and on starts that stand still: black box."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fakes.agent_lab import FAKES, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")
    yield lab
    assert lab.close() == []


def order(lab: Lab, number: int, said: dict[str, Any], *flags: str, **check: Any) -> dict[str, Any]:
    asked = {"mode": "on", "devices": [0, 1], "need": 2, "choose": False, "deadline_s": 20.0}
    env = {"PYTHONPATH": str(FAKES / "fake_torch"), "FAKE_TORCH": json.dumps(said)}
    return {**lab.order(number, *flags, env=env), "device_check": {**asked, **check}}


def start_record(lab: Lab, number: int) -> dict[str, Any]:
    (path,) = lab.folder(number).glob("start-*/start.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_healthy_devices_once_and_then_the_launches_prove_them(lab: Lab) -> None:
    lab.submit(order(lab, 1, {"count": 2}), order(lab, 2, {"count": 2}))
    lab.until_idle()
    for number in (1, 2):
        outcome = lab.outcome(number)
        assert outcome and outcome["status"] == "done", lab.log()
    told = [next(e for e in lab.events(n) if e["event"] == "device_check") for n in (1, 2)]
    assert [(e["state"], e["new"]) for e in told] == [("ok", True), ("ok", False)]
    record = start_record(lab, 1)
    assert record["device_check"]["chosen"] == [0, 1]
    stages = [row["stage"] for row in record["stages"]]
    assert stages == ["imports", "engine_init", "listening", "health", "probe"]


def test_a_sick_device_ends_the_launch_before_a_server_starts(lab: Lab) -> None:
    lab.submit(order(lab, 1, {"count": 2, "fail": {"1": "matmul"}}))
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "device_unfit")
    assert outcome["cause"]["side"] == "host" and outcome["starts"] == []
    assert outcome["cause"]["root_cause"].startswith("device 1: failed at matmul: RuntimeError")


def test_any_gives_the_server_healthy_ones(lab: Lab) -> None:
    said = {"count": 4, "fail": {"0": "ones"}}
    lab.submit(order(lab, 1, said, "--print-env", devices=None, choose=True))
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done", lab.log()
    assert start_record(lab, 1)["device_check"]["env"] == {"CUDA_VISIBLE_DEVICES": "1,2"}
    (log,) = lab.folder(1).glob("start-*/server.log")
    assert "CUDA_VISIBLE_DEVICES=1,2" in log.read_text()


def test_a_hanging_check_outlives_launch_and_server(lab: Lab) -> None:
    """It is never ended: not at its deadline, not when a later server is stopped."""
    said = {"count": 3, "hang": {"0": "mem_get_info"}}
    lab.submit(order(lab, 1, said, devices=None, choose=True, deadline_s=4.0), lab.order(2))
    lab.until(lambda: lab.outcome(2))
    for number in (1, 2):
        outcome = lab.outcome(number)
        assert outcome and outcome["status"] == "done", lab.log()
    found = start_record(lab, 1)["device_check"]
    assert found["env"] == {"CUDA_VISIBLE_DEVICES": "1,2"}
    hanging = found["devices"][0]
    assert (hanging["state"], hanging["stage"]) == ("hanging", "memory")
    assert hanging["pid"] in lab.processes()
    lab.until(lambda: not (lab.workdir / "agent.json").exists())
    assert hanging["pid"] in lab.processes()  # the agent has gone, it has not
    os.kill(hanging["pid"], signal.SIGKILL)  # a fake: there is no kernel to wedge
    lab.until(lambda: not lab.processes())


def test_a_lack_of_memory_beside_others_is_tried_again(lab: Lab) -> None:
    said = (
        "ERROR 11-18 18:07:28 engine.py:366] ValueError: No available memory for the cache blocks."
    )
    taken = {"count": 1, "taken_mib": {"0": 30_000}}
    check = {"devices": [0], "need": 1}
    for number, devices in ((1, taken), (2, {"count": 1})):
        lab.submit(order(lab, number, devices, "--die-at-start", said, **check))
        lab.until_idle()
    outcomes = [lab.outcome(number) for number in (1, 2)]
    seen = [o and (o["status"], o["reason"], o["cause"]["line"]) for o in outcomes]
    assert seen == [("invalid", "gpu_memory_taken", 2), ("not_possible", "kv_cache_no_room", 2)]
    assert outcomes[0]["cause"]["root_cause"].endswith("GiB is taken already")


def test_a_stop_while_a_device_hangs_is_remembered(lab: Lab) -> None:
    said = {"count": 2, "hang": {"1": "mem_get_info"}, "log": str(lab.workdir / "touched")}
    lab.submit(order(lab, 1, said))
    touched = lab.workdir / "touched"
    lab.until(lambda: touched.exists() and "1 mem_get_info" in touched.read_text())
    lab.call("stop", "--wait", "20")
    lab.until(lambda: not (lab.workdir / "agent.json").exists())
    (told,) = json.loads((lab.workdir / "hanging_checks.json").read_text())["checks"]
    assert told["pid"] in lab.processes()
    touched.unlink()
    lab.submit(order(lab, 2, {**said, "hang": {}}, deadline_s=1.0))
    lab.until(lambda: lab.outcome(2))
    outcome = lab.outcome(2)
    assert outcome and outcome["reason"] == "device_unfit", lab.log()
    assert "device 1: hanging at memory: an earlier check hangs" in outcome["cause"]["root_cause"]
    assert "1 " not in touched.read_text()
    lab.until(lambda: not (lab.workdir / "agent.json").exists())
    (told,) = json.loads((lab.workdir / "hanging_checks.json").read_text())["checks"]
    os.kill(told["pid"], signal.SIGKILL)  # a fake: there is no kernel to wedge
    lab.until(lambda: not lab.processes())


def test_a_start_that_stands_still_names_its_stage(lab: Lab) -> None:
    says = ["INFO x.py:1] Starting to load model /m...", "shards:   4% Completed | 1/26"]
    flags = [word for line in says for word in ("--say", line)]
    made = lab.order(1, *flags, "--hang")
    made["limits"]["stages"] = {"weights": 0.5}
    lab.submit(made)
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "timeout")
    cause = outcome["cause"]
    assert cause["stage"] == "weights"
    assert cause["root_cause"].startswith("stage weights (loading weights) lasted ")
    assert cause["root_cause"].endswith("its limit is 0.5 s; last line: " + says[1])
    last = start_record(lab, 1)["stages"][-1]
    assert last["stage"] == "weights" and last["seconds"] > 0.5
