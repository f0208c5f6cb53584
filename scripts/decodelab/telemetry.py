"""SMI captures read: raw text of a vendor's tool -> samples, one per accelerator and call.

In: the text of one call (`read_text`), a file of any kind (`read_file`), or a run's capture
(`read_capture`: the `capture.jsonl` of the sampler or the published `ixsmi_*.json`). Out: readings
with the metrics of METRICS; a value that is missing is None, never 0; what cannot be true is
rejected, counted and named. READERS is the one list of the tools that are read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodelab import (
    telemetry_amd,
    telemetry_ixsmi,
    telemetry_npu,
    telemetry_nvidia,
    telemetry_rocm,
)
from decodelab.telemetry_reading import (
    METRICS,
    Parsed,
    Reader,
    Reading,
    UnreadableSmi,
    first_words,
    not_known,
    reject,
)

__all__ = [
    "METRICS",
    "READERS",
    "TOOLS",
    "Capture",
    "Parsed",
    "Reading",
    "Sample",
    "UnreadableSmi",
    "capture_of",
    "detect",
    "not_known",
    "number",
    "query_fields",
    "read_capture",
    "read_file",
    "read_text",
    "reject",
]

READERS: dict[str, Reader] = {
    module.READER.tool: module.READER
    for module in (telemetry_ixsmi, telemetry_nvidia, telemetry_npu, telemetry_rocm, telemetry_amd)
}
TOOLS = tuple(READERS)
# Tools that are not read, by their banner. Some share their command's name or their table's shape.
FOREIGN = {
    "mx-smi of MOFFETT": r"MOFFETT-SMI",
    "mx-smi of MetaX": r"MX-SMI|mx-smi\s+version|MetaX System Management",
    "ht-smi, MetaX's under another name": r"HT-SMI|ht-smi\s+version",
    "cnmon of Cambricon": r"CNMON",
    "efsmi of Enflame": r"Enflame System Management",
    "mthreads-gmi of Moore Threads": r"mthreads-gmi|MTT S[0-9]+",
    "xpu-smi of Intel": r"^Timestamp, +DeviceId",
    "xpu_smi of Kunlunxin": r"XPU-SMI|\"P800 OAM\"",
    "hl-smi of Habana": r"HL-SMI",
}


@dataclass(frozen=True)
class Sample:
    """A reading and its place; `t` is the middle of the call on the capture's clock."""

    record: int
    t: float | None
    reading: Reading


@dataclass
class Capture:
    header: dict[str, Any]
    records: list[dict[str, Any]]
    samples: list[Sample]
    rejected: list[dict[str, Any]]
    messages: list[str]

    @property
    def monotonic(self) -> bool:
        """True if the stamps are CLOCK_MONOTONIC of the client's machine; else they are relative or
        unknown.
        """
        clock = self.header.get("clock")
        return isinstance(clock, dict) and number(clock.get("monotonic_s")) is not None

    @property
    def interval_s(self) -> float | None:
        return number(self.header.get("interval_s"))


