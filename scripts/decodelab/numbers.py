"""How a number is written: the one place where anything is rounded.

In: a metric's column name (`ttft_s_p90`, `decode_rate`, `util_pct_mean_all`, ...) and its value or
None. Out: text with a fixed number of digits and its unit. None is written as a dash, never as 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from decodelab.vocabulary import SCORES

DASH = "—"
MINUS = "\N{MINUS SIGN}"
ELLIPSIS = "…"
INFINITE = "∞"
MOST_DIGITS = 9  # after the point
PERCENTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


@dataclass(frozen=True)
class Style:
    unit: str  # as printed, with its space
    digits: int  # after the point, in tables
    coarse: int  # after the point, in a sentence
    factor: float = 1.0  # from the column's unit to the printed one
    peak: int | None = None  # after the point for a maximum (an instrument's own reading)
    significant: bool = False  # small values keep two significant digits


_STYLES = {
    "seconds": Style("s", 2, 1, significant=True),
    "milliseconds": Style(" ms", 2, 1, significant=True),
    "rate": Style(" tok/s", 2, 1),
    "share": Style("%", 1, 1, factor=100.0),
    "percent": Style("%", 2, 1, peak=0),
    "memory": Style(" MiB", 0, 0, peak=0),
    "power": Style(" W", 2, 1, peak=0),
    "energy": Style(" J", 0, 0),
    "tokens per joule": Style(" tok/J", 3, 2, significant=True),
    "joules per token": Style(" J/tok", 2, 1, significant=True),
    "temperature": Style(" °C", 1, 0, peak=0),
    "clock": Style(" MHz", 0, 0, peak=0),
    "tokens": Style("", 0, 0),
    "score": Style("", 1, 0),
    "number": Style("", 2, 2),
}
_KINDS = {
    "ttft_s": "seconds",
    "e2e_s": "seconds",
    "tpot_s": "seconds",
    "itl_s": "seconds",
    "step_s": "seconds",
    "queue_s": "seconds",
    "region_ms": "milliseconds",
    "region_share": "share",
    "server_ttft_s": "seconds",
    "server_itl_s": "seconds",
    "client_lag_s": "seconds",
    "loop_late_s": "seconds",
    "loop_late_max_s": "seconds",
    "schedule_late_s": "seconds",
    "schedule_late_max_s": "seconds",
    "cross_ttft_s": "seconds",
    "cross_itl_s": "seconds",
    "cross_decode_rate": "rate",
    "server_cache_hit": "share",
    "cpu_share": "share",
    "coalesced_share": "share",
    "blurred_share": "share",
    "itl_counted_share": "share",
    "itl_single_share": "share",
    "multi_token_share": "share",
    "wall_s": "seconds",
    "smi_interval_s": "seconds",
    "smi_wanted_interval_s": "seconds",
    "smi_cost_s": "seconds",
    "ready_s": "seconds",
    "decode_tps": "rate",
    "decode_rate": "rate",
    "e2e_tps": "rate",
    "input_tps": "rate",
    "output_tps_total": "rate",
    "batch_wall_s": "seconds",
    "output_tps_wall": "rate",
    "input_tps_wall": "rate",
    "cache_tps_wall": "rate",
    "cache_tps_warm": "rate",
    "e2e_tps_mean": "rate",
    "input_tps_mean": "rate",
    **dict.fromkeys(SCORES, "score"),
    "success_rate": "share",
    "cache_hit": "share",
    "goodput": "share",
    "idle_share_window": "share",
    "cap_share_window": "share",
    "cap_share_window_in_use": "share",
    "time_share_prefill": "share",
    "time_share_decode": "share",
    "util_pct": "percent",
    "mem_used_mib": "memory",
    "mem_total_mib": "memory",
    "power_w": "power",
    "power_cap_w": "power",
    "energy_j_window": "energy",
    "energy_j_window_in_use": "energy",
    "energy_j_prefill": "energy",
    "energy_j_decode": "energy",
    "tokens_per_joule": "tokens per joule",
    "tokens_per_joule_in_use": "tokens per joule",
    "joules_per_token": "joules per token",
    "joules_per_token_in_use": "joules per token",
    "mem_headroom_mib_all": "memory",
    "mem_headroom_mib_window": "memory",
    "temp_c": "temperature",
    "sm_mhz": "clock",
    "mem_mhz": "clock",
}
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_COUNTED = (
    "n_",
    "smi_",
    "cross_n_",
    "cross_completion",
    "sent_",
    "server_prompt",
    "server_gen",
    "server_pre",
)
_WHEN = "(?:_(?:all|window|prefill|decode))?(?:_in_use)?"
_WHICH = re.compile(rf"^(adj_)?(.*?)(?:_(p10|p50|p90|p99|median|(?:mean|max){_WHEN}))?$")
_TARGET = re.compile(
    r"^(.*)_(p\d\d)_s$"
)  # targets may be written ttft_p90_s: the column is ttft_s_p90


def column(metric: str) -> str:
    """The column of runs.csv that a metric of a target or a question names."""
    written = _TARGET.match(metric)
    return f"{written.group(1)}_s_{written.group(2)}" if written else metric


def split(metric: str) -> tuple[bool, str, str | None]:
    """`adj_ttft_s_p90` -> (True, "ttft_s", "p90"): failures counted, base metric, statistic."""
    name = column(metric)
    if name in _KINDS:
        return False, name, None
    match = _WHICH.match(name)
    assert match is not None  # the pattern matches every string
    return bool(match.group(1)), match.group(2), match.group(3)


def _style(metric: str) -> tuple[Style, bool]:
    _, base, which = split(metric)
    counted = base in _TOKENS or base.startswith(_COUNTED)
    kind = _KINDS.get(base, "tokens" if counted else "number")
    return _STYLES[kind], bool(which and which.startswith("max"))


def unit(metric: str) -> str:
    return _style(metric)[0].unit.strip()


def unit_moves(metric: str) -> bool:
    """Whether the unit may stand once in a table's head; `s` and `%` stay with their number."""
    return unit(metric) not in ("", "s", "%")


