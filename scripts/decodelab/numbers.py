"""How a number is written: the one place where anything is rounded.

In: a metric's column name (`ttft_s_p90`, `decode_rate`, `util_pct_mean_all`, ...), its value or None,
and its 95 % interval where one is known. Out: text with its unit. None is a dash, never 0.

The rule. Where an interval is known, value and interval are rounded together, once, at the place of
the first significant digit of the interval's half-width, or of the second if the first is a 1:
308.85 with 304.5 ... 313.1 (half-width 4.3) is `309` and `305 ... 313`; with a half-width of 1.3 it is
`308.9`. This is the rounding of the GUM (JCGM 100:2008, 7.2.6: one or two digits of an uncertainty, the
estimate to the same place) in the form that the Review of Particle Physics uses (PDG, Introduction
5.3): two digits where one would change the uncertainty by a third. Where no interval is known, each
metric has a fixed number of digits (number_styles.py). Either way a digit is added where rounding
would tell something else: a value that misses a target is not printed as one that meets it, what is
not 0 is not printed as 0, a share below 1 not as 100%. The CSV tables hold full precision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from decodelab import number_styles
from decodelab.number_styles import Style

DASH = "—"
MINUS = "\N{MINUS SIGN}"
ELLIPSIS = "…"
INFINITE = "∞"
MOST_DIGITS = 9  # after the point
MORE_FOR_ENDS = 2  # digits that an end of an interval may add to stay on its side of a limit
PERCENTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


_WHEN = "(?:_(?:all|window|prefill|decode))?(?:_in_use)?"
_WHICH = re.compile(rf"^(adj_)?(.*?)(?:_(p10|p50|p90|p99|median|(?:mean|max){_WHEN}))?$")
_TARGET = re.compile(
    r"^(.*)_(p\d\d)_s$"
)  # targets may be written ttft_p90_s: the column is ttft_s_p90


Bounds = Sequence[float | None] | None
_TOKENS = number_styles.STYLES["tokens"]
_SHARE = number_styles.STYLES["share"]


def column(metric: str) -> str:
    """The column of runs.csv that a metric of a target or a question names."""
    written = _TARGET.match(metric)
    return f"{written.group(1)}_s_{written.group(2)}" if written else metric


def split(metric: str) -> tuple[bool, str, str | None]:
    """`adj_ttft_s_p90` -> (True, "ttft_s", "p90"): failures counted, base metric, statistic."""
    name = column(metric)
    if number_styles.is_metric(name):
        return False, name, None
    match = _WHICH.match(name)
    assert match is not None  # the pattern matches every string
    return bool(match.group(1)), match.group(2), match.group(3)


def _style(metric: str) -> tuple[Style, bool]:
    _, base, which = split(metric)
    return number_styles.style_of(base), bool(which and which.startswith("max"))


def unit(metric: str) -> str:
    return _style(metric)[0].unit.strip()


def unit_moves(metric: str) -> bool:
    """Whether the unit may stand once in a table's head; `s` and `%` stay with their number."""
    return unit(metric) not in ("", "s", "%")


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval as they are printed, to the same digits."""

    value: str
    interval: str


def estimate(
    metric: str,
    value: float | None,
    bounds: Bounds,
    *,
    against: Sequence[float | None] = (),
    bare: bool = False,
    coarse: bool = False,
) -> Estimate:
    """A metric's value with its interval, both in the column's unit; `against` are the targets or
    bounds that it is held against. Without a finite interval the digits are the metric's own.
    """
    half = half_width(bounds)
    if half is None or not known(value):
        shown = show(metric, value, bare=bare, coarse=coarse, against=against)
        return Estimate(shown, show_range(metric, bounds or (), bare=bare, coarse=coarse))
    assert value is not None and bounds is not None
    style, _ = _style(metric)
    unit = "" if bare else style.unit
    limits = [*_limits(style, against), 0.0, *([100.0] if style is _SHARE else [])]
    ends = [(bound or 0.0) * style.factor for bound in bounds]
    places = _together(value * style.factor, ends, half * style.factor, limits)
    low, high = (rounded(end, places) for end in ends)
    shown = low if low == high else f"{low}-{high}"
    return Estimate(f"{rounded(value * style.factor, places)}{unit}", f"{shown}{unit}")


def change(
    value: float | None, bounds: Bounds, *, against: Sequence[float | None] = ()
) -> Estimate:
    """A relative change, or points of a share, with its interval: `+11%`, `+7% … +15%`. `against` are
    the sizes that decide (the smallest effect asked for, the noise floor).
    """
    half = half_width(bounds)
    if half is None or not known(value):
        return Estimate(effect(value, against=against), interval(bounds))
    assert value is not None and bounds is not None
    limits = _limits(_SHARE, against)
    ends = [(bound or 0.0) * 100.0 for bound in bounds]
    places = _together(value * 100.0, ends, half * 100.0, limits, zero=True)
    low, high = (signed(end, places) for end in ends)
    return Estimate(f"{signed(value * 100.0, places)}%", f"{low}% {ELLIPSIS} {high}%")


def half_width(bounds: Bounds) -> float | None:
    """Of an interval that has two finite ends and a width; None where it tells no uncertainty."""
    if not bounds or len(bounds) != 2 or not all(known(bound) for bound in bounds):
        return None
    low, high = (float(bound or 0.0) for bound in bounds)
    half = abs(high / 2.0 - low / 2.0)
    return half if half > 0.0 else None


def places_of(half: float) -> int:
    """Places after the point (below 0: tens, hundreds) down to the last digit that an uncertainty
    supports.
    """
    exponent = int(f"{half:.1e}".partition("e")[2])  # of the half-width rounded to two digits
    leading = f"{half:.1e}"[0]
    if leading == "9" and float(f"{half:.0e}") > float(f"{half:.1e}"):
        exponent, leading = exponent + 1, "1"  # 0.96 is 1.0
    return min(MOST_DIGITS, -exponent + (1 if leading == "1" else 0))


def rounded(value: float, places: int) -> str:
    """To so many places; below 0 to tens, hundreds and so on."""
    return fixed(round(value, places) if places < 0 else value, max(places, 0))


def signed(value: float, places: int) -> str:
    """With its sign, which 0 has not."""
    text = rounded(value, places)
    return text if text.startswith(MINUS) or _read(text) == 0 else f"+{text}"


def _together(
    value: float,
    ends: Sequence[float],
    half: float,
    limits: Sequence[float],
    zero: bool = False,
) -> int:
    """The places of a value and its interval: what the half-width supports, and more where one of
    the three would otherwise be read on the other side of a limit (`zero`: the interval of 0 too).
    """
    least = places_of(half)
    told = [*limits, *([0.0] if zero else [])]
    fit = [n for n in range(least, MOST_DIGITS + 1) if _keeps_side(value, limits, n)]
    whole = [n for n in fit if all(_keeps_side(end, told, n) for end in ends)]
    if whole and whole[0] <= least + MORE_FOR_ENDS:
        return whole[0]
    return fit[0] if fit else least


def _apart(value: float, limits: Sequence[float], places: int) -> int:
    """The fewest places, from `places` on, at which a value is seen to be on its side of the limits."""
    tried = range(places, MOST_DIGITS + 1)
    return next((n for n in tried if _keeps_side(value, limits, n)), places)


def _keeps_side(value: float, limits: Sequence[float], places: int) -> bool:
    printed = _read(rounded(value, places))
    return all(_side(printed, limit) == _side(value, limit) for limit in limits)


def _side(value: float, limit: float) -> int:
    near = math.isclose(value, limit, rel_tol=1e-9, abs_tol=1e-12)
    return 0 if near else 1 if value > limit else -1


def _read(text: str) -> float:
    return float(text.replace(MINUS, "-"))


def _limits(style: Style, against: Sequence[float | None]) -> list[float]:
    return [limit * style.factor for limit in against if known(limit) and limit is not None]


def show(
    metric: str,
    value: float | None,
    *,
    bare: bool = False,
    coarse: bool = False,
    against: Sequence[float | None] = (),
) -> str:
    """The value of a metric with its unit, in its fixed digits; `bare` without the unit, `coarse` with
    the digits of a sentence, `against` the targets whose side it must be seen to be on.
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
    printed = value * style.factor
    text = _share(value) if style is _SHARE else fixed(printed, _digits(style, printed, digits))
    limits = _limits(style, against)
    if any(_side(_read(text), limit) != _side(printed, limit) for limit in limits):
        text = rounded(printed, _apart(printed, limits, digits))
    return text if bare else text + style.unit


