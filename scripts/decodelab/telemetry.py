"""SMI captures read: raw text of a vendor's tool -> samples, one per accelerator and call.

In: the text of one call (`read_text`), a file of any kind (`read_file`), or a run's capture
(`read_capture`: the `capture.jsonl` of the sampler or the published `ixsmi_*.json`). Out: readings
with the metrics of METRICS; a value that is missing is None, never 0; what cannot be true is
rejected, counted and named. One reader per tool (`telemetry_ixsmi`, `telemetry_nvidia`) over two
shapes (`telemetry_csv`, `telemetry_xml`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

METRICS: dict[str, tuple[str, str]] = {
    "util_pct": ("%", "share of the tool's own sampling period in which a kernel ran"),
    "mem_used_mib": ("MiB", "device memory in use"),
    "mem_total_mib": ("MiB", "device memory"),
    "power_w": ("W", "power draw of the die (of the board where it is a single-die one)"),
    "power_cap_w": ("W", "power limit in force"),
    "temp_c": ("C", "temperature of the device"),
    "sm_mhz": ("MHz", "clock of the compute units"),
    "mem_mhz": ("MHz", "clock of the memory"),
}
TOOLS = ("ixsmi", "nvidia-smi")
POWER_SENTINEL_W = 65535.0  # a 16-bit "unknown" that a dead card prints as its draw
POWER_OVER_CAP = 1.5  # a draw above this multiple of the cap is a broken reading, not a peak

# Words that mean "not known". Compared without brackets and case; a token that was cut is one too.
NOT_KNOWN = frozenset({
    "", "-", "n/a", "na", "none", "err!", "not supported", "unknown error",
    "insufficient permissions", "gpu is lost",
    "gpu requires reset", "requested functionality has been deprecated", "not available",
})  # fmt: skip


class UnreadableSmi(ValueError):
    """Text in which no known SMI output was found; says what was looked for."""


@dataclass
class Reading:
    """One accelerator at one moment, as the tool printed it."""

    values: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(METRICS))
    gpu: int | None = None  # index as printed; may shift when a card is lost
    uuid: str | None = None
    bus: str | None = None
    name: str | None = None
    stamp: str | None = None  # the tool's own time text; local, without a zone

    @property
    def key(self) -> str:
        """What tells one accelerator from another, whatever its index: UUID, bus id, then index."""
        return self.uuid or self.bus or ("?" if self.gpu is None else str(self.gpu))


@dataclass
class Parsed:
    """What one text held."""

    tool: str
    readings: list[Reading] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


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


def not_known(cell: str) -> bool:
    """Does this cell say that the value is not known?  A bracketed token that was cut counts."""
    text = cell.strip()
    return text.startswith("[") or text.strip("[]").strip().lower() in NOT_KNOWN


def read_text(
    text: str, tool: str | None = None, argv: Sequence[str] = (), fields: Sequence[str] = ()
) -> Parsed:
    """The readings of one text; `argv` or `fields` name the columns of a CSV without header."""
    from decodelab import telemetry_ixsmi, telemetry_nvidia  # they import this file's types

    readers: dict[str, Callable[[str, Sequence[str]], Parsed]] = {
        "ixsmi": telemetry_ixsmi.read,
        "nvidia-smi": telemetry_nvidia.read,
    }
    if tool is not None and tool not in readers:
        raise UnreadableSmi(f"tool {tool!r} is not known; known: {', '.join(readers)}")
    shown = detect(text, argv)
    if tool is not None and shown is not None and shown != tool:
        raise UnreadableSmi(f"asked to read {tool}, but this is the output of {shown}")
    parsed = readers[tool or shown or "nvidia-smi"](text, list(fields) or query_fields(argv))
    parsed.tool = tool or shown or "unknown"
    for reading in parsed.readings:
        parsed.rejected.extend(reject(reading))
    return parsed


def detect(text: str, argv: Sequence[str] = ()) -> str | None:
    """The tool that wrote this, by its banner, element or field names; None where the text does not
    say.
    """
    command = Path(argv[0]).name if argv else ""
    if (
        re.search(
            r"IX-ML:|<ixsmi_log|Iluvatar|gpu\.(?:current\.|default\.)?power|^ixsmi\b", text, re.M
        )
        or "ixsmi" in command
    ):
        return "ixsmi"
    if re.search(r"NVIDIA|<nvidia_smi_log", text) or "nvidia-smi" in command:
        return "nvidia-smi"
    return None


def query_fields(argv: Sequence[str]) -> list[str]:
    """The field names that the command line asked for."""
    for position, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name == "--query-gpu":
            given = value or (argv[position + 1] if position + 1 < len(argv) else "")
            return [item.strip() for item in given.split(",") if item.strip()]
    return []


def reject(reading: Reading) -> list[dict[str, Any]]:
    """Set values that cannot be true to None and say which and why."""
    values, out = reading.values, []

    def drop(metric: str, why: str) -> None:
        if values[metric] is not None:
            out.append(
                {
                    "gpu": reading.gpu,
                    "uuid": reading.uuid,
                    "metric": metric,
                    "value": values[metric],
                    "why": why,
                }
            )
            values[metric] = None

    power, cap = values["power_w"], values["power_cap_w"]
    used, total, util = values["mem_used_mib"], values["mem_total_mib"], values["util_pct"]
    if cap is not None and cap >= POWER_SENTINEL_W:
        drop("power_cap_w", "sentinel")
        cap = None
    if power is not None and power >= POWER_SENTINEL_W:
        drop("power_w", "sentinel")
    elif power is not None and cap and power > POWER_OVER_CAP * cap:
        drop("power_w", f"above {POWER_OVER_CAP} x cap")
    if values["temp_c"] == 0 and util == 100:
        drop("temp_c", "0 C with 100 %: a dead card")
        drop("util_pct", "0 C with 100 %: a dead card")
    if util is not None and util > 100:
        drop("util_pct", "above 100 %")
    if used is not None and total is not None and used > total:
        drop("mem_used_mib", "used above total")
    return out


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
    argv = [str(word) for word in header.get("argv") or []]
    capture = Capture(header, raw, [], [], messages)
    for position, record in enumerate(raw):
        _take(capture, position, record, use, argv)
    return capture


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
    capture: Capture, position: int, record: dict[str, Any], tool: str | None, argv: list[str]
) -> None:
    before, after = number(record.get("m0")), number(record.get("m1"))
    t = (
        (before + after) / 2
        if before is not None and after is not None
        else (before if after is None else after)
    )
    text = record.get("out")
    if not isinstance(text, str) or not text.strip():
        capture.messages.append(f"record {position}: no output (rc {record.get('rc')})")
        return
    try:
        parsed = read_text(text, tool, argv)
    except UnreadableSmi as error:
        capture.messages.append(f"record {position}: {error}")
        return
    capture.samples.extend(Sample(position, t, reading) for reading in parsed.readings)
    capture.rejected.extend({**item, "record": position} for item in parsed.rejected)
    capture.messages.extend(f"record {position}: {message}" for message in parsed.messages)
