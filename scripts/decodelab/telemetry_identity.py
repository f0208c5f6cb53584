"""Who is who in a capture: each reading's accelerator, from all its records together.

In: the readings of each record. Out: `accelerator` set in each: UUID, else bus id, else index, else
its row. A call may lack what the others print, so a weaker name stands for the stronger one that it
always came with; a UUID or bus id that several cards of one call share is none. An index or a row is
only a count of the cards that are there: where there are fewer or more of them than usual, and the
numbers are without a gap, it may be another card's. A reading whose accelerator cannot be told gets
the key UNSURE and a doubt: it is in no accelerator's curve."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from decodelab.telemetry_reading import UNSURE, Reading

DOUBT = "telemetry_unsure_card"
_UUID, _BUS, _INDEX, _ROW = range(4)


class _Name(NamedTuple):
    rank: int  # the smaller the surer
    text: str  # without case
    chip: int | None


def resolve(records: Sequence[Sequence[Reading]]) -> None:
    """Set the accelerator of every reading; the key is spelled as it was first printed."""
    names = _Names(records)
    usual = _usual(records)
    for record in records:
        whole = _is_whole(record, usual)
        sure = {names.of(reading) for reading in record if not names.counted(reading)}
        for reading in record:
            name, counted = names.of(reading), names.counted(reading)
            if name is None or (counted and (not whole or name in sure)):
                reading.accelerator = UNSURE
                reading.doubts += (DOUBT,)
            else:
                reading.accelerator = names.spelled(name)


class _Names:
    """Every name of the capture, and the stronger ones that it came with."""

    def __init__(self, records: Sequence[Sequence[Reading]]) -> None:
        self.stronger: dict[_Name, set[_Name]] = {}
        self.printed: dict[_Name, str] = {}
        self.shared = {name for record in records for name in _shared(record)}
        for reading in (reading for record in records for reading in record):
            names = list(self._names(reading))
            for name, printed in names:
                self.printed.setdefault(name, printed)
                if name is not names[0][0]:
                    self.stronger.setdefault(name, set()).add(names[0][0])

    def of(self, reading: Reading) -> _Name | None:
        """Of the reading's accelerator; None if it cannot be told."""
        first = next(self._names(reading), None)
        return None if first is None else self._surest(first[0])

    def counted(self, reading: Reading) -> bool:
        """Whether it says no more of itself than a number that counts the cards."""
        return all(name.rank >= _INDEX for name, _ in self._names(reading))

    def _names(self, reading: Reading) -> Iterator[tuple[_Name, str]]:
        return (named for named in _names(reading) if named[0] not in self.shared)

    def _surest(self, name: _Name) -> _Name | None:
        """What it stands for; None if that was not always the same."""
        found = {self._surest(other) for other in self.stronger.get(name, ())}
        return name if not found else found.pop() if len(found) == 1 else None

    def spelled(self, name: _Name) -> str:
        card = self.printed[name]
        return card if name.chip is None else f"{card}/{name.chip}"


def _names(reading: Reading) -> Iterator[tuple[_Name, str]]:
    """What the reading says of its accelerator, surest first, and as printed."""
    told = (
        (_UUID, reading.uuid),
        (_BUS, reading.bus),
        (_INDEX, None if reading.gpu is None else str(reading.gpu)),
        (_ROW, None if reading.place is None else f"row {reading.place}"),
    )
    for rank, text in told:
        if text:
            yield _Name(rank, text.casefold(), reading.chip), text


def _shared(record: Sequence[Reading]) -> set[_Name]:
    """UUIDs (a masked one, a virtual card's) and bus ids that several cards of one call have."""
    others: dict[_Name, set[_Name]] = {}
    for reading in record:
        names = [name for name, _ in _names(reading)]
        for name, weaker in itertools.pairwise(names):
            if name.rank < _INDEX:
                others.setdefault(name, set()).add(weaker)
    return {name for name, weaker in others.items() if len(weaker) > 1}


def _counts(record: Sequence[Reading]) -> set[int | None]:
    """The indices of a record, or its rows where no index is printed."""
    return {r.place if r.gpu is None else r.gpu for r in record}


def _usual(records: Sequence[Sequence[Reading]]) -> int:
    """How many accelerators most records have; of two such numbers the larger."""
    sizes = Counter(len(_counts(record)) for record in records if record)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def _is_whole(record: Sequence[Reading], usual: int) -> bool:
    """Whether the indices of a record are those of the other records."""
    counts = _counts(record)
    return len(counts) == usual or counts != set(range(len(counts)))
