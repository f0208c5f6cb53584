"""Where on the machine a process runs: its cores, and whether others can take them from it.

In:  cores, and --fifo. Out: a `Place`; the new process calls `take` before it begins.
"""

from __future__ import annotations

import os
from typing import NamedTuple

FIFO_PRIORITY = 10


class Place(NamedTuple):
    cores: frozenset[int]  # empty: all
    fifo: bool = False  # real-time class: other processes of a busy machine wait

    def take(self) -> None:
        if self.cores:
            os.sched_setaffinity(0, self.cores)
        if self.fifo:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
