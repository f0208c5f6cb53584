"""Collectives: what is transfer, and what is waiting for the slowest rank.

In: the worker's steps of the ranks that work together. Out: per rank the mean (wait, transfer), ms
a step. The k-th collective of a step is the same one on every rank; who comes last waits for
nobody, so the shortest is the transfer, and what another took longer is its wait.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from decodelab.step_closure import Cycle

MS = 1e6  # ns


def waits(ranks: Mapping[int, Sequence[Cycle]]) -> dict[int, tuple[float, float]]:
    """By rank; empty for one rank alone and where no step has the same calls on all of them."""
    by_step = {rank: {c.step.i: c.step.collectives for c in cs} for rank, cs in ranks.items()}
    if len(by_step) < 2:
        return {}
    shared = set.intersection(*(set(steps) for steps in by_step.values()))
    wait: dict[int, list[float]] = {rank: [] for rank in by_step}
    transfer: list[float] = []
    for i in sorted(shared):
        calls = {rank: steps[i] for rank, steps in by_step.items()}
        if len({len(times) for times in calls.values()}) > 1 or not all(calls.values()):
            continue
        shortest = [min(times) for times in zip(*calls.values(), strict=True)]
        transfer.append(sum(shortest) / MS)
        for rank, times in calls.items():
            wait[rank].append((sum(times) - sum(shortest)) / MS)
    if not transfer:
        return {}
    middle = statistics.fmean(transfer)
    return {rank: (statistics.fmean(times), middle) for rank, times in wait.items()}
