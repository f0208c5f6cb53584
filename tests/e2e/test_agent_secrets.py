"""Setup scripts and secrets in the host agent: where they go, and where they must never be seen."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import live_files
from tests.e2e.fakes.agent_lab import Lab, digest

KEY = 'sk-canary-7f3a"9b$(x)'  # a quote, so that every spelling of it differs
TOKEN = "hf_canary_Zq81\\p \u00fc end"
CANARIES = ("canary-7f3a", "canary_Zq81")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")
    yield lab
    assert lab.close() == []


def entrust(lab: Lab, owner: str = "me", **values: str) -> None:
    lab.call("secrets", stdin={"owner": owner, "values": values})


def start_record(lab: Lab, number: int) -> dict:
    outcome = lab.outcome(number)
    assert outcome and outcome["starts"], (outcome, lab.log())
    folder = lab.folder(number) / f"start-{outcome['starts'][0]}"
    return json.loads((folder / "start.json").read_text())


def server_log(lab: Lab, number: int) -> str:
    (path,) = lab.folder(number).glob("start-*/server.log")
    return path.read_text()


def leaks(lab: Lab, *, running: bool) -> list[str]:
    """Every file of the working folder and every command line in which a canary can be read.

    While the launch runs two files hold them, and nobody else may open either: the owner's
    secrets, and the log as the server itself writes it.
    """
    found = []
    for path, mode, content in live_files.seen(lab.workdir):
        kept = running and (path.parent.name == "secrets" or path.name == "server.log")
        if kept and mode == 0o600:
            continue
        found += [str(path) for canary in CANARIES if canary.encode() in content]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found += [f"argv of {pid}" for canary in CANARIES if canary.encode() in argv]
    return found


def test_no_secret_is_seen_during_and_after_a_launch(lab: Lab) -> None:
    """The server prints all it has; every request is answered by a 401 that repeats the key."""
    flags = ("--print-env", "--key-env", "THE_KEY", "--no-streams", "--token-s", "0.02")
    runs = [lab.run(17, requests=4), lab.run(18, requests=40, concurrency=2)]
    order = {**lab.order(1, *flags, runs=runs), "secrets": ["HF_TOKEN"], "api_key": "THE_KEY"}
    good = ("--print-env", "--key-env", "THE_KEY")
    second = lab.order(2, *good, runs=[lab.run(33, max_tokens=300, telemetry=True)])
    entrust(lab, THE_KEY=KEY, HF_TOKEN=TOKEN)
    folder = lab.workdir / "secrets"
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lab.submit(order, {**second, "api_key": "THE_KEY"})
    looks = 0
    while (lab.workdir / "agent.json").exists():
        assert leaks(lab, running=True) == []
        looks += 1
        time.sleep(0.05)
    lab.until_idle()
    assert looks > 5 and leaks(lab, running=False) == []
    assert list(folder.iterdir()) == []

    log = server_log(lab, 1)
    assert "THE_KEY=**" in log and "HF_TOKEN=**" in log
    for run in runs:
        (attempt,) = (lab.folder(1) / "runs" / run["digest"]).iterdir()
        made = json.loads((attempt / "run.json").read_text())
        assert made["requests"][0]["error"]["message"].startswith("expired: Bearer ***")
        assert made["summary"]["n_ok"] == 0
    outcome = lab.outcome(2)  # with the key the server answers
    assert outcome and outcome["runs"][digest(33)]["status"] == "done"


def test_a_refused_key_is_told_without_it(lab: Lab) -> None:
    entrust(lab, THE_KEY=KEY, OTHER=TOKEN.encode("ascii", "ignore").decode())
    flags = ("--key-env", "THE_KEY", "--print-env")
    order = {**lab.order(1, *flags), "api_key": "OTHER", "secrets": ["THE_KEY"]}
    lab.submit(order)
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["reason"] == "probe_failed"
    assert "HTTP 401" in outcome["cause"]["root_cause"] and "***" in outcome["cause"]["root_cause"]
    assert leaks(lab, running=False) == []


def test_a_failed_start_shows_no_secret(lab: Lab) -> None:
    entrust(lab, HF_TOKEN=TOKEN)
    flags = ("--print-env", "--die-at-start", f"OSError: cannot log in with {TOKEN}")
    order = lab.order(1, *flags)
    order["server"]["argv"][-1] = "OSError: no login"  # its argv is not ours to hide
    lab.submit({**order, "secrets": ["HF_TOKEN"]})
    lab.until_idle()
    assert leaks(lab, running=False) == [] and "HF_TOKEN=**" in server_log(lab, 1)


def test_the_next_agent_masks_what_a_dead_one_left(lab: Lab) -> None:
    """Also where the value was replaced in between."""
    entrust(lab, HF_TOKEN=TOKEN)
    slow = lab.run(17, max_tokens=2000)
    order = {**lab.order(1, "--print-env", runs=[slow]), "secrets": ["HF_TOKEN"]}
    lab.submit(order)
    lab.until_event(1, "run_begin")
    lab.kill(lab.agent_pid())
    lab.until(lambda: not lab.processes(), 10)
    assert leaks(lab, running=True) == []
    entrust(lab, HF_TOKEN="another-value")
    assert lab.call("stop", "--owner", "me")["stopped"] is True
    assert leaks(lab, running=False) == []
    assert list((lab.workdir / "secrets").iterdir()) == []


def test_a_missing_value_starts_nothing(lab: Lab) -> None:
    entrust(lab, "somebody else", HF_TOKEN=TOKEN)
    lab.submit({**lab.order(1), "secrets": ["HF_TOKEN"], "api_key": "THE_KEY"})
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "secret_missing")
    assert "HF_TOKEN, THE_KEY" in outcome["cause"]["root_cause"]
    assert outcome["starts"] == [] and "start_begin" not in lab.names(1)
    assert len(list((lab.workdir / "secrets").iterdir())) == 1  # another owner's, not yet claimed


def test_values_are_kept_while_their_owner_has_orders(lab: Lab) -> None:
    entrust(lab, HF_TOKEN=TOKEN)
    orders = [{**lab.order(number), "secrets": ["HF_TOKEN"]} for number in (1, 2)]
    lab.submit(*orders)
    entrust(lab, THE_KEY=KEY)  # a second call adds; nothing is lost
    lab.until_idle()
    for number in (1, 2):
        outcome = lab.outcome(number)
        assert outcome and outcome["status"] == "done"
    lab.submit(lab.order(3))
    lab.until_idle()
    assert list((lab.workdir / "secrets").iterdir()) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"A": "short"}, "shorter than 8"),
        ({"A=B": "x" * 10}, "name"),
        ({"A": 12345678}, "must be text"),
        (["A"], "must be an object"),
    ],
)
def test_values_that_cannot_be_kept_secret_are_refused(
    lab: Lab, values: object, words: str
) -> None:
    assert words in lab.refused("secrets", stdin={"owner": "me", "values": values})
    assert not (lab.workdir / "secrets").exists()


# ---------------------------------------------------------------------- setup
def test_a_setup_script_makes_the_servers_world(lab: Lab) -> None:
    """Server and sampler see it, what the order says wins, and start.json says what it changed."""
    script = lab.workdir / "set up.sh"
    script.write_text(
        "echo to stdout\nexport COREX='a b' MY_TOKEN=abcdefghij OVERRIDDEN=1\n"
        "unset UNWANTED\n[ -d /no/such ] && export NEVER=1\n"
    )
    lab.env = {**os.environ, "UNWANTED": "1"}
    smi = lab.workdir / "smi.sh"
    smi.write_text('#!/bin/sh\necho "$COREX"\n')
    smi.chmod(0o755)
    order = lab.order(1, "--print-env", runs=[lab.run(17, telemetry=True)], env={"OVERRIDDEN": "2"})
    order["telemetry"]["argv"] = [str(smi)]
    lab.submit({**order, "setup": str(script)})
    lab.until_idle()
    setup = start_record(lab, 1)["setup"]
    assert setup["path"] == str(script) and len(setup["sha256"]) == 64
    assert setup["set"] == {"COREX": "a b", "MY_TOKEN": "***", "OVERRIDDEN": "1"}
    assert setup["unset"] == ["UNWANTED"]
    log = server_log(lab, 1)
    assert "COREX=a b" in log and "OVERRIDDEN=2" in log and "UNWANTED" not in log
    (capture,) = lab.folder(1).glob("runs/*/*/capture.jsonl")
    assert json.loads(capture.read_text().splitlines()[1])["out"] == "a b\n"


def test_without_a_setup_script_nothing_is_recorded(lab: Lab) -> None:
    lab.submit(lab.order(1))
    lab.until_idle()
    assert start_record(lab, 1)["setup"] is None


def test_a_setup_script_is_sourced_once_until_it_changes(lab: Lab) -> None:
    script, count = lab.workdir / "setup.sh", lab.workdir / "count"
    script.write_text(f"echo x >>'{count}'\n")
    slow = lab.order(2, runs=[lab.run(33, max_tokens=200)])
    orders = [lab.order(1), slow, lab.order(3)]
    lab.submit(*[{**order, "setup": str(script)} for order in orders])
    lab.until_event(2, "run_begin")
    assert count.read_text() == "x\n"
    script.write_text(f"echo y >>'{count}'\n")
    lab.until_idle()
    assert count.read_text() == "x\ny\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no driver here >&2\nexit 3\n", "status 3. no driver here"),
        ("if [ ; then\n", "syntax error"),
        (". /no/such/file\n", "No such file or directory"),
        (None, "No such file or directory"),
    ],
)
def test_a_setup_script_that_fails(lab: Lab, script: str | None, words: str) -> None:
    path = lab.workdir / "setup.sh"
    if script is not None:
        path.write_text(script)
    lab.submit({**lab.order(1), "setup": str(path)})
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "setup_failed")
    assert words in outcome["cause"]["root_cause"] and str(path) in outcome["cause"]["root_cause"]
    assert outcome["starts"] == []


def test_bytes_that_are_no_text_reach_the_server_and_no_record(lab: Lab) -> None:
    script = lab.workdir / "setup.sh"
    script.write_text("export BAD=$'\\xff\\xfe'\n")
    order = lab.order(1, "--print-env", env={"PYTHONIOENCODING": "utf-8:surrogateescape"})
    lab.submit({**order, "setup": str(script)})
    lab.until_idle()
    record = start_record(lab, 1)
    assert record["setup"]["set"] == {"BAD": "\\xff\\xfe"}
    (path,) = lab.folder(1).glob("start-*/server.log")
    assert b"BAD=\xff\xfe " in path.read_bytes()
    for file in lab.folder(1).rglob("*.json*"):
        lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        for line in lines:
            json.dumps(json.loads(line), ensure_ascii=False).encode()
