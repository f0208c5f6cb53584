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
    for record, surest in zip(records, names.surest, strict=True):
        whole = _is_whole(record, usual)
        found = [(name, name is None or name.rank >= _INDEX) for name in surest]
        sure = {names.stands_for(name) for name, counted in found if name and not counted}
        for reading, (name, counted) in zip(record, found, strict=True):
            card = None if name is None else names.stands_for(name)
            if card is None or (counted and (not whole or card in sure)):
                reading.accelerator = UNSURE
                reading.doubts += (DOUBT,)
            else:
                reading.accelerator = names.key(card)


class _Names:
    """Every name of the capture, and the stronger ones that it came with."""

    def __init__(self, records: Sequence[Sequence[Reading]]) -> None:
        self.stronger: dict[_Name, set[_Name]] = {}
        self.printed: dict[_Name, str] = {}
        self.surest: list[list[_Name | None]] = []  # of each reading of each record
        told = [[dict(_names(reading)) for reading in record] for record in records]
        shared = {name for record in told for name in _shared(record)}
        for record in told:
            own = [{n: text for n, text in names.items() if n not in shared} for names in record]
            self.surest.append([next(iter(names), None) for names in own])
            for names in own:
                self._take(names)

    def _take(self, names: dict[_Name, str]) -> None:
        first = next(iter(names), None)
        for name, printed in names.items():
            self.printed.setdefault(name, printed)
            if first is not None and name != first:
                self.stronger.setdefault(name, set()).add(first)

    def stands_for(self, name: _Name) -> _Name | None:
        """The surest name of its accelerator; None if that was not always the same."""
        found = {self.stands_for(other) for other in self.stronger.get(name, ())}
        return name if not found else found.pop() if len(found) == 1 else None

    def key(self, name: _Name) -> str:
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


def _shared(record: Sequence[dict[_Name, str]]) -> set[_Name]:
    """UUIDs (a masked one, a virtual card's) and bus ids that several cards of one call have."""
    others: dict[_Name, set[_Name]] = {}
    for names in record:
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
