"""From values per launch to an effect with its interval and noise floor.

In: one value per launch and arm (the launch, a fresh server start, is the unit of inference), and
the scatter between starts where an A/A arm measured it. Out: `Estimate`.

Method. Rates and times scatter in proportion to their size, so differences are taken between
logarithms and turned back into relative changes. With two or more launches in both arms the 95 %
interval is Student's t with the variance pooled over the arms (k1 + k2 - 2 degrees of freedom). Why
pooled and not Welch: both arms are restarts of the same host, so they share one scatter, and at
three launches an arm Welch spends up to half of the degrees of freedom on finding that out
(docs/calibration.md has both). Where both arms come from the same launches (two workloads, two
concurrencies) the differences within a launch are taken: paired t.

With one launch in an arm its own values say nothing of the scatter between restarts. Where an A/A
arm measured it, the interval is the estimate +- t(df) * s * sqrt(1/k1 + 1/k2). Else it is the
estimate +- the restart floor, a field value, and `floor_source` says so; where the other arm has
k >= 2 launches, +- t(k - 1) * s * sqrt(1 + 1/k) of that arm, at least the floor. Such starts also
stand in an order that nothing balances, so what they claim must be larger than floor and drift.

A share of requests (success, goodput, cache hit) has no relative scatter: 99 % to 90 % is ten times
the failures. Its effect is the difference in points, its interval the score interval of the counts
(see `proportions`), widened to what the launches differ by where there are several. Cached tokens
count by their requests: no value between 0 and 1 scatters more than a yes or no of the same mean.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, ndtri, stdtrit  # scipy.stats is slow to import

from decodelab import proportions
from decodelab.proportions import Count
from decodelab.vocabulary import METRICS

CONFIDENCE = proportions.CONFIDENCE
POWER = 0.80
# Plausible scatter of one restart (field values): decode-like rates 4 %, time to first token 30 %.
# Telemetry of a run is taken like a decode rate, its shares of time too.
FLOOR_DECODE = 0.04
FLOOR_TTFT = 0.30
# How far a host drifts over a queue: the field has 2-4 %. The upper end, since the order of two
# starts is never balanced and a host that warms up always favours the same arm.
DRIFT = 0.04
_TTFT_LIKE = re.compile(r"^(?:adj_)?(?:ttft_s|input_tps|queue_s)")
# Shares of requests: counted, so judged in points and without a floor.
COUNTED = ("success_rate", "goodput", "cache_hit")
_RANKS = (np.arange(200) + 0.5) / 200  # of a scatter's chi-square, evenly in probability
_TOPS = {"share": 1.0, "%": 100.0}  # a unit with an upper end, and that end


class NoRelativeChange(ValueError):
    """A value that is zero, negative or infinite has no relative change."""


@dataclass(frozen=True)
class Scatter:
    """The standard deviation of one start's logarithm, as measured by starts of one server."""

    s: float
    df: float
    starts: tuple[str, ...] = ()  # the launches it is from
    variants: tuple[str, ...] = ()

    def half(self, *counts: int) -> float:
        """Half-width of a 95 % interval, in logarithms, of means over so many launches."""
        return quantile(self.df) * self.s * math.sqrt(sum(1 / count for count in counts))


def pooled_scatter(servers: Sequence[Sequence[float]]) -> Scatter | None:
    """Of the logarithms of each server's starts, two or more a server. None for no server, and where
    all agree to the last digit of a float, which is no measurement of a scatter.
    """
    df = sum(len(logs) - 1 for logs in servers)
    squares = sum(statistics.variance(logs) * (len(logs) - 1) for logs in servers)
    return Scatter(math.sqrt(squares / df), df) if squares > 1e-18 * df else None


@dataclass(frozen=True)
class Estimate:
    effect: float  # relative change or points of a share (compare), the value itself (alone)
    interval: tuple[float, float]
    floor: float
    floor_source: str  # "field" | "measured"
    detectable: float | None  # smallest true effect found in 4 of 5 such studies
    # floor | own_t | aa_floor | pooled_t | paired_t; of one arm: floor | aa_floor | log_t | logit_t |
    # bounded_t; of a counted share: score | score_t (and of several starts) | starts_t (no counts)
    method: str
    drift: float = 0.0  # what an order that is not balanced may add; a claim must exceed it too
    in_points: bool = False  # effect and interval are points of a share, no relative change


def floor_of(metric: str) -> float:
    """The plausible restart floor of a metric, relative; a counted share has none."""
    if metric in COUNTED:
        return 0.0
    return FLOOR_TTFT if _TTFT_LIKE.match(metric) else FLOOR_DECODE


def top_of(metric: str) -> float | None:
    """The largest value there can be: 1 of a share, 100 of a percentage; None of rates and times."""
    return _TOPS.get(METRICS[metric].unit) if metric in METRICS else None


def quantile(df: float) -> float:
    """Student's t of a two-sided 95 % interval."""
    return float(stdtrit(df, 0.5 + CONFIDENCE / 2))