def show(metric: str, value: float | None, *, bare: bool = False, coarse: bool = False) -> str:
    """The value of a metric with its unit; `bare` without it, `coarse` with the digits of a
    sentence.
    """
    if value == math.inf:
        return INFINITE  # a percentile that falls on a failed request
    if not known(value):
        return DASH
    assert value is not None
    style, peak = _style(metric)
    digits = style.coarse if coarse else style.digits
    if peak and style.peak is not None:
        digits = style.peak if float(value).is_integer() else style.digits
    if style is _STYLES["share"]:
        text = _share(value)
    else:
        printed = value * style.factor
        text = fixed(printed, _digits(style, printed, digits))
    return text if bare else text + style.unit


def milliseconds(value_s: float | None) -> str:
    """Times between tokens and of the client's own clock, where two digits of a second hide all."""
    if not known(value_s):
        return DASH
    assert value_s is not None
    value = value_s * 1000.0
    return f"{fixed(value, 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1)} ms"


def about(metric: str, value: float | None) -> str:
    """In round figures: `29%`; below ten in two significant digits, `0.19s`."""
    if not known(value):
        return DASH
    assert value is not None
    style, _ = _style(metric)
    printed = value * style.factor
    digits = 0
    if style is not _STYLES["tokens"] and 0 < abs(printed) < 9.95:
        digits = min(MOST_DIGITS, 1 - math.floor(math.log10(abs(printed))))
    return f"{fixed(printed, digits)}{style.unit}"


def known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def fixed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def _digits(style: Style, value: float, digits: int) -> int:
    """Two significant digits where fewer would tell too little (a TTFT of 0.012 s must not be printed
    as 0.01 s), and for any value that would be printed as 0 and is not.
    """
    small = style.significant and abs(value) < 0.1
    if value == 0 or not (small or float(fixed(abs(value), digits)) == 0):
        return digits
    return min(MOST_DIGITS, max(digits, 1 - math.floor(math.log10(abs(value)))))


