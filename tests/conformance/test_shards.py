"""A load shared by several processes: one record, nothing lost, nothing sent twice."""

from __future__ import annotations

import errno
import io
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cargo import record, shards
from cargo.shard_memory import Turns

from .driving import run_client
from .scripted_server import Hold, StopListening, Wait, serving
from .speech import TOKENS, plain_events, steps
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
    assert said[-1] == {"done": 25, "of": 25}
    assert {line["of"] for line in said} == {25}


def test_progress_only_grows(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    slow = steps(plain_events(), first_s=0.15, gap_s=0.001)
    with serving(slow) as server:
        options = ("--processes=2", f"--progress={progress}")
        run_client(server.port, *options, requests=12, concurrency=2)
    done = [json.loads(line)["done"] for line in progress.read_text().splitlines()]
    assert len(done) > 2  # while it lasts
    assert done == sorted(set(done))
    assert done[-1] == 12


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


def started(server: Any, out: Path, *options: str) -> subprocess.Popen[bytes]:
    """The client with two processes, each with a stream that has begun."""
    line = command(server.port, out, "--processes=2", "--concurrency=2", *options)
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


PAUSED = [*WHOLE[:12], Wait(1.0), *WHOLE[12:]]


def test_a_process_that_is_killed_is_told_and_spoils_no_other(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with serving(PAUSED) as server:
        process = started(server, out, "--requests=60")
        os.kill(children(process.pid)[0], signal.SIGKILL)
        assert process.wait(timeout=20) == 0
    assert len(server.truths) == 2  # half the load is not what was asked for: no more of it
    found = json.loads(out.read_text())
    assert sorted(outcomes(found)) == ["client", *["not_started"] * 58, "ok"]
    assert [r["error"]["kind"] for r in found["requests"] if r["error"]] == ["process_lost"]
    assert found["client"]["ended"] == "process_lost"
    assert record.problems(found) == []


def test_a_loss_and_a_signal_blame_no_request_that_was_never_sent(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with serving([*BEGUN, Hold()]) as server:
        line = command(server.port, out, "--processes=4", "--concurrency=8", "--requests=100")
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: len([truth for truth in server.truths if truth.output]) == 8)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    found = json.loads(out.read_text())
    kinds = [request["error"]["kind"] for request in found["requests"] if request["error"]]
    assert sorted(kinds) == ["interrupted"] * 6 + ["process_lost"] * 2
    assert found["summary"]["n_not_started"] == 92
    assert found["client"]["ended"] == "process_lost"


def test_a_stopped_process_does_not_hold_the_run(monkeypatch: Any) -> None:
    monkeypatch.setattr(shards, "QUIET_LOOKS", 4)
    killer = threading.Thread(target=lambda: os.kill(one_child(server), signal.SIGSTOP))
    with serving(PAUSED) as server:
        killer.start()
        found = run_client(server.port, "--processes=2", requests=60, concurrency=2)
        killer.join()
    assert found["client"]["ended"] == "process_lost"
    kinds = [request["error"]["kind"] for request in found["requests"] if request["error"]]
    assert kinds == ["process_lost"]
    assert "ok" in outcomes(found)
    assert children(os.getpid()) == []


def one_child(server: Any) -> int:
    until(lambda: len([truth for truth in server.truths if truth.output]) == 2)
    return children(os.getpid())[0]


def test_a_stopped_process_can_be_told_to_end(tmp_path: Path) -> None:
    """As one that works: it loses nothing."""
    out = tmp_path / "run.json"
    with serving([*BEGUN, Hold()]) as server:
        process = started(server, out)
        stopped = children(process.pid)[0]
        until(lambda: stop(stopped))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    found = json.loads(out.read_text())
    assert {r["error"]["kind"] for r in found["requests"] if r["error"]} == {"interrupted"}
    assert found["client"]["ended"] == "signal"


STUBBORN = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from cargo import shards
from cargo.endpoint import resolve
from cargo.load import Limits, Load, RunState

class Stubborn:
    def __init__(self, state): pass
    def interrupt(self):
        os.write(1, b"told\\n")  # one write: two processes share the pipe
    def run(self):
        while True:
            time.sleep(0.1)

load = Load(resolve("http://127.0.0.1:9", "epoll"), {}, lambda one: b"", 2, 2, 0, Limits())
shards.run(RunState(load), 2, Stubborn, None)
"""


def test_a_second_signal_ends_every_process() -> None:
    line = [sys.executable, "-c", STUBBORN, str(Path(shards.__file__).parents[1])]
    process = subprocess.Popen(line, stdout=subprocess.PIPE)
    assert process.stdout is not None
    until(lambda: len(children(process.pid)) == 2 and catches_sigterm(process.pid))
    left = children(process.pid)
    process.send_signal(signal.SIGTERM)
    assert [process.stdout.readline() for _ in left] == [b"told\n"] * 2
    until(lambda: stop(left[0]))
    assert alive(left[1])
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == -signal.SIGTERM
    process.stdout.close()
    until(lambda: not any(alive(pid) for pid in left))


def stop(pid: int) -> bool:
    os.kill(pid, signal.SIGSTOP)
    return state_of(pid) == "T"


def catches_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = dict(line.split(":", 1) for line in lines)
    bit = 1 << (signal.SIGTERM - 1)
    return bool(int(masks["SigCgt"], 16) & bit) and not int(masks["SigBlk"], 16) & bit


def test_a_fork_that_fails_sends_nothing(monkeypatch: Any, tmp_path: Path) -> None:
    fork, made = os.fork, []

    def failing() -> int:
        made.append(1)
        if len(made) == 3:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", failing)
    with serving(WHOLE) as server:
        with pytest.raises(OSError, match=r"process 3 of 4 .* nothing was sent but the warm-up"):
            run_client(server.port, "--processes=4", "--warmup=1", requests=8, concurrency=4)
        assert children(os.getpid()) == []
        assert len(server.truths) == 1


def test_an_answer_that_breaks_off_counts_as_far_as_it_goes() -> None:
    out = io.BytesIO()
    for index in (3, 4):
        shards._say(out, {"index": index})
    for size, heard in ((len(out.getvalue()), [3, 4]), (len(out.getvalue()) - 1, [3]), (5, [])):
        worker = shards._Worker(0, 0)
        worker.said.extend(out.getvalue()[:size])
        worker.hear()
        assert [entry["index"] for entry in worker.entries] == heard
        assert worker.tally is None


def test_nothing_is_left_where_the_client_itself_is_killed(tmp_path: Path) -> None:
    with serving([*BEGUN, Hold()]) as server:
        process = started(server, tmp_path / "run.json")
        left = children(process.pid)
        assert len(left) == 2
        process.kill()
        process.wait(timeout=20)
        until(lambda: not any(alive(pid) for pid in left))
    assert not (tmp_path / "run.json").exists()


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def alive(pid: int) -> bool:
    return state_of(pid) not in "ZX"


def test_every_turn_is_given_out_once() -> None:
    turns = Turns(5)
    one, two = turns.each(list("abcde")), turns.each(list("abcde"))  # type: ignore[arg-type]
    assert [next(one), next(two), next(one)] == ["a", "b", "c"]
    turns.end()
    assert list(one) == list(two) == []


def test_no_turn_is_given_to_two_processes() -> None:
    """Four that begin together and take as fast as they can (an offset may be shared without a lock)."""
    requests, processes = 100_000, 4
    turns = Turns(requests)
    taken = mmap.mmap(-1, processes * requests)
    every = list(range(requests))
    wait, go = os.pipe()
    pids = []
    for number in range(processes):
        pid = os.fork()
        if not pid:
            os.read(wait, 1)
            for index in turns.each(every):  # type: ignore[arg-type]
                taken[number * requests + index] += 1  # type: ignore[operator]
            os._exit(0)
        pids.append(pid)
    os.write(go, b"g" * processes)
    for pid in pids:
        os.waitpid(pid, 0)
    for fd in (wait, go):
        os.close(fd)
    turns.close()
    times = [sum(taken[index::requests]) for index in range(requests)]
    assert set(times) == {1}


def test_processes_for_a_load(monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    wanted = {1: 1, 512: 1, 513: 2, 2048: 4, 100_000: 4}
    assert {n: shards.best_number(n) for n in wanted} == wanted
