"""rocm-smi of AMD, and its port by Hygon (DCU, HCU): `--json`, `--csv` and the concise table.

In: text. Out: readings. Keys are told by name and unit, without case, since ROCm renames them:
`Average Graphics Package Power (W)` became `Current Socket Graphics Package Power (W)`; memory is in
B or MiB. Warnings may come before the JSON. A card of two dies shows its power on one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from decodelab import telemetry_csv, telemetry_json
from decodelab.telemetry_reading import (
    Parsed,
    Reader,
    Reading,
    UnreadableSmi,
    first_words,
    has_unit,
    index,
    not_known,
    quantity,
)

TOOL = "rocm-smi"
NAMES: telemetry_csv.Names = {
    "gpu": ("device",),
    "uuid": ("unique id",),
    "bus": ("pci bus",),
    "serial": ("serial number",),
    "name": ("card series", "device name"),
    "util_pct": ("gpu use", "dcu use", "hcu use"),
    "mem_used_mib": ("vram total used memory",),
    "mem_total_mib": ("vram total memory",),
    "power_w": ("current socket graphics package power", "average graphics package power"),
    "power_cap_w": ("max graphics package power",),
    "temp_c": ("temperature (sensor edge)", "temperature (sensor junction)"),
    "sm_mhz": ("sclk clock speed",),
    "mem_mhz": ("mclk clock speed",),
}
# the concise table's columns from Temp on; their cells carry the units
TABLE = {
    "Temp": "temp_c",
    "AvgPwr": "power_w",
    "Power": "power_w",
    "SCLK": "sm_mhz",
    "MCLK": "mem_mhz",
    "PwrCap": "power_cap_w",
    "GPU%": "util_pct",
    "DCU%": "util_pct",
    "HCU%": "util_pct",
}
_CARD = re.compile(r"card([0-9]{1,9})")
_TABLE = re.compile(r"^(?:GPU|DCU|HCU|Device)\s+.*\bTemp\b.*%", re.MULTILINE)


def read(text: str, fields: Sequence[str]) -> Parsed:
    """Whatever rocm-smi wrote, told apart by its look."""
    if '"card' in text:
        return _json(text)
    if _TABLE.search(text):
        return _table(text)
    return telemetry_csv.read(text, fields, TOOL, NAMES)


def _json(text: str) -> Parsed:
    documents, messages = telemetry_json.documents(text)
    parsed = Parsed(TOOL, messages=messages)
    for document in documents:
        for card, facts in document.items() if isinstance(document, dict) else ():
            if _CARD.fullmatch(card) and isinstance(facts, dict):
                cells: telemetry_csv.Cells = {"device": (card, None)}
                for key, value in facts.items():
                    name, unit = telemetry_csv.column(key) or (key, None)
                    cells.setdefault(name, (telemetry_json.text_of(value), unit))
                parsed.readings.append(telemetry_csv.reading_of(cells, NAMES))
    if not parsed.readings:
        raise UnreadableSmi(
            f'looked for a whole JSON document with "card0" and so on; {first_words(text)}'
        )
    return parsed


def _table(text: str) -> Parsed:
    """Rows are read from their right end: left of Temp names have spaces, and so has the header."""
    parsed = Parsed(TOOL)
    columns: list[str] = []
    whole, _, rest = text.rpartition("\n")
    for line in whole.split("\n"):
        words = line.replace(", ", ",").split()
        if _TABLE.match(line):
            columns = words[words.index("Temp") :]
        elif columns and _is_row(words, len(columns)):
            reading = Reading(gpu=index(words[0]))
            for name, cell in zip(columns, words[-len(columns) :], strict=True):
                if name in TABLE and not cell[-1].isdigit():  # all have a unit
                    reading.values[TABLE[name]] = quantity(TABLE[name], cell)
            parsed.readings.append(reading)
        elif line.strip() and not line.strip().startswith("=="):
            parsed.messages.append(line.strip()[:200])
    if rest.strip():
        parsed.messages.append(f"no line end, left out: {rest[:120]}")
    if not parsed.readings:
        raise UnreadableSmi("looked for the rows of a card in rocm-smi's table; found none whole")
    return parsed


def _is_row(words: list[str], columns: int) -> bool:
    """Whether a line's last words are this header's cells: its Temp is one, left of it are names."""
    if len(words) <= columns or index(words[0]) is None:
        return False
    temp, left = words[-columns], words[1:-columns]
    told = not_known(temp) or (has_unit(temp) and quantity("temp_c", temp) is not None)
    return told and not any(has_unit(word) for word in left)


READER = Reader(
    TOOL,
    re.compile(
        r'=+ (?:ROCm )?System Management Interface =+|"card[0-9]+":|^device,.*\(|^HCU\s|^DCU\s',
        re.MULTILINE,
    ),
    re.compile(r"(?!)"),  # its looks are its own
    read,
)
