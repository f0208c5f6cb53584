"""Which of two cells of a grid is better, such that all claims of one board hold together.

In: the arms of a board, its metric, plan and tables. Out: a `Lead` for each pair.

Method. A pair is compared as a question would compare it (`effects`, with the scatter of A/A arms where
one was measured): interval, noise floor, drift of an order that nothing balances. But a board compares
every cell with every other, and the best of many equal cells is far ahead of some other by noise alone.
So intervals and floors are widened to the confidence that leaves 5 % for all pairs together (Sidak:
0.95 to the power 1/pairs); of two cells it is the question's own. A floor widens as the normal
quantile does. Where cells have starts of their own the scatter is pooled over all cells, since they are
restarts of one host, and a pair's own interval must exclude 0 as well.

A counted share (success, goodput, cache hit) is compared in points, by its counts and its starts. A rate
or time of 0 is apart from a positive one, though no relative change tells by how much.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri, stdtrit

from decodelab import effects, measured_floor, shares
from decodelab.arms import Arm
from decodelab.effects import Scatter
from decodelab.tables import Tables


@dataclass(frozen=True)
class Lead:
    margin: float | None  # relative, + is better; None where one of the two is 0
    apart: bool  # better by more than noise, floor and drift allow
    # what the margin must reach, relative; None where no relative change is judged
    needed: float | None = None
    basis: str = "noise"  # noise | points (of a share) | zero | none (infinite, or the same starts)


class Pairs:
    """The comparisons of one board. Every pair of its arms counts, whether it is asked for or not;
    where pairs were named beforehand (`claims`) only these.
    """

    def __init__(
        self,
        cells: Mapping[str, Arm],
        metric: str,
        lower: bool,
        plan: Mapping[str, Any],
        tables: Tables,
        claims: int | None = None,
    ) -> None:
        self._cells, self._metric, self._lower = dict(cells), metric, lower
        self._plan, self._tables = plan, tables
        self._found: dict[tuple[str, str], Lead] = {}
        self.n = math.comb(len(cells), 2) if claims is None else claims
        self.confidence = effects.CONFIDENCE ** (1 / max(1, self.n))
        self.scatter = _own(arm.launches for arm in cells.values())

    def lead(self, behind: str, ahead: str) -> Lead:
        """How far `ahead` is better than `behind`."""
        key = behind, ahead
        if key not in self._found:
            self._found[key] = self._lead(self._cells[behind], self._cells[ahead])
        return self._found[key]

    def _lead(self, behind: Arm, ahead: Arm) -> Lead:
        values = [*behind.launches.values(), *ahead.launches.values()]
        if behind.launches == ahead.launches:
            return Lead(0.0, apart=False, basis="none")
        if any(not math.isfinite(value) for value in values):
            return Lead(None, apart=False, basis="none")
        if self._metric in effects.COUNTED:
            return self._points(behind, ahead)
        if min(values) <= 0:
            return self._zero(behind, ahead)
        return self._change(behind, ahead)

    def _points(self, behind: Arm, ahead: Arm) -> Lead:
        low, high = shares.points(behind, ahead, self.confidence)
        before, after = _mean(behind), _mean(ahead)
        margin = (after / before - 1) * (-1 if self._lower else 1) if before else None
        return Lead(margin, apart=high < 0 if self._lower else low > 0, basis="points")

    def _zero(self, behind: Arm, ahead: Arm) -> Lead:
        """One start at 0 leaves no logarithm; an arm that is 0 throughout is another thing than one
        that is positive throughout.
        """
        worse, better = (ahead, behind) if self._lower else (behind, ahead)
        apart = max(worse.launches.values()) <= 0 < min(better.launches.values())
        return Lead(None, apart, basis="zero")

    def _change(self, behind: Arm, ahead: Arm) -> Lead:
        sign = -1 if self._lower else 1
        scatter = measured_floor.of(self._plan, self._tables, behind, ahead)
        found = effects.compared(behind.launches, ahead.launches, self._metric, sign, scatter)
        half = self._half(found, behind, ahead, scatter)
        reach = sign * math.expm1(sign * half)
        needed = max(reach, found.floor) + found.drift
        return Lead(found.effect, found.interval[0] > 0 and found.effect >= needed, needed)

    def _half(
        self, found: effects.Estimate, behind: Arm, ahead: Arm, scatter: Scatter | None
    ) -> float:
        """The half-width, in logarithms, at the confidence of the board."""
        counts = len(behind.launches), len(ahead.launches)
        at = 0.5 + self.confidence / 2
        if found.method == "floor":
            wider = float(ndtri(at) / ndtri(0.5 + effects.CONFIDENCE / 2))
            return math.log1p(found.floor) * wider
        paired = behind.launches.keys() == ahead.launches.keys()
        known = scatter if found.method == "aa_floor" else None if paired else self.scatter
        if known is not None:
            error = known.half(*(counts[:1] if paired else counts)) / effects.quantile(known.df)
            return float(stdtrit(known.df, at)) * error
        sign = -1 if self._lower else 1
        low, high = (sign * math.log1p(sign * bound) for bound in found.interval)
        df = max(1, counts[0] - 1 if paired else sum(counts) - 2)
        return abs(high - low) / 2 * float(stdtrit(df, at)) / effects.quantile(df)


def _own(launches: Iterable[Mapping[str, float]]) -> Scatter | None:
    """The scatter of one start, pooled over the cells that have several; None where it is not known.
    One server known under two names is counted once.
    """
    several = {frozenset(of.items()) for of in launches if len(of) > 1}
    values = [[value for _, value in items] for items in several]
    logs = [[math.log(v) for v in of] for of in values if min(of) > 0 and max(of) < math.inf]
    return effects.pooled_scatter(logs)


def _mean(arm: Arm) -> float:
    return statistics.fmean(arm.launches.values())
