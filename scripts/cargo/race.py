"""A race among server configurations: whose full runs are worth their time, by a cheap run of each.

In:  a cheap run's record (schema decodelab.run/1), the race's metric, the best value so far.
Out: the run's value (`figure`), and whether it is out (`is_out`). Host and home ask the same
functions. Failed requests count: in a percentile they are 0 for a rate and infinite for a latency,
they add no tokens to a total, and a run with any of them never sets the bar for others.

Pure: no clock, no file, no network.
"""

from __future__ import annotations

import math
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence

from cargo import record

TOTAL = "output_tps_total"
LATENCIES = ("ttft_s", "e2e_s", "tpot_s")
_PER_REQUEST = tuple(record.PERCENTILE_METRICS)
# What a race may be about: a run's own figure, or a percentile over its requests (bare: the median).
METRICS = (
    TOTAL,
    *_PER_REQUEST,
    *("%s_p%d" % (name, q) for name in _PER_REQUEST for q in (10, 50, 90)),
)


class Figure(NamedTuple):
    """`value` is None where the record does not tell it; `clean`: every planned request succeeded."""

    value: Optional[float]
    clean: bool


def lower_is_better(metric: str) -> bool:
    return metric.startswith(LATENCIES)


def figure(made: Mapping[str, Any], metric: str) -> Figure:
    """The value of a run's record in a race. Raises KeyError for a metric that no race can have."""
    if metric not in METRICS:
        raise KeyError(metric)
    requests = [r for r in made.get("requests") or [] if not r.get("warmup")]
    clean = bool(requests) and all(r.get("outcome") == "ok" for r in requests)
    value = _total(made) if metric == TOTAL else _percentile(requests, metric)
    known = isinstance(value, (int, float)) and not math.isnan(value)
    return Figure(float(value) if known and value is not None else None, clean)


def _total(made: Mapping[str, Any]) -> Optional[float]:
    return (made.get("summary") or {}).get(TOTAL)


def _percentile(requests: Sequence[Mapping[str, Any]], metric: str) -> Optional[float]:
    name, _, q = metric.rpartition("_p")
    if not q.isdigit():
        name, q = metric, "50"
    worst = math.inf if lower_is_better(metric) else 0.0
    values: List[float] = []
    for request in requests:
        value = request.get(name) if request.get("outcome") == "ok" else worst
        if value is None:
            return None
        values.append(value)
    return record.percentile(values, int(q))


def best(figures: Sequence[Figure], metric: str) -> Optional[float]:
    """Of clean runs only; None for none."""
    known = [f.value for f in figures if f.clean and f.value is not None]
    return (min if lower_is_better(metric) else max)(known, default=None)


def is_out(value: Optional[float], bar: Optional[float], within: float, metric: str) -> bool:
    """Whether `value` is further from the best (`bar`) than `within`, a share of the best.

    What is not known never puts anybody out.
    """
    if value is None or bar is None:
        return False
    return value > bar * (1 + within) if lower_is_better(metric) else value < bar * (1 - within)


def left_out(screens: Sequence[Mapping[str, Any]]) -> List[str]:
    """The runs that no race wants any more. `screens`: one a race, with `then` and `out`; a run that
    several races screen is left out only if all of them say so.
    """
    says: Dict[str, bool] = {}
    for screen in screens:
        for run in screen["then"]:
            says[run] = says.get(run, True) and bool(screen["out"])
    return [run for run, out in says.items() if out]


def told(screens: Sequence[Mapping[str, Any]], gone: Collection[str]) -> List[Dict[str, Any]]:
    """For people and receipts, one a race that leaves any of `gone` out: its terms, both figures, its runs."""
    names = ("race", "experiment", "metric", "value", "best", "within")
    made = []
    for screen in screens:
        runs = [run for run in screen["then"] if run in gone]
        if runs and screen["out"]:
            made.append(dict({name: screen[name] for name in names}, runs=runs))
    return made
