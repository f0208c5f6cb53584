"""A report as it is written against the same made again from its raw files, part by part.

In: two `Written`: the study's own folders and the scratch ones; the checksums that evidence.json
recorded. Out: a `Check` for each part, with how much was compared and every difference.

A drawing depends on the machine's fonts and libraries. So one that was drawn otherwise is no
difference as long as it is the very file that was written: its numbers are held to account as data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import difference, difference_html, difference_tables, difference_text
from decodelab.difference import ABSENT, Difference
from decodelab.published import CAPTURES_INDEX, RUNS_INDEX
from decodelab.store import sha256_of
from decodelab.written_files import Written

# Of evidence.json: what is held to account elsewhere, or says which code wrote it.
_NOT_COMPARED = ("code", "plan", "written")


@dataclass
class Check:
    title: str
    counted: str = ""
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped: str | None = None  # why it could not be made, or not to its end


@dataclass(frozen=True)
class Pair:
    """`old`: as it is written; `new`: made again; `sums`: name -> sha256 when it was written."""

    old: Written
    new: Written
    sums: Mapping[str, str]

    def both(self, name: str) -> tuple[Path, Path]:
        return self.old.path(name), self.new.path(name)

    def as_written(self, name: str) -> bool | None:
        """Whether the file is the one that was written; None where it or its checksum is missing."""
        path, wanted = self.old.path(name), self.sums.get(name)
        if wanted is None or not path.is_file():
            return None
        return sha256_of(path) == wanted

    def marked(self, name: str, found: Iterable[Difference]) -> list[Difference]:
        """Differences of one file, with whether it was edited since."""
        same = self.as_written(name)
        return difference.marked(list(found), None if same is None else not same)

    def names(self, which: str) -> list[str]:
        """The files of one part on either side."""
        sides = (getattr(self.old, which)(), getattr(self.new, which)())
        return list(dict.fromkeys(name for side in sides for name in side))


def tables(pair: Pair) -> Check:
    """The published runs and every cell of every table."""
    check = Check("tables")
    published = pair.names("runs")
    for name in published:
        check.differences += pair.marked(name, _file(pair, name))
    cells = 0
    for name in pair.old.tables():
        if name.endswith(".csv"):
            made = difference_tables.compare(*pair.both(name), Path(name).stem, name)
            cells += made.cells
            check.differences += pair.marked(name, made.differences)
        else:
            check.differences += pair.marked(name, _file(pair, name))
    for name in pair.names("traces"):
        check.differences += pair.marked(name, difference.of_bytes(*pair.both(name), name))
    check.counted = (
        f"{cells:,} cells of {len(pair.old.tables())} tables, {len(published)} published files"
    )
    return check


def _file(pair: Pair, name: str) -> list[Difference]:
    """By its data where it is ours (an index, profiles); else by its bytes."""
    if Path(name).name in (RUNS_INDEX, CAPTURES_INDEX) or name.endswith("profiles.json"):
        return difference.of_json_files(*pair.both(name), name)
    return difference.of_bytes(*pair.both(name), name)


def verdicts(pair: Pair) -> Check:
    check = Check("verdicts")
    name = pair.old.verdicts
    check.differences += pair.marked(name, difference.of_json_files(*pair.both(name), name))
    check.counted = f"{_leaves(pair.new.path(name)):,} values"
    return check


def drawings(pair: Pair) -> Check:
    """The list of the figures, the data of the interactive ones, the drawings."""
    check, values, drawn = Check("figures"), 0, 0
    for name in pair.names("figures"):
        if name.endswith(".json"):
            found = difference.of_json_files(*pair.both(name), name)
            values += _leaves(pair.new.path(name))
            check.differences += pair.marked(name, found)
        else:
            drawn += 1
            _drawing(pair, name, check)
    check.counted = f"{values:,} values, {drawn} drawings"
    return check


def _drawing(pair: Pair, name: str, check: Check) -> None:
    found = difference.of_bytes(*pair.both(name), name)
    if found and pair.as_written(name) and pair.new.path(name).is_file():
        check.notes.append(f"{name}: drawn otherwise here; it is the file that was written")
    else:
        check.differences += pair.marked(name, found)


def pages(pair: Pair) -> Check:
    """Every number of every page, and report.html by its text and the data of its figures."""
    check, counted = Check("pages"), []
    for name in pair.old.texts():
        old, new = (_text(path) for path in pair.both(name))
        found = _of_pages(difference_text.compare, old, new, name)
        counted.append(f"{Path(name).name} {difference_text.numbers_in(new or ''):,} numbers")
        check.differences += pair.marked(name, found)
    _html(pair, check)
    check.counted = ", ".join([*counted, Path(pair.old.html).name])
    return check


def _of_pages(
    compare: Callable[[str, str, str], list[Difference]],
    old: str | None,
    new: str | None,
    name: str,
) -> list[Difference]:
    """A page that is missing on one side differs as a whole, one that is missing on both in nothing."""
    if old is not None and new is not None:
        return compare(old, new, name)
    sides = (ABSENT if side is None else "a page" for side in (old, new))
    return [Difference(name, "", *sides)] if old != new else []


def _html(pair: Pair, check: Check) -> None:
    name = pair.old.html
    old, new = (_text(path) for path in pair.both(name))
    if old == new:
        return
    found = _of_pages(difference_html.compare, old, new, name)
    if not found and pair.as_written(name):
        check.notes.append(
            f"{name}: drawn otherwise here; it is the file that was written, and says the same"
        )
    elif not found:
        found = [Difference(name, "", "drawn or styled otherwise", "says the same")]
    check.differences += pair.marked(name, found)


def evidence(pair: Pair, name: str) -> Check:
    check = Check("evidence")
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in pair.both(name))
    kept = [{k: v for k, v in side.items() if k not in _NOT_COMPARED} for side in (old, new)]
    check.differences += difference.of_json(kept[0], kept[1], name)
    check.differences += _recorded(pair, old["written"], new["written"], name)
    check.counted = f"{len(new['entries']):,} entries"
    return check


def _recorded(
    pair: Pair, old: Mapping[str, str], new: Mapping[str, str], name: str
) -> Iterable[Difference]:
    """The checksums of what was written, where they are neither those of the files nor of files made again."""
    for file in dict.fromkeys((*old, *new)):
        if old.get(file) != new.get(file) and not pair.as_written(file):
            sides = (side.get(file, ABSENT)[:16] for side in (old, new))
            yield Difference(name, f"written.{file}", *sides)


def _text(path: Path) -> str | None:
    """None for a page that is not there; bytes that are no UTF-8 stay visible."""
    return path.read_text(encoding="utf-8", errors="backslashreplace") if path.is_file() else None


def _leaves(path: Path) -> int:
    found: Any = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return difference.leaves(found)
