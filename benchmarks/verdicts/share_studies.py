"""Studies of a share of requests (goodput) whose truth is known, through the judge's own estimate.

In:  how many studies a cell, a seed. Out: rows of the page: false verdicts, power, coverage; what is
     missed, in words. The requests of a start are independent; the starts do not differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from verdicts.requirements import COVERAGE, FALSE_SUPPORTED
from verdicts.tally import SMALLEST, error

from decodelab import effects, verdict_making

CELLS = ((0.97, 40, 1), (0.9, 20, 1), (0.9, 100, 1), (0.9, 20, 3), (0.8, 100, 3))
GAIN = 0.1  # points that the power is asked at, where there is room for them
HEAD = (
    "true share",
    "requests a start",
    "starts an arm",
    "false supported, true 0",
    "false refuted at +10 points",
    "supported at +10 points",
    "95 % interval holds",
    "its half-width, points",
)


@dataclass(frozen=True)
class Row:
    share: float
    n: int
    starts: int
    studies: int
    false_supported: float
    held: float
    half: float
    found: dict[str, float] | None  # verdict -> share of studies, at GAIN


def rows(studies: int, seed: int) -> list[Row]:
    return [_row(*cell, studies, seed + place) for place, cell in enumerate(CELLS)]


def _row(share: float, n: int, starts: int, studies: int, seed: int) -> Row:
    random = np.random.default_rng(seed)
    same = [_study(random, share, share, n, starts) for _ in range(studies)]
    found = None
    if share + GAIN <= 1:
        gained = [_study(random, share, share + GAIN, n, starts) for _ in range(studies)]
        words = [verdict_making.word(one, SMALLEST) for one in gained]
        found = {word: words.count(word) / studies for word in ("supported", "refuted")}
    held = sum(one.interval[0] <= 0 <= one.interval[1] for one in same) / studies
    half = sum(one.interval[1] - one.interval[0] for one in same) / 2 / studies
    won = [verdict_making.word(one, SMALLEST) for one in same].count("supported") / studies
    return Row(share, n, starts, studies, won, held, half, found)


def _study(
    random: np.random.Generator, base: float, cand: float, n: int, starts: int
) -> effects.Estimate:
    good = [random.binomial(n, share, starts) for share in (base, cand)]
    left, right = (
        {f"{name}{k}": float(ok) / n for k, ok in enumerate(arm)}
        for name, arm in zip("ab", good, strict=True)
    )
    counts = tuple((float(arm.sum()), float(n * starts)) for arm in good)
    return effects.compared(left, right, "goodput", counts=(counts[0], counts[1]))


def lines(made: list[Row]) -> list[list[str]]:
    return [_line(row) for row in made]


def _line(row: Row) -> list[str]:
    def shown(share: float) -> str:
        return f"{share:.1%} ± {error(share, row.studies) * 100:.1f}"

    found = ["-", "-"]
    if row.found is not None:
        found = [shown(row.found["refuted"]), shown(row.found["supported"])]
    first = [f"{row.share:.0%}", str(row.n), str(row.starts), shown(row.false_supported)]
    return [*first, *found, shown(row.held), f"{row.half * 100:.1f}"]


def missed(made: list[Row]) -> list[str]:
    out = []
    for row in made:
        name = f"share {row.share:.0%}, {row.n} requests, {row.starts} starts"
        if row.false_supported - 2 * error(row.false_supported, row.studies) > FALSE_SUPPORTED:
            out.append(f'{name}: false "supported" {row.false_supported:.1%}')
        if row.held + 2 * error(row.held, row.studies) < COVERAGE:
            out.append(f"{name}: the 95 % interval holds in {row.held:.1%}")
    return out
