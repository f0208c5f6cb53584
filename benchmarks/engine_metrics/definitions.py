"""Each metric of ours beside the one of vLLM's benchmark client that it answers to.

In:  requests of our run records; what `vllm bench serve` reports. Out: `Pair`s: our value, theirs, and
     ours by their definition, made of the same events of our record. Where the first two differ the
     definition differs, and `why` says in what; the last two have to be equal on one stream.

Their clock of a request (vLLM 0.32, endpoint_request_func.py) runs over every event that has
`choices`: the role that opens the stream and a finish reason that closes it count as tokens do.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from cargo.record import OUTPUT_KINDS, output_gaps, percentile

Request = Mapping[str, Any]
_CHOICES = (*OUTPUT_KINDS, "role", "empty")  # kinds of events that have `choices`


class Metric(NamedTuple):
    name: str
    unit: str
    ours: str
    theirs: str
    why: str  # the difference in definition; "": none


class Pair(NamedTuple):
    metric: Metric
    ours: float | None
    theirs: float | None
    ours_their_way: float | None


PROMPT = Metric("prompt tokens", "tokens", "`usage.prompt_tokens`", "the same (`prompt_len`)", "")
OUTPUT = Metric(
    "output tokens",
    "tokens",
    "N: `usage.completion_tokens`",
    "the same; without a usage it counts with a tokenizer, where ours says *not known*",
    "",
)
TTFT = Metric(
    "TTFT",
    "s",
    "`ttft_s`: request written → first event with text",
    "`ttft`: before the request → first event with `choices`",
    "theirs ends with the event that only names the role, before any text",
)
ITL = Metric(
    "ITL, mean",
    "s",
    "gaps between events with text",
    "`itl`: gaps between events with `choices`",
    "theirs has one gap more a request, from the role to the first text (about 0), and one for a "
    "finish reason that comes by itself: its mean is lower, and its percentiles start with these",
)
ITL_P50 = ITL._replace(name="ITL, P50")
TPOT = Metric(
    "TPOT, mean",
    "s",
    "`tpot_s`: (last − first event with text) / (N − tokens of the first)",
    "`tpot`: (`latency` − `ttft`) / (N − 1)",
    "theirs begins with the role and subtracts one token however many the first event holds",
)
E2E = Metric(
    "request time",
    "s",
    "`e2e_s`: request written → `[DONE]`",
    "`latency`: before the request → last event with `choices`",
    "theirs leaves out usage and `[DONE]` at the end of the stream",
)
TOTAL = Metric(
    "output tokens per second",
    "tok/s",
    "`output_tps_total`: ΣN / (last end − first request written)",
    "`output_throughput`: ΣN / duration of its whole loop",
    "theirs has its own making of tasks and its last steps in the time",
)
RATE = Metric(
    "decode rate",
    "tok/s",
    "`decode_rate`: (N − tokens of the first event) / (last − first event with text)",
    "none; 1 / mean `tpot` is the nearest",
    "as for TPOT; and a mean of rates is no inverse of a mean of times",
)


def span_their_way(request: Request) -> tuple[float, list[float], float] | None:
    """(ttft, gaps, latency) of a request as vLLM's client would have told them, in seconds."""
    events = request["events"]
    if not events:
        return None
    told = zip(events["t_s"], events["kind"], strict=True)
    times = [t for t, kind in told if kind in _CHOICES]
    if not times or request["t_start_s"] is None:
        return None
    gaps = [late - early for early, late in pairwise(times)]
    return times[0] - request["t_start_s"], gaps, times[-1] - request["t_start_s"]


def pairs(requests: Sequence[Request], bench: Mapping[str, float]) -> list[Pair]:
    """Over the requests of a run that succeeded. `bench`: fields of vLLM's BenchmarkMetrics, by its names."""
    done = [request for request in requests if request["outcome"] == "ok"]
    spans = [span for request in done if (span := span_their_way(request))]
    gaps = [gap for request in done for gap, _ in output_gaps(request["events"])]
    their_gaps = [gap for _, itl, _ in spans for gap in itl]
    tpot = mean(_tpots(done, spans))
    prompt, output = (_sum(done, name) for name in ("prompt_tokens", "completion_tokens"))
    total = _over_wall(done, output)
    return [
        Pair(PROMPT, prompt, bench["total_input"], prompt),
        Pair(OUTPUT, output, bench["total_output"], output),
        Pair(TTFT, _mean(done, "ttft_s"), bench["mean_ttft_ms"] / 1e3, mean([s[0] for s in spans])),
        Pair(ITL, mean(gaps), bench["mean_itl_ms"] / 1e3, mean(their_gaps)),
        Pair(
            ITL_P50, percentile(gaps, 50), bench["median_itl_ms"] / 1e3, percentile(their_gaps, 50)
        ),
        Pair(TPOT, _mean(done, "tpot_s"), bench["mean_tpot_ms"] / 1e3, tpot),
        Pair(RATE, _mean(done, "decode_rate"), 1e3 / bench["mean_tpot_ms"], tpot and 1 / tpot),
        Pair(E2E, _mean(done, "e2e_s"), bench["mean_e2el_ms"] / 1e3, mean([s[2] for s in spans])),
        Pair(TOTAL, total, bench["output_throughput"], total),
    ]


def _tpots(
    done: Sequence[Request], spans: Sequence[tuple[float, list[float], float]]
) -> list[float]:
    """As calculate_metrics makes them: a request of one token has none."""
    told = zip((r["completion_tokens"] for r in done), spans, strict=True)
    return [(latency - ttft) / (n - 1) for n, (ttft, _, latency) in told if n is not None and n > 1]


def _over_wall(done: Sequence[Request], output: int | None) -> float | None:
    if output is None or not done:
        return None
    wall = max(r["t_end_s"] for r in done) - min(r["t_start_s"] for r in done)
    return output / wall if wall > 0 else None


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _mean(requests: Sequence[Request], name: str) -> float | None:
    return mean([r[name] for r in requests if r[name] is not None])


def _sum(requests: Sequence[Request], name: str) -> int | None:
    values = [request[name] for request in requests]
    return None if None in values else sum(values)
