"""The host agent under faults: stops in each phase, kill -9 of each part, servers that die.

Each test ends with the lab's check that no process is left.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.fakes.agent_lab import Lab, digest

SLOW = {"max_tokens": 2000}  # 2000 x 5 ms: a run that lasts until something happens to it


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")
    yield lab
    assert lab.close() == []


@pytest.mark.parametrize("phase", ["loading", "probing", "running"])
def test_stop_now(lab: Lab, phase: str) -> None:
    """The server is gone within seconds, finished runs are kept, the queue is empty."""
    flags = {
        "loading": ["--hang", "--ignore-term", "--children", "2"],
        "probing": ["--dead-engine"],
        "running": [],
    }
    event = {"loading": "stage", "probing": "stage", "running": "run_end"}
    runs = [lab.run(17), lab.run(18, **SLOW), lab.run(19)]
    lab.submit(lab.order(1, *flags[phase], runs=runs), lab.order(2))
    lab.until_event(1, event[phase])
    time.sleep(0.3)
    begin = time.monotonic()
    answer = lab.call("stop", "--wait", "30")
    assert answer["stopped"] is True
    assert time.monotonic() - begin < 10
    lab.until_idle(5)
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "stopped"
    states = [run["status"] for run in outcome["runs"].values()]
    kept = "done" if phase == "running" else "not_started"
    assert states == [kept, "not_started", "not_started"]
    assert lab.outcome(2) is None and lab.status()["queue"] == []
    assert not list((lab.folder(1) / "runs").glob("*/.*"))  # no half run
    assert lab.events(1)[-2]["event"] == "stop_end" and lab.events(1)[-2]["left"] == []


def test_stop_by_hand_ends_the_whole_call(lab: Lab) -> None:
    """Its other jobs are refused, also after the agent has gone; a new call is not."""
    first = lab.order(1, runs=[lab.run(17, **SLOW)])
    lab.submit({**first, "session": "a"})
    lab.until_event(1, "run_begin")
    assert lab.call("stop", "--owner", "me", "--wait", "30")["stopped"] is True
    lab.until_idle(5)
    assert lab.status(2)["stopped_sessions"] == ["a"]
    answer = lab.submit({**lab.order(2), "session": "a"})
    assert answer.pop("agent") == {"pid": None, "started": False}
    refused = {"queued": [], "already": {}, "dropped": [], "refused": "stopped by hand"}
    assert answer == refused and not lab.processes()
    lab.submit({**lab.order(2), "session": "b"})
    lab.until_idle()
    outcome = lab.outcome(2)
    assert outcome and (outcome["status"], outcome["session"]) == ("done", "b")


def test_drain_finishes_the_current_launch_only(lab: Lab) -> None:
    lab.submit(lab.order(1, runs=2), lab.order(2))
    lab.until_event(1, "run_begin")
    assert lab.call("stop", "--drain")["stopped"] is False
    lab.submit(lab.order(3))  # what comes after the stop is not swallowed by it
    lab.until_idle()
    first, third = lab.outcome(1), lab.outcome(3)
    assert first and first["status"] == "done"
    assert lab.outcome(2) is None
    assert third and third["status"] == "done"


def test_terminating_the_agent_stops_the_server(lab: Lab) -> None:
    lab.submit(lab.order(1, runs=[lab.run(17, **SLOW)]), lab.order(2))
    lab.until_event(1, "run_begin")
    os.kill(lab.agent_pid(), signal.SIGTERM)
    lab.until_idle(15)
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "stopped" and lab.outcome(2) is None


def test_kill_9_of_the_agent_loses_nothing(lab: Lab) -> None:
    """The keeper stops the server by itself; the next submit goes on with what remains."""
    runs = [lab.run(17), lab.run(18, requests=1, max_tokens=200), lab.run(19)]
    order = lab.order(1, "--children", "3", runs=runs)
    lab.submit(order)
    lab.until(lambda: lab.names(1).count("run_begin") == 2)
    lab.kill(lab.agent_pid())
    lab.until(lambda: not lab.processes(), 10)
    assert lab.outcome(1) is None and lab.status()["agent"]["alive"] is False
    lab.submit(order)
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done" and len(outcome["starts"]) == 2
    starts = [run["start_id"] for run in outcome["runs"].values()]
    assert starts == [outcome["starts"][0]] + [outcome["starts"][1]] * 2
    assert len([e for e in lab.events(1) if e["event"] == "run_end"]) == 3
    first = lab.folder(1) / f"start-{outcome['starts'][0]}"
    assert json.loads((first / "DONE.json").read_text())["reasons"] == ["agent_died"]


def test_kill_9_of_agent_and_keeper_is_cleaned_up_by_the_next(lab: Lab) -> None:
    """Only the deaf children survive; they are known by pid and start time, and nothing else."""
    lab.submit(lab.order(1, "--children", "3", runs=[lab.run(17, **SLOW)]))
    lab.until_event(1, "run_begin")
    time.sleep(1.2)  # one refresh of the members file
    lab.kill(lab.agent_pid(), lab.keeper_pid())
    lab.until(lambda: all("-c" in argv for argv in lab.processes().values()), 5)
    assert len(lab.processes()) == 3
    lab.submit(lab.order(2))
    lab.until_idle()
    assert "killed 3, left []" in lab.log()
    outcome = lab.outcome(2)
    assert outcome and outcome["status"] == "done"


def test_stop_without_an_agent_cleans_up(lab: Lab) -> None:
    lab.submit(lab.order(1, "--children", "2", runs=[lab.run(17), lab.run(18, **SLOW)]))
    lab.until_event(1, "run_end")
    lab.kill(lab.agent_pid(), lab.keeper_pid())
    assert lab.call("stop", "--wait", "10") == {"stopped": True, "agent": "gone", "left": []}
    assert lab.processes() == {}
    outcome = lab.outcome(1)  # what was measured is still to be fetched
    assert outcome and outcome["status"] == "stopped"
    assert [run["status"] for run in outcome["runs"].values()] == ["done"]


def test_kill_9_of_the_keeper_restarts_the_server(lab: Lab) -> None:
    runs = [lab.run(17, **SLOW), lab.run(18)]
    lab.submit(lab.order(1, "--children", "3", runs=runs))
    lab.until_event(1, "run_begin")
    time.sleep(0.5)
    lab.kill(lab.keeper_pid())
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done"
    cut, rest = outcome["runs"].values()
    assert cut["status"] == "invalid" and "server_died" in cut["reasons"]
    assert rest["status"] == "done" and len(outcome["starts"]) == 2
    assert "server_died" in lab.names(1)


def test_a_server_that_dies_in_a_run_is_started_again_twice(lab: Lab) -> None:
    deaths = str(lab.workdir / "deaths")
    once = ["--die-at-request", "2", "--deaths", deaths, "--max-deaths", "1"]
    always = ["--die-at-request", "1", "--children", "1"]
    lab.submit(lab.order(1, *once, runs=2), lab.order(2, *always, runs=4))
    lab.until_idle()
    first, second = lab.outcome(1), lab.outcome(2)
    assert first and second
    assert first["status"] == "done" and len(first["starts"]) == 2
    assert [r["status"] for r in first["runs"].values()] == ["invalid", "done"]
    cut = first["runs"][digest(16)]
    record = json.loads(
        (lab.folder(1) / "runs" / digest(16) / cut["attempt"] / "run.json").read_text()
    )
    assert record["summary"]["n_ok"] == 1  # what it did before it died is kept
    assert (second["status"], second["reason"]) == ("invalid", "server_died")
    assert len(second["starts"]) == 3
    assert [r["status"] for r in second["runs"].values()] == ["invalid"] * 3 + ["not_started"]


def test_the_maximum_life_ends_a_launch(lab: Lab) -> None:
    lab.submit(lab.order(1, runs=[lab.run(17, **SLOW)], life_s=2.5))
    lab.until_idle(20)
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "life_over")
    assert outcome["t_end"] - outcome["t_begin"] < 10


def test_a_run_has_a_limit_of_its_own(lab: Lab) -> None:
    lab.submit(lab.order(1, runs=[lab.run(17, limit_s=1.0, **SLOW), lab.run(18)]))
    lab.until_idle(20)
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done"
    slow, good = outcome["runs"].values()
    assert slow["status"] == "invalid" and slow["reasons"] == ["limit", "no_ok_request"]
    assert good["status"] == "done" and len(outcome["starts"]) == 1
