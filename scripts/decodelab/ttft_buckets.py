"""TTFT by prompt length, in the contest's buckets: one P90 over all lengths hides everything.

In: requests. Out: for each bucket n, P50, P90 and mean of TTFT over successes, in seconds. K = 1024 tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cargo import record
from decodelab.tables import Tables

K = 1024
_EDGES = (0, 6 * K, 16 * K, 32 * K, 64 * K, 128 * K, 256 * K)
NAMES = ("lt_6k", "6k_16k", "16k_32k", "32k_64k", "64k_128k", "128k_256k", "ge_256k")


def of(prompt_tokens: int) -> str:
    """The bucket of a prompt; its lower edge belongs to it."""
    return NAMES[sum(prompt_tokens >= edge for edge in _EDGES) - 1]


def split(requests: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each bucket's figures; `n` counts successes of that length, `n_ttft` those that tell a TTFT."""
    groups: dict[str, list[Mapping[str, Any]]] = {name: [] for name in NAMES}
    for request in requests:
        if request["outcome"] == "ok" and request.get("prompt_tokens") is not None:
            groups[of(request["prompt_tokens"])].append(request)
    return {name: _figures(found) for name, found in groups.items()}


def _figures(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    times = [r["ttft_s"] for r in requests if r.get("ttft_s") is not None]
    return {
        "n": len(requests),
        "n_ttft": len(times),
        "p50_s": record.percentile(times, 50),
        "p90_s": record.percentile(times, 90),
        "mean_s": statistics.fmean(times) if times else None,
    }


def table(tables: Tables) -> list[dict[str, Any]]:
    """One row a run and bucket, of runs whose prompts fall into more than one."""
    out = []
    for run in tables.runs:
        filled = {k: v for k, v in split(tables.requests.get(run, [])).items() if v["n"]}
        if len(filled) > 1:
            out += [{"run": run, "bucket": name, **figures} for name, figures in filled.items()]
    return out
