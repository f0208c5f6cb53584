"""`-q -x`, the XML log of nvidia-smi and ixsmi.

In: text. Out: readings, one per whole `<gpu>` element; a cut element gives none, and what comes twice
in one is not known. `gpu` is the element's place: the tools list cards in the order of their indices,
and the minor number is another thing (a container's only card may have 3). The die's own power is
read; the board's, which each of its dies prints alike, is put beside it for `telemetry_sources`."""

from __future__ import annotations

import bisect
import re
from xml.etree import ElementTree

from decodelab.telemetry_reading import (
    METRICS,
    Parsed,
    Reading,
    UnreadableSmi,
    not_known,
    quantity,
)

DIE_POWER = "power_readings/gpu_power_draw"  # of a form that tells dies from boards
PATHS: dict[str, tuple[str, ...]] = {
    "util_pct": ("utilization/gpu_util",),
    "mem_used_mib": ("memory_usage/used", "fb_memory_usage/used"),
    "mem_total_mib": ("memory_usage/total", "fb_memory_usage/total"),
    "power_w": (
        DIE_POWER,
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
_GPU_TAG = re.compile(r"<gpu\b")
_LOG = re.compile(r"<(?:ixsmi|nvidia_smi)_log|<timestamp>")
_STAMP = re.compile(r"<timestamp>([^<]*)</timestamp>")


def is_log(text: str) -> bool:
    return re.search(r"<(?:ixsmi|nvidia_smi)_log|<gpu\b", text) is not None


def read(text: str, tool: str) -> Parsed:
    parsed = Parsed(tool)
    stamps = [(m.start(), m[1].strip()) for m in _STAMP.finditer(text)]
    stamped = [at for at, _ in stamps]
    begins = [found.start() for found in _GPU_TAG.finditer(text)]
    logs = [found.start() for found in _LOG.finditer(text)]
    for match in _GPU.finditer(text):
        at = match.start()
        log = logs[bisect.bisect(logs, at) - 1] if logs and logs[0] < at else 0
        # cut and broken ones have their places
        place = bisect.bisect_left(begins, at) - bisect.bisect_left(begins, log)
        last = bisect.bisect_left(stamped, at) - 1
        stamp = stamps[last][1] if last >= 0 else None
        try:
            element = ElementTree.fromstring(match[0])
        except (ElementTree.ParseError, ValueError) as error:
            parsed.messages.append(f"a <gpu> element that is no XML: {error}")
            continue
        parsed.readings.append(_reading(element, place, stamp))
    cut = len(begins) - len(re.findall(r"</gpu>", text))
    if cut > 0:
        parsed.messages.append("a <gpu> element was cut and is left out")
    if not parsed.readings:
        raise UnreadableSmi("looked for a whole <gpu> element in the XML log; found none")
    return parsed


def _reading(element: ElementTree.Element, place: int, stamp: str | None) -> Reading:
    reading = Reading(
        gpu=place,
        uuid=_text(element, "uuid"),
        bus=element.get("id"),
        serial=_text(element, "serial"),
        name=_text(element, "product_name"),
        stamp=stamp,
        processes=_processes(element),
    )
    for metric in METRICS:
        told = {path: _quantity(element, metric, path) for path in PATHS[metric]}
        reading.values[metric] = next((v for v in told.values() if v is not None), None)
        if len(told) > 1:
            reading.told[metric] = told
    if element.find(DIE_POWER) is not None:
        reading.power_of = "die"
    board = {metric: _quantity(element, metric, path) for metric, path in BOARD_POWER.items()}
    if board["power_w"] is not None:
        reading.of_board = board
    return reading


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
