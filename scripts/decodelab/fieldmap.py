"""The mapping of foreign field names to ours, as a user writes it in
resources/import_mapping.yaml.

In:  the YAML file, and objects of a foreign file. Out: for one of our fields, the value found, the
key it stood under and the factor of its unit. The YAML explains how a key is matched; this file
does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEFAULT_MAPPING = Path(__file__).resolve().parents[2] / "resources" / "import_mapping.yaml"

_UNIT_SUFFIXES = {
    1.0: ("s", "sec", "secs", "second", "seconds"),
    1e-3: ("ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    1e-6: ("us", "usec", "usecs", "micros", "microseconds"),
    1e-9: ("ns", "nsec", "nanos", "nanoseconds"),
}
_FACTORS = {suffix: factor for factor, suffixes in _UNIT_SUFFIXES.items() for suffix in suffixes}

_LISTS = (
    "request_lists",
    "request_list_inside",
    "containers",
    "run_containers",
    "summary_containers",
    "outcome_patterns",
    "capture_lists",
    "capture_gpu_lists",
)
_TABLES = (
    "request",
    "request_defaults",
    "ambiguous",
    "run",
    "summary",
    "capture",
    "capture_header",
    "capture_gpu",
)
_TEXTS = ("outcome_default",)


class MappingError(Exception):
    """The mapping file itself is wrong."""


@dataclass(frozen=True)
class Found:
    """A value of a foreign object, the path of keys it stood under, and its name's unit."""

    path: str
    value: Any
    factor: float | None  # None: the name states no unit


def plain(key: str) -> str:
    """firstTokenTime, First-Token-Time -> first_token_time (dots stay: they go into objects)."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)
    return re.sub(r"[^0-9a-zA-Z.]+", "_", spaced).strip("_").lower()


def without_unit(key: str) -> tuple[str, float | None]:
    """ttft_ms -> ("ttft", 0.001); ttft -> ("ttft", None)."""
    stem, _, suffix = key.rpartition("_")
    return (stem, _FACTORS[suffix]) if stem and suffix in _FACTORS else (key, None)


class FieldMap:
    def __init__(self, tables: Mapping[str, Any], where: str):
        self.where = where
        self.tables = tables
        self._check()

    @classmethod
    def load(cls, path: Path = DEFAULT_MAPPING) -> FieldMap:
        try:
            tables = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise MappingError(f"{path}: cannot be read as YAML: {error}") from error
        if not isinstance(tables, dict):
            raise MappingError(f"{path}: a table of names expected, {type(tables).__name__} found")
        return cls(tables, str(path))

    def _check(self) -> None:
        wanted = {
            **dict.fromkeys(_LISTS, list),
            **dict.fromkeys(_TABLES, dict),
            **dict.fromkeys(_TEXTS, str),
        }
        faults = [f"{key}: unknown key" for key in self.tables if key not in wanted]
        for key, kind in wanted.items():
            value = self.tables.get(key)
            if not isinstance(value, kind):
                found = type(value).__name__
                faults.append(f"{key}: a {kind.__name__} expected, {found} found")
        if faults:
            raise MappingError(f"{self.where}:\n  " + "\n  ".join(faults))

    def names(self, key: str) -> list[str]:
        return list(self.tables[key])

    def fields(self, table: str) -> list[str]:
        return list(self.tables[table])

    def names_of(self, table: str, field: str) -> list[str]:
        return list(self.tables[table][field])

    def spellings(self, table: str, field: str) -> list[str]:
        return [plain(name) for name in self.tables[table][field]]

    def find(self, names: Mapping[str, list[Found]], table: str, field: str) -> Found | None:
        """The first spelling of `field` among `names` (of `index`); empty values do not count."""
        for spelling in self.spellings(table, field):
            stem, _ = without_unit(spelling)
            for wanted in (spelling, stem):
                for found in names.get(wanted, []):
                    unusable = isinstance(found.value, Mapping) and field != "error"
                    if not unusable and not is_empty(found.value):
                        return found
        return None

    def ambiguous(self, key: str) -> str | None:
        """Why a key is never read, or None. Its percentiles count as it: output_tps_p10."""
        name = plain(key)
        for word, why in self.tables["ambiguous"].items():
            if name == word or name.startswith(word + "_p"):
                return str(why)
        return None


def index(obj: Mapping[str, Any], containers: list[str]) -> dict[str, list[Found]]:
    """Every value of `obj` by plain name, with and without unit; own keys come first."""
    table: dict[str, list[Found]] = {}
    inside = {plain(name) for name in containers}
    entries = sorted(walk(obj, objects=True), key=lambda entry: entry[0].count("."))
    for path, value in entries:
        full = plain(path)
        stem, factor = without_unit(full)
        names = {full, stem}
        head, _, rest = full.partition(".")
        if rest and head in inside:
            names |= {rest, without_unit(rest)[0]}
        for name in names:
            table.setdefault(name, []).append(Found(path, value, factor))
    return table


def walk(
    obj: Mapping[str, Any], prefix: str = "", objects: bool = False
) -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of everything in nested objects; of objects themselves if asked."""
    for key, value in obj.items():
        path = f"{prefix}{key}"
        if objects or not isinstance(value, Mapping):
            yield path, value
        if isinstance(value, Mapping):
            yield from walk(value, path + ".", objects)


def is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("", "none", "null", "nan", "n/a", "-")
    return value is None or value == {}
