"""`--query-gpu ... --format=csv`, as nvidia-smi and ixsmi write it: with a header or without, with
units or without.

In: text, and the field names where the text has no header. Out: readings. A row with too few
cells, a cut cell and a unit that does not belong to the column give None or no reading, never a
guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from decodelab.telemetry import Parsed, Reading, UnreadableSmi, not_known

# What a field says, by the names in use; of two fields for one metric the earlier in FIELDS[...]
# wins.
FIELDS: dict[str, tuple[str, ...]] = {
    "gpu": ("index",),
    "uuid": ("uuid", "gpu_uuid"),
    "bus": ("pci.bus_id", "gpu_bus_id"),
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
UNITS = {
    "util_pct": {"%": 1.0},
    "mem_used_mib": {"MiB": 1.0, "GiB": 1024.0, "KiB": 1 / 1024},
    "mem_total_mib": {"MiB": 1.0, "GiB": 1024.0, "KiB": 1 / 1024},
    "power_w": {"W": 1.0, "mW": 0.001},
    "power_cap_w": {"W": 1.0, "mW": 0.001},
    "temp_c": {"C": 1.0, "°C": 1.0},
    "sm_mhz": {"MHz": 1.0},
    "mem_mhz": {"MHz": 1.0},
}
KNOWN = {name for names in FIELDS.values() for name in names}
_COLUMN = re.compile(r"^([A-Za-z][\w.]*)(?:\s*\[([^\]]*)\])?$")
_NUMBER = re.compile(r"^(\d+(?:\.\d+)?)\s*(\S*)$")
_UUID = re.compile(r"^(?:GPU-)?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")
_BUS = re.compile(r"^(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$")


def read(text: str, fields: Sequence[str], tool: str) -> Parsed:
    """Every row of the text; a header may come again at any place."""
    parsed = Parsed(tool)
    columns = [_column(name) for name in fields]
    headed = False
    lines = text.split("\n")
    for position, raw in enumerate(lines):
        line = raw.rstrip("\r")
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        header = [_COLUMN.match(cell) for cell in cells]
        if any(m is not None and m.group(1) in KNOWN for m in header):
            if all(header):
                columns, headed = [_column(cell) for cell in cells], True
            else:
                parsed.messages.append(f"cut header: {line[:120]}")
        elif columns and len(cells) == len(columns):
            ended = position < len(lines) - 1  # the last line may have been cut in its last cell
            _row(parsed, columns, cells, ended, line)
        else:
            parsed.messages.append(line[:200])
    if not columns:
        raise UnreadableSmi(_looked_for(text))
    if not parsed.readings and not headed:
        raise UnreadableSmi(
            f"no row with {len(columns)} cells ({', '.join(c[0] for c in columns)}); {_first(text)}"
        )
    return parsed


def _looked_for(text: str) -> str:
    return (
        "looked for a table with GPU rows, an XML log, or a CSV whose header names fields such as "
        "utilization.gpu, memory.used, power.draw (a CSV without a header needs its field names); "
        f"{_first(text)}"
    )


def _first(text: str) -> str:
    line = next((x.strip() for x in text.splitlines() if x.strip()), "")
    return f"the text begins with {line[:100]!r}" if line else "the text is empty"


def _column(name: str) -> tuple[str, str | None]:
    found = _COLUMN.match(name.strip())
    return (found.group(1), found.group(2)) if found else (name.strip(), None)


def _row(
    parsed: Parsed, columns: list[tuple[str, str | None]], cells: list[str], ended: bool, line: str
) -> None:
    by = {name: (cell, unit) for (name, unit), cell in zip(columns, cells, strict=True)}
    if not ended:
        last = columns[-1][0]
        if _NUMBER.match(cells[-1]) and not _NUMBER.match(cells[-1]).group(2):  # type: ignore[union-attr]
            by[last] = ("", None)
            parsed.messages.append(f"no line end: {last} may be cut and is left out")
    reading = Reading()
    for target, names in FIELDS.items():
        for name in names:
            if name in by and _fill(reading, target, *by[name]):
                break
    known = reading.uuid or reading.bus or reading.gpu is not None
    if known or any(value is not None for value in reading.values.values()):
        parsed.readings.append(reading)
    else:
        parsed.messages.append(line[:200])


def _fill(reading: Reading, target: str, cell: str, unit: str | None) -> bool:
    """Put the cell into the reading; False where it says nothing."""
    if not_known(cell):
        return False
    if target == "gpu":
        reading.gpu = int(cell) if cell.isascii() and cell.isdigit() else None
    elif target == "uuid":
        reading.uuid = cell if _UUID.match(cell) else None
    elif target == "bus":
        reading.bus = cell if _BUS.match(cell) else None
    elif target == "name":
        reading.name = cell
    elif target == "stamp":
        reading.stamp = cell
    else:
        reading.values[target] = quantity(target, cell, unit)
        return reading.values[target] is not None
    return True


def quantity(metric: str, cell: str, unit: str | None = None) -> float | None:
    """A number in the metric's unit; None if it is no number or has another thing's unit."""
    found = _NUMBER.match(cell.strip())
    if found is None or not found.group(1).isascii():
        return None
    written = found.group(2) or (unit or "")
    factor = 1.0 if not written else UNITS[metric].get(written)
    return None if factor is None else float(found.group(1)) * factor
