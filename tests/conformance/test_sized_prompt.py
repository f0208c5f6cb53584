"""A sized prompt end to end: the client asks a server's /tokenize, and the server's usage says N.

The server is the simulator, which counts four characters a token, tools and template included.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import client_options, decode_microbench, endpoint, record, sized_prompt

from .scripted_server import serving
from .scripts import error_reply
from .speech import plain_events, steps

SIM = Path(decode_microbench.__file__).parents[1] / "sim" / "server.py"
TOOL = {"type": "function", "function": {"name": "f", "description": "d" * 300}}


@pytest.fixture(scope="module")
def simulator() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    flags = ["--enable-prefix-caching", "--reasoning-parser", "qwen3", "--max-num-seqs", "8"]
    line = [sys.executable, str(SIM), "--model", "m", "--port", str(port), *flags]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)


def run(port: int, *options: str) -> dict[str, Any]:
    arguments = client_options.read(
        [
            f"--base-url=http://127.0.0.1:{port}",
            "--model=m",
            "--concurrency=2",
            "--requests=3",
            "--max-tokens=8",
            "--out=unused.json",
            "--seed=1",
            "--source=simulated",
            *options,
        ]
    )
    return decode_microbench.make_run(arguments)


@pytest.mark.parametrize("tokens", [64, 1000, 5003])
@pytest.mark.parametrize("cache", ["as_is", "cold"])
def test_usage_says_the_number_that_was_asked_for(simulator: int, tokens: int, cache: str) -> None:
    found = run(simulator, f"--prompt-tokens={tokens}", f"--cache={cache}", f"--seed={tokens}")
    assert [request["outcome"] for request in found["requests"]] == ["ok"] * 3
    assert {request["prompt_tokens"] for request in found["requests"]} == {tokens}
    sizing = found["run"]["prompt_sizing"]
    calls = sizing.pop("calls")
    assert sizing == {"asked": tokens, "tokens": tokens, "by": "tokenize", "problem": None}
    assert 1 <= calls <= 12
    assert record.problems(found) == []


def test_a_scenario_with_tools_and_a_template_argument_is_sized_with_them(
    simulator: int, tmp_path: Path
) -> None:
    path = tmp_path / "big.json"
    asked = {
        "prompt_tokens": 400,
        "tools": [TOOL],
        "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    }
    path.write_text(json.dumps(asked))
    found = run(simulator, f"--scenario={path}", "--continuous-usage-stats", "--seed=tools")
    for request in found["requests"]:
        assert request["prompt_tokens"] == 400
        assert set(request["events"]["kind"]) == {"role", "content", "usage", "done"}
        assert request["events"]["tokens"][:9] == [0] + [1] * 8
    assert found["run"]["prompt_sizing"]["tokens"] == 400


def test_a_cold_request_finds_nothing_cached_and_a_warm_one_nearly_all(simulator: int) -> None:
    options = ("--prompt-tokens=2000", "--concurrency=1", "--warmup=1")
    cold = run(simulator, *options, "--cache=cold", "--seed=cold")
    warm = run(simulator, *options, "--cache=warm", "--seed=warm")
    assert [request["cached_tokens"] for request in cold["requests"]] == [0] * 4
    assert [request["cached_tokens"] for request in warm["requests"]] == [0] + [1984] * 3


def test_a_server_without_tokenize_gets_an_estimate_that_says_so() -> None:
    missing = error_reply("404 Not Found", {"detail": "Not Found"})
    with serving(missing, steps(plain_events(), first_s=0.01, gap_s=0.001)) as server:
        found = run(server.port, "--prompt-tokens=300", "--max-tokens=16")
    sizing = found["run"]["prompt_sizing"]
    assert (sizing["asked"], sizing["tokens"], sizing["by"]) == (300, None, "estimate")
    assert "/tokenize" in sizing["problem"]
    assert server.truths[0].request.startswith(b"POST /tokenize HTTP/1.1\r\n")
    body = json.loads(server.truths[1].request.partition(b"\r\n\r\n")[2])
    assert len(body["messages"][-1]["content"].split()) == 300


def test_a_model_that_the_server_does_not_have_is_not_counted(simulator: int) -> None:
    where = endpoint.resolve(f"http://127.0.0.1:{simulator}", "epoll")
    counter = sized_prompt.TokenizeCounter(where, {}, "other")
    assert counter([{"role": "user", "content": "a"}]) is None
    assert counter.problem == "POST /tokenize: HTTP 400"
