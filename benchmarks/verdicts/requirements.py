"""What METRICS asks of the judge, held against the simulated studies.

In:  the rows of the benchmark. Out: what is missed, in words. A share is held to its limit with two
     Monte-Carlo standard errors, so that chance alone misses it in one of forty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verdicts.simulated import Design
from verdicts.tally import SMALLEST, Tally, error

FALSE_SUPPORTED = 0.05  # at no effect at all
FALSE_REFUTED = 0.05  # at an effect as large as was asked for; two starts an arm or more
POWER, POWER_AT, POWER_STARTS = 0.80, 0.08, 3
COVERAGE = 0.95


@dataclass(frozen=True)
class Row:
    """One design under one shape of drift: a tally for each true effect."""

    design: Design
    shape: str
    mine: dict[float, Tally]
    welch: dict[float, Tally]

    @property
    def name(self) -> str:
        return f"{self.design.starts} starts, {self.design.name}, {self.shape}"

    @property
    def covered(self) -> tuple[float, int]:
        """(coverage over all true effects, studies)."""
        return _covered(self.mine)

    @property
    def welch_covered(self) -> tuple[float, int]:
        return _covered(self.welch)

    @property
    def knows_its_scatter(self) -> bool:
        """Whether this study measured the scatter that its interval is made of."""
        return self.design.starts > 1 or self.design.aa != "none"


def _covered(tallies: dict[float, Tally]) -> tuple[float, int]:
    studies = sum(tally.studies for tally in tallies.values())
    return sum(tally.held for tally in tallies.values()) / max(studies, 1), studies


def missed(rows: Iterable[Row]) -> list[str]:
    return [text for row in rows for text in _of(row)]


def _of(row: Row) -> Iterator[str]:
    found = row.mine[0.0]
    yield from _above(row, 'false "supported"', found.share("supported"), found, FALSE_SUPPORTED)
    for effect, tally in row.mine.items():
        if effect >= SMALLEST and row.knows_its_scatter:
            what = f'false "refuted" at {effect:.0%}'
            yield from _above(row, what, tally.share("refuted"), tally, FALSE_REFUTED)
    if row.design.starts == POWER_STARTS:
        tally = row.mine[POWER_AT]
        power = tally.share("supported")
        if power + 2 * error(power, tally.studies) < POWER:
            yield f"{row.name}: power at {POWER_AT:.0%} is {power:.1%}, wanted {POWER:.0%}"
    covered, studies = row.covered
    if row.knows_its_scatter and covered + 2 * error(covered, studies) < COVERAGE:
        yield f"{row.name}: the 95 % interval holds in {covered:.1%}, wanted {COVERAGE:.0%}"


def _above(row: Row, what: str, share: float, tally: Tally, limit: float) -> Iterator[str]:
    if share - 2 * error(share, tally.studies) > limit:
        yield f"{row.name}: {what} {share:.1%}, at most {limit:.0%} wanted"
