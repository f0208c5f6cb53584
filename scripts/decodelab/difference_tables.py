"""Two versions of one CSV table, cell by cell.

In: the file as it is written, the file recomputed. Out: a `Difference` for each cell, row or column,
named by the row's own key. Cells are compared as text: every digit counts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from decodelab.difference import ABSENT, Difference, shown

# What tells the rows of a table apart, and what a row is called by.
KEYS = {
    "runs": ("run",),
    "requests": ("run", "index"),
    "telemetry": ("run", "record", "gpu"),
    "gpus": ("run", "scope", "uuid"),
    "starts": ("variant", "start", "start_id"),
    "regions": ("run", "phase", "rank", "region"),
    "itl": ("run", "share"),
}
Rows = dict[tuple[str, ...], dict[str, str]]


@dataclass(frozen=True)
class Compared:
    cells: int
    differences: list[Difference]


def compare(old: Path, new: Path, table: str, file: str) -> Compared:
    """`table`: its name without .csv; `file`: what it is called when told."""
    if not old.is_file() or not new.is_file():
        sides = ("a whole table" if path.is_file() else ABSENT for path in (old, new))
        return Compared(0, [Difference(file, "", *sides)])
    try:
        heads, rows = zip(*(_read(path, table) for path in (old, new)), strict=True)
    except (csv.Error, UnicodeDecodeError) as error:
        return Compared(0, [Difference(file, "", f"cannot be read: {error}", "a whole table")])
    found = [*_columns(heads[0], heads[1], file), *_rows(rows[0], rows[1], file)]
    if not found and old.read_bytes() != new.read_bytes():
        order = list(rows[0]) != list(rows[1]) or heads[0] != heads[1]
        found = [Difference(file, "order" if order else "spelling", "otherwise", "as it is made")]
    return Compared(sum(len(row) for row in rows[1].values()), found)


def _read(path: Path, table: str) -> tuple[list[str], Rows]:
    """Rows by key; rows that share one are numbered, in their order."""
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle, restkey="(more)", restval="(less)")
        rows: Rows = {}
        for row in reader:
            texts = {
                name: value if isinstance(value, str) else ",".join(value)
                for name, value in row.items()
            }
            key = tuple(texts.get(name, "") for name in KEYS[table])
            number = 1
            while (key if number == 1 else (*key, f"no. {number}")) in rows:
                number += 1
            rows[key if number == 1 else (*key, f"no. {number}")] = texts
        return list(reader.fieldnames or []), rows


def _columns(old: list[str], new: list[str], file: str) -> Iterator[Difference]:
    for name in dict.fromkeys((*old, *new)):
        if name not in old or name not in new:
            sides = ("a column" if name in side else ABSENT for side in (old, new))
            yield Difference(file, f"column {name}", *sides)


def _rows(old: Rows, new: Rows, file: str) -> Iterator[Difference]:
    for key in dict.fromkeys((*old, *new)):
        row = "row " + " · ".join(part for part in key if part)
        if key not in old or key not in new:
            yield Difference(file, row, *("a row" if key in s else ABSENT for s in (old, new)))
            continue
        for name in old[key]:
            if name in new[key] and old[key][name] != new[key][name]:
                sides = (shown(side[key][name]) or "(empty)" for side in (old, new))
                yield Difference(file, f"{row}, column {name}", *sides)
