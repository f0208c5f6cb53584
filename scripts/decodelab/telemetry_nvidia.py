"""nvidia-smi: CSV query (with or without header and units, single or loop), XML log, device list.

In: text, and the query's field names where the CSV has no header. Out: readings. A message line
between rows (a lost GPU) is kept as a message; a row whose every cell is unknown is no reading. MIG
sub-devices are no accelerators here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from decodelab import telemetry_csv, telemetry_xml
from decodelab.telemetry import Parsed, Reading, UnreadableSmi

_LISTED = re.compile(r"^GPU (\d+): (\S.*?) \(UUID: (GPU-[0-9a-fA-F-]{36})\)\s*$")
_TABLE = re.compile(r"^\| +NVIDIA-SMI |^\+-{20,}", re.M)


def read(text: str, fields: Sequence[str]) -> Parsed:
    if "<nvidia_smi_log" in text or re.search(r"<gpu\b", text):
        parsed = telemetry_xml.read(text, "nvidia-smi")
        if not parsed.readings:
            raise UnreadableSmi("looked for a whole <gpu> element in the XML log; found none")
        return parsed
    if _TABLE.search(text):
        raise UnreadableSmi(
            "nvidia-smi's table is not read: sample it with --query-gpu=... --format=csv, or -q -x"
        )
    listed = [_LISTED.match(line) for line in text.split("\n")]
    if any(listed):
        rows = [m for m in listed if m is not None]
        others = [
            x.strip()
            for x, m in zip(text.split("\n"), listed, strict=True)
            if m is None and x.strip()
        ]
        readings = [Reading(gpu=int(m.group(1)), name=m.group(2), uuid=m.group(3)) for m in rows]
        return Parsed("nvidia-smi", readings, messages=others)
    return telemetry_csv.read(text, fields, "nvidia-smi")
