"""Arithmetic of intervals: union, idle time, and whose time an instant is where several overlap.

Arrays of integers (ns); `begin` and `end` of equal length, end >= begin.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def union(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The disjoint intervals that cover the same time, in order; those of no length are dropped."""
    long = end > begin
    begin, end = begin[long], end[long]
    if not len(begin):
        return begin, end
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return begin[first], reach[last]


def covered(begin: Ints, end: Ints, at: Ints) -> Ints:
    """Time that the disjoint, ordered intervals cover before each instant of `at`."""
    if not len(begin):
        return np.zeros(len(at), np.int64)
    total = np.concatenate(([0], np.cumsum(end - begin)))
    n = np.searchsorted(begin, at, side="right")
    past = np.where(n > 0, np.minimum(at, end[n - 1]) - begin[n - 1], 0)
    return total[np.maximum(n - 1, 0)] * (n > 0) + past


def exclusive(begin: Ints, end: Ints, rank: Ints) -> Ints:
    """Each interval's own time: an instant belongs to one of those that cover it, to the least `rank`
    and, of equals, to the earliest. Their sum is the length of the union."""
    order = np.argsort(begin, kind="stable")
    begin, end, rank = begin[order], end[order], rank[order]
    own = end - begin
    if len(own) > 1:
        reach = np.maximum.accumulate(end)
        starts = np.flatnonzero(np.concatenate(([True], begin[1:] >= reach[:-1])))
        stops = np.concatenate((starts[1:], [len(begin)]))
        for a, b in zip(starts[stops - starts > 1], stops[stops - starts > 1], strict=True):
            own[a:b] = _sweep(begin[a:b].tolist(), end[a:b].tolist(), rank[a:b].tolist())
    out = np.empty_like(own)
    out[order] = own
    return out


def _sweep(begin: list[int], end: list[int], rank: list[int]) -> list[int]:
    """Of intervals ordered by their begin."""
    own = [0] * len(begin)
    active: list[tuple[int, int]] = []  # (rank, index): who owns the present instant is the first

    def spend(now: int, until: int | None) -> int:
        while active and (until is None or now < until):
            i = active[0][1]
            stop = end[i] if until is None else min(end[i], until)
            if stop > now:
                own[i] += stop - now
                now = stop
            if end[i] <= now:
                heapq.heappop(active)
        return now

    now = begin[0]
    for i, t in enumerate(begin):
        spend(now, t)
        now = t
        heapq.heappush(active, (rank[i], i))
    spend(now, None)
    return own
