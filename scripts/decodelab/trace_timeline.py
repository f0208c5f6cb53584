"""The first steps of a trace as spans to draw: [region, depth, begin_ms, end_ms] from the first drawn step's begin.

Spans of one region that follow each other on one stream within 2 µs are drawn as one. A device's depth is the place of
its stream, an op's the number of ops around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decodelab.trace_account import Account
from decodelab.trace_steps import Steps

STEPS = 8
TOGETHER_NS = 2_000


def timeline(ranks: Sequence[tuple[int, Account, Steps]], phase: str) -> tuple[dict[str, Any], ...]:
    out = []
    for rank, account, steps in ranks:
        mine = [k for k, p in enumerate(account.phase) if p == phase and account.counted[k]][:STEPS]
        for k in mine:
            out.append(
                {
                    "rank": rank,
                    "role": "worker",
                    "device": account.linked is not None,
                    "step": k,
                    "phase": phase,
                    "begin_ms": (int(steps.begin[k]) - int(steps.begin[mine[0]])) / 1e6,
                    "end_ms": (int(steps.end[k]) - int(steps.begin[mine[0]])) / 1e6,
                    "spans": _spans(account, k, int(steps.begin[mine[0]])),
                }
            )
    return tuple(out)


def _spans(account: Account, k: int, origin: int) -> list[list[Any]]:
    work = account.work
    mine = np.flatnonzero(work.step == k)
    on_device = account.linked is not None
    streams = {p: n for n, p in enumerate(dict.fromkeys(work.events.place[mine].tolist()))}
    out: list[list[Any]] = []
    last: dict[int, list[Any]] = {}
    around: list[int] = []
    for i in mine:
        begin, end = int(work.events.begin[i]) - origin, int(work.events.end[i]) - origin
        if on_device:
            depth = streams[int(work.events.place[i])]
        else:
            around = [e for e in around if e > begin]
            depth = len(around)
            around.append(end)
        before = last.get(depth)
        if before and before[0] == work.region[i] and 0 <= begin - before[3] <= TOGETHER_NS:
            before[3] = end
        else:
            last[depth] = [work.region[i], depth, begin, end]
            out.append(last[depth])
    return [[region, depth, a / 1e6, b / 1e6] for region, depth, a, b in out]
