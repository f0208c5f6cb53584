"""What concerns a whole run: the closed loop, early ends, the client's report about itself."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cargo import decode_microbench, record

from .driving import run_client
from .scripted_server import Hold, Send, Step, StopListening, Wait, serving
from .speech import HEAD, ROLE, TOKENS, WORDS, chunk, event, framed, plain_events, steps

CLIENT = Path(decode_microbench.__file__)
WHOLE = steps(plain_events(), first_s=0.01, gap_s=0.001)
BEGUN: list[Step] = [
    Send(HEAD),
    Send(framed(event(ROLE))),
    Send(framed(event(chunk({"content": WORDS[0]}))), 1),
]
BOTH = pytest.mark.parametrize("http", ["epoll", "httpx"])


def outcomes(found: dict[str, Any]) -> list[str]:
    return [request["outcome"] for request in found["requests"]]


@BOTH
def test_closed_loop_keeps_c_requests_open_and_sends_n(http: str) -> None:
    with serving(WHOLE) as server:
        found = run_client(server.port, f"--http={http}", requests=7, concurrency=3)
    assert len(server.truths) == 7
    assert outcomes(found) == ["ok"] * 7
    assert [request["index"] for request in found["requests"]] == list(range(7))
    assert found["client"]["concurrency_max"] == 3
    assert found["client"]["ended"] == "done"
    spans = sorted((r["t_start_s"], r["t_end_s"]) for r in found["requests"])
    # the fourth request waited for a slot: its clock starts after the first has ended
    assert spans[3][0] > min(end for _, end in spans[:3])
    summary = found["summary"]
    assert summary["completion_tokens"] == 7 * TOKENS
    wall = max(end for _, end in spans) - spans[0][0]
    assert summary["wall_s"] == pytest.approx(wall)
    assert summary["output_tps_total"] == pytest.approx(7 * TOKENS / wall)


@BOTH
def test_every_request_of_a_run_is_the_same_and_says_what_it_must(http: str) -> None:
    extra = '--extra-body={"stream_options":{"continuous_usage_stats":true},"min_tokens":16}'
    with serving(WHOLE) as server:
        run_client(server.port, extra, f"--http={http}", requests=3, concurrency=2)
    bodies = {truth.request.partition(b"\r\n\r\n")[2] for truth in server.truths}
    assert len(bodies) == 1
    body = json.loads(bodies.pop())
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["ignore_eos"] is True
    assert body["temperature"] == 0
    assert body["max_tokens"] == TOKENS
    assert body["min_tokens"] == 16
    assert body["messages"][0]["role"] == "system"


@BOTH
def test_warmup_comes_first_and_is_not_counted(http: str, tmp_path: Path) -> None:
    progress = tmp_path / "progress.jsonl"
    options = ("--warmup=2", f"--progress={progress}", f"--http={http}")
    with serving(WHOLE) as server:
        found = run_client(server.port, *options, requests=3, concurrency=2)
    assert [request["warmup"] for request in found["requests"]] == [True] * 2 + [False] * 3
    assert found["summary"]["n_attempted"] == 3
    warm_end = max(request["t_end_s"] for request in found["requests"][:2])
    assert all(request["t_start_s"] >= warm_end for request in found["requests"][2:])
    lines = [json.loads(line) for line in progress.read_text().splitlines()]
    assert lines == [{"done": n, "of": 3} for n in (1, 2, 3)]


@BOTH
def test_a_server_that_dies_ends_the_run_at_once(http: str) -> None:
    dying = [*BEGUN, Wait(0.03), StopListening()]
    with serving(WHOLE, dying) as server:
        begin = time.monotonic()
        found = run_client(server.port, f"--http={http}", requests=50)
        took = time.monotonic() - begin
    assert outcomes(found) == ["ok", "server_gone"] + ["not_started"] * 48
    assert found["client"]["ended"] == "server_gone"
    summary = found["summary"]
    assert (summary["n_attempted"], summary["n_ok"], summary["n_not_started"]) == (2, 1, 48)
    assert summary["success_rate"] == 0.5
    assert took < 5
    assert found["requests"][2] == record.blank_request(2)


@BOTH
def test_streams_of_a_dead_server_are_not_waited_for(http: str) -> None:
    """One stream breaks as the server dies; the other's connection lives on in a child."""
    dying = [*BEGUN, Wait(0.1), StopListening()]
    with serving([*BEGUN, Hold()], dying) as server:
        options = (f"--http={http}", "--timeout-between-tokens=6")
        found = run_client(server.port, *options, requests=9, concurrency=2)
    assert outcomes(found)[:2] == ["server_gone"] * 2
    assert outcomes(found)[2:] == ["not_started"] * 7


