"""The server's own counters over a run: `/metrics` before and after, as columns of runs.csv.

In: a run's raw folder with metrics_before.txt and metrics_after.txt (Prometheus text), and the
run's requests. Out: `deltas` (each key of NAMES, of PERCENTILES and server_cache_hit, a value or
None), and `disagreements`.

The first snapshot is taken before the client starts: the one-token probe of the start lies outside,
the warm-up requests lie inside. Metrics have vLLM's names of V1 first, then those of V0 or of an
early V1; they are alternatives, since some versions show the same counter under both. All series of
a name (engines, models) are summed. prometheus_client is not pinned, and its parser ends at the
first line it does not understand: the few lines of the format that matter are read here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_CACHE_QUERIES = ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")
# Counters, with and without `_total`. V0 has no counts of its prefix cache, only a rate.
_COUNTERS = {
    "server_prompt_tokens": ("vllm:prompt_tokens",),
    "server_generation_tokens": ("vllm:generation_tokens",),
    "server_preemptions": ("vllm:num_preemptions",),
    "server_cache_queries": _CACHE_QUERIES,
    "server_cache_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
}
# Histograms: the mean is the change of `_sum` over the change of `_count`.
_MEANS = {
    "queue_s": ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
    "server_ttft_s": ("vllm:time_to_first_token_seconds",),
    "server_itl_s": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
}
NAMES: dict[str, tuple[str, ...]] = {**_COUNTERS, **_MEANS}
# Estimated from the buckets that grew over the run, so no finer than the engine's bucket bounds.
PERCENTILES = {
    "queue_p50_s": ("queue_s", 0.5),
    "queue_p99_s": ("queue_s", 0.99),
    "server_itl_p50_s": ("server_itl_s", 0.5),
    "server_itl_p99_s": ("server_itl_s", 0.99),
}
_PROCESS_START = "process_start_time_seconds"
# Tokens a request: V0 counts a multi-step burst that runs past the end of its sequence as a whole.
SLACK = 8

_SAMPLE = re.compile(
    r"""^(?P<name>[a-zA-Z_:][\w:]*)
        (?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?
        [ \t]+(?P<value>[^\s#]+)""",
    re.VERBOSE,
)
_TYPE = re.compile(r"^# TYPE (?P<name>\S+) ")
_LE = re.compile(r'(?:^|,)\s*le="(?P<bound>[^"]*)"')


class Page(NamedTuple):
    series: Mapping[str, Mapping[str, float]]  # name -> labels as written -> value
    declared: frozenset[str]  # names with a TYPE line; with no series they stand at zero


def read_page(text: str) -> Page:
    series: dict[str, dict[str, float]] = {}
    declared = set()
    for line in text.splitlines():
        if kind := _TYPE.match(line):
            declared.add(kind["name"])
        elif sample := _SAMPLE.match(line):
            try:
                value = float(sample["value"])
            except ValueError:
                continue
            series.setdefault(sample["name"], {})[sample["labels"] or ""] = value
    return Page(series, frozenset(declared))


def deltas(folder: Path) -> dict[str, float | None]:
    """What the server counted over the run; None for all that a page does not say."""
    found: dict[str, float | None] = dict.fromkeys([*NAMES, *PERCENTILES, "server_cache_hit"])
    before, after = (_page(folder / f"metrics_{when}.txt") for when in ("before", "after"))
    if before is None or after is None or _restarted(before, after):
        return found
    for column, names in _COUNTERS.items():
        name = _first(after, [full for name in names for full in (f"{name}_total", name)])
        found[column] = _whole(_grown(before, after, name))
    for column, names in _MEANS.items():
        name = _first(after, names, "_count")
        count = _grown(before, after, name and f"{name}_count", name)
        found[column] = _ratio(_grown(before, after, name and f"{name}_sum", name), count)
        buckets = _buckets(before, after, name) if name else {}
        for percentile, (of, q) in PERCENTILES.items():
            if of == column:
                found[percentile] = quantile(q, buckets)
    found["server_cache_hit"] = _ratio(found["server_cache_hits"], found["server_cache_queries"])
    return found


def quantile(q: float, buckets: Mapping[float, float]) -> float | None:
    """The q-quantile of a histogram (upper bound -> observations up to it), linear inside the
    bucket that holds it, as Prometheus estimates it. The last bucket has no upper bound: a quantile
    that falls into it is not known, where Prometheus would give the bucket's lower bound.
    """
    total = buckets.get(math.inf)
    if not total:
        return None
    below, lower = 0.0, 0.0  # observations under the bucket, and its lower bound: none is negative
    for bound, count in sorted(buckets.items()):
        if count < below:
            return None  # no histogram: a wider bucket holds fewer
        if count >= q * total and count > below:
            inside = (q * total - below) / (count - below)
            return None if bound == math.inf else lower + (bound - lower) * inside
        below, lower = count, bound
    return None


def disagreements(
    requests: Sequence[Mapping[str, Any]],
    max_tokens: int | None,
    found: Mapping[str, float | None],
) -> list[str]:
    """Reason codes where the server counted other totals than the usage of all requests that were
    sent, warm-up included. A request that failed may have used anything up to its limit.

    V0 counts fewer prompt tokens where its cache hit, more where it preempted, and old versions one
    token a multi-step burst: too few is a reason only on V1, which alone counts cache queries.
    """
    sent = [request for request in requests if request["outcome"] != "not_started"]
    prompts = [r["prompt_tokens"] for r in requests if r.get("prompt_tokens") is not None]
    limits = {"completion_tokens": max_tokens, "prompt_tokens": max(prompts, default=None)}
    codes = []
    for column, usage in (
        ("server_generation_tokens", "completion_tokens"),
        ("server_prompt_tokens", "prompt_tokens"),
    ):
        counted, most = found.get(column), limits[usage]
        if counted is None or most is None or not sent:
            continue
        if usage == "prompt_tokens" and found.get("server_preemptions"):
            continue
        low = sum(r.get(usage) or 0 for r in sent)
        high = sum(r[usage] if _settled(r, usage) else most for r in sent)
        if counted > high + SLACK * len(sent):
            codes.append("server_counted_more")
        if counted < low and found.get("server_cache_queries") is not None:
            codes.append("server_counted_less")
    return list(dict.fromkeys(codes))


def sent(requests: Sequence[Mapping[str, Any]], usage: str) -> int | None:
    """What the usage of all requests that were sent adds up to; a failed one counts for what it
    reported. None where a success reported nothing, or nobody did: the sum would be no sum of the
    run.
    """
    there = [request for request in requests if request["outcome"] != "not_started"]
    if any(r["outcome"] == "ok" and r.get(usage) is None for r in there):
        return None
    said = [r[usage] for r in there if r.get(usage) is not None]
    return sum(said) if said else None


def _settled(request: Mapping[str, Any], usage: str) -> bool:
    return request["outcome"] == "ok" and request.get(usage) is not None


def _page(path: Path) -> Page | None:
    try:
        return read_page(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _restarted(before: Page, after: Page) -> bool:
    starts = [page.series.get(_PROCESS_START) for page in (before, after)]
    return None not in starts and starts[0] != starts[1]


def _first(page: Page, names: Sequence[str], tail: str = "") -> str | None:
    return next((name for name in names if page.series.get(name + tail)), None)


def _grown(before: Page, after: Page, name: str | None, family: str | None = None) -> float | None:
    changes = _changes(before, after, name, family)
    return None if changes is None else sum(changes.values())


def _changes(
    before: Page, after: Page, name: str | None, family: str | None
) -> dict[str, float] | None:
    """The growth of each series of a name, by its labels; None where one of them went backwards or
    is lost.
    """
    if name is None or name not in after.series:
        return None
    old, new = before.series.get(name, {}), after.series[name]
    declared = {family or name, name.removesuffix("_total")} & before.declared
    if not old and not declared:
        return None
    changes = {labels: value - old.get(labels, 0.0) for labels, value in new.items()}
    if set(old) - set(new) or not all(math.isfinite(c) and c >= 0 for c in changes.values()):
        return None
    return changes


def _buckets(before: Page, after: Page, name: str) -> dict[float, float]:
    """A histogram's growth, all engines and models together: upper bound -> observations up to it."""
    out: dict[float, float] = {}
    for labels, change in (_changes(before, after, f"{name}_bucket", name) or {}).items():
        bound = _LE.search(labels)
        try:
            upper = float(bound["bound"]) if bound else math.nan
        except ValueError:
            upper = math.nan
        if math.isnan(upper):
            return {}  # a bucket that cannot be placed: the others would be read as all there is
        out[upper] = out.get(upper, 0.0) + change
    return out


def _whole(value: float | None) -> float | None:
    """Counts of tokens are whole numbers, though Prometheus writes them with a point."""
    return int(value) if value is not None and value.is_integer() else value


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom
