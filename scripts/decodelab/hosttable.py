"""Tables about hosts, for a terminal and for a log alike.

In:  headings and rows of plain text. Out: one table on a stream. Where no terminal says how wide it
is, the width is fixed, so that a log reads the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

LOG_WIDTH = 150
ACTIVE = r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def show(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], out: TextIO, total: int = 0
) -> None:
    """Print the rows; the last `total` of them stand below a line. A text is never markup."""
    terminal = out.isatty()
    table = Table(box=box.ASCII2, safe_box=True)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    listed = list(rows)
    for n, row in enumerate(listed, start=1):
        section = n == len(listed) - total or (bool(row[0]) and _new_host(listed, n))
        table.add_row(
            *(Text(plain(cell, "\n"), style=COLOURS.get(cell, "")) for cell in row),
            end_section=section,
        )
    print(title, file=out)
    Console(file=out, width=None if terminal else LOG_WIDTH, no_color=not terminal).print(table)


def plain(text: str, kept: str = "") -> str:
    """What a terminal would act on, or show in another order, spelled out; `kept` stays as it is."""

    def spelled(found: re.Match[str]) -> str:
        return found[0] if found[0] in kept else found[0].encode("unicode_escape").decode("ascii")

    return re.sub(ACTIVE, spelled, text)


def _new_host(rows: Sequence[Sequence[str]], n: int) -> bool:
    """Whether the row after the n-th begins another host."""
    return n < len(rows) and rows[n][0] != rows[n - 1][0]
