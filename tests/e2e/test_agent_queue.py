"""The host agent on real processes: queues, results, failed starts, owners, the host lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import identity
from tests.e2e.fakes.agent_lab import FAKES, Lab, digest

REFUSED = (
    "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: XFORMERS. "
    "Set VLLM_ATTENTION_BACKEND to a value from ['FLASH_ATTN']."
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")  # a blank in every path
    yield lab
    assert lab.close() == []


def whole(folder: Path) -> dict[str, str]:
    """Checks DONE.json against the files; returns it."""
    done = json.loads((folder / "DONE.json").read_text())
    on_disk = {path.name for path in folder.iterdir()} - {"DONE.json"}
    assert set(done["files"]) == on_disk
    for name, wanted in done["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == wanted
    return done


def test_two_launches_of_two_runs(lab: Lab) -> None:
    awkward = {"A": "$(touch x); 'q' \"d\" \n ü"}
    runs = [lab.run(17, telemetry=True, concurrency=2, requests=4), lab.run(18)]
    first = lab.order(1, "--children", "2", runs=runs, env=awkward)
    second = lab.order(2, runs=2)
    assert lab.submit(first, second)["queued"] == [digest(1), digest(2)]
    again = lab.submit(first, second)  # at any moment: nothing is queued twice
    assert again["agent"]["started"] is False
    assert len(again["queued"]) <= 2
    lab.until_idle()

    for number, order in ((1, first), (2, second)):
        outcome = lab.outcome(number)
        assert outcome is not None and outcome["status"] == "done"
        assert {run["status"] for run in outcome["runs"].values()} == {"done"}
        assert list(outcome["runs"]) == [run["digest"] for run in order["runs"]]
        (start_id,) = outcome["starts"]
        start = lab.folder(number) / f"start-{start_id}"
        assert whole(start)["status"] == "done"
        record = json.loads((start / "start.json").read_text())
        assert record["status"] == "stopped" and record["left"] == [] and record["port_free"]
        assert record["argv"][-4:-1] == ["--host", "127.0.0.1", "--port"]
        assert record["models"]["data"][0]["id"] == "tiny"
        for run, result in outcome["runs"].items():
            folder = lab.folder(number) / "runs" / run / result["attempt"]
            assert whole(folder)["run"] == run
            made = json.loads((folder / "run.json").read_text())
            assert made["summary"]["n_ok"] == made["run"]["requests"]
            assert (folder / "metrics_after.txt").read_text().startswith("vllm:")
    assert lab.status()["kept"] == [digest(1), digest(2)]
    assert list((lab.workdir / "live").iterdir()) == []
    starts = [e for n in (1, 2) for e in lab.events(n) if e["event"] in ("start_begin", "stop_end")]
    assert [e["event"] for e in starts] == ["start_begin", "stop_end"] * 2  # one server at a time
    check_capture(lab, runs[0]["digest"])
    submitted_again = lab.submit(first)
    assert submitted_again["already"] == {digest(1): "finished"}
    assert lab.call("forget", "--launch", digest(1)) == {"forgotten": True}
    assert lab.status()["kept"] == [digest(2)]
    # another checkout may wait for the same launch
    assert lab.submit(first)["already"] == {digest(1): "finished"}
    assert lab.call("forget", "--launch", digest(1), "--purge") == {"forgotten": True}
    assert not lab.folder(1).exists()


def check_capture(lab: Lab, run: str) -> None:
    """Samples lie on both sides of the run's requests, on the same clock."""
    (folder,) = (lab.folder(1) / "runs" / run).iterdir()
    head, *records = [json.loads(x) for x in (folder / "capture.jsonl").read_text().splitlines()]
    assert head["schema"] == "decodelab.capture/1" and head["source"] == "simulated"
    made = json.loads((folder / "run.json").read_text())
    zero = made["clock"]["t0_monotonic_s"]
    assert records[0]["m1"] < zero + min(r["t_start_s"] for r in made["requests"])
    assert records[-1]["m0"] > zero + max(r["t_end_s"] for r in made["requests"])
    assert all(record["rc"] == 0 and "29 %" in record["out"] for record in records)


