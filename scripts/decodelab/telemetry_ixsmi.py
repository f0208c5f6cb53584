"""ixsmi of Iluvatar CoreX 3.x and 4.x: CSV query, XML log, device list, and its default table.

In: text, and the query's field names where the CSV has no header. Out: readings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from decodelab import telemetry_csv, telemetry_looks
from decodelab.telemetry_reading import Parsed, Reader, Reading, quantity

# A monitor's own lines after awk: a stamp, then temperature, power, memory used and total, utilisation.
_MONITOR = re.compile(r"([0-9]+C) ([0-9]+W) ([0-9]+MiB) ([0-9]+MiB) ([0-9]+%)")
_MONITORED = ("temp_c", "power_w", "mem_used_mib", "mem_total_mib", "util_pct")
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\S*")


def read(text: str, fields: Sequence[str]) -> Parsed:
    """Whatever ixsmi wrote, told apart by its look."""
    if (parsed := telemetry_looks.read(text, "ixsmi")) is not None:
        return parsed
    if any(_MONITOR.fullmatch(line.strip()) for line in text.split("\n")):
        return _monitor(text)
    return telemetry_csv.read(text, fields, "ixsmi")


def _monitor(text: str) -> Parsed:
    parsed = Parsed("ixsmi")
    stamp, row = None, 0
    for raw in text.split("\n"):
        line = raw.strip()
        if found := _MONITOR.fullmatch(line):
            reading = Reading(gpu=row, place=row, stamp=stamp)
            for metric, cell in zip(_MONITORED, found.groups(), strict=True):
                reading.values[metric] = quantity(metric, cell)
            parsed.readings.append(reading)
            row += 1
        elif _STAMP.fullmatch(line):
            stamp, row = line, 0
        elif line:
            parsed.messages.append(line[:200])
            row += bool(_HALF.match(line))  # a card whose line is broken still has its place
    return parsed


_HALF = re.compile(r"[0-9]+C\b")

READER = Reader(
    "ixsmi",
    re.compile(
        r"IX-ML:|<ixsmi_log|Iluvatar|gpu\.(?:current\.|default\.)?power|^ixsmi\b", re.MULTILINE
    ),
    re.compile(r"^[0-9]+C [0-9]+W [0-9]+MiB [0-9]+MiB [0-9]+%\s*$", re.MULTILINE),
    read,
)
