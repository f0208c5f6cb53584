"""A run's window split into phases, from the times of its requests alone.

In: counted requests (times in seconds from the run's zero, as in the record), the window. Out:
`Phases`: spans of the window, which together are the whole of it.

- prefill: at least one request is between t0 and its first token, that is, it waits in the server's
  queue or is in prefill; others may decode meanwhile ("prefill-heavy"). A request that failed
  without a token counts until its end.
- decode: no request is in that state and at least one is between its first and its last token.
- between: no request is open (an open loop's pauses, a client's own).

The time in the server's queue cannot be told from prefill by the client. Where more requests are
open than the server runs at once, nearly all of the window is prefill-heavy in this sense.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from decodelab.records import was_sent
from decodelab.telemetry_curve import Span

Spans = tuple[Span, ...]


class Phases(NamedTuple):
    prefill: Spans
    decode: Spans
    between: Spans


def split(requests: Iterable[Mapping[str, Any]], window: Span, zero: float = 0.0) -> Phases | None:
    """The phases of the window; `zero` is the requests' zero on the window's clock. None if a
    request was sent and its times do not say when it waited: then no moment's phase is known.
    """
    waiting: list[Span] = []
    decoding: list[Span] = []
    for request in filter(was_sent, requests):
        begin, first = request["t_start_s"], request["t_first_s"]
        end = request["t_last_s"] if request["t_last_s"] is not None else request["t_end_s"]
        if begin is None or end is None or (first is None and request["outcome"] == "ok"):
            return None
        waiting.append((zero + begin, zero + (end if first is None else first)))
        if first is not None:
            decoding.append((zero + first, zero + end))
    prefill = within(union(waiting), window)
    decode = minus(within(union(decoding), window), prefill)
    return Phases(prefill, decode, minus((window,), union([*prefill, *decode])))


def union(spans: Iterable[Span]) -> Spans:
    """The same time as spans that neither touch nor overlap, in order; empty ones are left out."""
    out: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return tuple(out)


def within(spans: Sequence[Span], window: Span) -> Spans:
    """What of the spans lies inside the window."""
    return union((max(begin, window[0]), min(end, window[1])) for begin, end in spans)


def minus(spans: Sequence[Span], taken: Sequence[Span]) -> Spans:
    """What of the spans lies in none of the others; both are unions."""
    out: list[Span] = []
    for begin, end in spans:
        at = begin
        for start, stop in taken:
            if stop <= at or start >= end:
                continue
            out.append((at, start))
            at = stop
        out.append((at, end))
    return union(out)
