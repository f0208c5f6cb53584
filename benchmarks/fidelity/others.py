"""What other processes, and the machine's host, took of the cores that a measurement had.

In:  cores; /proc/stat before and after. Out: their share of that time; None where it is not known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

STAT = Path("/proc/stat")
IDLE = (3, 4)  # idle and iowait; what is stolen by the host counts as taken
LAST = 8  # guest times are in user and nice already


class Taken(NamedTuple):
    at_s: float
    busy_s: float  # of all the cores together


def taken(cores: Set[int], stat: str | None = None) -> Taken:
    text = STAT.read_text() if stat is None else stat
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    by_core = {words[0]: [int(word) for word in words[1 : LAST + 1]] for words in lines}
    busy = sum(
        ticks
        for core in cores
        for column, ticks in enumerate(by_core[f"cpu{core}"])
        if column not in IDLE
    )
    return Taken(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"))


def others_share(before: Taken, after: Taken, own_s: float, cores: int) -> float | None:
    """Of the time between, the share that was neither idle nor the measured process's own."""
    wall_s = (after.at_s - before.at_s) * cores
    if not wall_s:
        return None
    return min(1.0, max(0.0, after.busy_s - before.busy_s - own_s) / wall_s)
