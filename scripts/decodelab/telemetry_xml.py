"""`-q -x`, the XML log of nvidia-smi and ixsmi.

In: text. Out: readings, one per whole `<gpu>` element; a cut element gives none, and what comes twice
in one is not known. Of a board with two dies the die's own power is taken; where only the board's is
printed, on each die alike, the first die carries it and the other has none, as in ixsmi's table."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from decodelab.telemetry_reading import (
    METRICS,
    Parsed,
    Reading,
    UnreadableSmi,
    index,
    not_known,
    quantity,
)

PATHS: dict[str, tuple[str, ...]] = {
    "util_pct": ("utilization/gpu_util",),
    "mem_used_mib": ("memory_usage/used", "fb_memory_usage/used"),
    "mem_total_mib": ("memory_usage/total", "fb_memory_usage/total"),
    "power_w": (
        "power_readings/gpu_power_draw",
        "power_readings/power_draw",
        "gpu_power_readings/power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/instant_power_draw",
    ),
    "power_cap_w": (
        "power_readings/current_gpu_power_limit",
        "power_readings/enforced_power_limit",
        "power_readings/power_limit",
        "gpu_power_readings/current_power_limit",
    ),
    "temp_c": ("temperature/gpu_temp",),
    "sm_mhz": ("clocks/sm_clock",),
    "mem_mhz": ("clocks/mem_clock",),
}
BOARD_POWER = {
    "power_w": "power_readings/board_power_draw",
    "power_cap_w": "power_readings/current_board_power_limit",
}
_GPU = re.compile(r"<gpu\b[^>]*>.*?</gpu>", re.DOTALL)
_STAMP = re.compile(r"<timestamp>([^<]*)</timestamp>")


def is_log(text: str) -> bool:
    return re.search(r"<(?:ixsmi|nvidia_smi)_log|<gpu\b", text) is not None


def read(text: str, tool: str) -> Parsed:
    parsed = Parsed(tool)
    stamps = [(m.start(), m[1].strip()) for m in _STAMP.finditer(text)]
    boards: dict[str, list[tuple[Reading, ElementTree.Element]]] = {}
    for match in _GPU.finditer(text):
        try:
            element = ElementTree.fromstring(match[0])
        except (ElementTree.ParseError, ValueError) as error:
            parsed.messages.append(f"a <gpu> element that is no XML: {error}")
            continue
        stamp = next((s for at, s in reversed(stamps) if at < match.start()), None)
        reading = _reading(element, len(parsed.readings), stamp)
        parsed.readings.append(reading)
        if reading.serial:
            boards.setdefault(f"{reading.serial} {stamp}", []).append((reading, element))
    cut = len(re.findall(r"<gpu\b", text)) - len(re.findall(r"</gpu>", text))
    if cut > 0:
        parsed.messages.append("a <gpu> element was cut and is left out")
    for dies in boards.values():
        _once_a_board(parsed, dies)
    if not parsed.readings:
        raise UnreadableSmi("looked for a whole <gpu> element in the XML log; found none")
    return parsed


def _reading(element: ElementTree.Element, position: int, stamp: str | None) -> Reading:
    minor = index(_text(element, "minor_number") or "")
    reading = Reading(
        gpu=position if minor is None else minor,
        uuid=_text(element, "uuid"),
        bus=element.get("id"),
        serial=_text(element, "serial"),
        name=_text(element, "product_name"),
        stamp=stamp,
        processes=_processes(element),
    )
    for metric in METRICS:
        found = (_quantity(element, metric, path) for path in PATHS[metric])
        reading.values[metric] = next((value for value in found if value is not None), None)
    return reading


def _once_a_board(parsed: Parsed, dies: list[tuple[Reading, ElementTree.Element]]) -> None:
    """The draw of a board of which no die tells its own, on the first of its dies."""
    if any(reading.values["power_w"] is not None for reading, _ in dies):
        return
    first, element = dies[0]
    found = {metric: _quantity(element, metric, path) for metric, path in BOARD_POWER.items()}
    if found["power_w"] is not None:
        first.values.update(found)
        if len(dies) > 1:
            parsed.messages.append(
                f"{len(dies)} dies on board {first.serial}: its power is told once, at {first.key}"
            )


def _quantity(element: ElementTree.Element, metric: str, path: str) -> float | None:
    cell = _text(element, path)
    return None if cell is None else quantity(metric, cell)


def _text(element: ElementTree.Element, path: str) -> str | None:
    found = element.findall(path)
    cell = (found[0].text or "") if len(found) == 1 else ""  # twice: lines of two logs were mixed
    return None if not_known(cell) else cell.strip()


def _processes(element: ElementTree.Element) -> int | None:
    found = element.find("processes")
    if found is None or (found.text or "").strip():  # N/A
        return None
    return len(found.findall("process_info"))
