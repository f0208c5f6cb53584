"""The gaps between output deltas of a run, small enough for a table: itl.csv.

In: a `records.Run` with events. Out: rows from the smallest gap to the largest, `share` of the gaps at or below `itl_s`
(type 7, as everywhere). Up to POINTS gaps are all there; of more, POINTS quantiles at even shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from decodelab import instrument, records

POINTS = 201  # every half percent
Row = dict[str, Any]


def rows(run: records.Run) -> Iterator[Row]:
    """Of the successes; nothing where no event has a time."""
    gaps = sorted(instrument.output_gaps(run.ok), key=lambda gap: gap[0])
    if not gaps:
        return
    shares = np.linspace(0.0, 1.0, min(POINTS, len(gaps))) if len(gaps) > 1 else np.ones(1)
    values = np.quantile([seconds for seconds, _ in gaps], shares)
    ends = np.round(shares * (len(gaps) - 1)).astype(int)
    begin = 0
    for share, value, end in zip(shares, values, ends, strict=True):
        yield {
            "run": run.planned["name"],
            "n_gaps": len(gaps),
            "share": round(float(share), 6),
            "itl_s": round(float(value), 9),
            "several_share": _several([tokens for _, tokens in gaps[begin : end + 1]]),
        }
        begin = end + 1


def _several(tokens: Sequence[int | None]) -> float | None:
    """Of gaps whose later delta has a known token count, those that brought more than one."""
    known = [count for count in tokens if count is not None]
    return sum(count > 1 for count in known) / len(known) if known else None