def compared(
    base: Mapping[str, float],
    cand: Mapping[str, float],
    metric: str,
    sign: int = 1,
    scatter: Scatter | None = None,
    counts: tuple[Count, Count] | None = None,
    smallest: float = 0.0,
) -> Estimate:
    """The relative change from base to cand, of a counted share the difference in points; + in the
    declared direction. Keys tell launches; equal keys are pairs, and `scatter` is then that of a
    launch's difference. `counts`: good requests and all of each arm; without them a counted share
    is told by its launches alone. `smallest`: what is asked for, for `detectable`.
    """
    values = [*base.values(), *cand.values()]
    if metric in COUNTED:
        return _points(base, cand, sign, counts, smallest)
    if any(not math.isfinite(v) or v <= 0 for v in values):
        raise NoRelativeChange(f"{metric}: {values}")
    left = {key: math.log(v) for key, v in base.items()}
    right = {key: math.log(v) for key, v in cand.items()}
    paired = set(left) == set(right)
    ks = (len(left),) if paired else (len(left), len(right))
    floor, source = floor_of(metric), "field"
    if scatter is not None:
        floor, source = math.expm1(scatter.half(*ks)), "measured"
    if paired and len(left) >= 2:
        found = _t([right[key] - left[key] for key in left])
        method = "paired_t"
    elif not paired and len(left) >= 2 and len(right) >= 2:
        found = _pooled(list(left.values()), list(right.values()))
        method = "pooled_t"
    elif scatter is not None:
        middle = _mean(right.values()) - _mean(left.values())
        found = middle, scatter.half(*ks) / quantile(scatter.df), scatter.df
        method = "aa_floor"
    else:
        return _unmeasured(left, right, metric, sign, smallest)
    middle, error, df = found
    half = quantile(df) * error
    bounds = sorted(sign * math.expm1(x) for x in (middle - half, middle + half))
    size = _detectable(error, df, max(smallest, floor), sign)
    return Estimate(sign * math.expm1(middle), (bounds[0], bounds[1]), floor, source, size, method)


def _unmeasured(
    left: Mapping[str, float], right: Mapping[str, float], metric: str, sign: int, smallest: float
) -> Estimate:
    """One launch in an arm and no A/A scatter: the field's floor, or the scatter that the other
    arm's launches show, if that is more.
    """
    floor, paired = floor_of(metric), set(left) == set(right)
    drift = 0.0 if paired else DRIFT
    middle = _mean(right.values()) - _mean(left.values())
    effect = sign * math.expm1(middle)
    bounds, method = (effect - floor, effect + floor), "floor"
    # The floor is taken as two standard deviations of a start, and two starts differ by more.
    error, df = floor / math.sqrt(2), None
    many = max(left.values(), right.values(), key=len)
    if len(many) >= 2:
        own = Scatter(_deviation(many), len(many) - 1)
        half = own.half(len(many), 1)
        wide = sorted(sign * math.expm1(x) for x in (middle - half, middle + half))
        if wide[0] < bounds[0] or wide[1] > bounds[1]:
            bounds, method = (min(wide[0], bounds[0]), max(wide[1], bounds[1])), "own_t"
            error, df = max(error, half / quantile(own.df)), own.df
    size = _detectable(error, df, max(smallest, floor + drift), sign)
    return Estimate(effect, bounds, floor, "field", size, method, drift)


def _detectable(error: float, df: float | None, threshold: float, sign: int) -> float | None:
    """The smallest true effect that 4 of 5 studies call supported, where an estimate has this
    standard error (in logarithms). It has to exceed both the threshold of a claim and the half-width
    of its interval, which itself scatters with `df`; None: a fixed one, within the threshold. None
    comes back where no fall is so large.
    """
    if sign < 0 and threshold >= 1:
        return None
    wanted = -math.log1p(-threshold) if sign < 0 else math.log1p(threshold)
    hurdles = np.array([wanted])
    if df is not None and error > 0:
        hurdles = np.maximum(wanted, quantile(df) * error * np.sqrt(chdtri(df, _RANKS) / df))
    size = wanted
    if error > 0:
        below = wanted + float(ndtri(POWER)) * error  # what it takes if only the threshold binds
        above = float(hurdles.max()) + float(ndtri(POWER)) * error
        size = above
        if above > below:
            size = float(brentq(_lack, below, above, (hurdles, error)))
    return -math.expm1(-size) if sign < 0 else math.expm1(size)


def _lack(size: float, hurdles: Any, error: float) -> float:
    return float(ndtr((size - hurdles) / error).mean()) - POWER


