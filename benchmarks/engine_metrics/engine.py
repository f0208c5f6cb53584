"""A real server to measure on: one variant of config/vllm-cpu.yaml, started here and ended here.

In:  the variant's name, more words of its command. Out: its base URL, while the context lasts. `host_lock`
     keeps studies on this machine from working beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from cargo.host_lock import HostLock
from decodelab import config, variants

REPO = Path(__file__).resolve().parents[2]
STUDY = REPO / "config" / "vllm-cpu.yaml"
PYTHON = REPO / ".venv-vllm" / "bin" / "python"
MODEL = REPO / ".venv-vllm" / "model"
STAMP = REPO / ".venv-vllm" / "model.stamp"
READY_S = 900.0  # 40 s on a quiet machine
STOP_S = 30.0
LOOK_S = 0.5


class EngineFault(RuntimeError):
    """The server did not come up; the message holds its last words."""


@contextlib.contextmanager
def host_lock(wait_s: float) -> Iterator[None]:
    """The lock that studies on this machine take, too."""
    loaded = config.load(STUDY, {}, REPO)
    lock = HostLock(loaded["hosts"]["cpu"]["lock"])
    deadline = time.monotonic() + wait_s
    while not lock.take({"owner": "vllm_metrics", "pid": os.getpid(), "doing": "measures"}):
        if time.monotonic() > deadline:
            raise EngineFault(f"{lock.path} was held by somebody else for {wait_s:g} s")
        time.sleep(LOOK_S)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def server(name: str, log: Path, extra: Sequence[str] = ()) -> Iterator[str]:
    """In our own session: in another one its busy processes would starve the client on few cores."""
    loaded = config.load(STUDY, {}, REPO)
    variant = variants.resolve(loaded)[name]
    port = _free_port()
    symbols = {"{python}": str(PYTHON), "{repo}": str(REPO)}
    argv = [_filled(word, symbols) for word in variant.argv]
    argv += [*extra, "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, **{key: _filled(str(text), symbols) for key, text in variant.env.items()}}
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent
        )
    base_url = f"http://127.0.0.1:{port}"
    try:
        _wait_for_health(process, base_url, log)
        yield base_url
    finally:
        _end(process)


def _filled(word: str, symbols: dict[str, str]) -> str:
    for symbol, text in symbols.items():
        word = word.replace(symbol, text)
    return word


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_for_health(process: subprocess.Popen[bytes], base_url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(base_url + "/health", timeout=5):
            return
        time.sleep(LOOK_S)
    last = log.read_text(encoding="utf-8", errors="replace")[-3000:]
    raise EngineFault(f"the server did not come up (exit code {process.poll()}): {last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server and its own children: an engine core outlives an API process that was killed."""
    children = (
        [] if process.poll() is not None else psutil.Process(process.pid).children(recursive=True)
    )
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    _, alive = psutil.wait_procs(children, timeout=STOP_S)
    for one in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    if process.poll() is None:
        process.kill()
        process.wait()


def scrape(base_url: str) -> str:
    with urllib.request.urlopen(base_url + "/metrics", timeout=30) as reply:
        text: str = reply.read().decode()
        return text


def version(base_url: str) -> str:
    with urllib.request.urlopen(base_url + "/version", timeout=30) as reply:
        return "vLLM " + str(json.load(reply)["version"])
