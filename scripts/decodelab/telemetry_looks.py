"""The looks that ixsmi and nvidia-smi share: XML log, default table, device list.

In: text and the tool's name. Out: readings; None for any other look.
"""

from __future__ import annotations

from decodelab import telemetry_list, telemetry_table, telemetry_xml
from decodelab.telemetry_reading import Parsed


def read(text: str, tool: str) -> Parsed | None:
    if telemetry_xml.is_log(text):
        return telemetry_xml.read(text, tool)
    if telemetry_table.is_table(text):
        return telemetry_table.read(text, tool)
    if telemetry_list.is_list(text):
        return telemetry_list.read(text, tool)
    return None
