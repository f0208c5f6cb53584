"""Tables of a report with one line a run, in which a column that no run has a value for is left out.

In: rows of runs.csv, `Column`s, the catalogue. Out: a `Table`, or None where there is nothing to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from decodelab import markdown, numbers
from decodelab.findings import Row
from decodelab.markdown import Md
from decodelab.report_tables import Table
from decodelab.words import Words


@dataclass(frozen=True)
class Column:
    head: str  # a key of the catalogue
    text: Callable[[Row], str]
    align: str = "right"
    note: str | None = (
        None  # a key of the catalogue: told under the table where the column is shown
    )
    stays: bool = False  # shown with dashes too: that it is empty is what there is to tell


def figure(head: str, name: str, note: str | None = None, stays: bool = False) -> Column:
    """A column of runs.csv with its unit in each cell."""
    return Column(head, lambda row: numbers.show(name, row.get(name)), note=note, stays=stays)


def short_time(head: str, name: str) -> Column:
    """The same of a time between tokens or of the client's own clock, in milliseconds."""
    return Column(head, lambda row: numbers.milliseconds(row.get(name)))


def code(head: str, name: str) -> Column:
    return Column(head, lambda row: markdown.code(row.get(name) or numbers.DASH), "left")


RUN = Column("table.run", lambda row: markdown.code(row["run"]), "left")


def table(
    rows: Iterable[Row], columns: Sequence[Column], title: Md, notes: Sequence[Md], words: Words
) -> Table | None:
    """Rows without any value but their name are left out too."""
    cells = [[column.text(row) for column in columns] for row in rows]
    cells = [row for row in cells if any(map(_says, row[1:]))]
    kept = [
        n
        for n, column in enumerate(columns)
        if n == 0 or column.stays or any(_says(row[n]) for row in cells)
    ]
    if not cells:
        return None
    about = [words.say(key) for n in kept if (key := columns[n].note)]
    return Table(
        [words.say(columns[n].head) for n in kept],
        [columns[n].align for n in kept],
        [[row[n] for n in kept] for row in cells],
        title=title,
        notes=[*notes, *about],
    )


def _says(cell: str) -> bool:
    return cell not in ("", numbers.DASH, markdown.code(numbers.DASH))


def several(*parts: str, between: str = " / ") -> str:
    """Values that belong together in one cell; a dash where none is known."""
    return between.join(parts) if any(map(_says, parts)) else numbers.DASH
