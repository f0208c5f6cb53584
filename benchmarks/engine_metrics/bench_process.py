"""vLLM's benchmark client as a process of ours: bench_driver.py under the python that has vLLM.

In:  that python; recorded streams, or words of `vllm bench serve`. Out: what it answers, as dicts.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from engine_metrics.bench_driver import MARK
from engine_metrics.recorded import Stream

DRIVER = Path(__file__).resolve().parent / "bench_driver.py"
ALONE = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class BenchFault(RuntimeError):
    """The driver ended, or vLLM's client raised; the message holds its last words."""


class BenchProcess:
    """Use as a context; the process ends with it."""

    def __init__(self, python: Path) -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(python), str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **ALONE},
        )

    def __enter__(self) -> BenchProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.communicate()  # its stdin ends, and so does it
        self._log.close()

    def of_stream(self, stream: Stream) -> dict[str, Any]:
        chunks = [[t_s, text] for t_s, text in stream.chunks]
        return self._ask({"stream": {"sent_s": stream.sent_s, "chunks": chunks}})

    def serve(self, words: list[str], to: Path) -> dict[str, Any]:
        self._ask({"serve": words, "to": str(to)})
        found: dict[str, Any] = json.loads(to.read_text(encoding="utf-8"))
        return found

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line.startswith(MARK):
            raise BenchFault(f"vLLM's benchmark client ended: {self._last_words()}")
        found: dict[str, Any] = json.loads(line[len(MARK) :])
        if "error" in found:
            raise BenchFault(str(found["error"]))
        return found

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]
