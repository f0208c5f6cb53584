"""Run the real load client as a user does: a process of its own, in a place of its own.

In:  the emitter's base URL, a load, the transport.
Out: a `ClientRun`: the run record and the processor time of the whole process.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

from fidelity.place import Place

REPO = Path(__file__).resolve().parents[2]
BARE_LOOP = Path(__file__).resolve().parent / "bare_loop.py"
CLIENT = REPO / "scripts" / "cargo" / "decode_microbench.py"
SPARE_S = 120.0


class ClientRun(NamedTuple):
    record: dict[str, Any]
    process_cpu_s: float  # with the interpreter's start, decoding and writing, and its children


class Ended(NamedTuple):
    code: int
    cpu_s: float
    output: str


def run_command(
    argv: Sequence[str],
    place: Place,
    limit_s: float,
    log: Path,
    env: dict[str, str] | None = None,
) -> Ended:
    """A command to its end: exit code, processor time with its children's, what it printed."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=log.parent,
            env={**os.environ, **(env or {})},
            preexec_fn=place.take,
            start_new_session=True,
        )
    timer = Timer(limit_s, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    try:
        _pid, status, usage = os.wait4(process.pid, 0)
    finally:
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text(errors="replace")
    return Ended(process.returncode, usage.ru_utime + usage.ru_stime, text)


@functools.cache
def options_known(client: str) -> str:
    return subprocess.run([sys.executable, client, "--help"], capture_output=True, text=True).stdout


def run_client(
    client: str,
    base_url: str,
    folder: Path,
    http: str,
    streams: int,
    requests: int,
    events: int,
    seconds: float,
    place: Place,
    processes: int | None,
) -> ClientRun:
    out = folder / "run.json"
    argv = [sys.executable, client, "--base-url", base_url, "--model", "emitter"]
    argv += ["--scenario", "short", "--concurrency", str(streams), "--requests", str(requests)]
    argv += ["--max-tokens", str(events), "--out", str(out), "--http", http, "--seed", "fidelity"]
    if processes is not None and "--processes" in options_known(client):
        argv += ["--processes", str(processes)]
    elif processes is not None and processes > 1:
        raise SystemExit("client_fidelity.py: this client does not know --processes")
    ended = run_command(argv, place, seconds + SPARE_S, folder / "client.log")
    if ended.code:
        raise SystemExit(f"client_fidelity.py: the client ended with {ended.code}: {ended.output}")
    return ClientRun(json.loads(out.read_text()), ended.cpu_s)


def run_bare(
    base_url: str, folder: Path, streams: int, events: int, seconds: float, place: Place
) -> dict[str, Any]:
    """The barest loop on the same emitter: {"reads", "cpu_s"}."""
    port = base_url.rsplit(":", 1)[1]
    argv = [sys.executable, str(BARE_LOOP), port, str(streams), str(events)]
    ended = run_command(argv, place, seconds + SPARE_S, folder / "bare.log")
    if ended.code:
        raise SystemExit(
            f"client_fidelity.py: the bare loop ended with {ended.code}: {ended.output}"
        )
    found: dict[str, Any] = json.loads(ended.output)
    return found
