"""Cards that are wedged: they show full utilisation all the time, with idle memory and no process.

In: the samples of a capture. Out: the cards, each with what shows it. Seen on BI-V100: a constant
100 % at 257 MiB after a process died in the driver; the next server hangs on such a card, and its
utilisation would pass for load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decodelab.telemetry_reading import Sample, by_accelerator

SAMPLES = 3  # fewer prove no constant
BUSY_PCT = 100.0
IDLE_SHARE = 0.03  # of the memory
IDLE_MIB = 600.0  # idle cards hold 257 to 513 MiB, whatever their size


@dataclass(frozen=True)
class Wedged:
    """A card, and what it showed in all its samples."""

    key: str
    gpu: int | None
    samples: int
    mem_used_mib: float  # the most
    mem_total_mib: float
    processes: int | None  # 0: none is listed; None: the form of output lists none

    def __str__(self) -> str:
        listed = "" if self.processes is None else ", no process"
        return (
            f"GPU {self.gpu} ({self.key}): {BUSY_PCT:g} % in each of {self.samples} samples with "
            f"{self.mem_used_mib:g} of {self.mem_total_mib:g} MiB in use{listed}"
        )


def wedged(samples: Sequence[Sample]) -> list[Wedged]:
    """The wedged cards of a capture, by key. A sample that lacks utilisation or memory proves nothing
    and is left out; one that shows less, or a process, clears the card."""
    found = (_judged(key, card) for key, card in sorted(by_accelerator(samples).items()))
    return [one for one in found if one is not None]


def _judged(key: str, card: Sequence[Sample]) -> Wedged | None:
    most = total = 0.0
    count = 0
    processes: int | None = None
    for reading in (sample.reading for sample in card):
        if reading.processes:
            return None
        processes = processes if reading.processes is None else 0
        util = reading.values["util_pct"]
        used, size = reading.values["mem_used_mib"], reading.values["mem_total_mib"]
        if util is None or used is None or not size:
            continue
        if util < BUSY_PCT or used > max(IDLE_SHARE * size, IDLE_MIB):
            return None
        most, total, count = max(most, used), size, count + 1
    if count < SAMPLES:
        return None
    return Wedged(key, card[0].reading.gpu, count, most, total, processes)
