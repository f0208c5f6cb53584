"""How the time of one simulated step is shared out among the parts that a real engine has.

In: the terms of the step's cost (engine.py), in ms. Out: ms by part, of one worker step; and `Pace`, by which
each part ends when its share of the step is over, so that the whole lasts what it lasts without parts.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

LAYERS = 2
HOST = {"scheduler": 0.4, "prepare": 0.3, "output": 0.3}  # of what the host does once a scheduling
SEQUENCES = {"prepare": 0.5, "output": 0.5}  # of what it does for each sequence
DEVICE = {"attention": 0.30, "moe": 0.40, "forward": 0.15, "logits": 0.08, "sampler": 0.07}


class Terms(NamedTuple):
    """A step's cost in ms: of the host, and of the device for all its `worker_steps` together."""

    host: float
    sequences: float
    scheduling: float  # for those that wait, and for chunks
    collectives: float
    device: float
    worker_steps: int  # several of one scheduling: multi-step


def shares(terms: Terms) -> dict:
    """ms by part, over the whole step; together the step's cost."""
    made = {name: terms.host * share for name, share in HOST.items()}
    made["scheduler"] += terms.scheduling
    for name, share in SEQUENCES.items():
        made[name] += terms.sequences * share
    made.update((name, terms.device * share) for name, share in DEVICE.items())
    made["collective"] = terms.collectives
    return made


class Pace:
    """The clock of one step, which begins at `begin` (time.monotonic) and takes `seconds`."""

    def __init__(self, begin: float, seconds: float, terms: Terms) -> None:
        self.begin, self.end = begin, begin + seconds
        self.parts = shares(terms)
        self.scale = seconds / (sum(self.parts.values()) or 1.0)  # seconds of one ms of cost
        self.done = 0.0

    async def spend(self, part: str, times: int = 1) -> None:
        """Until one of `times` equal pieces of the part is over."""
        self.done += self.parts[part] / times
        await until(self.begin + self.done * self.scale)

    async def finish(self) -> None:
        await until(self.end)


async def until(moment: float) -> None:
    """A moment that has passed is not waited for: lateness does not add up."""
    left = moment - time.monotonic()
    if left > 0:
        await asyncio.sleep(left)
