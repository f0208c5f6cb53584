"""What differs between a thing as it is written and as it was recomputed; of data, leaf by leaf.

In: two JSON values, or two folders. Out: `Difference`s that name the place and both sides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ABSENT = "(not there)"
_NAMES = ("id", "name", "run")  # what an entry of a list is called by, where it says so
_MOST = 120  # characters of a value that are shown


@dataclass(frozen=True)
class Difference:
    """`old`: as written; `new`: as recomputed, or as recorded of a raw file's checksum."""

    file: str
    place: str
    old: str
    new: str
    # Whether the file is no longer the one that was written; None: nobody knows.
    edited: bool | None = field(default=None, kw_only=True)

    def line(self) -> str:
        at = f"{self.file}: {self.place}" if self.place else self.file
        return f"{at}: {self.old} -> {self.new}"


def shown(value: object) -> str:
    """One line of text for a value, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST else f"{flat[:_MOST]}…"


def of_json(old: Any, new: Any, file: str, place: str = "") -> Iterator[Difference]:
    """Leaf by leaf; a leaf's place is its path: `verdicts[A_1].effect`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            inner = f"{place}.{key}" if place else str(key)
            yield from _of_member(old, new, key, file, inner)
    elif _is_list(old) and _is_list(new):
        yield from _of_lists(old, new, file, place)
    elif not _same(old, new):
        yield Difference(file, place, shown(old), shown(new))


def _of_member(
    old: Mapping[str, Any], new: Mapping[str, Any], key: str, file: str, place: str
) -> Iterator[Difference]:
    if key in old and key in new:
        yield from of_json(old[key], new[key], file, place)
    else:
        sides = (shown(side[key]) if key in side else ABSENT for side in (old, new))
        yield Difference(file, place, *sides)


def _of_lists(
    old: Sequence[Any], new: Sequence[Any], file: str, place: str
) -> Iterator[Difference]:
    """Entry by entry; entries that carry names of their own by these, so that one that is gone does not
    make all behind it differ."""
    names, others = _named(old), _named(new)
    if names is not None and others is not None:
        sides = dict(zip(names, old, strict=True)), dict(zip(others, new, strict=True))
        yield from of_json(*sides, file, place)
        if set(names) == set(others) and names != others:
            yield Difference(file, place, "in another order", "in the order of the plan")
        return
    for number in range(max(len(old), len(new))):
        inner = f"{place}[{number}]"
        if number < min(len(old), len(new)):
            yield from of_json(old[number], new[number], file, inner)
        else:
            there = (shown(side[number]) if number < len(side) else ABSENT for side in (old, new))
            yield Difference(file, inner, *there)


def _named(entries: Sequence[Any]) -> list[str] | None:
    """What each entry is called by, if all have one and no two share it."""
    if not entries or not all(isinstance(entry, Mapping) for entry in entries):
        return None
    for name in _NAMES:
        called = [entry.get(name) for entry in entries]
        if all(isinstance(one, str) for one in called) and len(set(called)) == len(called):
            return [str(one) for one in called]
    return None


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _same(old: Any, new: Any) -> bool:
    """Equal in type as well: 1 is not True, and 1.0 is not 1."""
    if isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new):
        return True
    return type(old) is type(new) and bool(old == new)


def leaves(value: Any) -> int:
    """How many values of_json holds against each other."""
    if isinstance(value, Mapping):
        return sum(leaves(inner) for inner in value.values())
    if _is_list(value):
        return sum(leaves(inner) for inner in value)
    return 1


def of_json_files(old: Path, new: Path, file: str) -> list[Difference]:
    """Of two files; one that is missing or no JSON differs as a whole."""
    read = [_read(path) for path in (old, new)]
    if isinstance(read[0], _Unread) or isinstance(read[1], _Unread):
        sides = (one.why if isinstance(one, _Unread) else "a whole file" for one in read)
        return [] if read[0] == read[1] else [Difference(file, "", *sides)]
    return list(of_json(read[0], read[1], file))


@dataclass(frozen=True)
class _Unread:
    why: str


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _Unread(ABSENT)
    except (OSError, ValueError) as error:
        return _Unread(f"cannot be read: {shown(str(error))}")


def of_bytes(old: Path, new: Path, file: str) -> list[Difference]:
    """Of two files that are no text of ours: alike or not."""
    sides = [path.read_bytes() if path.is_file() else None for path in (old, new)]
    if sides[0] == sides[1]:
        return []
    told = [ABSENT if side is None else f"{len(side)} bytes" for side in sides]
    if told[0] == told[1]:
        told = ["these bytes", "others of the same number"]
    return [Difference(file, "", *told)]


def marked(found: list[Difference], edited: bool | None) -> list[Difference]:
    """The same, with what is known of the cause."""
    return [replace(one, edited=edited) for one in found]
