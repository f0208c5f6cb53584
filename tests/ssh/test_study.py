"""A whole study through a jump host: the targets that ask a host, the report, and secrets that are
seen nowhere; real Snakemake, real sshds, the real agent, servers that print their environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import live_files
from tests.e2e.lab import REPO, Count, Lab
from tests.e2e.small import study
from tests.ssh.sshd import Sshd

FAKE = REPO / "tests/e2e/fakes/fake_server.py"
KEY, TOKEN = "sk-canary-51bd", "hf_canary 'q\" $(x)"
CANARIES = (b"canary-51bd", b"hf_canary")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab.copy(tmp_path / "checkout")
    yield made
    made.end_all()


@pytest.fixture
def board(tmp_path: Path, make_sshd: Callable[..., Sshd]) -> dict[str, Any]:
    """A host block that leads through a jump host; its setup script puts the SMI tool on the PATH."""
    gate, target = make_sshd(name="gate"), make_sshd(name="target")
    config = target.ssh_config("board", ProxyJump="gate")
    gate.ssh_config("gate", file=config)
    tools = tmp_path / "corex/bin"
    tools.mkdir(parents=True)
    smi = tools / "ixsmi"
    smi.write_text(f'#!/bin/sh\nexec {sys.executable} -S {REPO}/scripts/sim/ixsmi.py "$@"\n')
    smi.chmod(0o755)
    setup = tmp_path / "corex env.sh"
    setup.write_text(f'echo hello from the setup\nexport PATH="{tools}:$PATH" COREX=4.0\n')
    return {
        "transport": "ssh",
        "ssh": "board",
        "ssh_config": str(config),
        "workdir": str(tmp_path / "work $(touch pwned) \u76d8"),
        "python": sys.executable,
        "setup": str(setup),
        "simulated": True,
        "telemetry": {"tool": "ixsmi", "interval_s": 0.2},
        "env": {"SIM_STATE": str(tmp_path / "sim.state")},
        "expect": {"start_s": 2, "output_tps": 200},
    }


def secret_study(board: dict[str, Any]) -> dict[str, Any]:
    config = study()
    words = ["{python}", "-S", str(FAKE), "--print-env", "--key-env", "SERVE_KEY"]
    return config | {
        "host": "board",
        "hosts": {"board": board},
        "server": {
            "command": words,
            "engine": "other",
            "build": "fake",
            "secrets": ["HF_TOKEN"],
            "api_key": "SERVE_KEY",
        },
        "variants": {"parser": {}, "noparser": {"env": {"PLAIN": "1"}}},
    }


def leaks(*folders: Path) -> list[str]:
    found = live_files.seen(*folders)
    return [str(f.path) for f in found if any(canary in f.content for canary in CANARIES)]


def test_a_study_through_a_jump_host(
    lab: Lab, board: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write_config(secret_study(board))
    unset = lab.run("report")
    assert unset.exit_code != 0 and "HF_TOKEN" in unset.text and "export HF_TOKEN" in unset.text
    assert lab.count() == Count(0, 0)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("SERVE_KEY", KEY)

    checked = lab.run("check_hosts")
    assert " via " in checked.text and "COREX" in checked.text, checked.text
    assert "fail" not in checked.text.split("hosts\n", 1)[-1].split("checks on")[0], checked.text
    smoke = lab.run("smoke")
    assert smoke.exit_code == 0 and "forecast" in smoke.text, smoke.text
    told = lab.json("results/small/smoke/board.json")["telemetry"]
    assert told["calls"] >= 10, told
    assert lab.count() == Count(0, 0), "a smoke test is no measurement"

    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert lab.count() == Count(2, 3)
    again = lab.run("report")
    assert "Nothing to be done" in again.text, again.text
    report = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
    assert "corex env.sh" in report and "COREX" in report

    work = Path(board["workdir"])
    texts = [unset.text, checked.text, smoke.text, call.text]
    made = [lab.root / name for name in ("results", "report", ".snakemake", ".decodelab", "config")]
    assert leaks(*made, work) == []
    assert not any(canary.decode() in text for text in texts for canary in CANARIES)
    assert not list(tmp_path.rglob("pwned"))
    log = next(lab.root.glob("results/raw/*/start1/start-*/server.log")).read_text()
    assert "HF_TOKEN=***" in log, "the server did print it"
    assert lab.wait_for_no_process() == {}


def test_logs_of_runs_made_by_hand_come_home(
    lab: Lab, board: dict[str, Any], tmp_path: Path
) -> None:
    logs = tmp_path / "work/logs"
    logs.mkdir(parents=True)
    for n in range(3):
        text = json.dumps({"n": n, "text": "\u89e3\u7801" * 1000 * n})
        (logs / f"decode_\u7b2c{n}.json").write_text(text, encoding="utf-8")
    (logs / "huge.bin").write_bytes(os.urandom(1000))
    lab.write_config(study() | {"hosts": {**study()["hosts"], "board": board}})
    words = ["--config", "host=board", f"remote_dir={logs}"]
    call = lab.run("fetch_raw", *words)
    assert call.exit_code == 0, call.text
    (home,) = (lab.root / "results/fetched/board").iterdir()
    for file in logs.glob("*.json"):
        assert (home / file.name).read_bytes() == file.read_bytes()
    assert not (home / "huge.bin").exists() and (home / "SHA256SUMS").is_file()
    assert lab.run("fetch_raw", *words).exit_code == 0
