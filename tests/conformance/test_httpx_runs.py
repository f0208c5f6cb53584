"""Runs through httpx where its own ways matter: what it loads, what holds up its loop, whom it asks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from cargo import decode_microbench, endpoint, httpx_client
from tests.e2e.tls import Authority, TlsFront, opened

from .driving import run_client
from .scripted_server import Hold, Reset, ScriptedServer, Send, Step, StopListening, Wait, serving
from .speech import HEAD, ROLE, TOKENS, WORDS, chunk, event, framed, plain_events, steps
from .test_runs import full_backlog

CLIENT = Path(decode_microbench.__file__)
WHOLE = steps(plain_events(), first_s=0.01, gap_s=0.001)
BEGUN: list[Step] = [
    Send(HEAD),
    Send(framed(event(ROLE))),
    Send(framed(event(chunk({"content": WORDS[0]}))), 1),
]
# Runs the client with its arguments and tells what was imported after its loop's ticker began.
WATCHED = """\
import json, sys
sys.path.insert(0, sys.argv.pop(1))
from cargo import decode_microbench, httpx_client
tick, told = httpx_client.HttpxClient._tick, []
async def watched(self):
    before, ticks = set(sys.modules), len(self._state.late_ns)
    try:
        await tick(self)
    finally:
        told.append({"ticks": ticks, "late": sorted(set(sys.modules) - before)})
httpx_client.HttpxClient._tick = watched
code = decode_microbench.main(sys.argv[1:])
print(json.dumps({"code": code, "told": told}))
"""


def outcomes(found: dict[str, Any]) -> list[str]:
    return [request["outcome"] for request in found["requests"]]


def words(url: str, out: Path, *options: str, requests: int = 1) -> list[str]:
    found = [f"--base-url={url}", "--model=m", "--scenario=short", "--seed=1", f"--out={out}"]
    found += [f"--max-tokens={TOKENS}", f"--requests={requests}", "--http=httpx"]
    return [*found, *(options or ["--concurrency=1"])]


def until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, f"it never came to this: {what}"
        time.sleep(0.01)


def begun(client: list[str]) -> subprocess.Popen[bytes]:
    argv = [sys.executable, str(CLIENT), *client]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL)


# -- what a first request costs ----------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nothing_is_loaded_any_more_once_the_loop_is_watched(scheme: str, tmp_path: Path) -> None:
    """Else the first request would stand in the way of the loop, and be measured."""
    authority = Authority(tmp_path / "authority")
    with serving(WHOLE) as server, opened(lambda: TlsFront(server.port, authority)) as front:
        port = server.port if scheme == "http" else front.port
        client = words(f"{scheme}://localhost:{port}", tmp_path / "run.json", requests=4)
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, str(CLIENT.parents[1]), *client],
            env=dict(os.environ, SSL_CERT_FILE=str(authority.file)),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"code": 0, "told": [{"ticks": 0, "late": []}]}
    assert outcomes(json.loads((tmp_path / "run.json").read_text())) == ["ok"] * 4
    assert len(server.truths) == 4, "the measured server is not what it is tried out on"


def test_it_is_tried_out_once_for_all_processes_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert httpx_client.missing() is None
    monkeypatch.setattr(httpx_client, "_try_out", None)  # would be called, and fail
    with serving(WHOLE) as server:
        assert outcomes(run_client(server.port, "--http=httpx", requests=2)) == ["ok"] * 2


def test_a_host_that_does_not_let_it_try_finds_out_by_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*_: Any) -> None:
        raise PermissionError(1, "no listening here")

    monkeypatch.setattr(httpx_client, "_LOADED", [])
    monkeypatch.setattr(asyncio, "start_server", refused)
    with serving(WHOLE) as server:
        assert outcomes(run_client(server.port, "--http=httpx")) == ["ok"]


# -- a client that stood still -----------------------------------------------------------------


@pytest.mark.parametrize("limit", ["first-token", "between-tokens"])
def test_a_frozen_client_does_not_blame_the_server(limit: str, tmp_path: Path) -> None:
    """All that came meanwhile lies in the socket when the client goes on."""
    out, released = tmp_path / "run.json", 0.5
    first = [] if limit == "first-token" else BEGUN[1:]
    slow = [Send(HEAD), *first, Wait(released), *steps(plain_events(), gap_s=0.001)[1:]]
    with serving(slow, WHOLE) as server:
        client = begun(words(server_url(server), out, "--concurrency=1", f"--timeout-{limit}=2"))
        try:
            until(lambda: server.truths, "the request is there")
            client.send_signal(signal.SIGSTOP)
            until(lambda: server.truths[0].end, "the server has sent all of it")
            time.sleep(2.2)  # longer than the limit
            client.send_signal(signal.SIGCONT)
            assert client.wait(30) == 0
        finally:
            client.kill()
            client.wait()
    found = json.loads(out.read_text())
    assert outcomes(found) == ["ok"], found["requests"][0]["error"]
    assert found["client"]["ended"] == "done"


def server_url(server: ScriptedServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def test_an_error_whose_body_does_not_end_is_not_waited_for() -> None:
    told = b"HTTP/1.1 500 Oops\r\ncontent-length: 900\r\n\r\n" + b'{"error": {"message": "boom"}}'
    with serving([Send(told), Hold()], WHOLE) as server:
        found = run_client(server.port, "--http=httpx", requests=2)
    assert outcomes(found) == ["http_error", "ok"]
    assert found["requests"][0]["error"]["message"] == "boom"


# -- whether the server is still there ---------------------------------------------------------


def test_looking_whether_anything_listens_does_not_hold_up_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(httpx_client, "_PROBE_S", 0.2)

    async def look(port: int) -> tuple[bool, int]:
        turns = 0
        looking = asyncio.ensure_future(
            httpx_client._nobody_at(socket.AF_INET, ("127.0.0.1", port))
        )
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
        return looking.result(), turns

    with full_backlog() as port:
        nobody, turns = asyncio.run(look(port))
    assert not nobody, "only a refusal is a no"
    assert turns > 10


def test_a_server_that_closed_only_its_listener_is_heard_to_the_end() -> None:
    """As a server does that is told to finish what it has."""
    leaving = [*BEGUN, Wait(0.05), StopListening()]
    streams_on = steps(plain_events(), first_s=0.01, gap_s=0.12)
    with serving(streams_on, leaving) as server:
        found = run_client(server.port, "--http=httpx", requests=6, concurrency=2)
    assert sorted(outcomes(found)) == ["not_started"] * 4 + ["ok", "server_gone"]
    assert found["client"]["ended"] == "server_gone"


def test_a_signal_ends_what_such_a_server_still_sends(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    leaving = [*BEGUN, Wait(0.05), StopListening()]
    endless: list[Step] = [*BEGUN]
    for _ in range(400):
        endless += [Send(framed(event(chunk({"content": "x"}))), 1), Wait(0.05)]
    with serving(endless, leaving) as server:
        client = begun(words(server_url(server), out, "--concurrency=2", requests=3))
        try:
            until(lambda: server.truths and len(server.truths[0].output) > 40, "it streams on")
            client.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            assert client.wait(30) == 0
            took = time.monotonic() - begin
        finally:
            client.kill()
            client.wait()
    found = json.loads(out.read_text())
    assert sorted(outcomes(found)) == ["client", "not_started", "server_gone"]
    assert found["client"]["ended"] == "server_gone", "the first reason stands"
    assert took < 10, "the stream would have gone on for longer"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is as one that is not on loopback: it has no address of its own."""
    monkeypatch.setattr(endpoint, "_first_address", lambda *_, **__: None)


