"""Intervals against a second of the clock counted by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodelab import trace_time

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 2)), min_size=0, max_size=14
)


def arrays(spans: list[tuple[int, int, int]]) -> tuple[trace_time.Ints, ...]:
    begin = np.array([b for b, _, _ in spans], np.int64)
    return (
        begin,
        begin + np.array([d for _, d, _ in spans], np.int64),
        np.array([r for _, _, r in spans], np.int64),
    )


def instants(begin: trace_time.Ints, end: trace_time.Ints) -> set[int]:
    return {t for a, b in zip(begin, end, strict=True) for t in range(a, b)}


@given(SPANS)
def test_union_covers_the_same_instants_once(spans: list[tuple[int, int, int]]) -> None:
    begin, end, _rank = arrays(spans)
    from_, to = trace_time.union(begin, end)
    assert instants(from_, to) == instants(begin, end)
    assert (from_[1:] > to[:-1]).all() and (to > from_).all()
    at = np.arange(-1, 60)
    expected = [len({t for t in instants(begin, end) if t < now}) for now in at]
    assert trace_time.covered(from_, to, at).tolist() == expected


@given(SPANS)
def test_each_instant_belongs_to_the_least_rank_and_then_to_the_earliest(
    spans: list[tuple[int, int, int]],
) -> None:
    begin, end, rank = arrays(spans)
    own = trace_time.exclusive(begin, end, rank)
    expected = [0] * len(spans)
    for t in instants(begin, end):
        over = [i for i in range(len(spans)) if begin[i] <= t < end[i]]
        expected[min(over, key=lambda i: (rank[i], begin[i], i))] += 1
    assert own.tolist() == expected
