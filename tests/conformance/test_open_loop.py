"""The open loop: requests begin when they are due, whatever the server does, up to the cap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cargo import schedule

from .driving import run_client
from .scripted_server import Hold, Wait, serving
from .speech import plain_events, steps
from .test_runs import BEGUN, BOTH, WHOLE, command, outcomes

SLOW = [Wait(0.3), *WHOLE]


def begun(found: dict[str, Any]) -> list[float]:
    return [request["t_due_s"] + request["late_s"] for request in found["requests"]]


@BOTH
def test_requests_begin_when_they_are_due_and_not_when_others_end(http: str) -> None:
    options = (f"--http={http}", "--rate=20", "--arrivals=constant")
    with serving(SLOW) as server:
        found = run_client(server.port, *options, requests=8, concurrency=8)
    assert outcomes(found) == ["ok"] * 8
    due = [request["t_due_s"] for request in found["requests"]]
    assert [t - due[0] for t in due] == pytest.approx([n / 20 for n in range(8)], abs=1e-6)
    assert all(request["late_s"] >= 0 for request in found["requests"])
    # answers take 0.3 s: as many are open as come in that time, where a closed loop of one has one
    assert found["client"]["concurrency_max"] >= 4
    assert found["run"]["rate"] == 20
    assert found["run"]["arrivals"] == "constant"
    client = found["client"]
    worst = max(request["late_s"] for request in found["requests"])
    assert client["schedule_late_max_s"] == pytest.approx(worst)
    assert client["schedule_late_p50_s"] <= client["schedule_late_p99_s"] <= worst


@BOTH
def test_the_cap_holds_requests_back_and_their_lateness_says_so(http: str) -> None:
    options = (f"--http={http}", "--rate=50", "--arrivals=constant")
    with serving(SLOW) as server:
        found = run_client(server.port, *options, requests=6, concurrency=2)
    assert found["client"]["concurrency_max"] == 2
    assert found["requests"][2]["late_s"] > 0.2, "the third waited for one of the first two"
    assert found["client"]["schedule_late_max_s"] > 0.4
    # its own clock starts when it is sent: the wait for our own slot is in no TTFT
    assert all(request["ttft_s"] >= 0.3 for request in found["requests"])
    assert found["requests"][4]["t_start_s"] >= begun(found)[4]


def test_poisson_arrivals_are_those_of_the_seed() -> None:
    with serving(WHOLE) as server:
        found = run_client(server.port, "--rate=100", requests=10, concurrency=10)
    assert found["run"]["arrivals"] == "poisson"
    due = [request["t_due_s"] for request in found["requests"]]
    wanted = schedule.due_times(100, "poisson", 10, "1")
    assert [t - due[0] for t in due] == pytest.approx(wanted, abs=1e-6)


@BOTH
def test_the_schedule_begins_after_the_warmup(http: str) -> None:
    options = (f"--http={http}", "--rate=50", "--arrivals=constant", "--warmup=2")
    with serving(SLOW) as server:
        found = run_client(server.port, *options, requests=2, concurrency=2)
    warm, counted = found["requests"][:2], found["requests"][2:]
    assert [request["t_due_s"] for request in warm] == [None, None]
    assert [request["late_s"] for request in warm] == [None, None]
    assert counted[0]["t_due_s"] >= max(request["t_end_s"] for request in warm)


def test_a_closed_loop_has_no_schedule() -> None:
    with serving(WHOLE) as server:
        found = run_client(server.port)
    assert found["requests"][0]["t_due_s"] is None
    assert found["requests"][0]["late_s"] is None
    assert found["client"]["schedule_late_p99_s"] is None
    assert found["run"]["rate"] is None
    assert found["run"]["arrivals"] is None


@BOTH
def test_a_signal_ends_the_wait_for_the_next_request(http: str, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with serving(WHOLE) as server:
        line = command(server.port, out, f"--http={http}", "--rate=0.01", "--arrivals=constant")
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not any(truth.end for truth in server.truths) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0  # the next request is due in 100 s
    found = json.loads(out.read_text())
    assert outcomes(found) == ["ok", "not_started", "not_started"]
    assert found["client"]["ended"] == "signal"


@BOTH
def test_a_server_that_stalls_ends_an_open_loop_too(http: str) -> None:
    limits = ("--timeout-between-tokens=0.4", "--timeout-first-token=1")
    options = (f"--http={http}", "--rate=40", "--arrivals=constant", *limits)
    with serving(WHOLE, [*BEGUN, Hold()], [Hold()]) as server:
        found = run_client(server.port, *options, requests=400, concurrency=400)
    assert found["client"]["ended"] == "stalled"
    assert set(outcomes(found)) >= {"ok", "timeout", "not_started"}


def test_between_requests_the_client_sleeps() -> None:
    """Nothing is open and the next request is due later: no turning of the loop beyond its ticks."""
    before = os.times()
    with serving(steps(plain_events(), first_s=0.0, gap_s=0.0)) as server:
        found = run_client(server.port, "--rate=1.5", "--arrivals=constant", requests=3)
    used = os.times().user + os.times().system - before.user - before.system
    wall = found["client"]["wall_s"]
    assert wall > 1.3
    assert found["client"]["cpu_s"] < 0.3 * wall, used
