"""amd-smi: `metric --csv` and `metric --json`, once or in watch mode.

In: text, after a preamble or not; in watch mode with the header repeated and `timestamp` in whole epoch
seconds. Out: readings. List cells (`"['N/A', 'N/A']"`) hold commas. Its MB are MiB. The power cap is
no metric of it (`static --limit` tells it). Edge temperature, or the hot spot where there is no edge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from decodelab import telemetry_csv, telemetry_json
from decodelab.telemetry_reading import Parsed, Reader, UnreadableSmi, first_words

TOOL = "amd-smi"
# metric or identity -> columns of the CSV
COLUMNS: telemetry_csv.Names = {
    "gpu": ("gpu",),
    "stamp": ("timestamp",),
    "util_pct": ("gfx_activity",),
    "mem_used_mib": ("used_vram",),
    "mem_total_mib": ("total_vram",),
    "power_w": ("socket_power",),
    "temp_c": ("edge", "hotspot"),
    "sm_mhz": ("gfx_0_clk", "gfx_clk"),
    "mem_mhz": ("mem_0_clk", "mem_clk"),
}
# the same in the JSON: where each is in a card's object
PATHS: telemetry_csv.Names = {
    "gpu": ("gpu",),
    "stamp": ("timestamp",),
    "util_pct": ("usage.gfx_activity",),
    "mem_used_mib": ("mem_usage.used_vram",),
    "mem_total_mib": ("mem_usage.total_vram",),
    "power_w": ("power.socket_power", "power.average_socket_power"),
    "temp_c": ("temperature.edge", "temperature.hotspot"),
    "sm_mhz": ("clock.gfx_0.clk",),
    "mem_mhz": ("clock.mem_0.clk",),
}


def read(text: str, fields: Sequence[str]) -> Parsed:
    """Whatever amd-smi wrote, told apart by its look."""
    return _json(text) if '"gpu"' in text else telemetry_csv.read(text, fields, TOOL, COLUMNS)


def _json(text: str) -> Parsed:
    documents, messages = telemetry_json.documents(text)
    parsed = Parsed(TOOL, messages=messages)
    for document in documents:
        for card in _cards(document):
            cells = {
                path: cell for name in PATHS.values() for path in name if (cell := _at(card, path))
            }
            parsed.readings.append(telemetry_csv.reading_of(cells, PATHS))
    if not parsed.readings:
        raise UnreadableSmi(
            f'looked for a whole JSON document with objects that have "gpu"; {first_words(text)}'
        )
    return parsed


def _cards(document: Any) -> Iterator[dict[str, Any]]:
    """The objects of the cards: in a list, under "gpu_data", or one alone."""
    found = document.get("gpu_data", [document]) if isinstance(document, dict) else document
    for card in found if isinstance(found, list) else ():
        if isinstance(card, dict) and "gpu" in card:
            yield card


def _at(card: dict[str, Any], path: str) -> tuple[str, str | None] | None:
    """Cell and unit: a value is a text, a number or {"value", "unit"}."""
    value: Any = card
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    unit = None
    if isinstance(value, dict):
        value, unit = value.get("value"), telemetry_json.text_of(value.get("unit")) or None
    cell = telemetry_json.text_of(value)
    return (cell, unit) if cell else None


READER = Reader(
    TOOL,
    re.compile(
        r'AMD-?SMI|^(?:timestamp,)?gpu,.*(?:activity|power|clk|vram)|"(?:gfx_activity|socket_power)"',
        re.MULTILINE,
    ),
    re.compile(r"(?!)"),  # its looks are its own
    read,
)
