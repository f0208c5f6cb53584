"""Start the emitter, end it, read its stamps.

In:  an EmitterPlan, its place on the machine.
Out: its base URL while it runs; after `end` the `Spoken` of each stream, in order of the requests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

from fidelity.place import Place

HERE = Path(__file__).resolve().parent
END_S = 60.0


class EmitterPlan(NamedTuple):
    rate_hz: float  # events/s of each stream
    events: int  # of each stream
    mode: str  # sync | async
    gate: int  # nobody gets an event before so many requests are there; 0: at once
    delay_s: float  # from the request (or the gate) to the first event, at least


class Spoken(NamedTuple):
    """What the emitter did for one request; nanoseconds of CLOCK_MONOTONIC."""

    request_ns: int  # its request's end had arrived
    blocked_ns: int
    stamps_ns: list[int]  # just before the send of each event


def command(folder: Path, language: str = "auto") -> tuple[list[str], str]:
    """(how to call the emitter, "c" or "python"); compiled into the folder where that is possible."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if language != "python" and compiler:
        binary = folder / "emitter"
        if not binary.exists():
            source = str(HERE / "emitter.c")
            subprocess.run([compiler, "-O2", "-o", str(binary), source], check=True)
        return [str(binary)], "c"
    if language == "c":
        raise SystemExit("client_fidelity.py: --emitter c: no C compiler (cc, gcc, clang) is here")
    return [sys.executable, str(HERE / "emitter.py")], "python"


class Emitter:
    def __init__(self, argv: list[str], folder: Path, plan: EmitterPlan, place: Place) -> None:
        self._stamps = folder / "stamps.txt"
        words = [str(self._stamps), f"{plan.rate_hz:.9g}", str(plan.events), plan.mode]
        words += [str(plan.gate), f"{plan.delay_s:.9g}"]
        self._process = subprocess.Popen(
            argv + words, stdin=PIPE, stdout=PIPE, text=True, preexec_fn=place.take
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            raise SystemExit("client_fidelity.py: the emitter did not start")
        self.base_url = f"http://127.0.0.1:{port}"

    def end(self) -> list[Spoken]:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(END_S):
            raise SystemExit("client_fidelity.py: the emitter failed")
        return read_stamps(self._stamps.read_text())

    def __enter__(self) -> Emitter:
        return self

    def __exit__(self, *_problem: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def read_stamps(text: str) -> list[Spoken]:
    lines = ([int(word) for word in line.split()] for line in text.splitlines())
    return [Spoken(words[0], words[1], words[2:]) for words in lines]