def test_a_refused_configuration_is_a_result_and_is_not_tried_again(lab: Lab) -> None:
    refused = ("--die-at-start", REFUSED)
    twin = lab.order(2, *refused, start=2, digest=digest(0xA001))
    lab.submit(lab.order(1, *refused), twin, lab.order(3))
    lab.until_idle()
    first, second, third = lab.outcome(1), lab.outcome(2), lab.outcome(3)
    assert first and second and third
    assert (first["status"], first["reason"]) == (
        "not_possible",
        "feature_not_supported_by_backend",
    )
    assert first["cause"]["root_cause"].startswith("ValueError: Multi-Step")
    assert second["status"] == "not_possible" and second["cause"] == first["cause"]
    assert second["starts"] == first["starts"] and "start_begin" not in lab.names(2)
    assert third["status"] == "done"
    (start_id,) = first["starts"]
    done = whole(lab.folder(1) / f"start-{start_id}")
    assert (done["status"], done["run"]) == ("done", None)
    record = json.loads((lab.folder(1) / f"start-{start_id}" / "start.json").read_text())
    assert (record["status"], record["exit_code"]) == ("failed", 1)


def test_two_failures_of_the_host_halt_the_queue(lab: Lab) -> None:
    foreign, port = lab.start_foreign()
    orders = [
        lab.order(1, port=port),
        lab.order(2, "--die-at-start", "what is this", "--exit-code", "3"),
        lab.order(3),
    ]
    lab.submit(*orders)
    lab.until_idle()
    taken, died = lab.outcome(1), lab.outcome(2)
    assert taken and died
    assert (taken["status"], taken["reason"]) == ("invalid", "port_in_use")
    assert f"pid {foreign.pid} " in taken["cause"]["root_cause"]
    assert foreign.poll() is None  # never touched
    assert (died["status"], died["cause"]["side"]) == ("invalid", "host")
    assert lab.outcome(3) is None
    halted = lab.status()["halted"]
    assert (
        halted["launches"] == [digest(1), digest(2)] and "2 launches in a row" in halted["reason"]
    )
    lab.submit(orders[2])
    lab.until_idle()
    assert lab.status()["halted"] is None
    outcome = lab.outcome(3)
    assert outcome and outcome["status"] == "done"


def test_failed_starts_that_no_log_explains(lab: Lab) -> None:
    """Time limits, a dead engine behind /health, a missing command; each alone, so no halt."""
    cases = {
        "timeout": lab.order(1, "--hang", silence_s=0.7),
        "probe_failed": lab.order(3, "--dead-engine", probe_s=1.0),
        "launch_script": lab.order(5, argv=["/no/such/python", "-m", "x"]),
    }
    good = [lab.order(number) for number in (2, 4)]
    hang, dead, missing = cases.values()
    lab.submit(hang, good[0], dead, good[1], missing)
    lab.until_idle()
    for reason, order in cases.items():
        outcome = lab.outcome(int(order["launch"], 16))
        assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", reason)
        assert [r["status"] for r in outcome["runs"].values()] == ["not_started"]


def test_an_engine_that_changed_is_refused_before_it_starts(lab: Lab) -> None:
    engine = lab.workdir / "engine.py"
    engine.write_text("fast = True\n")
    wanted = identity.fingerprint({}, [str(engine)])
    facts = {"fingerprint": {"modules": [], "files": [str(engine)]}, "expected_fingerprint": wanted}
    lab.submit(lab.order(1, **facts))
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done"
    engine.write_text("fast = False\n")
    lab.submit(lab.order(2, **facts))
    lab.until_idle()
    outcome = lab.outcome(2)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "engine_changed")
    assert "server.build" in outcome["cause"]["hint"]["en"]
    assert "start_begin" not in lab.names(2) and outcome["starts"] == []


def test_owners_share_the_host(lab: Lab) -> None:
    """While another user holds the host: my pending orders are replaced, another owner's stay."""
    with open(lab.workdir / "host.lock", "w") as other:
        other.write('{"owner": "somebody else", "since": 7}')
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        lab.submit(lab.order(1), lab.order(2))
        waiting = lab.until_event(1, "lock_wait")
        assert (waiting["owner"], waiting["since"], waiting["doing"]) == ("somebody else", 7, None)
        assert lab.status()["doing"]["event"] == "lock_wait"
        assert lab.submit(lab.order(3), owner="you")["queued"] == [digest(n) for n in (1, 2, 3)]
        answer = lab.submit(lab.order(2), lab.order(4))
        assert answer["dropped"] == [digest(1)]
        assert answer["queued"] == [digest(n) for n in (2, 3, 4)]
        answer = lab.submit(lab.order(4), lab.order(2))  # another order of mine: I queue behind
        assert answer["queued"] == [digest(n) for n in (3, 4, 2)]
        assert lab.status()["agent"]["state"] == "lock_wait"
    lab.until_idle()
    ends = {}
    for number in (2, 3, 4):
        outcome = lab.outcome(number)
        assert outcome and outcome["status"] == "done"
        ends[number] = outcome["t_end"]
    assert ends[3] < ends[4] < ends[2]
    assert lab.outcome(1) is None and not lab.folder(1).exists()


