"""Each metric of ours beside vLLM's own counters and histograms over the same run.

In:  a run record of our client, /metrics before and after it. Out: `Beside`s: our value, the server's,
     whether they must be equal, and what may lie between them where they need not be.

The run has no warm-up: all that the counters grew by is in its requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from decodelab import queue_estimate, server_metrics
from engine_metrics.definitions import mean


class Counter(NamedTuple):
    name: str
    unit: str
    ours: str
    theirs: str
    exact: bool
    why: str  # what may lie between them


class Beside(NamedTuple):
    counter: Counter
    ours: float | None
    theirs: float | None


SUCCESS = Counter("successes", "requests", "`n_ok`", "`request_success_total`", True, "")
OUTPUT = Counter(
    "output tokens", "tokens", "Σ `completion_tokens`", "`generation_tokens_total`", True, ""
)
PROMPT = Counter("prompt tokens", "tokens", "Σ `prompt_tokens`", "`prompt_tokens_total`", True, "")
CACHED = Counter(
    "cached tokens", "tokens", "Σ `cached_tokens`", "`prompt_tokens_cached_total`", True, ""
)
HIT = Counter(
    "cache hit", "share", "`cache_hit`: Σ cached / Σ prompt tokens",
    "`prefix_cache_hits_total` / `prefix_cache_queries_total`", True, "",
)  # fmt: skip
PREEMPTED = Counter(
    "preemptions", "requests", "`server_preemptions`: read from the server", "sum of `request_num_preemptions`",
    True, "",
)  # fmt: skip
TTFT = Counter(
    "TTFT, mean", "s", "`ttft_s`", "`time_to_first_token_seconds`", False,
    "the server's begins when its API process has the request parsed and ends before the event is written: "
    "ours has HTTP, tokenizing and the first write as well",
)  # fmt: skip
ITL = Counter(
    "ITL, mean", "s", "Σ (last − first event) / Σ (N − 1)", "`inter_token_latency_seconds`", False,
    "the server's are the engine core's stamps, ours those of the events' arrival",
)  # fmt: skip
TPOT = Counter(
    "TPOT, mean", "s", "mean of `tpot_s`", "`request_time_per_output_token_seconds`", False,
    "the same two clocks as for ITL",
)  # fmt: skip
E2E = Counter(
    "request time, mean", "s", "`e2e_s`", "`e2e_request_latency_seconds`", False,
    "ours has HTTP, and the stream's end: usage and `[DONE]`",
)  # fmt: skip
QUEUE = Counter(
    "queue, mean", "s", "estimate from `max-num-seqs` and the order of ends", "`request_queue_time_seconds`",
    False, "ours is an estimate, for servers without this histogram; where it is there, `queue_s` is read from it",
)  # fmt: skip


def beside(
    run: Mapping[str, Any], before: str, after: str, max_num_seqs: int, concurrency: int
) -> list[Beside]:
    requests = run["requests"]
    done = [request for request in requests if request["outcome"] == "ok"]
    grown = Grown(before, after)
    totals = {
        name: sum(r[name] for r in done)
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    }
    span = sum(r["t_last_s"] - r["t_first_s"] for r in done)
    waited = queue_estimate.queue_s(requests, max_num_seqs, concurrency)
    hits, queries = (grown.total(f"prefix_cache_{what}_total") for what in ("hits", "queries"))
    return [
        Beside(SUCCESS, len(done), grown.total("request_success_total")),
        Beside(OUTPUT, totals["completion_tokens"], grown.total("generation_tokens_total")),
        Beside(PROMPT, totals["prompt_tokens"], grown.total("prompt_tokens_total")),
        Beside(CACHED, totals["cached_tokens"], grown.total("prompt_tokens_cached_total")),
        Beside(HIT, totals["cached_tokens"] / totals["prompt_tokens"], hits / queries),
        Beside(PREEMPTED, grown.total("num_preemptions_total"), grown.total("request_num_preemptions_sum")),
        Beside(TTFT, mean([r["ttft_s"] for r in done]), grown.mean("time_to_first_token_seconds")),
        Beside(ITL, span / (totals["completion_tokens"] - len(done)), grown.mean("inter_token_latency_seconds")),
        Beside(TPOT, _mean(done, "tpot_s"), grown.mean("request_time_per_output_token_seconds")),
        Beside(E2E, mean([r["e2e_s"] for r in done]), grown.mean("e2e_request_latency_seconds")),
        Beside(QUEUE, mean(list(waited.values())), grown.mean("request_queue_time_seconds")),
    ]  # fmt: skip


def _mean(done: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """None where one of them is not known: the server's mean is over all."""
    values = [request[name] for request in done]
    return None if None in values else mean(values)


class Grown:
    """What vLLM's series grew by between two pages; KeyError for one that is not there."""

    def __init__(self, before: str, after: str) -> None:
        self._before, self._after = (server_metrics.read_page(text) for text in (before, after))

    def total(self, name: str) -> float:
        after = self._after.series["vllm:" + name]
        before = self._before.series.get("vllm:" + name, {})
        return sum(value - before.get(labels, 0.0) for labels, value in after.items())

    def mean(self, histogram: str) -> float | None:
        count = self.total(histogram + "_count")
        return self.total(histogram + "_sum") / count if count else None
