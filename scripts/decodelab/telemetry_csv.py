"""CSV as the SMI tools write it: with a header or without, with units in the cells, the header or
nowhere, lists in quotes.

In: text, a tool's names for what is read, and the names of the columns where the text has no header.
Out: readings. A row with too few cells, a cut cell and a unit that does not belong to the column give
None or no reading, never a guess."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

from decodelab.telemetry_reading import (
    METRICS,
    Parsed,
    Reading,
    UnreadableSmi,
    first_words,
    has_unit,
    index,
    not_known,
    quantity,
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
UUID = re.compile(r"(?:GPU-)?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_UNIQUE = re.compile(r"(?:0x)?[0-9a-fA-F]{8,16}")  # rocm-smi's Unique ID
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
    headed = False
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
                columns, headed = whole, True
            else:
                parsed.messages.append(f"cut header: {line[:120]}")
        elif columns and len(cells) == len(columns):
            _row(parsed, names, columns, cells, ended, line)
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
    line: str,
) -> None:
    if not ended and not (has_unit(cells[-1]) or UUID.fullmatch(cells[-1])):
        parsed.messages.append(f"no line end: {columns[-1][0]} may be cut and is left out")
        cells = [*cells[:-1], ""]
    by: Cells = {name: (cell, u) for (name, u), cell in zip(columns, cells, strict=True)}
    reading = reading_of(by, names)
    known = reading.uuid or reading.bus or reading.gpu is not None
    if known or any(value is not None for value in reading.values.values()):
        parsed.readings.append(reading)
    else:
        parsed.messages.append(line[:200])


def reading_of(cells: Cells, names: Names) -> Reading:
    """One accelerator from its named cells."""
    reading = Reading()
    for target, candidates in names.items():
        for name in candidates:
            if name in cells and _fill(reading, target, *cells[name]):
                break
    return reading


def _fill(reading: Reading, target: str, cell: str, unit: str | None) -> bool:
    """Put the cell into the reading; False where it says nothing."""
    if not_known(cell):
        return False
    if target == "gpu":
        reading.gpu = index(cell.removeprefix("card"))
    elif target == "uuid":
        reading.uuid = cell if UUID.fullmatch(cell) or _UNIQUE.fullmatch(cell) else None
    elif target == "bus":
        reading.bus = cell if BUS.fullmatch(cell) else None
    elif target in METRICS:
        reading.values[target] = quantity(target, cell, unit)
        return reading.values[target] is not None
    else:
        setattr(reading, target, cell)
    return True
