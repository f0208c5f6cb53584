"""Collectives over several ranks: waiting for the slowest, or moving data.

A collective ends on all ranks at once; who came last waited least. So of each call the shortest duration over the
ranks is the transfer, and what a rank's own is longer is its wait. No common clock is needed, only that the ranks made
the same calls in the same steps; else nothing is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decodelab.trace_account import Account

Calls = list[
    list[tuple[Any, Any, Any]]
]  # per rank and step: names' order, durations, own time (ms)


def collectives(accounts: Sequence[Account]) -> Calls:
    out = []
    for account in accounts:
        work = account.work
        mine = np.array([r == "collective" for r in work.region] or [False])
        steps = []
        for k in range(len(account.phase)):
            i = np.flatnonzero(mine & (work.step == k)) if mine.any() else np.zeros(0, int)
            took = (work.events.end[i] - work.events.begin[i]) / 1e6
            steps.append((work.events.place[i], took, work.own[i] / 1e6))
        out.append(steps)
    return out


def waits(calls: Calls) -> list[Any] | None:
    """Per rank ms waited and transferred of each step (steps x 2), None where the ranks' calls are unlike.

    Both are of exclusive time: of what runs beside other work only what that work does not hide.
    """
    shapes = {tuple(len(took) for _place, took, _own in steps) for steps in calls}
    if len(shapes) != 1 or not any(next(iter(shapes))):
        return None
    out = [np.zeros((len(steps), 2)) for steps in calls]
    for k in range(len(calls[0])):
        least = np.min([steps[k][1] for steps in calls], axis=0)
        for rank, steps in enumerate(calls):
            transfer = np.minimum(least, steps[k][2]).sum()
            out[rank][k] = steps[k][2].sum() - transfer, transfer
    return out
