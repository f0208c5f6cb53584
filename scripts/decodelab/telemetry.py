"""SMI captures read: raw text of a vendor's tool -> samples, one per accelerator and call.

In: the text of one call (`read_text`), a file of any kind (`read_file`), or a run's capture
(`read_capture`: the `capture.jsonl` of the sampler or the published `ixsmi_*.json`). Out: readings
with the metrics of METRICS; a value that is missing is None, never 0; what cannot be true is
rejected, counted and named. Which accelerator a reading is of, and from which of a tool's fields a
metric is taken, is settled over all records of a capture. READERS is the one list of the tools that
are read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodelab import (
    telemetry_amd,
    telemetry_boards,
    telemetry_identity,
    telemetry_ixsmi,
    telemetry_npu,
    telemetry_nvidia,
    telemetry_rocm,
    telemetry_sources,
)
from decodelab.telemetry_reading import (
    METRICS,
    Parsed,
    Reader,
    Reading,
    Sample,
    UnreadableSmi,
    by_accelerator,
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
    "by_accelerator",
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
BOM = "\ufeff"  # some shells put one before each output
_PROCESS_LIST = re.compile(r"^\|[ \w|]*\bProcess(?:es:| id\b).*", re.MULTILINE)
_PROCESS_NAMES = re.compile(r"<process_name>[^<]*")
SCHEMA = "decodelab.capture/"
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
    """A JSON number as float; None for anything else (true is no number, nor is one that no float
    holds).
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def read_text(
    text: str, tool: str | None = None, argv: Sequence[str] = (), fields: Sequence[str] = ()
) -> Parsed:
    """The readings of one text; `argv` or `fields` name the columns of a CSV without header."""
    parsed = _parse(text, tool, argv, fields)
    parsed.messages.extend(telemetry_sources.settle(parsed.readings))
    for reading in parsed.readings:
        parsed.rejected.extend(reject(reading))
    return parsed


def _parse(text: str, tool: str | None, argv: Sequence[str], fields: Sequence[str]) -> Parsed:
    """What one text says, before the fields are chosen and what cannot be true is taken out."""
    if tool is not None and tool not in READERS:
        raise UnreadableSmi(f"tool {tool!r} is not known; known: {', '.join(READERS)}")
    text = text.replace("\r\n", "\n").replace(BOM, "")
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
    return parsed


def detect(text: str, argv: Sequence[str] = ()) -> str | None:
    """The tool that wrote this, by the first banner in it, else by the command that was run; None
    where neither says.
    """
    own = _own_words(text)
    banners = {tool: reader.banner.search(own) for tool, reader in READERS.items()}
    found = {tool: banner.start() for tool, banner in banners.items() if banner is not None}
    if found:
        return min(found, key=lambda tool: found[tool])
    command = Path(argv[0]).name if argv and _foreign(text) is None else ""
    return next((tool for tool in READERS if tool in command), None)


def _foreign(text: str) -> str | None:
    own = _own_words(text)
    found = (name for name, banner in FOREIGN.items() if re.search(banner, own, re.MULTILINE))
    return next(found, None)


def _own_words(text: str) -> str:
    """Without the processes: their paths hold any word, also the name of another tool's vendor."""
    return _PROCESS_NAMES.sub("", _PROCESS_LIST.split(text, 1)[0])


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
    text = path.read_bytes().decode("utf-8", errors="replace").removeprefix(BOM)
    capture = capture_of(text, tool)
    if capture is None:
        parsed = read_text(text, tool, fields=fields)
        return parsed, [reading.stamp for reading in parsed.readings]
    if not capture.samples and any(map(_text_of, capture.records)):
        why = next(iter(capture.messages), "looked for rows under the headers; found none")
        raise UnreadableSmi(f"no record of the capture could be read; {why}")
    known = tool or capture.header.get("tool") or "unknown"
    parsed = Parsed(
        str(known), [s.reading for s in capture.samples], capture.rejected, capture.messages
    )
    return parsed, [s.t for s in capture.samples]


def read_capture(path: Path) -> Capture:
    """The capture of one run, from `capture.jsonl` or a published JSON document."""
    text = path.read_bytes().decode("utf-8", errors="replace").removeprefix(BOM)
    capture = capture_of(text, None)
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
    _settle(capture)
    return capture


def _settle(capture: Capture) -> None:
    """What only all records together tell: who is who, which fields are read, whose draw it is."""
    records: dict[int, list[Reading]] = {}
    for sample in capture.samples:
        records.setdefault(sample.record, []).append(sample.reading)
    telemetry_identity.resolve(list(records.values()))
    capture.messages.extend(telemetry_sources.settle(s.reading for s in capture.samples))
    for sample in capture.samples:
        found = reject(sample.reading)
        capture.rejected.extend({**item, "record": sample.record} for item in found)
    telemetry_boards.mark_unsure(capture.samples)


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _document(text: str) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]] | None:
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if _is_header(whole) and isinstance(whole.get("records"), list):
        header = {key: value for key, value in whole.items() if key != "records"}
        return header, [r for r in whole["records"] if isinstance(r, dict)], []
    lines = text.split("\n")
    try:
        first = json.loads(lines[0])
    except ValueError:
        return None
    if not _is_header(first):
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


def _is_header(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("schema", "")).startswith(SCHEMA)


def _text_of(record: dict[str, Any]) -> str | None:
    text = record.get("out")
    return text if isinstance(text, str) and text.strip() else None


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
    text = _text_of(record)
    said = " ".join(f"{record.get('trouble') or ''} {record.get('err') or ''}".split())
    if text is None:
        why = f": {said[:200]}" if said else ""
        capture.messages.append(f"record {position}: no output (rc {record.get('rc')}){why}")
        return
    if said:
        capture.messages.append(f"record {position}: {said[:200]}")
    try:
        parsed = _parse(text, *how)
    except UnreadableSmi as error:
        capture.messages.append(f"record {position}: {error}")
        return
    capture.samples.extend(Sample(position, t, reading) for reading in parsed.readings)
    capture.messages.extend(f"record {position}: {message}" for message in parsed.messages)
