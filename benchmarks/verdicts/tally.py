"""Many studies of one kind, judged: how often each verdict comes, how often the interval holds.

In:  a design, the noise, a true effect, how many studies. Out: `Tally`; and what Welch's interval
     would have said of the same studies.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from verdicts.simulated import Design, Noise, measured

from decodelab import effects, judge, verdict_making
from decodelab.tables import Tables

SMALLEST = 0.05


@dataclass
class Tally:
    """Counts over simulated studies."""

    design: Design
    shape: str
    effect: float
    studies: int = 0
    words: Counter[str] = field(default_factory=Counter)
    held: int = 0  # intervals that hold the true effect
    drifts: int = 0  # studies whose drift check exceeds its floor
    half: float = 0.0  # sum of half-widths of the interval

    def share(self, word: str) -> float:
        return self.words[word] / self.studies

    @property
    def coverage(self) -> float:
        return self.held / self.studies


def error(share: float, n: int) -> float:
    """Monte-Carlo standard error of a share of n studies; never 0, so that none looks certain."""
    return math.sqrt(max(share * (1 - share), 1 / n) / n)


def run(
    made: Mapping[str, Any], design: Design, noise: Noise, effect: float, studies: int, seed: int
) -> tuple[Tally, Tally | None]:
    """Judged by the product, and by Welch where both arms have two launches or more."""
    random = np.random.default_rng(seed)
    mine, welch = (Tally(design, noise.shape, effect) for _ in range(2))
    question = made["experiments"]["E"]["questions"][0]
    for _ in range(studies):
        tables = measured(dict(made), noise, effect, random)
        (verdict,) = judge.answer("E", question, made, tables)
        drift = verdict["drift"]
        _count(mine, verdict["verdict"], verdict["interval"], effect)
        mine.drifts += bool(drift and drift["exceeds"])
        if design.starts > 1:
            found = _welch(made, tables, verdict["floor"])
            _count(welch, verdict_making.word(found, SMALLEST), found.interval, effect)
    return mine, welch if welch.studies else None


def _count(tally: Tally, word: str, interval: Any, effect: float) -> None:
    low, high = interval
    tally.studies += 1
    tally.words[word] += 1
    tally.held += low <= effect <= high
    tally.half += (high - low) / 2


def _welch(made: Mapping[str, Any], tables: Tables, floor: float) -> effects.Estimate:
    """The same arms with a variance of their own each."""
    point = made["experiments"]["E"]["questions"][0]["points"][0]
    a, b = ([_level(tables, name) for name in point[side]] for side in ("baseline", "candidate"))
    parts = [statistics.variance(arm) / len(arm) for arm in (a, b)]
    df = sum(parts) ** 2 / sum(p**2 / (len(arm) - 1) for p, arm in zip(parts, (a, b), strict=True))
    middle = statistics.fmean(b) - statistics.fmean(a)
    half = effects.quantile(df) * math.sqrt(sum(parts))
    bounds = math.expm1(middle - half), math.expm1(middle + half)
    return effects.Estimate(math.expm1(middle), bounds, floor, "field", None, "welch")


def _level(tables: Tables, run: str) -> float:
    return math.log(statistics.median(r["decode_rate"] for r in tables.requests[run]))
