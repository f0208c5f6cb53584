"""The targets about hosts: check_hosts, smoke, status, stop and fetch_raw, on the embedded host."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.lab import REPO, Count, Lab
from tests.e2e.small import study

REFERENCE = REPO / "resources/2026-07-14-decode"


def describe(lab: Lab, **hosts: dict[str, Any]) -> None:
    text = yaml.safe_dump({"hosts": hosts}, allow_unicode=True)
    (lab.root / "config/hosts.local.yaml").write_text(text, encoding="utf-8")


def out_of_reach(lab: Lab) -> dict[str, Any]:
    """A host over ssh on a port where nobody listens."""
    (lab.root / "ssh.config").write_text("Host far\n  HostName 127.0.0.1\n  Port 1\n")
    return {"transport": "ssh", "ssh": "far", "ssh_config": "ssh.config", "workdir": "/root/work"}


def content(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def until_line(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"ended without {word!r}")


# ---------------------------------------------------------------- status


def long_study(requests: int = 6) -> dict[str, Any]:
    """Some 2 s a request; with many of them it lasts until somebody stops it."""
    config = study()
    config["workloads"]["one"] |= {"requests": requests, "max_tokens": 512}
    config["workloads"]["two"] |= {"requests": requests, "max_tokens": 512}
    return config


def test_status_and_a_failed_check_leave_a_call_that_measures_alone(lab: Lab) -> None:
    lab.write_config(long_study())
    describe(lab, far=out_of_reach(lab))
    before = lab.run("status")
    assert before.exit_code == 0 and "never used" in before.text, before.text
    assert not lab.workdir().exists(), "looking on brings nothing to the host"
    work = lab.start("--cores", "1", "report")
    until_line(work, "run 1/")
    during = lab.run("status")
    while "start 1: run " not in during.text and work.poll() is None:
        during = lab.run("status")  # it takes seconds: that run was over, another follows
    failed = lab.run("check_hosts", "--config", "host=far")
    rest = work.communicate(timeout=200)[0]
    assert during.exit_code == 0, during.text
    assert "start 1: run " in during.text and "about " in during.text, during.text
    assert failed.exit_code == 1 and "127.0.0.1" in failed.text, failed.text
    assert work.returncode == 0, rest
    assert lab.count() == Count(2, 3), "neither started nor stopped anything"
    after = lab.run("status")
    assert "nothing left to do" in after.text and "| total" in after.text, after.text
    assert lab.wait_for_no_process() == {}


def test_status_knows_of_hosts_out_of_reach_what_is_here(lab: Lab) -> None:
    config = study()
    config["hosts"]["far"] = {
        **out_of_reach(lab),
        "simulated": True,
        "expect": {"start_s": 60, "output_tps": 1},
    }
    config["server"]["command"] = ["python3", "server.py"]
    config["variants"]["noparser"]["host"] = "far"
    lab.write_config(config)
    call = lab.run("status")
    assert call.exit_code == 0 and "not reachable" in call.text, call.text
    assert "never used" in call.text and "| total" in call.text
    # One start of a minute, and 2 x 2 requests of 16 tokens at 1 tok/s.
    assert "far: expected with 60.0 s a start and 1.0 tok/s" in call.text
    assert "2 min of work" in call.text and "unknown" in call.text
    assert "not at work" in call.text, "said of the host that was asked"
    stop = lab.run("stop")
    assert stop.exit_code != 0 and "far: cannot be reached" in stop.text, stop.text
    assert "embedded: nothing was queued" in stop.text


def test_status_tells_what_failed_and_what_is_not_possible(lab: Lab) -> None:
    config = study()
    config["variants"]["refused"] = {"flags": {"--no-such-flag": True}}
    config["variants"]["lost"] = {"command": ["/no/such/program"]}
    config["experiments"]["more"] = {"runs": {"refused": ["one"], "lost": ["one"]}}
    lab.write_config(config)
    lab.run("experiment_more")
    call = lab.run("status")
    assert "not possible: refused start 1:" in call.text, call.text
    assert "failed, tried again by the next call: lost start 1:" in call.text, call.text
    assert "1 to be tried again" in call.text and "nothing left" not in call.text
    assert lab.wait_for_no_process() == {}


def test_stop_ends_what_runs(lab: Lab) -> None:
    lab.write_config(long_study(200))
    work = lab.start("--cores", "1", "report")
    until_line(work, "run 1/")
    stopped = lab.run("stop")
    work.communicate(timeout=100)
    assert stopped.exit_code == 0, stopped.text
    assert "embedded: stopped, 2 launches taken out of its queue" in stopped.text, stopped.text
    assert work.returncode != 0
    after = lab.run("status")
    assert "stopped, goes on with the next call:" in after.text, after.text
    assert "failed," not in after.text and "to be tried again" in after.text
    assert lab.servers() == {} and lab.wait_for_no_process() == {}


def test_stop_asks_the_agent_of_another_version(lab: Lab) -> None:
    lab.write_config(long_study(200))
    work = lab.start("--cores", "1", "report")
    until_line(work, "run 1/")
    with (lab.root / "scripts/cargo/room.py").open("a") as file:
        file.write("# a newer version\n")
    seen = lab.run("status")
    assert "(another" in seen.text and "start 1: " in seen.text, seen.text
    stopped = lab.run("stop")
    work.communicate(timeout=100)
    assert stopped.exit_code == 0 and work.returncode != 0, stopped.text
    assert "embedded: stopped, " in stopped.text and "another version" in stopped.text
    assert lab.servers() == {} and lab.wait_for_no_process() == {}


def test_stop_leaves_others_alone_and_says_who(lab: Lab) -> None:
    lab.write_config(long_study(200))
    work = lab.start("--cores", "1", "report")
    until_line(work, "run 1/")
    lab.write_config({**study(), "study": "other"})
    stopped = lab.run("stop")
    assert stopped.exit_code == 0 and "busy for others: owner " in stopped.text, stopped.text
    assert "embedded: nothing was queued" in stopped.text
    lab.write_config(long_study(200))
    assert "embedded: stopped, " in lab.run("stop").text
    work.communicate(timeout=100)
    assert lab.wait_for_no_process() == {}


# ---------------------------------------------------------------- smoke


def test_a_smoke_test_leaves_no_trace_in_results(lab: Lab) -> None:
    lab.write_config(study())
    call = lab.run("smoke")
    assert call.exit_code == 0, call.text
    for word in ("ready in", "TTFT", "telemetry  ixsmi:", "fingerprint", "forecast   2 starts"):
        assert word in call.text, call.text
    assert lab.count() == Count(0, 0) and not (lab.root / "results/raw").exists()
    facts = lab.json("results/small/smoke/embedded.json")
    assert facts["error"] is None and facts["request"]["completion_tokens"] == 16
    assert facts["telemetry"]["accelerators"] == 4 and facts["telemetry"]["metrics"]["power_w"]
    assert facts["forecast"]["starts_to_go"] == 2
    assert not list((lab.workdir() / "done").iterdir()), "nothing is left on the host"
    report = lab.run("report")
    assert report.exit_code == 0 and lab.count() == Count(2, 3), report.text
    page = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
    assert "smoke" not in page
    again = lab.run("smoke")
    assert again.exit_code == 0 and lab.count() == Count(2, 3), again.text
    assert lab.json("results/small/smoke/embedded.json")["forecast"]["starts_to_go"] == 0
    assert lab.wait_for_no_process() == {}


def test_a_smoke_test_that_fails_names_the_root_cause(lab: Lab) -> None:
    config = study()
    config["server"]["flags"]["--no-such-flag"] = True
    lab.write_config(config)
    call = lab.run("smoke")
    assert call.exit_code == 1, call.text
    assert "root cause: " in call.text and "--no-such-flag" in call.text, call.text
    assert "--no-such-flag" in lab.json("results/small/smoke/embedded.json")["error"]
    assert lab.count() == Count(0, 0) and lab.wait_for_no_process() == {}
    # What the agent learned of the server is not the study's.
    report = lab.run("report")
    assert lab.count().starts == 2, report.text


def test_a_smoke_test_that_is_refused_leaves_no_secret(lab: Lab) -> None:
    config = study()
    config["server"]["secrets"] = ["LAB_TOKEN"]
    del config["hosts"]["embedded"]["simulated"]
    config["hosts"]["embedded"]["lock"] = "/no/such/folder/lock"
    lab.write_config(config)
    call = lab.run("smoke", env={"LAB_TOKEN": "canary-of-the-lab"})
    assert call.exit_code == 1 and "/no/such/folder" in call.text, call.text
    assert (lab.workdir() / "secrets").is_dir(), "they were entrusted"
    assert not list((lab.workdir() / "secrets").iterdir())
    assert lab.wait_for_no_process() == {}


def test_a_smoke_test_does_not_push_the_study_aside(lab: Lab) -> None:
    lab.write_config(long_study())
    work = lab.start("--cores", "1", "report")
    until_line(work, "run 1/")
    smoke = lab.run("smoke")
    rest = work.communicate(timeout=200)[0]
    assert smoke.exit_code == 0 and work.returncode == 0, smoke.text + rest
    assert "the host is at work" in smoke.text
    assert lab.count() == Count(2, 3)
    assert lab.wait_for_no_process() == {}


# ---------------------------------------------------------------- check_hosts


def test_hosts_are_checked_in_one_table(lab: Lab) -> None:
    lab.write_config(study())
    describe(lab, far=out_of_reach(lab))
    call = lab.run("check_hosts")
    assert call.exit_code == 1, call.text
    assert "| far      | reachable" in call.text and "refuses" in call.text, call.text
    own = lab.run("check_hosts", "--config", "host=embedded")
    assert own.exit_code == 0 and "0 failed" in own.text, own.text
    assert "far" not in own.text.partition("\nhosts")[2]
    assert lab.count() == Count(0, 0) and lab.wait_for_no_process() == {}


# ---------------------------------------------------------------- fetch_raw


def test_raw_logs_come_home_and_make_the_report(lab: Lab, tmp_path: Path) -> None:
    there = tmp_path / "root of/work/logs"
    shutil.copytree(REFERENCE, there)
    (there / "sub").mkdir()
    (there / "link.json").symlink_to("/etc/hostname")
    describe(lab, bi100={"transport": "local", "workdir": str(tmp_path / "work")})
    fetch = ["fetch_raw", "--config", "host=bi100", f"remote_dir={there}"]
    call = lab.run(*fetch)
    assert call.exit_code == 0, call.text
    assert "left there, folder: sub" in call.text and "left there, link: link.json" in call.text
    assert not (tmp_path / "work").exists(), "nothing is written on the host"
    home = next((lab.root / "results/fetched/bi100").iterdir())
    logs = [*REFERENCE.glob("*.json"), *REFERENCE.glob("*.log")]
    assert {p.name for p in logs} == set(content(home)) - {"SHA256SUMS", "PROVENANCE.json"}
    assert all(content(home)[p.name] == content(REFERENCE)[p.name] for p in logs)
    subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=home, check=True, capture_output=True)
    before = content(home)
    again = lab.run(*fetch)
    assert f"0 files fetched, {len(logs)} were here already" in again.text, again.text
    assert content(home) == before

    raw_dir = home.relative_to(lab.root)
    assert f"raw_dir={raw_dir}" in call.text
    study_file = ["--configfile", "config/2026-07-14-decode.yaml"]
    report = lab.run("report", *study_file, "--config", f"raw_dir={raw_dir}")
    assert report.exit_code == 0, report.text
    index = lab.json("results/2026-07-14-decode/runs/decode_runs.json")
    assert len(index["runs"]) == 7
    assert all(run["raw"].startswith(str(raw_dir)) for run in index["runs"].values())


def test_a_log_that_changed_is_kept_beside_the_first(lab: Lab, tmp_path: Path) -> None:
    there = tmp_path / "logs"
    there.mkdir()
    (there / "decode_a.json").write_text('["first"]')
    describe(lab, near={"transport": "local"})
    fetch = ["fetch_raw", "--config", "host=near", f"remote_dir={there}"]
    assert lab.run(*fetch).exit_code == 0
    (there / "decode_a.json").write_text('["second"]')
    call = lab.run(*fetch)
    assert call.exit_code == 0 and "is here already with another content" in call.text, call.text
    home = next((lab.root / "results/fetched/near").iterdir())
    texts = {json.loads(p.read_text())[0] for p in home.glob("decode_a*.json")}
    assert texts == {"first", "second"}
    assert (home / "decode_a.json").read_text() == '["first"]'


def test_fetching_from_a_host_over_ssh_does_not_move_the_default_study(lab: Lab) -> None:
    describe(lab, bi100=out_of_reach(lab))
    call = lab.run("fetch_raw", "--config", "host=bi100", "remote_dir=/root/work/logs")
    assert call.exit_code == 1, call.text
    assert "{simulator}" not in call.text and "127.0.0.1" in call.text, call.text
    wrong = lab.run("fetch_raw", "--config", "host=bi100", "remote_dir=logs")
    assert "an absolute folder on the host" in wrong.text