def _share(value: float) -> str:
    """A share in percent; only 1 is written 100 and only 0 is written 0."""
    percent = value * 100.0
    if value in (0.0, 1.0):
        return fixed(percent, 0)
    for digits in (1, 2, 3, 4):
        text = f"{percent:.{digits}f}"
        if float(text) not in (0.0, 100.0):
            return text.removesuffix(".0").replace("-", MINUS)
    return f"{percent:.6g}"


def show_range(
    metric: str, values: Sequence[float | None], *, bare: bool = False, coarse: bool = False
) -> str:
    """Least and greatest of several starts or variants, `8.3-8.7 tok/s`; one text where they print
    alike.
    """
    there = [value for value in values if value is not None and not math.isnan(value)]
    if not there:
        return DASH
    low = show(metric, min(there), bare=True, coarse=coarse)
    high = show(metric, max(there), bare=True, coarse=coarse)
    text = low if low == high else f"{low}-{high}"
    return text if bare or high == INFINITE else text + _style(metric)[0].unit


def effect(value: float | None, digits: int = 1) -> str:
    """A relative change with its sign: +130.0%, −4.7%."""
    if not known(value):
        return DASH
    assert value is not None
    text = fixed(value * 100.0, digits)
    return f"{text}%" if text.startswith(MINUS) or float(text) == 0 else f"+{text}%"


def interval(bounds: Sequence[float | None] | None) -> str:
    if not bounds or not all(known(bound) for bound in bounds):
        return DASH
    return f"{effect(bounds[0])} {ELLIPSIS} {effect(bounds[1])}"


def size(value: float | None) -> str:
    """A share that is a size, not a change: the floor, the smallest effect of interest."""
    if not known(value):
        return DASH
    assert value is not None
    text = fixed(value * 100.0, 1)
    return f"{text.removesuffix('.0')}%"


def expected(metric: str, bounds: Sequence[float | None]) -> str:
    """The range that a level question expects, `70%-100%`; one side may be open."""
    low, high = bounds
    if known(low) and known(high):
        return f"{plain(metric, low)}-{plain(metric, high)}"
    return f">= {plain(metric, low)}" if known(low) else f"<= {plain(metric, high)}"


def plain(metric: str, value: float | None) -> str:
    """A number that a person wrote (a target, a bound), with its unit and no digits that were not
    written.
    """
    if not known(value):
        return DASH
    assert value is not None
    style, _ = _style(metric)
    return f"{value * style.factor:.10g}{style.unit}".replace("-", MINUS)


def target(metric: str, wanted: object, op: str | None = None) -> str:
    """`>= 20 tok/s` from 20, from {"op": ">=", "value": 20} or from both parts."""
    if isinstance(wanted, dict):
        op, wanted = wanted.get("op", op), wanted.get("value")
    if not isinstance(wanted, int | float):
        return DASH
    text = plain(metric, float(wanted))
    return f"{op} {text}" if op else text


def per_step(value: float | None) -> str:
    """Calls or launches a step, and any plain number: whole ones without a point, `13.3`."""
    if not known(value):
        return DASH
    assert value is not None
    return fixed(value, 0 if float(value).is_integer() else 1 if abs(value) >= 1 else 2)


def times(value: float | None) -> str:
    """A factor, `2.13×`."""
    return f"{fixed(value, 2)}×" if known(value) and value is not None else DASH


def count(value: float | None) -> str:
    return fixed(value, 0) if known(value) and value is not None else DASH


def power_of_cap(mean_w: float | None, cap_w: float | None) -> str:
    """`49.7W / 250W`: what was drawn of what may be drawn."""
    mean = DASH if not known(mean_w) else f"{fixed(mean_w or 0.0, 1)}W"
    return mean if not known(cap_w) else f"{mean} / {cap_w:.10g}W"


def enough_for_percentile(n: int, which: str) -> bool:
    """Whether n values can bound this percentile at all with 95 % confidence, whatever the
    distribution.

    The interval between the i-th and the j-th smallest value covers the quantile q with probability
    P(i <= B < j), B binomial (n, q). The widest pair, first and last, covers most: it misses only
    when all n values lie on one side, so if it falls short no pair does. P50 takes 6 values, P10
    and P90 take 29.
    """
    quantile = PERCENTILES[which]
    return n > 0 and quantile**n + (1.0 - quantile) ** n <= 0.05
