"""Effects of arms: the launches of each, and of a counted share the requests behind it.

In: `Arm`s as `arms.build` makes them. Out: `effects.Estimate`. A rate or time is told by its
launches; a share of requests also needs how many there were, which the arm's runs say.
"""

from __future__ import annotations

from decodelab import arms, effects, proportions
from decodelab.proportions import Count

# Of which requests each counted share is. The hits of a failed request are not known.
_POPULATION = {"success_rate": "n_attempted", "goodput": "n_attempted", "cache_hit": "n_ok"}


def compared(
    base: arms.Arm,
    cand: arms.Arm,
    sign: int = 1,
    scatter: effects.Scatter | None = None,
    smallest: float = 0.0,
) -> effects.Estimate:
    """From base to cand, + in the declared direction; raises NoRelativeChange."""
    a, b = counts(base), counts(cand)
    pair = None if a is None or b is None else (a, b)
    return effects.compared(
        base.launches, cand.launches, base.metric, sign, scatter, pair, smallest
    )


def alone(arm: arms.Arm, scatter: effects.Scatter | None = None) -> effects.Estimate:
    """The arm's value with its interval, in the metric's unit; raises NoRelativeChange."""
    return effects.alone(list(arm.launches.values()), arm.metric, scatter, counts(arm))


def points(
    base: arms.Arm, cand: arms.Arm, confidence: float = effects.CONFIDENCE
) -> tuple[float, float]:
    """Interval of cand - base in points of a share: by its counts and by its starts, whichever is
    wider; where neither tells anything, anything is possible.
    """
    a, b = counts(base), counts(cand)
    counted = None if a is None or b is None else proportions.newcombe(*a, *b, confidence)
    starts = proportions.between_starts(base.launches, cand.launches, confidence)
    found = [*([counted] if counted else []), *([(starts[0], starts[2])] if starts else [])]
    if not found:
        return -1.0, 1.0
    return min(low for low, _ in found), max(high for _, high in found)


def counts(arm: arms.Arm) -> Count | None:
    """(good requests, all) over the arm's runs that have a value; None: no counted share, or the
    number of its requests is not on record.
    """
    of = _POPULATION.get(arm.metric)
    if of is None:
        return None
    rows = [row for row in arm.rows if row.get(arm.metric) is not None and row[of]]
    n = float(sum(row[of] for row in rows))
    good = sum(row[arm.metric] * row[of] for row in rows)
    if of == "n_attempted":
        good = round(good)  # whole requests; cached tokens are parts of one
    return (float(good), n) if n else None


def value(arm: arms.Arm) -> float | None:
    """A counted share over all requests of the arm; else the mean over its launches."""
    found = counts(arm)
    return found[0] / found[1] if found is not None else arm.value
