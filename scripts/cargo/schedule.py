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
    """The first request is due at once. `rate` in requests/s; "poisson": exponential gaps."""
    if arrivals == "constant":
        return [index / rate for index in range(requests)]
    drawn = random.Random(f"arrivals {seed}")
    found, at = [], 0.0
    for _ in range(requests):
        found.append(at)
        at += drawn.expovariate(rate)
    return found
