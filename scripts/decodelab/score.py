"""The contest's weighted score of a run, in every reading, and the figures it is made of.

In: the counted requests of a run, its wall time where requests have no times, and what an evaluator
told of it. Out: the columns of SCORE. Which tokens per second the published weights mean is not public, so no
reading is *the* score: the name says which one a figure is. Without a success there is no score.

A score is a figure of the requests that were answered. A server that died early answered few and
stopped the clock, so scores of different populations must not be compared (see `score_table`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cargo import record
from decodelab.vocabulary import SCORES

Row = Mapping[str, Any]

PUBLISHED = (16.796, 2.799, 0.56)  # Output TPS, Input TPS, Cache TPS: 30 : 5 : 1
PLATFORM = (10.8, 1.8, 0.36)  # output, uncached input, cached: tokens a minute


def figures(
    requests: Sequence[Row], wall_s: float | None, told: Mapping[str, float] | None = None
) -> dict[str, float | None]:
    """The parts and the scores; `told` stands in for sums and means that the requests do not carry."""
    ok = [request for request in requests if request["outcome"] == "ok"]
    parts = _parts(ok, batch_wall(requests, wall_s), told or {})
    return {**parts, **(_scores(parts, _p10(ok)) if ok else dict.fromkeys(SCORES))}


def batch_wall(requests: Iterable[Row], otherwise: float | None) -> float | None:
    """From the first request's start to the last one's end, failures included, in seconds. A failure
    whose start is unknown counts from its end; `otherwise` stands where no success has times.
    """
    sent = [request for request in requests if request["outcome"] != "not_started"]
    ok = [request for request in sent if request["outcome"] == "ok"]
    if any(r.get("t_start_s") is None or r.get("t_end_s") is None for r in ok):
        return otherwise
    begins = [_first(r.get("t_start_s"), r.get("t_end_s")) for r in sent]
    ends = [_first(r.get("t_end_s"), r.get("t_start_s")) for r in sent]
    known_begins = [t for t in begins if t is not None]
    known_ends = [t for t in ends if t is not None]
    if not known_begins or not known_ends:
        return otherwise
    wall = max(known_ends) - min(known_begins)
    return wall if wall > 0 else otherwise


def _parts(
    ok: Sequence[Row], wall: float | None, told: Mapping[str, float]
) -> dict[str, float | None]:
    output, prompt = total(ok, "completion_tokens"), total(ok, "prompt_tokens")
    cached = _first(total(ok, "cached_tokens"), told.get("cached_tokens") if ok else None)
    uncached = None if prompt is None or cached is None else prompt - cached
    return {
        "batch_wall_s": wall,
        "output_tps_wall": _per(output, wall),
        "input_tps_wall": _per(uncached, wall),
        "cache_tps_wall": _per(cached, wall),
        "cache_tps_warm": _per(*_warm(ok)),
        "e2e_tps_mean": mean(ok, "e2e_tps"),
        "input_tps_mean": _first(mean(ok, "input_tps"), told.get("input_tps_mean") if ok else None),
    }


def _scores(parts: Mapping[str, float | None], p10: float | None) -> dict[str, float | None]:
    wall = [parts[f"{kind}_tps_wall"] for kind in ("output", "input", "cache")]
    per_minute = [None if rate is None else 60.0 * rate for rate in wall]
    out = {"platform_score": weighted(PLATFORM, per_minute)}
    readings = {
        "wall": wall[:2],
        "mean": [parts["e2e_tps_mean"], parts["input_tps_mean"]],
        "p10": [p10, parts["input_tps_mean"]],
    }
    for reading, rates in readings.items():
        out[f"weighted_{reading}"] = weighted(PUBLISHED, [*rates, wall[2]])
        out[f"weighted_{reading}_warm"] = weighted(PUBLISHED, [*rates, parts["cache_tps_warm"]])
    return {name: out[name] for name in SCORES}


def weighted(weights: Sequence[float], rates: Sequence[float | None]) -> float | None:
    """None where one of the rates is not known: a missing part is no 0."""
    if any(rate is None for rate in rates):
        return None
    return sum(w * rate for w, rate in zip(weights, rates, strict=True) if rate is not None)


def _warm(ok: Sequence[Row]) -> tuple[float | None, float | None]:
    """(cached tokens, sum of TTFT) of the requests that had any; unknown if one does not say."""
    if any(request.get("cached_tokens") is None for request in ok):
        return None, None
    warm = [request for request in ok if request["cached_tokens"] > 0]
    return total(warm, "cached_tokens"), total(warm, "ttft_s")


def total(requests: Sequence[Row], name: str) -> float | None:
    values = [request.get(name) for request in requests]
    if not values or None in values:
        return None
    return sum(value for value in values if value is not None)


def mean(requests: Sequence[Row], name: str) -> float | None:
    values = [request.get(name) for request in requests]
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _p10(ok: Sequence[Row]) -> float | None:
    values = [request.get("e2e_tps") for request in ok]
    known = [value for value in values if value is not None]
    return record.percentile(known, 10) if len(known) == len(values) else None


def _per(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