def milliseconds(value_s: float | None) -> str:
    """Times between tokens and of the client's own clock, where two digits of a second hide all."""
    if not known(value_s):
        return DASH
    assert value_s is not None
    value = value_s * 1000.0
    return f"{fixed(value, 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1)} ms"


def about(metric: str, value: float | None, against: Sequence[float | None] = ()) -> str:
    """In round figures: `29%`; below ten in two significant digits, `0.19s`."""
    if not known(value):
        return DASH
    assert value is not None
    style, _ = _style(metric)
    printed = value * style.factor
    digits = 0
    if style is not _TOKENS and 0 < abs(printed) < 9.95:
        digits = min(MOST_DIGITS, 1 - math.floor(math.log10(abs(printed))))
    digits = _apart(printed, _limits(style, against), digits)
    return f"{fixed(printed, digits)}{style.unit}"


def known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def fixed(value: float, digits: int) -> str:
    """So many digits after the point, never −0; beyond 10^15, where no digit after the sixth tells
    anything, in powers of ten.
    """
    if abs(value) >= 1e15:
        return f"{value:.6g}".replace("-", MINUS)
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
    metric: str,
    values: Sequence[float | None],
    *,
    bare: bool = False,
    coarse: bool = False,
    against: Sequence[float | None] = (),
) -> str:
    """Least and greatest of several starts or variants, `8.3-8.7 tok/s`; one text where they print
    alike.
    """
    there = [value for value in values if value is not None and not math.isnan(value)]
    if not there:
        return DASH
    low = show(metric, min(there), bare=True, coarse=coarse, against=against)
    high = show(metric, max(there), bare=True, coarse=coarse, against=against)
    text = low if low == high else f"{low}-{high}"
    return text if bare or high == INFINITE else text + _style(metric)[0].unit


def effect(value: float | None, digits: int = 1, *, against: Sequence[float | None] = ()) -> str:
    """A relative change without a known interval, with its sign: +130.0%, −4.7%."""
    if not known(value):
        return DASH
    assert value is not None
    return f"{signed(value * 100.0, _apart(value * 100.0, _limits(_SHARE, against), digits))}%"


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


def exact(value: float | None) -> str:
    """As many digits as two accounts of one run are held against each other with."""
    return DASH if value is None else f"{value:.7g}".replace("-", MINUS)


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