def _points(
    base: Mapping[str, float],
    cand: Mapping[str, float],
    sign: int,
    counts: tuple[Count, Count] | None,
    smallest: float,
) -> Estimate:
    """The difference of two counted shares, in points; anything is possible where neither counts
    nor launches say more.
    """
    values = [*base.values(), *cand.values()]
    if any(not 0 <= v <= 1 for v in values):
        raise NoRelativeChange(f"a share outside 0 to 1: {values}")
    starts = proportions.between_starts(base, cand)
    if starts is not None and counts is None and starts[2] - starts[0] < 1e-9:
        starts = None  # starts that agree to the last request have measured no scatter
    if counts is not None:
        (a, n), (b, m) = counts
        effect, bounds, method = b / m - a / n, proportions.newcombe(a, n, b, m), "score"
        if starts is not None:
            low, _, high = starts
            bounds, method = (min(bounds[0], low), max(bounds[1], high)), "score_t"
    else:
        low, effect, high = starts or (-1.0, _mean(cand.values()) - _mean(base.values()), 1.0)
        bounds, method = (low, high), "starts_t"
    low, high = sorted((sign * max(-1.0, bounds[0]), sign * min(1.0, bounds[1])))
    half = max(sign * effect - low, high - sign * effect)
    power = float(ndtri(POWER)) * half / float(ndtri(0.5 + CONFIDENCE / 2))
    size = max(half, smallest) + power
    return Estimate(
        sign * effect,
        (low, high),
        0.0,
        "field",
        size if size < 1 else None,
        method,
        in_points=True,
    )


def alone(
    values: Sequence[float],
    metric: str,
    scatter: Scatter | None = None,
    counts: Count | None = None,
) -> Estimate:
    """The value of one arm over its launches, with its interval in the metric's own unit, inside
    what the metric can be: never below 0, a share in [0, 1], a percentage in [0, 100]. `counts`:
    good requests and all, of a counted share.
    """
    if any(not math.isfinite(v) for v in values):
        raise NoRelativeChange(f"{metric}: {list(values)}")
    if metric in COUNTED:
        return _share(values, counts)
    floor, source, top = floor_of(metric), "field", top_of(metric)
    middle = _mean(values)
    if scatter is not None:
        floor, source = math.expm1(scatter.half(len(values))), "measured"
    if len(values) == 1 and scatter is not None:
        ratio = 1 + floor
        bounds, method = (middle / ratio, middle * ratio), "aa_floor"
    elif len(values) == 1:
        bounds, method = (middle - abs(middle) * floor, middle + abs(middle) * floor), "floor"
    else:
        middle, bounds, method = _spread(values, top)
    interval = max(0.0, bounds[0]), bounds[1] if top is None else min(top, bounds[1])
    return Estimate(middle, interval, floor, source, None, method)


def _share(values: Sequence[float], counts: Count | None) -> Estimate:
    """A counted share: the score interval of its requests, and of its launches where several."""
    middle, bounds, method = _mean(values), (0.0, 1.0), "starts_t"
    if len(set(values)) >= 2 or (len(values) >= 2 and counts is not None):
        middle, bounds, _ = _spread(values, 1.0)
    if counts is not None:
        good, n = counts
        middle, (low, high) = good / n, proportions.wilson(good, n)
        method = "score" if len(values) == 1 else "score_t"
        bounds = (low, high) if len(values) == 1 else (min(low, bounds[0]), max(high, bounds[1]))
    interval = max(0.0, bounds[0]), min(1.0, bounds[1])
    return Estimate(middle, interval, 0.0, "field", None, method)


def _spread(values: Sequence[float], top: float | None) -> tuple[float, tuple[float, float], str]:
    """(middle, interval, method) of two or more launches: t on a scale that has no ends, where all
    values lie inside; else on the values themselves. Equal values keep their last digit, which a
    logarithm and back would lose beside a target of the same value.
    """
    if len(set(values)) == 1:
        return values[0], (values[0], values[0]), "bounded_t" if top is not None else "log_t"
    if top is None and min(values) > 0:
        middle, half = _with_half(_t([math.log(v) for v in values]))
        return math.exp(middle), (math.exp(middle - half), math.exp(middle + half)), "log_t"
    if top is not None and min(values) > 0 and max(values) < top:
        middle, half = _with_half(_t([math.log(v) - math.log(top - v) for v in values]))
        low, mid, high = (top * _expit(x) for x in (middle - half, middle, middle + half))
        return mid, (low, high), "logit_t"
    middle, half = _with_half(_t(list(values)))
    return middle, (middle - half, middle + half), "bounded_t"


def _with_half(found: tuple[float, float, float]) -> tuple[float, float]:
    middle, error, df = found
    return middle, quantile(df) * error


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Collection[float]) -> float:
    middle = _mean(values)
    return math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1))


def _t(differences: list[float]) -> tuple[float, float, float]:
    """(mean, its standard error, degrees of freedom) of one sample."""
    n = len(differences)
    return _mean(differences), _deviation(differences) / math.sqrt(n), n - 1


def _pooled(left: list[float], right: list[float]) -> tuple[float, float, float]:
    a, b = _mean(left), _mean(right)
    freedom = len(left) + len(right) - 2
    squares = sum((v - a) ** 2 for v in left) + sum((v - b) ** 2 for v in right)
    return b - a, math.sqrt(squares / freedom * (1 / len(left) + 1 / len(right))), freedom
