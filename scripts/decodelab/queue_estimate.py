"""How long each request of a run waited in the server's queue: an estimate from times alone.

In: the requests of a run and how many the server runs at once (--max-num-seqs). Out: seconds, request by request.
A server that admits in order of arrival (of requests sent at once: of their first tokens) and runs at most M starts
request i when all but M - 1 of those before it have ended. It is an estimate: who held a slot is inferred from the
client's start and end times, preemption and a full KV cache are not seen, and a queue cannot last longer than the TTFT.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

Request = Mapping[str, Any]
STAMPS_S = 0.01


def queue_s(
    requests: Sequence[Request], max_num_seqs: int | None, concurrency: int | None
) -> dict[int, float]:
    """Index to seconds waited. Nothing is estimated where a request that was sent has no times, or
    where the server's limit is unknown and could have been exceeded. `concurrency`: None for an open loop.
    """
    sent = [r for r in requests if r["t_start_s"] is not None or r["outcome"] == "ok"]
    timed = [r for r in sent if r["t_start_s"] is not None and r["t_end_s"] is not None]
    in_order = _by_arrival(timed)
    if concurrency == 1 and not _overlap(in_order):
        return {r["index"]: 0.0 for r in sent}  # one at a time cannot queue behind itself
    if max_num_seqs is None or len(timed) < len(sent):
        return {}
    return _waits(in_order, max_num_seqs)


def _by_arrival(timed: Sequence[Request]) -> list[Request]:
    """By start. Which of requests sent at once arrived first is told by their first tokens: an order by index would
    have some wait that were served, and more run than the server takes.
    """
    ordered = sorted(timed, key=lambda r: (r["t_start_s"], r["index"]))
    keyed: list[tuple[float, float, Request]] = []
    begin = -math.inf  # of those sent together
    for request in ordered:
        if request["t_start_s"] > begin + STAMPS_S:
            begin = request["t_start_s"]
        first = request.get("t_first_s")
        keyed.append((begin, math.inf if first is None else first, request))
    return [request for *_, request in sorted(keyed, key=lambda item: item[:2])]


def _overlap(in_order: Sequence[Request]) -> bool:
    """Whether requests were really under way together, beyond the rounding of their stamps."""
    pairs = itertools.pairwise(in_order)
    return any(later["t_start_s"] < sooner["t_end_s"] - STAMPS_S for sooner, later in pairs)


def _waits(in_order: Sequence[Request], slots: int) -> dict[int, float]:
    ends: list[float] = []  # of those that hold a slot
    waited = {}
    for request in in_order:
        begin = request["t_start_s"]
        if len(ends) >= slots:
            begin = max(begin, heapq.heappop(ends))
        heapq.heappush(ends, request["t_end_s"])
        wait = begin - request["t_start_s"]
        ttft = request.get("ttft_s")
        waited[request["index"]] = wait if ttft is None else min(wait, ttft)
    return waited
