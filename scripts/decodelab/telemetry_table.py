"""The default table of ixsmi and nvidia-smi: two rows a card between rules, then the processes.

In: text. Out: readings. Read by its `|` cells with one pattern a cell, never by column number: cells
are blank, `N/A / N/A` or cut, and the width differs by version. A card is its two rows with nothing
of another card between them; half a card is none."""

from __future__ import annotations

import re
from collections import Counter

from decodelab.telemetry_csv import BUS
from decodelab.telemetry_reading import Parsed, Reading, UnreadableSmi, index, quantity

_NAME = re.compile(r"([0-9]+)\s+(\S.*?)(?:\s+(?:On|Off|N/A))?")  # index, name, persistence mode
_CLOCKS = re.compile(r"([0-9]+MHz)\s+([0-9]+MHz)")
_STATE = re.compile(
    r"(?:[0-9]+%|N/A|ERR!)\s+(?P<temp>[0-9]+C|N/A|ERR!)\s+\S+\s+(?P<draw>[0-9.]+W|N/A|ERR!|Unknown Error)"
    r"\s*/\s*(?P<cap>\S+)"
)
_MEMORY = re.compile(r"([0-9]+MiB|N/A|Unknown Error)\s*/\s*([0-9]+MiB|N/A|Unknown Error)")
_UTIL = re.compile(r"([0-9]+%)(?:\s.*)?")
_STAMP = re.compile(r"Timestamp\s+(\S.*?)|(\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})")
_PROCESS = re.compile(r"\|\s+([0-9]+)\s+\S.*\|")


def is_table(text: str) -> bool:
    return re.search(r"^\|.*\|.*\|", text, re.MULTILINE) is not None


def read(text: str, tool: str) -> Parsed:
    head, heading, tail = text.partition("Processes:")
    table = _Table(Parsed(tool))
    for raw in head.split("\n"):
        table.line(raw.rstrip())
    table.end()
    parsed = table.parsed
    if not parsed.readings:
        raise UnreadableSmi(
            f"looked for the two rows of a card in {tool}'s table; found none whole"
        )
    if heading:
        _processes(parsed, tail)
    return parsed


class _Table:
    """The rows so far, and the first of a card's two rows while its second is awaited."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.stamp: str | None = None
        self.half: tuple[Reading, int] | None = None  # with the number of its cells
        self.mixed = False  # rows of two cards in one place: none of them is taken

    def line(self, line: str) -> None:
        cells = _cells(line)
        if found := _STAMP.fullmatch(line):
            self.stamp = found[1] or found[2]
        elif len(cells) >= 2 and (first := _first_row(cells)):
            self.mixed = self.mixed or self.half is not None
            self.end()
            first.stamp = self.stamp
            self.half = first, len(cells)
        elif len(cells) >= 2 and _MEMORY.fullmatch(cells[1]):
            self._second(cells, line)
        elif line.startswith("+"):
            self.end()
            self.mixed = False
        elif line and not line.startswith("|"):
            self.parsed.messages.append(line[:200])

    def _second(self, cells: list[str], line: str) -> None:
        if self.half is None or self.mixed or len(cells) != self.half[1]:
            self.parsed.messages.append(f"half a row: {line[:120]}")
            return
        _second_row(self.half[0], cells)
        self.parsed.readings.append(self.half[0])
        self.half = None

    def end(self) -> None:
        if self.half is not None:
            reading = self.half[0]
            self.parsed.messages.append(f"half a card: {reading.gpu} {reading.bus}")
        self.half = None


def _cells(line: str) -> list[str]:
    """The cells of a whole row, which begins and ends with a bar; a row that was cut proves nothing."""
    whole = line.startswith("|") and line.endswith("|") and line.count("|") >= 3
    return [cell.strip() for cell in line.strip("|").split("|")] if whole else []


def _first_row(cells: list[str]) -> Reading | None:
    named, bus = _NAME.fullmatch(cells[0]), cells[1].removesuffix("Off").removesuffix("On").strip()
    if not named or not BUS.fullmatch(bus):
        return None
    reading = Reading(gpu=index(named[1]), name=named[2], bus=bus)
    clocks = _CLOCKS.fullmatch(cells[2]) if len(cells) > 2 else None
    if clocks:
        reading.values["sm_mhz"] = quantity("sm_mhz", clocks[1])
        reading.values["mem_mhz"] = quantity("mem_mhz", clocks[2])
    return reading


def _second_row(reading: Reading, cells: list[str]) -> None:
    values = reading.values
    if state := _STATE.fullmatch(cells[0]):
        values["temp_c"] = quantity("temp_c", state["temp"])
        values["power_w"] = quantity("power_w", state["draw"])
        cap = state["cap"]  # without its unit it may have been cut in its digits
        values["power_cap_w"] = quantity("power_cap_w", cap) if cap.endswith("W") else None
    if memory := _MEMORY.fullmatch(cells[1]):
        values["mem_used_mib"] = quantity("mem_used_mib", memory[1])
        values["mem_total_mib"] = quantity("mem_total_mib", memory[2])
    if util := _UTIL.fullmatch(cells[2]) if len(cells) > 2 else None:
        values["util_pct"] = quantity("util_pct", util[1])


def _processes(parsed: Parsed, tail: str) -> None:
    """How many processes are listed on each card; not known unless the list is whole."""
    body = tail.partition("=|\n")[2]
    lines, rule, _ = body.partition("\n+--")
    if rule:
        count = Counter(index(found[1]) for found in _PROCESS.finditer(lines))
        for reading in parsed.readings:
            reading.processes = count[reading.gpu]
