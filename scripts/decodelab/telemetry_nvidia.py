"""nvidia-smi: CSV query (with or without header and units, single or loop), XML log, table, list.

In: text, and the query's field names where the CSV has no header. Out: readings. A message line
between rows (a lost GPU) is kept as a message; a row whose every cell is unknown is no reading. MIG
devices are no accelerators here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from decodelab import telemetry_csv, telemetry_list, telemetry_table, telemetry_xml
from decodelab.telemetry_reading import Parsed, Reader


def read(text: str, fields: Sequence[str]) -> Parsed:
    """Whatever nvidia-smi wrote, told apart by its look."""
    if telemetry_xml.is_log(text):
        return telemetry_xml.read(text, "nvidia-smi")
    if telemetry_table.is_table(text):
        return telemetry_table.read(text, "nvidia-smi")
    if telemetry_list.is_list(text):
        return telemetry_list.read(text, "nvidia-smi")
    return telemetry_csv.read(text, fields, "nvidia-smi")


READER = Reader(
    "nvidia-smi",
    re.compile(r"NVIDIA|<nvidia_smi_log|\(UUID: MIG-"),
    re.compile(
        r"\[(?:MiB|MHz|W|%)\]|^timestamp, |^[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9:.]+, |UUID: GPU-",
        re.MULTILINE,
    ),
    read,
)
