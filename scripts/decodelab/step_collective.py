"""Collectives: what is transfer, and what is waiting for the slowest rank.

In: the worker's steps of the ranks that work together. Out: per rank the mean (wait, transfer), ms
a step. The k-th collective of a step is the same one on every rank; who comes last waits for
nobody, so the shortest is the transfer, and what another took longer is its wait.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from decodelab.step_closure import Cycle
from decodelab.step_table import Problem, Profile

MS = 1e6  # ns
APART = 2.0  # times; a gate's few calls in an empty process are no closer to a step's


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


def doubt(profile: Profile, start: Mapping[str, Any]) -> Problem | None:
    """The health gate's own all-reduce against the transfer that the ranks show, where both are known."""
    table = profile.table("decode")
    found = next((r for r in table.regions if r.region == "collective"), None) if table else None
    gate = _gate_ms(start)
    if found is None or not found.transfer_ms or not found.calls_per_step or gate is None:
        return None
    wanted = gate * found.calls_per_step
    if wanted / APART <= found.transfer_ms <= wanted * APART:
        return None
    figures = {"transfer_ms": found.transfer_ms, "gate_ms": wanted, "calls": found.calls_per_step}
    return Problem("collective_check", figures)


def _gate_ms(start: Mapping[str, Any]) -> float | None:
    """Of one all-reduce at the size of a decode step, of the slowest device; None: the start's check
    did not time it.
    """
    devices = (start.get("device_check") or {}).get("devices") or []
    timed = [one.get("all_reduce_ms") for one in devices if isinstance(one, Mapping)]
    known = [value for value in timed if isinstance(value, (int, float)) and value > 0]
    return float(max(known)) if known else None
