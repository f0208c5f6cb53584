"""nvidia-smi: CSV query (with or without header and units, single or loop), XML log, table, list.

In: text, and the query's field names where the CSV has no header. Out: readings. A message line
between rows (a lost GPU) is kept as a message; a row whose every cell is unknown is no reading. MIG
devices are no accelerators here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from decodelab import telemetry_csv, telemetry_looks
from decodelab.telemetry_reading import Parsed, Reader


def read(text: str, fields: Sequence[str]) -> Parsed:
    """Whatever nvidia-smi wrote, told apart by its look."""
    parsed = telemetry_looks.read(text, "nvidia-smi")
    return parsed if parsed is not None else telemetry_csv.read(text, fields, "nvidia-smi")


READER = Reader(
    "nvidia-smi",
    re.compile(r"NVIDIA|<nvidia_smi_log|\(UUID: MIG-"),
    re.compile(
        r"\[(?:MiB|MHz|W|%)\]|^timestamp, |^[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9:.]+, |UUID: GPU-",
        re.MULTILINE,
    ),
    read,
)
