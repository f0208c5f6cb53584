"""Intervals of shares and of their differences, in points of a share.

In: how many of how many requests, or one share a launch. Out: (low, high) at a confidence, 95 % if
none is given. A share is judged
by its difference in points, since 99 % to 90 % is ten times the failures and no tenth of anything.
The score intervals do not call four successes out of four a certainty. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from scipy.special import ndtri, stdtrit

CONFIDENCE = 0.95
Count = tuple[float, float]  # good requests, of so many


def newcombe(
    a: float, n: float, b: float, m: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Interval of b/m - a/n by the square-and-add of two Wilson score intervals."""
    p, q = a / n, b / m
    (p_low, p_high), (q_low, q_high) = (wilson(*of, confidence) for of in ((a, n), (b, m)))
    low = (q - p) - math.hypot(q - q_low, p_high - p)
    return low, (q - p) + math.hypot(q_high - q, p - p_low)


def wilson(good: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Score interval of a proportion; inside [0, 1], and honest at 0 and at n of n."""
    z = float(ndtri(0.5 + confidence / 2))
    p, scale = good / n, 1 + z * z / n
    half = z * math.sqrt(max(p * (1 - p), 0.0) / n + z * z / (4 * n * n)) / scale
    middle = (p + z * z / (2 * n)) / scale
    # The ends that are reached exactly: 0 of n allows a true 0, and no rounding may shut it out.
    return min(p, max(0.0, middle - half)), max(p, min(1.0, middle + half))


def between_starts(
    base: Mapping[str, float], cand: Mapping[str, float], confidence: float = CONFIDENCE
) -> tuple[float, float, float] | None:
    """(low, middle, high) in points of a share: paired within launches, or pooled t. None with too
    few launches to tell a scatter.
    """
    a, b = list(base.values()), list(cand.values())
    middle = sum(b) / len(b) - sum(a) / len(a)
    if set(base) == set(cand):
        a, b = [0.0], [cand[key] - base[key] for key in base]
        error_of = 1 / len(b)
    else:
        error_of = 1 / len(a) + 1 / len(b)
    df = len(a) + len(b) - 2
    if df < 1:
        return None
    squares = sum((v - sum(x) / len(x)) ** 2 for x in (a, b) for v in x)
    half = float(stdtrit(df, 0.5 + confidence / 2)) * math.sqrt(squares / df * error_of)
    return middle - half, middle, middle + half
