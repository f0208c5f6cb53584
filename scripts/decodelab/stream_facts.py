"""Stream facts of a run: in which portions tokens arrive, what comes behind an end, tags in texts.

In: a `records.Run`. Out: the columns STREAM of runs.csv. A value not known is None, never 0.

Not in the stream, and so not told: tokens that an engine computed behind a stop and threw away within
its step (vLLM's V0 cuts a multi-step burst at the stop). They cost time, up to k - 1 steps a request.
"""

from __future__ import annotations

import collections
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cargo import record
from decodelab import declared, records, telemetry

Row = dict[str, Any]
Request = Mapping[str, Any]
# Two sorts of gaps, within an arrival and between arrivals, only where their geometric means are so
# far apart: times between single tokens vary by less than half, a server writes its ready events
# within a fraction of a millisecond.
APART = 5.0
# ... and the short ones are so far below the mean gap: else the long ones are stalls between tokens.
SHORT = 0.3
AS_ONE = (
    0.05  # of the mean gap: shorter ones are alike, or what splits them would be their own noise
)
LONGEST_ARRIVAL = 64  # events: with fewer long gaps than one in so many they are stalls as well
USUAL = 0.5  # the share that the commonest size has at least, to be called the size
LEAST_ARRIVALS = 4  # beside the first and last of each request, which may hold less
TAGS = record.THINK_TAGS + record.TOOL_TAGS
OWN_ENDS = ("stop", "tool_calls", "function_call")
Arrival = list[tuple[float, int | None]]  # (s, tokens) of events that came together


def row(run: records.Run) -> Row:
    """The columns STREAM."""
    arrived = arrivals(run)
    return {**arrived, **ends(run, arrived.get("step_tokens_mode")), **texts(run.ok)}


# arrivals -----------------------------------------------------------------------------------------


def arrivals(run: records.Run) -> Row:
    streams = [stream for request in run.ok if (stream := _stream(request))]
    counts = [tokens for stream in streams for _t, tokens in stream if tokens is not None]
    event_mode, event_share = _mode(_inner_counts(streams))
    out: Row = {"event_tokens_mode": event_mode, "event_tokens_mode_share": event_share}
    client = run.record.get("client") or {}
    gaps = [gap for stream in streams for gap in _gaps(stream)]
    if not streams or _blurred(client) or _endless(gaps):
        return {**out, "burst_kind": "one_event" if (event_mode or 0) > 1 else None}
    limit = short_gap(gaps)
    groups = [_arrivals(stream, limit) for stream in streams]
    inner = [arrival for group in groups for arrival in group[1:-1]]
    if len(inner) < LEAST_ARRIVALS:
        return {**out, "burst_kind": "one_event" if (event_mode or 0) > 1 else None}
    at_once, at_once_share = _mode([len(arrival) for arrival in inner])
    tokens = [sum(n for _t, n in a if n is not None) for a in inner if _counted(a)]
    k, k_share = _mode(tokens)
    steps = [b[0][0] - a[0][0] for group in groups for a, b in itertools.pairwise(group[1:])]
    return {
        **out,
        "burst_kind": _kind(event_mode, at_once, at_once_share, bool(counts)),
        "events_at_once_mode": at_once,
        "events_at_once_mode_share": at_once_share,
        "step_tokens_mode": k,
        "step_tokens_mode_share": k_share,
        "step_s_p50": statistics.median(steps) if steps else None,
    }


def _stream(request: Request) -> Arrival:
    """Output events of a request: time, and tokens. Where no event is counted and there are as many as
    tokens, each is one token."""
    events = request.get("events") or {}
    pairs = zip(events.get("t_s") or [], events.get("kind") or [], strict=False)
    times = [t for t, kind in pairs if kind in record.OUTPUT_KINDS]
    counts = declared.counts(request)
    if all(n is None for n in counts) and request.get("completion_tokens") == len(times):
        counts = [1] * len(times)
    counts = counts + [None] * (len(times) - len(counts))
    return [(t, n) for t, n in zip(times, counts, strict=False) if t is not None]


def _inner_counts(streams: Iterable[Arrival]) -> list[int]:
    """Token counts of events, without each request's first and last, which may hold less."""
    return [n for stream in streams for _t, n in stream[1:-1] if n is not None]


def _blurred(client: Mapping[str, Any]) -> bool:
    """Where the client was late, events that came one by one bear one time."""
    events, blurred = (telemetry.number(client.get(n)) for n in ("output_events", "blurred_events"))
    late = bool(events) and (blurred or 0.0) / (events or 1.0) > records.COALESCED_SHARE
    return late or records.stamps_late(client)


def _gaps(stream: Arrival) -> list[float]:
    return [b - a for (a, _n), (b, _m) in itertools.pairwise(stream)]


def short_gap(gaps: Sequence[float]) -> float | None:
    """The largest gap (s) within an arrival; None where events arrive one by one.

    Takes the split only if there are enough long gaps for steps: few are stalls.
    """
    found = _split(gaps)
    if found is None or found[1] * LONGEST_ARRIVAL < len(gaps):
        return None
    return found[0]


def _endless(gaps: Sequence[float]) -> bool:
    """Long gaps again and again, yet with more events between them than an arrival is thought to hold:
    a larger step or a server that stalls, which the times do not tell apart.
    """
    found = _split(gaps)
    return found is not None and LEAST_ARRIVALS <= found[1] < len(gaps) / LONGEST_ARRIVAL


