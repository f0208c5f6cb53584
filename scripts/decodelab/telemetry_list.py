"""`-L` of ixsmi and nvidia-smi: who is there, without metrics.

In: text. Out: readings with index, name and UUID. MIG devices below a card are no accelerators here."""

from __future__ import annotations

import re

from decodelab.telemetry_reading import Parsed, Reading, index, uuid_of

_LISTED = re.compile(r"^GPU ([0-9]+): (\S.*?) \(UUID: (\S+)\)[ \t\r]*$", re.MULTILINE)


def is_list(text: str) -> bool:
    return _LISTED.search(text) is not None


def read(text: str, tool: str) -> Parsed:
    parsed = Parsed(tool)
    for line in text.split("\n"):
        if found := _LISTED.fullmatch(line):
            reading = Reading(gpu=index(found[1]), name=found[2], uuid=uuid_of(found[3]))
            parsed.readings.append(reading)
        elif line.strip():
            parsed.messages.append(line.strip()[:200])
    return parsed
