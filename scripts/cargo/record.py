"""The run record: what one run of the load client leaves behind, field by field.

In:  times of one request on one monotonic clock, and its token counts.
Out: the derived figures (`derive`), percentiles (`percentile`), the summary of a run (`summarise`),
     and the names, units and meanings of every field (`FIELDS`).

Pure: no clock, no file, no network. The client writes records with it and the library recomputes
every figure with the same functions, so a metric has one definition. A value not known is None
(null in the file), never 0.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

SCHEMA = "decodelab.run/1"

SOURCES = ("measured", "simulated", "reconstructed", "imported")

OUTCOMES: Dict[str, str] = {
    "ok": "whole stream with a finish reason, and as many tokens as were forced",
    "http_error": "an HTTP status other than 200",
    "stream_error": "an error inside a 200 reply (three shapes), or a reply that is no stream",
    "truncated": "the stream ended with no finish_reason, or its compressed body lacks its end",
    "aborted": 'finish_reason "abort"',
    "short": "fewer tokens than forced by ignore_eos",
    "timeout": "connect, first_token, between_tokens or total; error.kind says which",
    "connection": "could not connect, or the connection broke while the server lived on",
    "server_gone": "the connection broke and the server no longer listens",
    "client": "ended by the client itself (interrupted, or a reply it cannot read)",
    "not_started": "never sent: the run ended before its turn",
}

# Event kinds that carry output: these start the clock (t_first) and stop it (t_last).
OUTPUT_KINDS = ("content", "reasoning", "tool")
# Tags that a reply's text may hold where no parser took them out.
THINK_TAGS = ("<think>", "</think>")
# Hermes and Qwen mark a call by the first two; the Qwen coder models write the rest inside it.
TOOL_TAGS = (
    "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>",
)  # fmt: skip
EVENT_KINDS: Dict[str, str] = {
    "content": "text of the answer",
    "reasoning": "text of the reasoning (`reasoning` or `reasoning_content`)",
    "tool": "name or arguments of a tool call",
    "role": "names the role and carries no text",
    "empty": "a choice without text (a finish-only event is one)",
    "usage": "token counts without any choice",
    "error": "an error object",
    "done": "[DONE]",
    "other": "anything else",
}


class Field(NamedTuple):
    unit: str
    meaning: str


RUN_FIELDS: Dict[str, Field] = {
    "scenario": Field("", "name of the scenario"),
    "model": Field("", "model name sent to the server"),
    "base_url": Field("", "server's address as given"),
    "concurrency": Field("requests", "closed loop: open at any time; open loop: at most open"),
    "requests": Field("requests", "requests planned, warm-up not counted"),
    "rate": Field("requests/s", "open loop: how often a request is due; null: closed loop"),
    "arrivals": Field("", "open loop: poisson or constant"),
    "max_tokens": Field("tokens", "max_tokens of each request"),
    "min_tokens": Field("tokens", "min_tokens of each request; null: not sent"),
    "seed": Field("", "text from which the prompt's salt is derived"),
    "warmup": Field("requests", "warm-up requests sent first: kept, not counted"),
    "cache": Field("", "declared: as_is, cold (a salt for each request) or warm (one prompt)"),
    "http": Field("", "epoll or httpx"),
    "temperature": Field("", "sampling temperature"),
    "ignore_eos": Field("", "true: the output length is forced to max_tokens"),
    "continuous_usage_stats": Field("", "true: a usage was asked for with every event"),
    "return_token_ids": Field("", "true: token ids were asked for with every event"),
    "chat_template_kwargs": Field("", "as sent; {}: none"),
    "extra_body": Field("", "keys added to the request's JSON"),
    "label": Field("", "free text of the caller"),
    "processes": Field("processes", "that shared the load"),
    "prompt_sha256": Field("", "sha256 of all that was asked but the salt: equal for paired arms"),
    "prompt_sizing": Field("", "of a sized prompt: asked, tokens, by, calls, problem; else null"),
}

CLIENT_FIELDS: Dict[str, Field] = {
    "version": Field("", "version of the client"),
    "digest": Field("", "first 16 hex digits of sha256 over the client's own files"),
    "python": Field("", "version of the interpreter"),
    "stamp_source": Field("", "kernel if every read has a kernel receive stamp, else user"),
    "ended": Field(
        "",
        "why: done, server_gone, stalled, signal, no_model or process_lost (one of the client's own)",
    ),
    "cpu_s": Field("s", "processor time the client spent from the first to the last request"),
    "wall_s": Field("s", "wall time of the same span"),
    "cpu_share": Field("share", "cpu_s / wall_s; above 1 where several processes share the load"),
    "loop_late_max_s": Field("s", "largest lateness of a 10 ms tick of the client's own loop"),
    "loop_late_p99_s": Field("s", "99th percentile of the same lateness"),
    "lag_p50_s": Field("s", "median of read time minus kernel receive time, over all reads"),
    "lag_p99_s": Field("s", "99th percentile of the same"),
    "lag_max_s": Field("s", "maximum of the same"),
    "reads": Field("reads", "socket reads that brought bytes"),
    "user_stamped_reads": Field("reads", "reads without a usable kernel stamp"),
    "coalesced_reads": Field("reads", "reads that ended more than one output-bearing event"),
    "multi_event_reads": Field("reads", "reads that ended more than one event of any kind"),
    "output_events": Field("events", "output-bearing events received, warm-up included"),
    "blurred_events": Field(
        "events", "of these, with the stamp of a later one, read after 15 ms or more without a look"
    ),
    "clock_steps": Field("", "steps of the wall clock against the monotonic one in the run"),
    "connect_p50_s": Field("s", "median TCP connect"),
    "connect_max_s": Field("s", "slowest TCP connect"),
    "schedule_late_p50_s": Field("s", "open loop: median of begun minus due"),
    "schedule_late_p99_s": Field("s", "99th percentile of the same"),
    "schedule_late_max_s": Field("s", "maximum of the same"),
    "concurrency_mean": Field("requests", "mean number of open requests over the window"),
    "concurrency_max": Field("requests", "largest number of requests open at once"),
    "open_requests": Field("", "null or {t_s, n}: requests open from each time on, thinned"),
    "autogroup": Field("", "scheduler autogroup of the client, as the kernel words it"),
}

REQUEST_FIELDS: Dict[str, Field] = {
    "index": Field("", "0-based number; warm-up requests are numbered apart"),
    "warmup": Field("", "true: not counted in the summary"),
    "outcome": Field("", "one of OUTCOMES"),
    "error": Field("", "null or {kind, status, message}"),
    "finish_reason": Field("", "as the server gave it"),
    "t_due_s": Field("s", "open loop: when the schedule wants it begun"),
    "late_s": Field("s", "open loop: begun (connecting) minus due; in no other figure"),
    "t_start_s": Field("s", "t0: the request's last byte handed to the kernel"),
    "t_first_s": Field("s", "tF: first output-bearing delta received"),
    "t_last_s": Field("s", "tL: last output-bearing delta received"),
    "t_end_s": Field("s", "tE: end of the stream ([DONE], else the end of the body)"),
    "ttft_s": Field("s", "tF - t0"),
    "e2e_s": Field("s", "tE - t0"),
    "decode_tps": Field("tok/s", "N / (tL - tF); null when tL = tF"),
    "decode_rate": Field("tok/s", "(N - nF) / (tL - tF)"),
    "e2e_tps": Field("tok/s", "N / (tE - t0)"),
    "tpot_s": Field("s", "(tL - tF) / (N - nF), for N > nF"),
    "input_tps": Field("tok/s", "prompt_tokens / ttft_s"),
    "n_first_delta": Field(
        "tokens",
        "nF: tokens that had arrived with the first output delta; null: not told, and the events "
        "hold several",
    ),
    "prompt_tokens": Field("tokens", "usage.prompt_tokens"),
    "cached_tokens": Field("tokens", "usage.prompt_tokens_details.cached_tokens"),
    "completion_tokens": Field("tokens", "N: usage.completion_tokens; null without usage"),
    "reasoning_tokens": Field("tokens", "usage.completion_tokens_details.reasoning_tokens"),
    "n_events": Field("events", "output-bearing deltas received; not a token count"),
    "decode_end": Field("", "which end decode_tps used: last_delta, stream_end or null"),
    "connect_s": Field("s", "TCP connect; before t0, so in no other figure"),
    "usage": Field("", "the last usage object, as sent"),
    "text": Field(
        "",
        "null or counts from the texts: tags (of each: in content, reasoning, tool arguments; split), "
        "tool_calls, tool_calls_broken, after_finish, tokens_at_finish, after_stop",
    ),
    "output_sha256": Field(
        "", "sha256 over answer, reasoning and tool calls; null: no event had a choice"
    ),
    "events": Field("", "null or lists t_s, kind, tokens, t_user_s, one entry an event"),
}

SUMMARY_FIELDS: Dict[str, Field] = {
    "n_attempted": Field("requests", "requests sent, warm-up not counted"),
    "n_ok": Field("requests", "of these, successes"),
    "n_not_started": Field("requests", "planned and never sent"),
    "outcomes": Field("requests", "count of each outcome that occurred"),
    "success_rate": Field("share", "n_ok / n_attempted"),
    "wall_s": Field("s", "last tE - first t0 over successes"),
    "output_tps_total": Field("tok/s", "sum of completion_tokens of successes / wall_s"),
    "completion_tokens": Field("tokens", "sum over successes; null if one of them is unknown"),
    "prompt_tokens": Field("tokens", "sum over successes; null if one of them is unknown"),
    "cached_tokens": Field("tokens", "sum over successes; null if one of them is unknown"),
    "reasoning_tokens": Field("tokens", "sum over successes; null if one of them is unknown"),
    "ttft_s": Field("s", "p10, p50, p90 and n over successes"),
    "e2e_s": Field("s", "p10, p50, p90 and n over successes"),
    "decode_tps": Field("tok/s", "p10, p50, p90 and n over successes"),
    "decode_rate": Field("tok/s", "p10, p50, p90 and n over successes"),
    "e2e_tps": Field("tok/s", "p10, p50, p90 and n over successes"),
    "tpot_s": Field("s", "p10, p50, p90 and n over successes"),
}

FIELDS: Dict[str, Dict[str, Field]] = {
    "run": RUN_FIELDS,
    "client": CLIENT_FIELDS,
    "requests": REQUEST_FIELDS,
    "summary": SUMMARY_FIELDS,
}

PERCENTILE_METRICS = ("ttft_s", "e2e_s", "decode_tps", "decode_rate", "e2e_tps", "tpot_s")
DERIVED = (
    "ttft_s",
    "e2e_s",
    "decode_tps",
    "decode_rate",
    "e2e_tps",
    "tpot_s",
    "input_tps",
    "decode_end",
)
_TOKEN_SUMS = ("completion_tokens", "prompt_tokens", "cached_tokens", "reasoning_tokens")


def _difference(end: Optional[float], begin: Optional[float]) -> Optional[float]:
    return None if end is None or begin is None else end - begin


def _ratio(top: Optional[float], bottom: Optional[float]) -> Optional[float]:
    """top / bottom where both are known and bottom is a positive span; else unknown."""
    if top is None or bottom is None or bottom <= 0:
        return None
    try:
        return top / bottom
    except OverflowError:  # a count that no float can hold is no count
        return None


def derive(
    t_start: Optional[float],
    t_first: Optional[float],
    t_last: Optional[float],
    t_end: Optional[float],
    prompt_tokens: Optional[int],
    completion_tokens: Optional[int],
    n_first_delta: Optional[int],
) -> Dict[str, Any]:
    """Every figure of one request that follows from its times and counts (the keys of DERIVED).

    Where no last delta is known, the end of the stream stands in for it and `decode_end` says so.
    """
    ttft = _difference(t_first, t_start)
    e2e = _difference(t_end, t_start)
    decode_end = None
    if t_first is not None:
        if t_last is not None:
            decode_end = "last_delta"
        elif t_end is not None:
            decode_end = "stream_end"
    span = _difference(t_last if t_last is not None else t_end, t_first)
    later = None  # tokens that arrived after the first delta
    if completion_tokens is not None and n_first_delta is not None:
        later = completion_tokens - n_first_delta
    many = later is not None and later > 0
    return {
        "ttft_s": ttft,
        "e2e_s": e2e,
        "decode_tps": _ratio(completion_tokens, span),
        "decode_rate": _ratio(later, span) if many else None,
        "e2e_tps": _ratio(completion_tokens, e2e),
        "tpot_s": _ratio(span, later) if many and span is not None and span > 0 else None,
        "input_tps": _ratio(prompt_tokens, ttft),
        "decode_end": decode_end,
    }


def output_gaps(events: Dict[str, Any]) -> List[Tuple[float, Optional[int]]]:
    """Gaps between output-bearing deltas: (seconds, tokens of the later delta or None)."""
    gaps: List[Tuple[float, Optional[int]]] = []
    before: Optional[float] = None
    for t, kind, tokens in zip(events["t_s"], events["kind"], events["tokens"]):
        if kind not in OUTPUT_KINDS:
            continue
        if before is not None:
            gaps.append((t - before, tokens))
        before = t
    return gaps


def percentile(values: Iterable[float], q: float) -> Optional[float]:
    """Type 7 (linear interpolation, numpy's default), q in 0..100; None for no values.

    Infinite values are allowed: a failed request is +inf in a latency percentile. Between a
    finite and an infinite value the result is infinite, never nan.
    """
    if not 0 <= q <= 100:
        raise ValueError(f"percentile: q must be in 0..100, got {q!r}")
    ordered = sorted(values)
    if not ordered:
        return None
    position = (len(ordered) - 1) * q / 100
    low = math.floor(position)
    share = position - low
    if share == 0 or ordered[low] == ordered[low + 1]:
        return ordered[low]
    return ordered[low] + share * (ordered[low + 1] - ordered[low])


def percentiles(values: Sequence[float]) -> Optional[Dict[str, Any]]:
    """p10, p50, p90 with n; None where there is nothing to summarise."""
    if not values:
        return None
    found: Dict[str, Any] = {f"p{q}": percentile(values, q) for q in (10, 50, 90)}
    found["n"] = len(values)
    return found


def _sum_known(requests: Sequence[Dict[str, Any]], name: str) -> Optional[int]:
    values = [request.get(name) for request in requests]
    if not values or any(value is None for value in values):
        return None
    return sum(value for value in values if value is not None)


def _window(requests: Sequence[Dict[str, Any]]) -> Optional[float]:
    starts = [request.get("t_start_s") for request in requests]
    ends = [request.get("t_end_s") for request in requests]
    if not starts or None in starts or None in ends:
        return None
    return max(end for end in ends if end is not None) - min(s for s in starts if s is not None)


def summarise(requests: Sequence[Dict[str, Any]], wall_s: Optional[float] = None) -> Dict[str, Any]:
    """The summary of a run over its counted requests; percentiles over successes only.

    `wall_s` is for records whose requests have no times; known times win over it.
    """
    counted = [request for request in requests if not request.get("warmup")]
    ok = [request for request in counted if request["outcome"] == "ok"]
    attempted = [request for request in counted if request["outcome"] != "not_started"]
    counts: Dict[str, int] = {}
    for request in counted:
        counts[request["outcome"]] = counts.get(request["outcome"], 0) + 1
    window = _window(ok)
    wall = wall_s if window is None else window
    summary: Dict[str, Any] = {
        "n_attempted": len(attempted),
        "n_ok": len(ok),
        "n_not_started": len(counted) - len(attempted),
        "outcomes": counts,
        "success_rate": len(ok) / len(attempted) if attempted else None,
        "wall_s": wall,
    }
    for name in _TOKEN_SUMS:
        summary[name] = _sum_known(ok, name)
    summary["output_tps_total"] = _ratio(summary["completion_tokens"], wall)
    for name in PERCENTILE_METRICS:
        known = [request[name] for request in ok if request.get(name) is not None]
        summary[name] = percentiles(known)
    return summary


def blank_request(index: int, warmup: bool = False) -> Dict[str, Any]:
    """A request that was never sent: every field present, every value unknown."""
    request: Dict[str, Any] = dict.fromkeys(REQUEST_FIELDS)
    request.update(index=index, warmup=warmup, outcome="not_started")
    return request


def problems(record: Any) -> List[str]:
    """What makes this no run record: [] when it is one."""
    if not isinstance(record, dict):
        return ["not a JSON object"]
    found = []
    if record.get("schema") != SCHEMA:
        found.append(f"schema: {SCHEMA!r} expected, {record.get('schema')!r} found")
    if record.get("source") not in SOURCES:
        found.append(
            f"source: one of {', '.join(SOURCES)} expected, {record.get('source')!r} found"
        )
    for name in ("run", "summary"):
        if not isinstance(record.get(name), dict):
            found.append(f"{name}: an object expected")
    requests = record.get("requests")
    if not isinstance(requests, list):
        return [*found, "requests: a list expected"]
    for position, request in enumerate(requests):
        if not isinstance(request, dict):
            found.append(f"requests[{position}]: an object expected")
        elif request.get("outcome") not in OUTCOMES:
            outcome = request.get("outcome")
            found.append(f"requests[{position}].outcome: {outcome!r} is none of OUTCOMES")
    return found
