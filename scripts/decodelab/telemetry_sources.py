"""Which field a metric is read from, where a tool has several: one for each accelerator, over the
whole capture. What comes from another field in one call is another thing (a mean draw and one of
the moment, the die's and the board's), and would be a step in the curve that nothing made.

In: readings with what each field said (`told`, `of_board`) and their keys. Out: their values, from
the best field that tells at least half of what any tells, else from the one that tells most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from decodelab.telemetry_reading import Reading

OFTEN = 0.5


def settle(readings: Iterable[Reading]) -> list[str]:
    """Set the values that several fields tell; returns what there is to say of boards."""
    cards: dict[str, list[Reading]] = {}
    for reading in readings:
        cards.setdefault(reading.key, []).append(reading)
    for card in cards.values():
        for metric in dict.fromkeys(metric for reading in card for metric in reading.told):
            source = _source([reading.told.get(metric, {}) for reading in card])
            for reading in card:
                if metric in reading.told:
                    reading.values[metric] = reading.told[metric].get(source)
    said = _board_power(cards)
    for card in cards.values():
        for reading in card:
            reading.told, reading.of_board = {}, {}
    return said


def _source(told: Sequence[dict[str, float | None]]) -> str:
    """Of one accelerator and metric: the field to read; "" where none told anything."""
    order = dict.fromkeys(field for fields in told for field in fields)
    if len(order) == 1:
        return next(iter(order))
    there = [{field for field, v in fields.items() if v is not None} for fields in told]
    count = Counter(field for fields in there for field in fields)
    needed = OFTEN * sum(map(bool, there))
    often = (field for field in order if count[field] and count[field] >= needed)
    return next(often, max(count, key=lambda field: count[field], default=""))


def _board_power(cards: dict[str, list[Reading]]) -> list[str]:
    """The draw of a board of which no die ever tells its own, on the first of its dies, as in ixsmi's
    table: each die prints it alike.
    """
    boards: dict[str, list[str]] = {}
    for key, card in cards.items():
        serial = next((r.serial for r in card if r.serial), None)
        if serial is not None:
            boards.setdefault(serial, []).append(key)
    said = []
    for serial, keys in boards.items():
        dies = [reading for key in keys for reading in cards[key]]
        told = any(reading.values["power_w"] is not None for reading in dies)
        if told or not any(reading.of_board for reading in cards[keys[0]]):
            continue
        for reading in dies:
            reading.power_of = "board"
        for reading in cards[keys[0]]:
            reading.values.update(reading.of_board)
        if len(keys) > 1:
            said.append(f"{len(keys)} dies on board {serial}: its power is told once, at {keys[0]}")
    return said
