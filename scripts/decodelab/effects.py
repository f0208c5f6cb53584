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
estimate +- the restart floor, a field value, and `floor_source` says so; such a pair of starts also
stands in an order that nothing balances, so what it claims must be larger than floor and drift.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit  # the inverse of Student's t; scipy.stats is slow to import

from decodelab.vocabulary import METRICS

CONFIDENCE = 0.95
POWER = 0.80
# Plausible scatter of one restart (field values): decode-like rates 4 %, time to first token 30 %.
# A share (success, cache hit) is a count and has none. Telemetry of a run is taken like a decode
# rate.
FLOOR_DECODE = 0.04
FLOOR_TTFT = 0.30
# How far a host drifts over a queue: the field has 2-4 %. The upper end, since the order of two
# starts is never balanced and a host that warms up always favours the same arm.
DRIFT = 0.04
_TTFT_LIKE = re.compile(r"^(?:adj_)?(?:ttft_s|input_tps|queue_s)")
_SHARES = re.compile(r"^(?:success_rate|cache_hit|goodput|idle_share_window)")
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


@dataclass(frozen=True)
class Estimate:
    effect: float  # relative change (compare) or the value itself (alone)
    interval: tuple[float, float]
    floor: float
    floor_source: str  # "field" | "measured"
    detectable: float | None  # smallest true effect found in 4 of 5 such studies
    # floor | aa_floor | pooled_t | paired_t; of one arm: floor | aa_floor | log_t | logit_t |
    # bounded_t | counted
    method: str
    drift: float = 0.0  # what an order that is not balanced may add; a claim must exceed it too


def floor_of(metric: str) -> float:
    """The plausible restart floor of a metric, relative."""
    if _SHARES.match(metric):
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
) -> Estimate:
    """The relative change from base to cand, + in the declared direction. Keys tell launches; equal
    keys are pairs, and `scatter` is then that of a launch's difference.
    """
    values = [*base.values(), *cand.values()]
    if any(not math.isfinite(v) or v <= 0 for v in values):
        raise NoRelativeChange(f"{metric}: {values}")
    left = {key: math.log(v) for key, v in base.items()}
    right = {key: math.log(v) for key, v in cand.items()}
    paired = set(left) == set(right)
    counts = (len(left),) if paired else (len(left), len(right))
    floor, source = floor_of(metric), "field"
    if scatter is not None:
        floor, source = math.expm1(scatter.half(*counts)), "measured"
    if paired and len(left) >= 2:
        found = _t([right[key] - left[key] for key in left])
        method = "paired_t"
    elif not paired and len(left) >= 2 and len(right) >= 2:
        found = _pooled(list(left.values()), list(right.values()))
        method = "pooled_t"
    elif scatter is not None:
        middle = _mean(right.values()) - _mean(left.values())
        half = scatter.half(*counts)
        found = middle, half, half + _reach(half / quantile(scatter.df), scatter.df)
        method = "aa_floor"
    else:
        effect = sign * math.expm1(_mean(right.values()) - _mean(left.values()))
        drift = 0.0 if paired or not floor else DRIFT
        interval = (effect - floor, effect + floor)
        return Estimate(effect, interval, floor, source, floor + drift or None, "floor", drift)
    middle, half, reach = found
    bounds = sorted(sign * math.expm1(x) for x in (middle - half, middle + half))
    detectable = max(math.expm1(reach), floor)
    return Estimate(
        sign * math.expm1(middle), (bounds[0], bounds[1]), floor, source, detectable, method
    )


def alone(values: Sequence[float], metric: str, scatter: Scatter | None = None) -> Estimate:
    """The value of one arm over its launches, with its interval in the metric's own unit, inside
    what the metric can be: never below 0, a share in [0, 1], a percentage in [0, 100].
    """
    if any(not math.isfinite(v) for v in values):
        raise NoRelativeChange(f"{metric}: {list(values)}")
    floor, source, top = floor_of(metric), "field", top_of(metric)
    middle = _mean(values)
    if scatter is not None:
        floor, source = math.expm1(scatter.half(len(values))), "measured"
    if len(set(values)) == 1 and floor_of(metric) == 0.0:
        return Estimate(middle, (middle, middle), floor, source, None, "counted")
    if len(values) == 1 and scatter is not None:
        ratio = 1 + floor
        bounds, method = (middle / ratio, middle * ratio), "aa_floor"
    elif len(values) == 1:
        bounds, method = (middle - abs(middle) * floor, middle + abs(middle) * floor), "floor"
    else:
        middle, bounds, method = _spread(values, top)
    interval = max(0.0, bounds[0]), bounds[1] if top is None else min(top, bounds[1])
    return Estimate(middle, interval, floor, source, None, method)


def _spread(values: Sequence[float], top: float | None) -> tuple[float, tuple[float, float], str]:
    """(middle, interval, method) of two or more launches: t on a scale that has no ends, where all
    values lie inside; else on the values themselves.
    """
    if top is None and min(values) > 0:
        middle, half, _ = _t([math.log(v) for v in values])
        return math.exp(middle), (math.exp(middle - half), math.exp(middle + half)), "log_t"
    if top is not None and min(values) > 0 and max(values) < top:
        middle, half, _ = _t([math.log(v) - math.log(top - v) for v in values])
        low, mid, high = (top * _expit(x) for x in (middle - half, middle, middle + half))
        return mid, (low, high), "logit_t"
    middle, half, _ = _t(list(values))
    return middle, (middle - half, middle + half), "bounded_t"


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _t(differences: list[float]) -> tuple[float, float, float]:
    """(mean, half-width, reach for the wanted power) of one sample."""
    n = len(differences)
    middle = _mean(differences)
    variance = sum((d - middle) ** 2 for d in differences) / (n - 1)
    return middle, *_widths(math.sqrt(variance / n), n - 1)


def _pooled(left: list[float], right: list[float]) -> tuple[float, float, float]:
    a, b = _mean(left), _mean(right)
    freedom = len(left) + len(right) - 2
    squares = sum((v - a) ** 2 for v in left) + sum((v - b) ** 2 for v in right)
    error = math.sqrt(squares / freedom * (1 / len(left) + 1 / len(right)))
    return b - a, *_widths(error, freedom)


def _widths(error: float, freedom: float) -> tuple[float, float]:
    half = quantile(freedom) * error
    return half, half + _reach(error, freedom)


def _reach(error: float, freedom: float) -> float:
    return float(stdtrit(freedom, POWER)) * error