def test_nothing_listens_on_another_host(elsewhere: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = run_client(port, "--http=httpx", requests=20, concurrency=2)
    assert outcomes(found) == ["connection"] * 2 + ["not_started"] * 18
    assert {request["error"]["kind"] for request in found["requests"][:2]} == {"refused"}
    assert found["client"]["ended"] == "server_gone"


def test_a_server_on_another_host_that_dies_ends_the_run(elsewhere: None) -> None:
    with serving(WHOLE, [*BEGUN, Wait(0.03), StopListening()]) as server:
        found = run_client(server.port, "--http=httpx", requests=9)
    assert outcomes(found) == ["ok", "server_gone"] + ["not_started"] * 7


def test_a_broken_connection_of_a_living_server_elsewhere_ends_nothing(elsewhere: None) -> None:
    with serving(WHOLE, [*BEGUN], WHOLE) as server:
        found = run_client(server.port, "--http=httpx", requests=4)
    assert outcomes(found) == ["ok", "truncated", "ok", "ok"]


def test_a_signal_while_it_looks_keeps_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told_to_stop(self: httpx_client.HttpxClient) -> bool:
        self.interrupt()
        await asyncio.sleep(20)
        return True

    monkeypatch.setattr(httpx_client.HttpxClient, "_listens", told_to_stop)
    with serving([*BEGUN]) as server:
        found = run_client(server.port, "--http=httpx", requests=2)
    assert outcomes(found) == ["truncated", "not_started"]
    assert found["client"]["ended"] == "signal"


# -- what broke --------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [[Reset()], [*BEGUN, Wait(0.03), Reset()]])
def test_a_reset_is_named_as_the_epoll_client_names_it(script: list[Step]) -> None:
    errors = []
    for http in ("epoll", "httpx"):
        with serving(script, [Hold()]) as server:
            (request,) = run_client(server.port, f"--http={http}")["requests"]
        errors.append((request["outcome"], request["error"]["kind"]))
    assert errors == [("connection", "reset")] * 2


def led_to(problem: BaseException, cause: BaseException) -> BaseException:
    problem.__cause__ = cause
    return problem


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (led_to(httpx.ConnectError("failed"), ConnectionRefusedError(111, "no")), "refused"),
        (led_to(httpx.ConnectError("failed"), OSError(113, "no route")), "broken"),
        (led_to(httpx.ConnectError("failed"), socket.gaierror(-2, "no name")), "broken"),
        (led_to(httpx.ReadError(""), led_to(OSError(), BrokenPipeError(32, "pipe"))), "reset"),
        (httpx.ReadError("odd"), "broken"),
        (led_to(httpx.ConnectError("[SSL: BAD]"), ConnectionResetError(104, "reset")), "tls"),
        (led_to(httpx.ProxyError("403"), ConnectionRefusedError(111, "no")), "proxy"),
    ],
)
def test_the_kind_is_what_the_system_said(problem: BaseException, kind: str) -> None:
    assert httpx_client._kind(problem) == kind
