"""ixsmi of Iluvatar CoreX 3.x and 4.x: CSV query, XML log, device list, and its default table.

In: text, and the query's field names where the CSV has no header. Out: readings. The table is read
by its `|` cells with one pattern a cell, never by column number: cells are blank, `N/A / N/A` or
cut, and the width differs by version."""

from __future__ import annotations

import re
from collections.abc import Sequence

from decodelab import telemetry_csv, telemetry_xml
from decodelab.telemetry import Parsed, Reading, UnreadableSmi

_FIRST = re.compile(r"^(\d+)\s+(\S.*?)\s*$")  # index, name
_BUS = re.compile(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$")
_CLOCKS = re.compile(r"^(\d+)MHz\s+(\d+)MHz$")
_STATE = re.compile(
    r"^(?:\d+%|N/A)\s+(?P<temp>\d+C|N/A)\s+\S+\s+(?P<draw>[\d.]+W|N/A)\s*/\s*(?P<cap>\S+)$"
)
_MEMORY = re.compile(r"^(\d+)MiB\s*/\s*(\d+)MiB$")
_UTIL = re.compile(r"^(\d+)%(?:\s|$)")
_STAMP = re.compile(r"^Timestamp\s+(\S.*?)\s*$")
_LISTED = re.compile(r"^GPU (\d+): (\S.*?) \(UUID: (\S+)\)\s*$")
_UUID = re.compile(r"^GPU-[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")
_MONITOR = re.compile(
    r"^(\d+)C (\d+)W (\d+)MiB (\d+)MiB (\d+)%$"
)  # a monitor's own line: temp power used total util
_FRAME = re.compile(r"^[|+][-=+|]*$|^\|[^|]*\|$|^\s*$")


def read(text: str, fields: Sequence[str]) -> Parsed:
    """Whatever ixsmi wrote, told apart by its look."""
    if "<ixsmi_log" in text or re.search(r"<gpu\b", text):
        parsed = telemetry_xml.read(text, "ixsmi")
        if not parsed.readings:
            raise UnreadableSmi("looked for a whole <gpu> element in the XML log; found none")
        return parsed
    lines = text.split("\n")
    if any(line.startswith("|") for line in lines):
        return _table(lines)
    if any(_LISTED.match(line) or _MONITOR.match(line.rstrip("\r")) for line in lines[:20]):
        return _lines(lines)
    return telemetry_csv.read(text, fields, "ixsmi")


def _table(lines: list[str]) -> Parsed:
    parsed = Parsed("ixsmi")
    stamp: str | None = None
    half: tuple[Reading, int] | None = None  # the first of a card's two rows, and its cells
    for raw in lines:
        line = raw.rstrip()
        cells = _cells(line)
        found = _STAMP.match(line)
        if found:
            stamp = found.group(1)
        elif len(cells) >= 2 and _FIRST.match(cells[0]) and _BUS.match(cells[1]):
            half = _first_row(cells, stamp), len(cells)
        elif half is not None and len(cells) == half[1] and _MEMORY.match(cells[1]):
            _second_row(half[0], cells)
            parsed.readings.append(half[0])
            half = None
        elif len(cells) >= 2 and _STATE.match(cells[0]):
            parsed.messages.append(f"half a row: {line[:120]}")
        elif line.startswith("+") and half is not None:
            parsed.messages.append(f"half a card: {half[0].gpu} {half[0].bus}")
            half = None
        elif line and not line.startswith(("|", "+")):
            parsed.messages.append(line[:200])
    if half is not None:
        parsed.messages.append(f"half a card: {half[0].gpu} {half[0].bus}")
    if not parsed.readings:
        raise UnreadableSmi("looked for the two rows of a card in ixsmi's table; found none whole")
    return parsed


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if _is_row(line) else []


def _is_row(line: str) -> bool:
    """A whole row of cells: begins and ends with a bar. A row that was cut proves nothing."""
    return (
        line.startswith("|")
        and line.endswith("|")
        and line.count("|") >= 3
        and not _FRAME.match(line)
    )


def _first_row(cells: list[str], stamp: str | None) -> Reading:
    reading = Reading(stamp=stamp, bus=cells[1])
    found = _FIRST.match(cells[0])
    if found:
        reading.gpu, reading.name = int(found.group(1)), found.group(2)
    clocks = _CLOCKS.match(cells[2]) if len(cells) > 2 else None
    if clocks:
        reading.values["sm_mhz"], reading.values["mem_mhz"] = (
            float(clocks.group(1)),
            float(clocks.group(2)),
        )
    return reading


def _second_row(reading: Reading, cells: list[str]) -> None:
    values = reading.values
    state = _STATE.match(cells[0])
    if state:
        values["temp_c"] = _measured("temp_c", state.group("temp"))
        values["power_w"] = _measured("power_w", state.group("draw"))
        cap = state.group("cap")  # without its unit it may have been cut in its digits
        values["power_cap_w"] = _measured("power_cap_w", cap) if cap.endswith("W") else None
    memory = _MEMORY.match(cells[1])
    if memory:
        values["mem_used_mib"], values["mem_total_mib"] = (
            float(memory.group(1)),
            float(memory.group(2)),
        )
    util = _UTIL.match(cells[2]) if len(cells) > 2 else None
    if util:
        values["util_pct"] = float(util.group(1))


def _measured(metric: str, cell: str) -> float | None:
    return telemetry_csv.quantity(metric, cell)


def _lines(lines: list[str]) -> Parsed:
    """`ixsmi -L` (who is there, no metrics), or a monitor's lines of temperature, power, memory and
    utilisation.
    """
    parsed = Parsed("ixsmi")
    stamp, row = None, 0
    for raw in lines:
        line = raw.rstrip()
        listed, monitored = _LISTED.match(line), _MONITOR.match(line)
        if listed:
            uuid = listed.group(3)
            parsed.readings.append(
                Reading(
                    gpu=int(listed.group(1)),
                    name=listed.group(2),
                    uuid=uuid if _UUID.match(uuid) else None,
                )
            )
        elif monitored:
            reading = Reading(gpu=row, stamp=stamp)
            row += 1
            names = ("temp_c", "power_w", "mem_used_mib", "mem_total_mib", "util_pct")
            reading.values.update(
                {n: float(v) for n, v in zip(names, monitored.groups(), strict=True)}
            )
            parsed.readings.append(reading)
        elif line:
            stamp, row = (line, 0) if re.match(r"^\d{4}-\d\d-\d\d", line) else (stamp, row)
            if stamp != line:
                parsed.messages.append(line[:200])
    return parsed
