"""The figures as Markdown.

In:  rows. Out: a table; and a page whose block between two marker comments is replaced by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fidelity.rows import Row, distrust

HEAD = (
    "client",
    "load",
    "lag P50 ms",
    "lag P99 ms",
    "lag max ms",
    "user lag P99 ms",
    "CPU us/event",
    "us/read",
    "one more read us",
    "bare loop us",
    "whole process us/event",
    "core",
    "others",
    "events",
    "lost",
    "coalesced",
    "verdict",
)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    shown = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in shown)


def number(value: float | None, scale: float, digits: int) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"


def lag_table(rows: Sequence[Row]) -> str:
    return markdown(HEAD, [line_of(row) for row in rows])


def line_of(row: Row) -> list[str]:
    why = distrust(row)
    return [
        row.http,
        row.load.name,
        number(row.lag_p50_s, 1e3, 3),
        number(row.lag_p99_s, 1e3, 3),
        number(row.lag_max_s, 1e3, 2),
        number(row.user_lag_p99_s, 1e3, 2),
        number(row.cpu_per_event_s, 1e6, 1),
        number(row.cpu_per_read_s, 1e6, 1),
        number(row.read_cost_s, 1e6, 1),
        number(row.bare_cost_s, 1e6, 1),
        number(row.process_cpu_per_event_s, 1e6, 1),
        number(row.cpu_share, 1e2, 0) + " %",
        number(row.others_share, 1e2, 0) + " %",
        str(row.events),
        str(row.lost),
        f"{row.coalesced_share:.1%}",
        "; ".join(why) if why else "good",
    ]


def replace_block(page: str, name: str, text: str) -> str:
    """The page with the block between `<!-- name -->` and `<!-- /name -->` replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    changed, times = pattern.subn(lambda _: f"{begin}\n{text}\n{end}", page)
    if times != 1:
        raise SystemExit(f"--write: {times} blocks {begin} in the page, 1 wanted")
    return changed


def write_block(path: Path, name: str, text: str) -> None:
    path.write_text(replace_block(path.read_text(), name, text))