def test_a_busy_host_is_given_up_after_the_declared_time(lab: Lab) -> None:
    with open(lab.workdir / "host.lock", "w") as other:
        other.write('{"owner": "somebody else"}')
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        lab.submit(lab.order(1), lab.order(2), lock_wait_s=0.5)
        lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "lock_timeout")
    assert "somebody else" in outcome["cause"]["root_cause"]
    assert lab.status()["queue"] == [] and "busy" in lab.status()["halted"]["reason"]


def test_an_attached_server_is_never_stopped(lab: Lab) -> None:
    foreign, port = lab.start_foreign()
    lab.submit(lab.order(1, attach=f"http://127.0.0.1:{port}", argv=[]))
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done"
    (start_id,) = outcome["starts"]
    record = json.loads((lab.folder(1) / f"start-{start_id}" / "start.json").read_text())
    assert record["identity"]["observed"] is True and record["pid"] == foreign.pid
    assert str(FAKES / "fake_server.py") in record["identity"]["command"]
    assert foreign.poll() is None
    foreign.kill()
    foreign.wait()
    lab.submit(lab.order(2, attach=f"http://127.0.0.1:{port}", argv=[]))
    lab.until_idle()
    outcome = lab.outcome(2)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "not_reachable")


def start_record(lab: Lab, number: int) -> dict[str, Any]:
    (start,) = lab.folder(number).glob("start-*")
    record: dict[str, Any] = json.loads((start / "start.json").read_text())
    return record


def forget_floor(lab: Lab) -> None:
    for path in lab.workdir.glob("client_floor-*.json"):
        path.unlink()


def test_the_clients_floor_is_measured_once_before_the_first_start(lab: Lab) -> None:
    """Before a server of ours starts, before a foreign one is looked at; told with each start."""
    forget_floor(lab)
    lab.submit(lab.order(1), lab.order(2))
    lab.until_idle()
    names = lab.names(1)
    assert names.index("calibrating") < names.index("calibrated") < names.index("start_begin")
    assert "calibrating" not in lab.names(2)
    floor = start_record(lab, 1)["client_floor"]
    assert floor["schema"] == "decodelab.client_floor/1" and floor.get("problem") is None, floor
    assert (floor["events"], floor["lost"], floor["stamp_source"]) == (3200, 0, "kernel")
    run = next((lab.folder(1) / "runs").glob("*/*/run.json"))
    client = json.loads(run.read_text())["client"]
    assert floor["client"]["digest"] == client["digest"]  # the same client that made the run
    (kept,) = lab.workdir.glob("client_floor-*.json")
    assert kept.name == f"client_floor-{client['digest']}.json"

    _foreign, port = lab.start_foreign()
    lab.submit(lab.order(3, attach=f"http://127.0.0.1:{port}", argv=[]))  # another agent
    lab.until_idle()
    assert "calibrating" not in lab.names(3)
    floors = [start_record(lab, number)["client_floor"] for number in (1, 2, 3)]
    assert floors == [json.loads(kept.read_text())] * 3

    forget_floor(lab)
    lab.submit(lab.order(4, attach=f"http://127.0.0.1:{port}", argv=[]))
    lab.until_idle()
    names = lab.names(4)
    assert names.index("calibrated") < names.index("start_begin")


def test_a_stop_while_the_floor_is_measured(lab: Lab) -> None:
    forget_floor(lab)
    lab.submit(lab.order(1))
    lab.until_event(1, "calibrating")
    assert lab.call("stop", "--wait", "30")["stopped"]
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["starts"]) == ("stopped", [])
    assert "start_begin" not in lab.names(1)
    assert not list(lab.workdir.glob("client_floor-*.json"))


def test_a_floor_that_cannot_be_measured_stops_no_launch(lab: Lab) -> None:
    forget_floor(lab)
    (lab.cargo / "null_emitter.py").write_text("raise SystemExit('not on this host')")
    lab.submit(lab.order(1))
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done"
    assert start_record(lab, 1)["client_floor"]["problem"] == "the null emitter ended early"
    assert lab.until_event(1, "calibrated")["problem"] == "the null emitter ended early"


def test_an_agent_killed_while_it_measures_the_floor_leaves_nothing(lab: Lab) -> None:
    forget_floor(lab)
    lab.submit(lab.order(1))
    lab.until_event(1, "calibrating")
    lab.until(lambda: any("null_emitter.py" in line for line in lab.processes().values()))
    lab.kill(lab.agent_pid())
    lab.until(lambda: not lab.processes())  # the client dies with it, the emitter with the client
    lab.submit(lab.order(1))
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done"
    assert start_record(lab, 1)["client_floor"]["lost"] == 0
