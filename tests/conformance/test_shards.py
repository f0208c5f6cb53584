"""A load shared by several processes: one record, nothing lost, nothing sent twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cargo import record, shards
from cargo.shards import Turns

from .driving import run_client
from .scripted_server import Hold, StopListening, Wait, serving
from .speech import TOKENS
from .test_runs import BEGUN, BOTH, WHOLE, command, outcomes


@BOTH
def test_one_record_with_every_request_once(http: str, tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    options = ("--processes=3", f"--http={http}", "--warmup=2", f"--progress={progress}")
    with serving(WHOLE) as server:
        found = run_client(server.port, *options, requests=25, concurrency=7)
    assert len(server.truths) == 27
    assert outcomes(found) == ["ok"] * 27
    assert [request["index"] for request in found["requests"]] == [0, 1, *range(25)]
    assert found["summary"]["completion_tokens"] == 25 * TOKENS
    assert found["run"]["processes"] == 3
    client = found["client"]
    assert set(client) == set(record.CLIENT_FIELDS)
    assert client["reads"] >= 27
    assert client["concurrency_max"] == 7
    assert client["ended"] == "done"
    assert record.problems(found) == []
    warm_end = max(request["t_end_s"] for request in found["requests"][:2])
    assert all(request["t_start_s"] >= warm_end for request in found["requests"][2:])
    said = [json.loads(line) for line in progress.read_text().splitlines()]
    assert len(said) == 25
    assert {line["of"] for line in said} == {25}


def test_all_processes_use_one_clock() -> None:
    """Every event at the time at which the server sent it, whichever process received it."""
    with serving([Wait(0.05), *WHOLE]) as server:
        found = run_client(server.port, "--processes=2", requests=8, concurrency=4)
    zero = found["clock"]["t0_monotonic_s"]
    first = sorted(zero + request["t_first_s"] for request in found["requests"])
    sent = sorted(truth.output[0][0] for truth in server.truths)
    for received, begin in zip(first, sent, strict=True):
        assert -0.001 <= received - begin <= 0.05


def test_an_open_loop_is_shared_too() -> None:
    options = ("--processes=2", "--rate=40", "--arrivals=constant")
    with serving([Wait(0.2), *WHOLE]) as server:
        found = run_client(server.port, *options, requests=10, concurrency=10)
    assert outcomes(found) == ["ok"] * 10
    due = [request["t_due_s"] for request in found["requests"]]
    assert [t - due[0] for t in due] == pytest.approx([n / 40 for n in range(10)], abs=1e-6)
    assert all(request["late_s"] >= 0 for request in found["requests"])


def test_a_server_that_dies_leaves_the_rest_not_started(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    dying = [*BEGUN, Wait(0.05), StopListening()]
    with serving(WHOLE, WHOLE, dying) as server:  # a fork of this process would hold its socket
        options = ("--processes=2", "--requests=60", "--concurrency=2")
        subprocess.run(command(server.port, out, *options), check=True, capture_output=True)
    found = json.loads(out.read_text())
    assert found["client"]["ended"] == "server_gone"
    counts = found["summary"]["outcomes"]
    assert counts.pop("not_started") > 40
    assert set(counts) <= {"ok", "server_gone", "connection"}
    assert "server_gone" in counts


def test_a_stall_of_all_ends_the_run_and_a_stall_of_one_process_does_not() -> None:
    options = ("--processes=2", "--timeout-between-tokens=0.4", "--timeout-first-token=1")
    with serving(WHOLE, WHOLE, [*BEGUN, Hold()], [Hold()]) as server:
        found = run_client(server.port, *options, requests=40, concurrency=2)
    assert found["client"]["ended"] == "stalled"
    assert found["summary"]["n_not_started"] > 30
    slow = [step for one in range(30) for step in (Wait(0.02), WHOLE[one])]
    with serving([*BEGUN, Hold()], [*slow, *WHOLE[30:]]) as server:
        found = run_client(server.port, *options, requests=6, concurrency=2)
    assert sorted(outcomes(found)) == ["ok"] * 5 + ["timeout"]
    assert found["client"]["ended"] == "done"


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def started(server: Any, out: Path) -> subprocess.Popen[bytes]:
    """The client with two processes, each with a stream that has begun and does not end."""
    line = command(server.port, out, "--processes=2", "--concurrency=2")
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len([truth for truth in server.truths if truth.output]) == 2)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_what_there_is(number: int, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with serving([*BEGUN, Hold()]) as server:
        process = started(server, out)
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
    found = json.loads(out.read_text())
    assert sorted(outcomes(found)) == ["client", "client", "not_started"]
    assert {r["error"]["kind"] for r in found["requests"] if r["error"]} == {"interrupted"}
    assert found["client"]["ended"] == "signal"


def test_a_process_that_is_killed_is_told_and_spoils_no_other(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with serving([*BEGUN, Hold()], [*BEGUN, Wait(1.0), *WHOLE[-30:]], WHOLE) as server:
        process = started(server, out)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        until(lambda: len(server.truths) == 3 and server.truths[2].end)
        for pid in children(process.pid):
            os.kill(pid, signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    found = json.loads(out.read_text())
    kinds = [(r["error"] or {}).get("kind") for r in found["requests"]]
    assert kinds.count("process_lost") == 1
    assert "client" in found["summary"]["outcomes"]


def test_nothing_is_left_where_the_client_itself_is_killed(tmp_path: Path) -> None:
    with serving([*BEGUN, Hold()]) as server:
        process = started(server, tmp_path / "run.json")
        left = children(process.pid)
        assert len(left) == 2
        process.kill()
        process.wait(timeout=20)
        until(lambda: not any(alive(pid) for pid in left))
    assert not (tmp_path / "run.json").exists()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_every_turn_is_given_out_once() -> None:
    turns = Turns(5)
    one, two = turns.each(list("abcde")), turns.each(list("abcde"))  # type: ignore[arg-type]
    assert [next(one), next(two), next(one)] == ["a", "b", "c"]
    assert turns.taken() == 3
    turns.close()
    assert list(one) == list(two) == []


def test_processes_for_a_load(monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    wanted = {1: 1, 512: 1, 513: 2, 2048: 4, 100_000: 4}
    assert {n: shards.best_number(n) for n in wanted} == wanted
