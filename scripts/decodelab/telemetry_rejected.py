"""Values of a capture that cannot be true and were set to unknown, by accelerator.

In: the samples of a capture and what was rejected of them. Out: for each accelerator how many values
of which metric were rejected, and why. A rejection names index, UUID and bus id as they were printed
in its record; it belongs to the sample of that record that bears one of them and lacks the metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from decodelab.telemetry import Reading, Sample

_NAMES = ("uuid", "bus", "gpu")


class Rejected(NamedTuple):
    metric: str
    why: str


Counts = Mapping[Rejected, int]


def by_accelerator(
    samples: Iterable[Sample], rejected: Iterable[Mapping[str, Any]]
) -> dict[str, Counter[Rejected]]:
    """Only of those accelerators of which something was rejected, by key."""
    items = list(rejected)
    by_record: dict[int, list[Reading]] = {item["record"]: [] for item in items}
    for sample in samples:
        if sample.record in by_record:
            by_record[sample.record].append(sample.reading)
    out: dict[str, Counter[Rejected]] = {}
    taken: set[tuple[int, str]] = set()
    for item in items:
        metric = item["metric"]
        for reading in by_record[item["record"]]:
            place = (id(reading), metric)
            if place in taken or reading.values[metric] is not None or not _is_of(item, reading):
                continue
            taken.add(place)
            out.setdefault(reading.key, Counter())[Rejected(metric, str(item["why"]))] += 1
            break
    return out


def _is_of(item: Mapping[str, Any], reading: Reading) -> bool:
    """Two chips of a card may share all names: each then takes one of their rejections."""
    pairs = [(item.get(name), getattr(reading, name)) for name in _NAMES]
    known = [pair for pair in pairs if None not in pair]
    return any(one == other for one, other in known) if known else not any(map(any, pairs))


def total(counts: Iterable[Counts]) -> Counter[Rejected]:
    out: Counter[Rejected] = Counter()
    for one in counts:
        out.update(one)
    return out


def written(counts: Counts) -> str | None:
    """`metric:count:why`, joined by ; as the tables have it."""
    return ";".join(f"{r.metric}:{n}:{r.why}" for r, n in sorted(counts.items())) or None
