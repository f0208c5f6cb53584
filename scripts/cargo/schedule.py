"""When the requests of an open loop are due.

In:  a rate, how arrivals are spread, how many, and the run's seed.
Out: seconds from the start of the counted requests, one for each, never falling. The same for the same
     seed, so that arms of one start number meet the same bursts.
"""

from __future__ import annotations

import random
from typing import List

ARRIVALS = ("poisson", "constant")


def due_times(rate: float, arrivals: str, requests: int, seed: str) -> List[float]:
    """The first request is due at once. `rate` in requests/s; "poisson": exponential gaps, stretched
    so that the whole of them has the rate that was asked for: few drawn gaps may have half or twice it.
    """
    if arrivals == "constant":
        return [index / rate for index in range(requests)]
    drawn = random.Random(f"arrivals {seed}")
    gaps = [drawn.expovariate(1.0) for _ in range(requests - 1)]
    unit_s = len(gaps) / rate / sum(gaps) if gaps else 0.0
    found = [0.0]
    for gap in gaps:
        found.append(found[-1] + gap * unit_s)
    return found
