"""A profile as shares alone: which share of one whole each op or kernel takes.

In: text of a CSV file with the columns `name,share`, or of JSON {"schema": "decodelab.profile/1", "shares": {name:
share}}. A share is a number from 0 to 1 or a percentage ("37 %"); together they are 1 at most. What they leave to 1 was
not attributed. Out: shares by name; ValueError where the text is no such thing.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

SCHEMA = "decodelab.profile/1"
ROUNDING = 0.005  # that shares written with few digits may exceed 1 by, or lack


def of_csv(text: str) -> dict[str, float]:
    return _shares(_csv_pairs(text))


def of_json(text: str) -> dict[str, float]:
    return _shares(_json_pairs(text))


def _shares(pairs: Iterable[tuple[str, Any, Any]]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for where, name, given in pairs:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{where}: a name expected")
        name = writable(name.strip())
        if name in shares:
            raise ValueError(f"{where}: {name} stands there twice")
        shares[name] = share(where, given)
    if not shares:
        raise ValueError("no shares in it")
    of_one_whole(shares.values())
    return shares


def writable(name: str) -> str:
    """A lone surrogate, which JSON can spell and no file can hold, as its escape."""
    return name.encode("utf-8", "backslashreplace").decode()


def of_one_whole(shares: Iterable[float]) -> None:
    total = sum(shares)
    if total > 1 + ROUNDING:
        raise ValueError(f"the shares add up to {total:.3f}, more than 1")


def _csv_pairs(text: str) -> Iterable[tuple[str, Any, Any]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        if list(reader.fieldnames or []) != ["name", "share"]:
            raise ValueError(f"columns {reader.fieldnames}, wanted name,share")
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"line {reader.line_num}: two cells expected")
            yield f"line {reader.line_num}", row["name"], row["share"]
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from error


def _json_pairs(text: str) -> Iterable[tuple[str, Any, Any]]:
    # its error is a ValueError
    data = json.loads(text, object_pairs_hook=_once)
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        raise ValueError(f'schema "{SCHEMA}" expected')
    if not isinstance(data.get("shares"), Mapping):
        raise ValueError("shares: an object expected")
    for name, given in data["shares"].items():
        yield f"shares.{name}", name, given


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of which no key is lost behind a later one of the same name."""
    out = dict(pairs)
    if len(out) < len(pairs):
        names = [name for name, _value in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)} stands there twice")
    return out


def share(where: str, given: Any) -> float:
    text = str(given).strip()
    percent = text.endswith("%")
    try:
        if isinstance(given, bool):
            raise ValueError
        value = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        raise ValueError(f"{where}: {given!r} is no share") from None
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise ValueError(f"{where}: {given!r} is no share from 0 to 1 (write 37 % for 0.37)")
    return value
