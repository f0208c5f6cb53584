"""Runs the load client in this process against a scripted server.

In:  arguments of the client. Out: its run record.
"""

from __future__ import annotations

from typing import Any

from cargo import client_options, decode_microbench

from .speech import TOKENS


def run_client(port: int, *options: str, requests: int = 1, concurrency: int = 1) -> dict[str, Any]:
    arguments = client_options.read(
        [
            f"--base-url=http://127.0.0.1:{port}",
            "--model=m",
            "--scenario=short",
            f"--concurrency={concurrency}",
            f"--requests={requests}",
            f"--max-tokens={TOKENS}",
            "--out=unused.json",
            "--seed=1",
            "--source=simulated",
            "--timeout-first-token=8",
            "--timeout-between-tokens=8",
            *options,
        ]
    )
    return decode_microbench.make_run(arguments)
