"""The load client as a measuring instrument: what it was told, how well it kept up, and whether a
second client agrees.

In: `records.Run` objects. Out: the columns DECLARED, CLIENT and SECOND of runs.csv, and what the
gaps between output deltas are made of. A value not known is None, never 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cargo import record
from decodelab import records, telemetry
from decodelab.columns import FAILURES

_AS_SAID = (
    "loop_late_p99_s",
    "loop_late_max_s",
    "concurrency_mean",
    "concurrency_max",
    "schedule_late_p99_s",
    "schedule_late_max_s",
)
Row = dict[str, Any]
Requests = Iterable[Mapping[str, Any]]


def declarations(run: records.Run) -> Row:
    told, sizing = run.record["run"], run.record["run"].get("prompt_sizing") or {}
    prompts = [r["prompt_tokens"] for r in run.ok if r["prompt_tokens"] is not None]
    return {
        **{name: told.get(name) for name in ("rate", "arrivals", "cache")},
        "prompt_asked_tokens": sizing.get("asked"),
        "prompt_sized_by": sizing.get("by"),
        "prompt_problem": sizing.get("problem"),
        "prompt_least_tokens": min(prompts, default=None),
        "prompt_most_tokens": max(prompts, default=None),
    }


def client(run: records.Run) -> Row:
    said = run.record.get("client") or {}
    cpu = number(said, "cpu_share")
    return {
        "http": run.record["run"].get("http"),
        "client_digest": said.get("digest"),
        "stamp_source": said.get("stamp_source"),
        "cpu_share": cpu if cpu is not None else _share(said, "cpu_s", "wall_s"),
        "client_lag_p99_s": number(said, "lag_p99_s"),
        "coalesced_share": _share(said, "coalesced_reads", "reads"),
        "blurred_share": _share(said, "blurred_events", "output_events"),
        **{name: number(said, name) for name in _AS_SAID},
        "rate_kept": rate_kept(run.requests),
        **gap_shares(run.ok),
    }


def rate_kept(requests: Requests) -> float | None:
    """Requests a second between the first and the last that began; of an open loop only, where each
    has a time at which it was due.
    """
    begun = [
        request["t_due_s"] + request["late_s"]
        for request in requests
        if request.get("t_due_s") is not None and request.get("late_s") is not None
    ]
    span = max(begun) - min(begun) if begun else 0.0
    return (len(begun) - 1) / span if span > 0 else None


def second(run: records.Run) -> Row:
    """The cross-check's figures, each by the definition that the run's own has."""
    if run.second is None:
        return {"cross_problem": run.second_problem} if run.second_problem else {}
    other = run.second
    rates = [r["decode_rate"] for r in other.ok if r["decode_rate"] is not None]
    ttfts = [r["ttft_s"] for r in other.ok if r["ttft_s"] is not None]
    return {
        "cross_http": other.record["run"].get("http"),
        "cross_n_attempted": other.summary["n_attempted"],
        "cross_n_ok": other.summary["n_ok"],
        **{f"cross_n_{name}": other.summary["outcomes"].get(name, 0) for name in FAILURES},
        "cross_completion_tokens": other.summary["completion_tokens"],
        "cross_ttft_s_p50": record.percentile(ttfts, 50),
        "cross_decode_rate_median": statistics.median(rates) if rates else None,
        "cross_itl_s_p50": record.percentile(gaps(other.ok), 50),
        "cross_validity": other.validity,
        "cross_reasons": ";".join(other.reasons) or None,
    }


# gaps between output deltas -----------------------------------------------------------------------


def output_gaps(requests: Requests) -> Iterator[tuple[float, int | None]]:
    for request in requests:
        if request.get("events"):
            yield from record.output_gaps(request["events"])


def gaps(requests: Requests) -> list[float]:
    """Gaps between output-bearing deltas, all requests together, as they came."""
    return [gap for gap, _tokens in output_gaps(requests)]


def gap_shares(requests: Requests) -> Row:
    """How far the gaps are times between single tokens, and of how many that is known."""
    counts = [tokens for _gap, tokens in output_gaps(requests)]
    known = [tokens for tokens in counts if tokens is not None]
    return {
        "itl_counted_share": len(known) / len(counts) if counts else None,
        "itl_single_share": known.count(1) / len(counts) if known else None,
    }


def multi_token_share(requests: Requests) -> float | None:
    """Of the output deltas whose token count is known, those that hold more than one."""
    counts = [tokens for _gap, tokens in output_gaps(requests) if tokens is not None]
    return sum(n > 1 for n in counts) / len(counts) if counts else None


def number(block: Mapping[str, Any], name: str) -> float | None:
    return telemetry.number(block.get(name))


def _share(block: Mapping[str, Any], part: str, whole: str) -> float | None:
    top, bottom = number(block, part), number(block, whole)
    return None if top is None or not bottom else top / bottom