def _split(gaps: Sequence[float]) -> tuple[float, int] | None:
    """The largest of the short gaps (s), and how many are long; None where all are of one sort.

    Splits the gaps where the variance of their logarithms between the two sides is largest (Otsu),
    and takes the split only if the sides are as unlike as arrivals and steps are.
    """
    ordered = np.sort(np.asarray(gaps, dtype=float))
    if ordered.size < 2 * LEAST_ARRIVALS or ordered.mean() <= 0:
        return None
    logs = np.log(np.maximum(ordered, AS_ONE * ordered.mean()))
    n = np.arange(1, ordered.size)
    below = np.cumsum(logs)[:-1] / n
    above = (logs.sum() - np.cumsum(logs)[:-1]) / (ordered.size - n)
    at = int(np.argmax(n * (ordered.size - n) * (above - below) ** 2))
    short, long = float(np.exp(below[at])), float(np.exp(above[at]))
    if long < APART * short or short > SHORT * float(ordered.mean()):
        return None
    return float(ordered[at]), int(ordered.size - n[at])


def _arrivals(stream: Arrival, limit: float | None) -> list[Arrival]:
    out = [[stream[0]]]
    for (before, _n), event in itertools.pairwise(stream):
        if limit is not None and event[0] - before <= limit:
            out[-1].append(event)
        else:
            out.append([event])
    return out


def _counted(arrival: Arrival) -> bool:
    return all(tokens is not None for _t, tokens in arrival)


def _kind(event_mode: int | None, at_once: int | None, share: float | None, counted: bool) -> Any:
    together = (at_once or 0) > 1 and (share or 0.0) >= USUAL
    several = (event_mode or 0) > 1
    if together and several:
        return "both"
    if together or several:
        return "at_once" if together else "one_event"
    return "single" if counted else None  # uncounted events may hold anything


def _mode(values: Sequence[int]) -> tuple[int | None, float | None]:
    """The commonest value (the smallest of several) and its share."""
    if not values:
        return None, None
    value, n = min(collections.Counter(values).items(), key=lambda item: (-item[1], item[0]))
    return value, n / len(values)


# ends ---------------------------------------------------------------------------------------------


def ends(run: records.Run, k: int | None) -> Row:
    """What the stream shows of tokens beyond an end; `k`: tokens of an arrival."""
    ok, limit = run.ok, run.planned["max_tokens"]
    own = [request for request in ok if request.get("finish_reason") in OWN_ENDS]
    lengths = {r["completion_tokens"] for r in own if r.get("completion_tokens") is not None}
    late = [
        max(0, request["completion_tokens"] - at)
        for request in ok
        if (at := _text(request).get("tokens_at_finish")) is not None
        and request.get("completion_tokens") is not None
    ]
    sized = [r["completion_tokens"] for r in ok if r.get("completion_tokens") is not None]
    return {
        "stop_n": len(own) if any(r.get("finish_reason") for r in ok) else None,
        "stop_lengths_n": len(lengths) if own else None,
        "stop_at_step_n": most_alike(lengths, k) if own and k is not None and k > 1 else None,
        "over_max_n": sum(n > limit for n in sized) if sized and limit is not None else None,
        "finish_told_n": len(late),
        "finish_late_tokens": sum(late) if late else None,
    }


def most_alike(lengths: Iterable[int], k: int) -> int:
    """Most lengths with one remainder modulo k (the first token comes with the prompt, so not 0)."""
    return max(collections.Counter(length % k for length in lengths).values(), default=0)


# texts --------------------------------------------------------------------------------------------


def _text(request: Request) -> Mapping[str, Any]:
    text = request.get("text")
    return text if isinstance(text, Mapping) else {}


def texts(ok: Sequence[Request]) -> Row:
    """What the texts show; records of an older client tell nothing of them."""
    told = [request for request in ok if _text(request)]
    if not told:
        return {"text_told_n": 0}
    facts = [_text(request) for request in told]
    # the arguments of a call that the length limit cut are no fault of the parser
    whole = [_text(r) for r in told if r.get("finish_reason") in OWN_ENDS]
    stops = [fact["after_stop"] for fact in facts if fact.get("after_stop") is not None]
    return {
        "text_told_n": len(told),
        "after_finish_n": sum(fact.get("after_finish") or 0 for fact in facts),
        "stop_named_n": len(stops),
        "after_stop_chars": sum(stops) if stops else None,
        "think_ended_n": sum(_thought_first(request) for request in told),
        "think_tags_n": _tags(facts, record.THINK_TAGS, "content"),
        "tool_tags_n": _tags(facts, record.TOOL_TAGS, "content"),
        "tags_elsewhere_n": _tags(facts, TAGS, "reasoning", "tool"),
        "tags_split_n": _tags(facts, TAGS, "split"),
        "tool_calls_n": sum(fact.get("tool_calls") or 0 for fact in whole),
        "tool_calls_broken_n": sum(fact.get("tool_calls_broken") or 0 for fact in whole),
    }


def _tags(facts: Iterable[Mapping[str, Any]], tags: Iterable[str], *where: str) -> int:
    return sum(
        ((fact.get("tags") or {}).get(tag) or {}).get(name) or 0
        for fact in facts
        for tag in tags
        for name in where
    )


def _thought_first(request: Request) -> bool:
    kinds = (request.get("events") or {}).get("kind") or []
    return "reasoning" in kinds and ("content" in kinds or "tool" in kinds)