def number(value: Any) -> float | None:
    """A JSON number as float; None for anything else (true is no number)."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def read_text(
    text: str, tool: str | None = None, argv: Sequence[str] = (), fields: Sequence[str] = ()
) -> Parsed:
    """The readings of one text; `argv` or `fields` name the columns of a CSV without header."""
    if tool is not None and tool not in READERS:
        raise UnreadableSmi(f"tool {tool!r} is not known; known: {', '.join(READERS)}")
    text = text.replace("\r\n", "\n")
    shown = detect(text, argv)
    foreign = _foreign(text) if shown is None else None
    if foreign:
        raise UnreadableSmi(
            f"this is the output of {foreign}, which is not read; looked for the output of "
            f"{tool or ', '.join(READERS)}; {first_words(text)}"
        )
    if tool is not None and shown is not None and shown != tool:
        raise UnreadableSmi(
            f"looked for the output of {tool}, but this is the output of {shown}; {first_words(text)}"
        )
    known = tool or shown or next((n for n, r in READERS.items() if r.form.search(text)), None)
    parsed = READERS[known or "nvidia-smi"].read(text, list(fields) or query_fields(argv))
    parsed.tool = known or "unknown"
    for reading in parsed.readings:
        parsed.rejected.extend(reject(reading))
    return parsed


def detect(text: str, argv: Sequence[str] = ()) -> str | None:
    """The tool that wrote this, by its banner, else by the command that was run; None where neither
    says.
    """
    for tool, reader in READERS.items():
        if reader.banner.search(text):
            return tool
    command = Path(argv[0]).name if argv and _foreign(text) is None else ""
    return next((tool for tool in READERS if tool in command), None)


def _foreign(text: str) -> str | None:
    found = (name for name, banner in FOREIGN.items() if re.search(banner, text, re.MULTILINE))
    return next(found, None)


def query_fields(argv: Sequence[str]) -> list[str]:
    """The field names that the command line asked for."""
    for position, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name == "--query-gpu":
            given = value or (argv[position + 1] if position + 1 < len(argv) else "")
            return [item.strip() for item in given.split(",") if item.strip()]
    return []


def read_file(
    path: Path, tool: str | None = None, fields: Sequence[str] = ()
) -> tuple[Parsed, list[float | str | None]]:
    """Any file that holds SMI output: plain text or a capture. Each reading comes with its time
    (stamp or seconds).
    """
    text = path.read_bytes().decode("utf-8", errors="replace")
    capture = capture_of(text, tool)
    if capture is None:
        parsed = read_text(text, tool, fields=fields)
        return parsed, [reading.stamp for reading in parsed.readings]
    known = tool or capture.header.get("tool") or "unknown"
    parsed = Parsed(
        str(known), [s.reading for s in capture.samples], capture.rejected, capture.messages
    )
    return parsed, [s.t for s in capture.samples]


def read_capture(path: Path) -> Capture:
    """The capture of one run, from `capture.jsonl` or a published JSON document."""
    capture = capture_of(path.read_bytes().decode("utf-8", errors="replace"), None)
    if capture is None:
        raise UnreadableSmi(
            f"{path}: no capture: looked for a JSON header with a schema decodelab.capture/1"
        )
    return capture


def capture_of(text: str, tool: str | None) -> Capture | None:
    """The capture that this text holds, or None if it is no capture."""
    found = _document(text)
    if found is None:
        return None
    header, raw, messages = found
    use = tool or (str(header["tool"]) if header.get("tool") in TOOLS else None)
    argv = _words(header.get("argv"))
    fields = query_fields(argv) or _words(header.get("fields"))
    capture = Capture(header, raw, [], [], messages)
    for position, record in enumerate(raw):
        _take(capture, position, record, (use, argv, fields))
    return capture


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _document(text: str) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]] | None:
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("records"), list):
        header = {key: value for key, value in whole.items() if key != "records"}
        return header, [r for r in whole["records"] if isinstance(r, dict)], []
    lines = text.split("\n")
    try:
        first = json.loads(lines[0])
    except ValueError:
        return None
    if not isinstance(first, dict) or not str(first.get("schema", "")).startswith(
        "decodelab.capture/"
    ):
        return None
    records, messages = [], []
    for line_number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            messages.append(f"line {line_number}: cut, left out")
            continue
        if isinstance(record, dict):
            records.append(record)
    return first, records, messages


def _take(
    capture: Capture,
    position: int,
    record: dict[str, Any],
    how: tuple[str | None, list[str], list[str]],
) -> None:
    before, after = number(record.get("m0")), number(record.get("m1"))
    t = (
        (before + after) / 2
        if before is not None and after is not None
        else (before if after is None else after)
    )
    text, said = (
        record.get("out"),
        " ".join(f"{record.get('trouble') or ''} {record.get('err') or ''}".split()),
    )
    if not isinstance(text, str) or not text.strip():
        why = f": {said[:200]}" if said else ""
        capture.messages.append(f"record {position}: no output (rc {record.get('rc')}){why}")
        return
    if said:
        capture.messages.append(f"record {position}: {said[:200]}")
    try:
        parsed = read_text(text, *how)
    except UnreadableSmi as error:
        capture.messages.append(f"record {position}: {error}")
        return
    capture.samples.extend(Sample(position, t, reading) for reading in parsed.readings)
    capture.rejected.extend({**item, "record": position} for item in parsed.rejected)
    capture.messages.extend(f"record {position}: {message}" for message in parsed.messages)