@BOTH
def test_nothing_listens(http: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = run_client(port, f"--http={http}", requests=5)
    assert outcomes(found) == ["connection"] + ["not_started"] * 4
    assert found["requests"][0]["error"]["kind"] == "refused"
    assert found["requests"][0]["t_start_s"] is None
    assert found["summary"]["wall_s"] is None


@BOTH
def test_a_broken_connection_of_a_living_server_does_not_end_the_run(http: str) -> None:
    with serving(WHOLE, [*BEGUN], WHOLE) as server:
        found = run_client(server.port, f"--http={http}", requests=4)
    assert outcomes(found) == ["ok", "truncated", "ok", "ok"]
    assert found["summary"]["success_rate"] == 0.75


@BOTH
def test_a_stalled_server_costs_one_time_limit_and_not_one_a_request(http: str) -> None:
    with serving(WHOLE, [*BEGUN, Hold()]) as server:
        options = (f"--http={http}", "--timeout-between-tokens=0.3")
        found = run_client(server.port, *options, requests=20)
    assert outcomes(found) == ["ok", "timeout"] + ["not_started"] * 18
    assert found["requests"][1]["error"]["kind"] == "between_tokens"
    assert found["client"]["ended"] == "stalled"


@BOTH
def test_one_stuck_stream_does_not_end_the_run_while_others_flow(http: str) -> None:
    slow = steps(plain_events(), first_s=0.01, gap_s=0.05)
    with serving([*BEGUN, Hold()], slow) as server:
        options = (f"--http={http}", "--timeout-between-tokens=0.4")
        found = run_client(server.port, *options, requests=4, concurrency=2)
    assert sorted(outcomes(found)) == ["ok", "ok", "ok", "timeout"]
    assert found["client"]["ended"] == "done"


@BOTH
def test_a_stuck_stream_is_no_stall_where_others_have_ended(http: str) -> None:
    with serving([*BEGUN, Hold()], WHOLE) as server:
        options = (f"--http={http}", "--timeout-between-tokens=0.4")
        found = run_client(server.port, *options, requests=2, concurrency=2)
    assert sorted(outcomes(found)) == ["ok", "timeout"]
    assert found["client"]["ended"] == "done"


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port whose queue of connections is full: connecting neither succeeds nor fails."""
    waiting = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(8):
            sock = socket.socket()
            sock.settimeout(0.1)
            waiting.append(sock)
            if sock.connect_ex(address) != 0:
                break
        try:
            yield address[1]
        finally:
            for sock in waiting:
                sock.close()


@BOTH
def test_connect_timeout(http: str) -> None:
    with full_backlog() as port:
        options = (f"--http={http}", "--timeout-connect=0.2")
        found = run_client(port, *options, requests=3)
    assert outcomes(found) == ["timeout", "not_started", "not_started"]
    assert found["requests"][0]["error"]["kind"] == "connect"
    assert found["requests"][0]["connect_s"] is None


def test_the_client_reports_on_itself() -> None:
    with serving(WHOLE) as server:
        found = run_client(server.port, requests=3)
    client = found["client"]
    assert set(client) == set(record.CLIENT_FIELDS)
    assert client["stamp_source"] in ("kernel", "user")
    assert client["reads"] >= 3
    assert 0 < client["cpu_s"] <= client["wall_s"] + 0.1
    assert 0 < client["connect_max_s"] < 5
    assert client["loop_late_max_s"] is not None
    for request in found["requests"]:
        events = request["events"]
        assert all(user >= t for t, user in zip(events["t_s"], events["t_user_s"], strict=True))
    assert record.problems(found) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernel stamps are Linux's")
def test_kernel_stamps_do_not_move_when_the_reader_is_late(monkeypatch: Any) -> None:
    """The reader sleeps before it reads: its own stamps are late, the kernel's are not."""
    from cargo import epoll_client

    serve = epoll_client.EpollClient._serve

    def serve_late(self: Any, ready: Any) -> None:
        if ready:
            time.sleep(0.02)
        serve(self, ready)

    script: list[Step] = [Send(HEAD), Wait(0.1)]
    for data, ends in plain_events(WORDS[:4]):
        script += [Send(framed(data), ends), Wait(0.08)]
    monkeypatch.setattr(epoll_client.EpollClient, "_serve", serve_late)
    with serving(script) as server:
        found = run_client(server.port, "--no-ignore-eos")
    client = found["client"]
    if client["stamp_source"] != "kernel":
        pytest.skip("this kernel gives no receive stamps")
    zero = found["clock"]["t0_monotonic_s"]
    events = found["requests"][0]["events"]
    kinds = [kind in record.OUTPUT_KINDS for kind in events["kind"]]
    for t, user, (before, after) in zip(
        itertools.compress(events["t_s"], kinds),
        itertools.compress(events["t_user_s"], kinds),
        server.truths[0].output,
        strict=True,
    ):
        assert before - 0.001 <= zero + t <= after + 0.01
        assert user - t >= 0.015
    assert client["lag_p50_s"] >= 0.015


def command(port: int, out: Path, *options: str) -> list[str]:
    return [
        sys.executable,
        str(CLIENT),
        f"--base-url=http://127.0.0.1:{port}/v1/",
        "--model=m",
        "--scenario=short",
        "--concurrency=1",
        "--requests=3",
        "--max-tokens=16",
        f"--out={out}",
        *options,
    ]


def test_as_a_command_with_a_key_that_is_never_written(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    env = dict(os.environ, LAB_KEY="sk-very-secret")
    with serving(WHOLE) as server:
        line = command(server.port, out, "--api-key-env=LAB_KEY", "--label=by hand")
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert all(b"Authorization: Bearer sk-very-secret" in t.request for t in server.truths)
    text = out.read_text()
    assert "sk-very-secret" not in text + done.stdout + done.stderr
    found = json.loads(text)
    assert record.problems(found) == []
    assert found["run"]["label"] == "by hand"
    assert found["run"]["seed"]
    assert found["source"] == "measured"
    assert outcomes(found) == ["ok"] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@BOTH
def test_a_signal_writes_what_there_is(number: int, http: str, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with serving(WHOLE, [*BEGUN, Hold()]) as server:
        process = subprocess.Popen(
            command(server.port, out, f"--http={http}"), stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while len([t for t in server.truths if t.output]) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        begin = time.monotonic()
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        took = time.monotonic() - begin
    found = json.loads(out.read_text())
    assert outcomes(found) == ["ok", "client", "not_started"]
    assert found["requests"][1]["error"]["kind"] == "interrupted"
    assert found["client"]["ended"] == "signal"
    assert took < 8, "the signal was lost on the way"


def test_model_auto_asks_the_server() -> None:
    models = json.dumps({"data": [{"id": "tiny-moe"}]}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(models)}\r\n\r\n".encode()
    with serving([Send(head + models)], WHOLE) as server:
        found = run_client(server.port, "--model=auto")
    assert server.truths[0].request.startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert found["run"]["model"] == "tiny-moe"
    assert json.loads(server.truths[1].request.partition(b"\r\n\r\n")[2])["model"] == "tiny-moe"


def test_a_server_that_lists_no_model_is_not_gone() -> None:
    denied = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"
    with serving([Send(denied)]) as server:
        found = run_client(server.port, "--model=auto", requests=2)
    assert outcomes(found) == ["connection", "not_started"]
    assert found["client"]["ended"] == "no_model"
    assert "401" in found["requests"][0]["error"]["message"]


@pytest.mark.parametrize("cut", [7, 11, 13])
def test_a_last_word_that_a_read_cut_ends_the_request(cut: int) -> None:
    """`data: [DONE]` in two chunks, and the connection stays open: no slot waits for a time limit."""
    end = event("[DONE]")
    script = [*WHOLE[:-2], Send(framed(end[:cut])), Wait(0.05), Send(framed(end[cut:])), Hold()]
    with serving(script) as server:
        found = run_client(server.port, "--timeout-between-tokens=20", requests=2)
    assert outcomes(found) == ["ok", "ok"]
    assert found["client"]["wall_s"] < 15


def test_a_server_that_only_stops_listening_streams_on() -> None:
    """A graceful shutdown: one connection is refused, the open stream has its events to the end."""
    slow = steps(plain_events(), first_s=0.01, gap_s=0.15)
    with serving(slow, [*BEGUN, Wait(0.1), StopListening()]) as server:
        found = run_client(server.port, requests=9, concurrency=2)
    assert outcomes(found)[:2] == ["ok", "server_gone"]
    assert outcomes(found)[2:] == ["not_started"] * 7


def test_an_error_whose_body_does_not_end_costs_no_time_limit() -> None:
    head = b"HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n"
    script: list[Step] = [Send(head + b'{"error":{"message":"boom"}}'), Hold()]
    with serving(script, WHOLE) as server:
        found = run_client(server.port, "--timeout-first-token=60", requests=2)
    assert outcomes(found) == ["http_error", "ok"]
    assert found["client"]["ended"] == "done"


def test_a_reply_to_a_request_that_is_not_sent_whole_is_read(tmp_path: Path) -> None:
    """The server says 413 after the head and reads no more; its connection stays open."""
    prompt = tmp_path / "long.json"
    prompt.write_text(json.dumps({"messages": [{"role": "user", "content": "x" * 20_000_000}]}))
    reply = b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)
                hold.wait(30)

        hold = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            found = run_client(listener.getsockname()[1], f"--scenario={prompt}")
        finally:
            hold.set()
            thread.join(30)
    assert outcomes(found) == ["http_error"]
    assert found["requests"][0]["error"]["status"] == 413


def test_what_came_while_the_client_was_put_aside_came_in_time(tmp_path: Path) -> None:
    """Stopped for longer than a time limit, while the server sent all: no fault of the server's."""
    out = tmp_path / "run.json"
    slow = steps(plain_events(), first_s=0.3, gap_s=0.02)
    with serving(slow) as server:
        line = command(
            server.port, out, "--timeout-between-tokens=0.6", "--timeout-first-token=0.6"
        )
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not server.truths and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        while not server.truths[0].end and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.7)
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=20) == 0
    found = json.loads(out.read_text())
    assert outcomes(found) == ["ok"] * 3, found["requests"][0]["error"]


def test_a_signal_while_the_record_is_made_costs_no_record(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """All requests are over; their decoding takes its time."""
    from cargo import run_record

    out = tmp_path / "run.json"
    assemble = run_record.assemble

    def told_to_stop(*arguments: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return assemble(*arguments)

    monkeypatch.setattr(decode_microbench, "assemble", told_to_stop)
    with serving(WHOLE) as server:
        assert decode_microbench.main(command(server.port, out)[2:]) == 0
    assert outcomes(json.loads(out.read_text())) == ["ok"] * 3


def test_model_auto_without_a_server_is_a_record_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = run_client(port, "--model=auto", requests=2)
    assert outcomes(found) == ["connection", "not_started"]
    assert found["run"]["model"] is None
    assert "refused" in found["requests"][0]["error"]["message"].lower()
