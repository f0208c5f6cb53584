"""vLLM's own benchmark client, unmodified, asked by another process. Runs in the environment that has vLLM.

    .venv-vllm/bin/python bench_driver.py

In:  one JSON object a line on stdin: {"stream": {"sent_s", "chunks": [[t_s, text], ...]}} or
     {"serve": [words of `vllm bench serve`], "to": FILE}.
Out: for each one line on stdout, behind MARK: what its request function and its `calculate_metrics`
     make of the stream, or {"to": FILE} once the file is written. A fault: {"error": text}.

Of a stream the times are scripted: the request function reads them from a clock that is set to a
chunk's time before the chunk is handed over. One process for all: importing vLLM takes 20 seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator
from typing import Any

MARK = "bench-driver:"
PERCENTILES = [10.0, 50.0, 90.0, 99.0]


class ScriptedClock:
    """Stands in for the module `time` of vLLM's request function."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def perf_counter(self) -> float:
        return self.now_s


class ScriptedReply:
    """What aiohttp gives for a request: here the recorded chunks, each at its own time."""

    status = 200
    reason = "OK"

    def __init__(self, chunks: list[tuple[float, str]], clock: ScriptedClock) -> None:
        self._chunks = chunks
        self._clock = clock
        self.content = self

    async def iter_any(self) -> AsyncIterator[bytes]:
        for t_s, text in self._chunks:
            self._clock.now_s = t_s
            yield text.encode()

    async def __aenter__(self) -> ScriptedReply:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class ScriptedSession:
    def __init__(self, reply: ScriptedReply) -> None:
        self._reply = reply

    def post(self, **_: object) -> ScriptedReply:
        return self._reply


def of_stream(stream: dict[str, Any]) -> dict[str, Any]:
    """{"request": the fields of RequestFuncOutput, "metrics": those of BenchmarkMetrics}."""
    from vllm.benchmarks import serve
    from vllm.benchmarks.lib import endpoint_request_func as module

    clock = ScriptedClock(stream["sent_s"])
    session: Any = ScriptedSession(ScriptedReply([(t, x) for t, x in stream["chunks"]], clock))
    asked = module.RequestFuncInput("", "http://x/v1/chat/completions", 0, 1, "m")
    real, module.time = module.time, clock
    try:
        output = asyncio.run(module.async_request_openai_chat_completions(asked, session))
    finally:
        module.time = real
    if not output.success:
        raise ValueError(f"vLLM's client makes nothing of this stream: {output.error}")
    duration_s = clock.now_s - stream["sent_s"]
    metrics, _ = serve.calculate_metrics([], [output], duration_s, None, PERCENTILES, {})
    return {"request": vars(output), "metrics": vars(metrics)}


def serve_once(words: list[str], to: str) -> dict[str, Any]:
    """One `vllm bench serve`, by its own parser and its own main; its result as it returns it."""
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    parsed: argparse.Namespace = parser.parse_args(words)
    found = serve.main(parsed)
    with open(to, "w", encoding="utf-8") as out:
        json.dump(found, out, default=float)
    return {"to": to}


def answer(order: dict[str, Any]) -> dict[str, Any]:
    if "stream" in order:
        return of_stream(order["stream"])
    return serve_once(order["serve"], order["to"])


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what vLLM prints goes to stderr
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception:
            found = {"error": traceback.format_exc()[-4000:]}
        answers.write(MARK + json.dumps(found, default=float) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
