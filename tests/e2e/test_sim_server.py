"""The simulated server as a real process on loopback: start, pace, stream, queue, abort, stop."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIM = ROOT / "scripts" / "sim"
BASE = ["--model", "m", "-tp", "4", "--max-model-len", "4096", "--max-num-batched-tokens", "8192"]
BASE += ["--max-num-seqs", "2", "--enable-prefix-caching", "--gpu-memory-utilization", "0.95"]
MULTI_STEP = ["--num-scheduler-steps", "4"]
DEADLINE_S = 15.0


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    def __init__(self, folder: Path, *argv: str, **more: str) -> None:
        self.port, self.log_path, self.state = free_port(), folder / "log", str(folder / "state")
        env = {**os.environ, "SIM_SEED": "3", "SIM_STATE": self.state, **more}
        self.command = [sys.executable, str(SIM / "server.py"), "--port", str(self.port), *argv]
        with open(self.log_path, "wb") as log:
            t = time.monotonic()
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=env)
        while self.process.poll() is None and time.monotonic() - t < DEADLINE_S:
            with contextlib.suppress(OSError):
                if self.get("/health")[0] == 200:
                    self.ready_s = time.monotonic() - t
                    return
            time.sleep(0.01)
        raise AssertionError(self.log())

    def log(self) -> str:
        return self.log_path.read_text()

    def request(self, method: str, path: str, body: object = None, **headers: str) -> tuple:
        http_ = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(http_):
            http_.request(method, path, json.dumps(body) if body else None, headers)
            reply = http_.getresponse()
            return reply.status, reply.read()

    def get(self, path: str) -> tuple:
        return self.request("GET", path)

    def metric(self, name: str) -> float:
        page = self.get("/metrics")[1].decode()
        found = re.search(rf"^vllm:{name}\{{[^}}]*\}} (\S+)$", page, re.M)
        assert found, name
        return float(found[1])

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(tmp_path_factory.mktemp("plain"), *BASE, "--reasoning-parser", "qwen3")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def multi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(
        tmp_path_factory.mktemp("multi"), *BASE, *MULTI_STEP, VLLM_ATTENTION_BACKEND="SIM_ATTN"
    )
    yield server
    server.stop()


def ask(tokens: int, text: str = "hello", stream: bool = True) -> dict:
    body: dict = {"model": "m", "messages": [{"role": "user", "content": text}]}
    body.update(max_tokens=tokens, ignore_eos=True, stream=stream)
    return {**body, "stream_options": {"include_usage": True}} if stream else body


def send(port: int, body: dict) -> socket.socket:
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
    s.sendall(head.encode() + b"connection: close\r\n\r\n" + data)
    return s


def receive(s: socket.socket) -> tuple:
    """(head, [(time, event)]) of a streamed reply, read by hand."""
    raw, stamps = b"", []
    while data := s.recv(65536):
        raw += data
        stamps.append((len(raw), time.monotonic()))
    s.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    at, events = len(head) + 4, []
    while body:
        size, _, body = body.partition(b"\r\n")
        n = int(size, 16)
        at += len(size) + 2 + n + 2
        if n:
            events.append((next(t for end, t in stamps if end >= at), body[:n].decode()))
        body = body[n + 2 :]
    return head.decode(), events


def times(events: list) -> list:
    return [t for t, e in events if re.search(r'"delta":\{"(content|reasoning_content)', e)]


def rate(server: Running, tokens: int) -> float:
    ts = times(receive(send(server.port, ask(tokens)))[1])
    assert len(ts) == tokens
    return (tokens - 1) / (ts[-1] - ts[0])


def test_start_log_and_first_answers(plain: Running):
    log = plain.log()
    order = [
        "vLLM API server version 0.6.3+sim",
        "non-default args: {'model': 'm'",
        "Initializing an LLM engine (v0.6.3+sim)",
        "Using XFormers backend.",
        "Starting to load model m",
        "Loading model weights took 4.0576 GB",
        "# GPU blocks: ",
        "INFO:     Started server process",
        "INFO:     Application startup complete.",
        f"INFO:     Uvicorn running on http://127.0.0.1:{plain.port} ",
    ]
    places = [log.index(words) for words in order]
    assert places == sorted(places)
    assert plain.ready_s < 5, "0.4 s where the machine is free"
    assert plain.get("/version") == (200, b'{"version":"0.6.3+sim"}')
    card = json.loads(plain.get("/v1/models")[1])["data"][0]
    assert (card["id"], card["owned_by"], card["max_model_len"]) == (
        "m",
        "decodelab-simulator",
        4096,
    )
    assert plain.get("/health") == (200, b"")


def test_stream_of_a_real_request(plain: Running):
    head, events = receive(send(plain.port, ask(12)))
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "content-type: text/event-stream; charset=utf-8" in head
    texts = [e for _, e in events]
    assert all(t.startswith("data: ") and t.endswith("\n\n") for t in texts)
    assert len(texts) == 1 + 12 + 1 + 1 and texts[-1] == "data: [DONE]\n\n"
    assert '"delta":{"role":"assistant","content":""}' in texts[0]
    assert all('"delta":{"reasoning_content":"' in t for t in texts[1:13])
    usage = json.loads(texts[13][6:])["usage"]
    assert usage["completion_tokens"] == 12
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 12}


def test_whole_reply_errors_and_keep_alive(plain: Running):
    http_ = http.client.HTTPConnection("127.0.0.1", plain.port, timeout=DEADLINE_S)
    with contextlib.closing(http_):
        cases = [
            ("GET", "/nope", None, 404),
            ("GET", "/v1/chat/completions", None, 404),
            ("POST", "/v1/chat/completions", {**ask(3), "model": "x"}, 400),
            ("POST", "/v1/chat/completions", ask(100000), 400),
            ("POST", "/v1/chat/completions", ask(5, stream=False), 200),
        ]
        for method, path, body, status in cases:  # one connection for all
            http_.request(method, path, json.dumps(body) if body else None)
            reply = http_.getresponse()
            raw = reply.read()
            assert reply.status == status
        data = json.loads(raw)
        assert data["usage"]["completion_tokens"] == 5
        assert data["choices"][0]["message"]["reasoning_content"]


def test_cached_prefix_is_reported_and_shortens_the_first_token(plain: Running):
    text = " ".join(f"word{i}" for i in range(1200))
    seen = []
    for _ in range(2):
        t0 = time.monotonic()
        _, events = receive(send(plain.port, ask(2, text)))
        usage = json.loads(events[-2][1][6:])["usage"]
        seen.append((usage["prompt_tokens_details"]["cached_tokens"], times(events)[0] - t0))
    assert seen[0][0] == 0 and seen[1][0] > 1500 and seen[1][0] % 16 == 0
    assert seen[1][1] < seen[0][1]


def test_rate_is_the_models_and_multi_step_is_faster(plain: Running, multi: Running):
    # Interleaved medians: the machine that runs the tests may be busy with others.
    rates = [(rate(plain, 96), rate(multi, 97)) for _ in range(3)]
    single, burst = (statistics.median(r) for r in zip(*rates, strict=True))
    assert 200 < single < 330
    assert 1.08 < burst / single < 1.5


def test_multi_step_events_come_in_bursts_of_four(multi: Running):
    ts = times(receive(send(multi.port, ask(33)))[1])
    gaps = [b - a for a, b in itertools.pairwise(ts[1:])]
    inside = [g for i, g in enumerate(gaps) if i % 4 != 3]
    between = [g for i, g in enumerate(gaps) if i % 4 == 3]
    assert statistics.median(inside) < 0.002 < 0.006 < statistics.median(between)


def test_two_run_two_wait_and_ixsmi_sees_it(plain: Running):
    replies: list = [None] * 4

    def one(i: int) -> None:
        replies[i] = receive(send(plain.port, ask(80)))[1]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
        time.sleep(0.01)
    seen = set()
    shown = []
    while any(t.is_alive() for t in threads):
        seen.add((plain.metric("num_requests_running"), plain.metric("num_requests_waiting")))
        argv = [sys.executable, "-S", "-E", str(SIM / "ixsmi.py"), "--state", plain.state]
        argv += ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        shown += [tuple(map(int, line.split(", "))) for line in out.splitlines()]
        time.sleep(0.05)
    assert (2.0, 2.0) in seen
    assert max(r for r, _ in seen) == 2.0
    first = [times(r)[0] for r in replies]
    last = [times(r)[-1] for r in replies]
    assert min(first[2:]) > min(last[:2])
    assert all(len(times(r)) == 80 for r in replies)
    assert any(util > 0 for util, _ in shown)
    assert {memory for _, memory in shown} == {30555, 30451}
    assert plain.metric("request_queue_time_seconds_sum") > 0.2


def test_client_that_leaves_aborts_its_request(plain: Running):
    running, waiting = send(plain.port, ask(3000)), send(plain.port, ask(3000))
    queued = send(plain.port, ask(3000))
    running.recv(1000)
    for s in (running, waiting, queued):
        s.close()
    deadline = time.monotonic() + DEADLINE_S
    while plain.metric("num_requests_running") + plain.metric("num_requests_waiting"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while plain.log().count("Aborted request") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(times(receive(send(plain.port, ask(3)))[1])) == 3


def test_sigterm_while_streaming_ends_at_once_with_0(tmp_path: Path):
    server = Running(tmp_path, *BASE)
    s = send(server.port, ask(3000))
    s.recv(10)
    t = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(DEADLINE_S) == 0
    assert time.monotonic() - t < 1.0, "0.01 s where the machine is free"
    assert "Finished server process" in server.log()
    assert not Path(server.state).exists()
    with contextlib.suppress(ConnectionResetError):
        while s.recv(65536):
            pass
    s.close()


def failing(*argv: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(SIM / "server.py"), *argv],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_failed_starts_end_with_vllms_words_and_codes(plain: Running):
    done = failing("--num-scheduler-steps", "4", "--enable-chunked-prefill", "--port", "0")
    assert done.returncode == 1
    cause = (
        "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: xformers."
    )
    assert cause in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("RuntimeError: Engine process failed")
    assert "Using XFormers backend." in done.stdout and "Uvicorn" not in done.stderr

    done = failing("--no-such-flag", "4")
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last == "api_server.py: error: unrecognized arguments: --no-such-flag 4"

    done = failing("--port", str(plain.port))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "OSError: [Errno 98] Address already in use"


def test_sigterm_during_the_start_ends_it_at_once(tmp_path: Path):
    argv = [sys.executable, str(SIM / "server.py"), *BASE, "--port", str(free_port())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        t = time.monotonic()
        process.terminate()
        assert process.wait(DEADLINE_S) == -signal.SIGTERM
        assert time.monotonic() - t < 1.0
