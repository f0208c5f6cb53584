"""CSV as the SMI tools write it: with a header or without, with units in the cells, the header or
nowhere, lists in quotes.

In: text, a tool's names for what is read, and the names of the columns where the text has no header.
Out: readings. A row with too few cells, a cut cell and a unit that does not belong to the column give
None or no reading, never a guess. A line of as many cells whose identity is none is a message."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence

from decodelab.telemetry_reading import (
    METRICS,
    UUID,
    Parsed,
    Reading,
    UnreadableSmi,
    first_words,
    has_unit,
    index,
    not_known,
    quantity,
    uuid_of,
)

Names = Mapping[str, tuple[str, ...]]  # metric or identity -> a tool's names; the first known wins

# `--query-gpu` of nvidia-smi and ixsmi
QUERY: Names = {
    "gpu": ("index",),
    "uuid": ("uuid", "gpu_uuid"),
    "bus": ("pci.bus_id", "gpu_bus_id"),
    "serial": ("serial", "gpu_serial"),
    "name": ("name", "gpu_name"),
    "stamp": ("timestamp",),
    "util_pct": ("utilization.gpu",),
    "mem_used_mib": ("memory.used",),
    "mem_total_mib": ("memory.total",),
    "power_w": ("power.draw", "gpu.power.draw", "power.draw.average", "power.draw.instant"),
    "power_cap_w": (
        "gpu.current.power.limit",
        "enforced.power.limit",
        "power.limit",
        "gpu.power.limit",
        "gpu.default.power.limit",
        "power.default_limit",
    ),
    "temp_c": ("temperature.gpu",),
    "sm_mhz": ("clocks.current.sm", "clocks.sm"),
    "mem_mhz": ("clocks.current.memory", "clocks.mem", "clocks.current.mem"),
}
_COLUMN = re.compile(r"([^\[\]]*?)\s*(?:\[([^\[\]]*)\]|\(([^()]*)\))?:?")
_TIME = re.compile(r"[0-9]|.*[0-9]:[0-9]{2}")
BUS = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
Cells = dict[str, tuple[str, str | None]]  # column -> the cell, and the unit its header gives


def read(text: str, fields: Sequence[str], tool: str, names: Names = QUERY) -> Parsed:
    """Every row of the text; a header may come again at any place."""
    parsed = Parsed(tool)
    known = {name for column in names.values() for name in column}

    def names_one(line: str) -> bool:  # most lines are rows: spares them the look at each cell
        lowered = line.lower()
        return any(name in lowered for name in known)

    columns = [column(name) or (name, None) for name in fields]
    headed, row = False, 0
    lines = text.split("\n")
    for position, raw in enumerate(lines):
        line, ended = raw.rstrip("\r"), position < len(lines) - 1
        if not line.strip():
            continue
        cells = _cells(line)
        header = [column(cell) for cell in cells] if names_one(line) else []
        if any(found is not None and found[0] in known for found in header):
            whole = [found for found in header if found is not None]
            if len(whole) == len(cells):
                columns, headed, row = whole, True, 0
            else:
                parsed.messages.append(f"cut header: {line[:120]}")
        elif columns and len(cells) == len(columns):
            row += _row(parsed, names, columns, cells, ended, row)
        else:
            parsed.messages.append(line[:200])
    if not columns:
        raise UnreadableSmi(
            f"looked for a CSV whose header names fields such as {_some(names)} (a CSV without a header "
            f"needs its field names); {first_words(text)}"
        )
    if not parsed.readings and not headed:
        called = ", ".join(name for name, _ in columns)
        raise UnreadableSmi(
            f"looked for rows with {len(columns)} cells ({called}), found none; {first_words(text)}"
        )
    return parsed


def _some(names: Names) -> str:
    return ", ".join(names[metric][0] for metric in METRICS if metric in names)


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error:  # longer than any cell of a tool
        return [line]


def column(cell: str) -> tuple[str, str | None] | None:
    """A column's name in small letters and its unit: `power.draw [W]`, `GPU use (%)`. None: cut."""
    found = _COLUMN.fullmatch(cell.strip())
    return (found[1].lower(), found[2] or found[3]) if found else None


def _row(
    parsed: Parsed,
    names: Names,
    columns: list[tuple[str, str | None]],
    cells: list[str],
    ended: bool,
    place: int,
) -> bool:
    """Take a row; False if it is a line of something else, which has no place among the rows."""
    line = ", ".join(cells)
    if not ended and not (has_unit(cells[-1]) or UUID.fullmatch(cells[-1])):
        parsed.messages.append(f"no line end: {columns[-1][0]} may be cut and is left out")
        cells = [*cells[:-1], ""]
    by: Cells = {name: (cell, u) for (name, u), cell in zip(columns, cells, strict=True)}
    if not _is_row(by, names):
        parsed.messages.append(line[:200])
        return False
    reading = reading_of(by, names)
    if reading.uuid is None and reading.bus is None:
        reading.place = place
    known = reading.uuid or reading.bus
    if known or any(not not_known(cell) for _, cell, _ in _metric_cells(by, names)):
        parsed.readings.append(reading)
    else:
        parsed.messages.append(line[:200])  # an index alone says nothing
    return True


def _is_row(cells: Cells, names: Names) -> bool:
    """Whether each identity is one or not known; of rows without any, each metric."""
    sure = False
    for target, candidates in names.items():
        held = [cells[name] for name in candidates if name in cells]
        if target in _FORMS:
            sure = sure or (bool(held) and target in IDENTITY)
            if not all(not_known(cell) or _FORMS[target](cell) is not None for cell, _ in held):
                return False
    if sure:
        return True
    metrics = _metric_cells(cells, names)
    return all(not_known(cell) or quantity(m, cell, unit) is not None for m, cell, unit in metrics)


def _metric_cells(cells: Cells, names: Names) -> list[tuple[str, str, str | None]]:
    """Metric, cell and unit of each column that tells a metric."""
    return [(m, *cells[name]) for m in METRICS for name in names.get(m, ()) if name in cells]


def reading_of(cells: Cells, names: Names) -> Reading:
    """One accelerator from its named cells."""
    reading = Reading()
    for target, candidates in names.items():
        held = {name: cells[name] for name in candidates if name in cells}
        if target in METRICS:
            told = {name: _quantity(target, *cell) for name, cell in held.items()}
            reading.values[target] = next((v for v in told.values() if v is not None), None)
            if len(candidates) > 1:
                reading.told[target] = told
            continue
        text = next((cell for cell, _ in held.values() if not not_known(cell)), None)
        if text is not None:
            setattr(reading, target, _FORMS[target](text) if target in IDENTITY else text)
    return reading


def _quantity(metric: str, cell: str, unit: str | None) -> float | None:
    return None if not_known(cell) else quantity(metric, cell, unit)


def _index(cell: str) -> int | None:
    return index(cell.removeprefix("card"))


def _bus(cell: str) -> str | None:
    return cell if BUS.fullmatch(cell) else None


def _stamp(cell: str) -> str | None:
    return cell if _TIME.match(cell) else None


IDENTITY = ("gpu", "uuid", "bus")
_FORMS: dict[str, Callable[[str], int | str | None]] = {
    "gpu": _index,
    "uuid": uuid_of,
    "bus": _bus,
    "stamp": _stamp,
}
