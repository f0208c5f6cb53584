"""`-q -x`, the XML log of nvidia-smi and ixsmi.

In: text. Out: readings, one per whole `<gpu>` element; a cut element gives none. Of a board with
two dies the die's own power is taken: board power is printed once for each die and would count
twice."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from decodelab.telemetry import METRICS, Parsed, Reading, not_known
from decodelab.telemetry_csv import quantity

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
_GPU = re.compile(r"<gpu\b[^>]*>.*?</gpu>", re.S)
_STAMP = re.compile(r"<timestamp>([^<]*)</timestamp>")


def read(text: str, tool: str) -> Parsed:
    parsed = Parsed(tool)
    stamps = [(m.start(), m.group(1).strip()) for m in _STAMP.finditer(text)]
    for match in _GPU.finditer(text):
        try:
            element = ElementTree.fromstring(match.group(0))
        except ElementTree.ParseError as error:
            parsed.messages.append(f"a <gpu> element that is no XML: {error}")
            continue
        stamp = next((s for at, s in reversed(stamps) if at < match.start()), None)
        parsed.readings.append(_reading(element, len(parsed.readings), stamp))
    cut = len(re.findall(r"<gpu\b", text)) - len(re.findall(r"</gpu>", text))
    if cut > 0:
        parsed.messages.append("a <gpu> element was cut and is left out")
    return parsed


def _reading(element: ElementTree.Element, position: int, stamp: str | None) -> Reading:
    reading = Reading(stamp=stamp, bus=element.get("id"))
    minor = _text(element, "minor_number")
    reading.gpu = int(minor) if minor and minor.isascii() and minor.isdigit() else position
    reading.uuid = _text(element, "uuid")
    reading.name = _text(element, "product_name")
    for metric in METRICS:
        for path in PATHS[metric]:
            cell = _text(element, path)
            value = quantity(metric, cell) if cell is not None else None
            if value is not None:
                reading.values[metric] = value
                break
    return reading


def _text(element: ElementTree.Element, path: str) -> str | None:
    found = element.findtext(path)
    return None if found is None or not_known(found) else found.strip()
