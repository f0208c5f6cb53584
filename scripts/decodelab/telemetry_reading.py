"""What every reader of SMI output gives: readings of the metrics of METRICS, in its units.

In: cells of a tool's text. Out: `Reading` (one accelerator at one moment), `Parsed` (one text). A
value that is missing is None, never 0; `reject` takes out what cannot be true and names it. Adding a
tool is one file with a `Reader`, entered in `telemetry.READERS`, and its samples."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
# Factors into the metric's unit, by the unit as printed, without case. "MB" and "GB" are powers of two
# in these tools: 65536 MB is a 64 GiB card (npu-smi), 196592 MB what the driver gives as MiB (amd-smi).
_MIB = {"mib": 1.0, "mb": 1.0, "gib": 1024.0, "gb": 1024.0, "kib": 1 / 1024, "b": 1 / (1 << 20)}
_WATT = {"w": 1.0, "mw": 0.001}
UNITS: dict[str, dict[str, float]] = {
    "util_pct": {"%": 1.0},
    "mem_used_mib": _MIB,
    "mem_total_mib": _MIB,
    "power_w": _WATT,
    "power_cap_w": _WATT,
    "temp_c": {"c": 1.0, "°c": 1.0, "℃": 1.0},
    "sm_mhz": {"mhz": 1.0},
    "mem_mhz": {"mhz": 1.0},
}
SENTINEL = 65535.0  # a 16-bit "unknown" that a dead card or an old driver prints as a value
SENTINEL_METRICS = ("power_w", "power_cap_w", "temp_c", "sm_mhz", "mem_mhz", "util_pct")
# Above these it is another column's number, or one in another unit.
LIMITS = {
    "temp_c": 150.0,
    "power_w": 5000.0,
    "power_cap_w": 5000.0,
    "sm_mhz": 30e3,
    "mem_mhz": 30e3,
}
NEVER_ZERO = ("power_w", "power_cap_w", "mem_total_mib")  # 0 there is a tool's "not known"
POWER_OVER_CAP = 1.5  # a draw above this multiple of the cap is a broken reading, not a peak

# Words that mean "not known". Compared without brackets and case; a token that was cut is one too.
NOT_KNOWN = frozenset({
    "", "-", "n/a", "na", "none", "err!", "not supported", "unknown error",
    "insufficient permissions", "gpu is lost",
    "gpu requires reset", "requested functionality has been deprecated", "not available",
})  # fmt: skip
_WHY_NOT = re.compile(r"(?<=\S)\s+\(.*")  # N/A (Secondary die)
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(\S*)")
UUID = re.compile(r"(?:GPU-)?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_UNIQUE = re.compile(r"(?:0x)?[0-9a-fA-F]{8,16}")  # rocm-smi's Unique ID
_OTHER_UUID = re.compile(r"(?=.*[A-Za-z])\w[\w.:/-]*")  # one word; a masked one (GPU-???) is none
UNSURE = "?"  # key of the readings whose accelerator cannot be told


class UnreadableSmi(ValueError):
    """Text in which no known SMI output was found; says what was looked for."""


@dataclass
class Reading:
    """One accelerator at one moment, as the tool printed it."""

    values: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(METRICS))
    gpu: int | None = None  # index as printed; may shift when a card is lost
    chip: int | None = None  # of a card with several, which may share one bus id
    place: int | None = None  # row within its text, of a form that prints no identity
    uuid: str | None = None
    bus: str | None = None
    serial: str | None = None  # of the board: the same on each of its dies
    board: str | None = None  # what else tells the board; None: the serial does
    name: str | None = None
    stamp: str | None = None  # the tool's own time text; local, without a zone
    processes: int | None = None  # that the tool lists on it; None: it lists none at all
    # metric -> what each field that may tell it says, best first; of these `telemetry_sources`
    # takes one for the whole capture
    told: dict[str, dict[str, float | None]] = field(default_factory=dict)
    of_board: dict[str, float | None] = field(default_factory=dict)  # the board's draw and cap
    power_of: str | None = None  # "die" or "board", where the tool's form says it
    accelerator: str | None = None  # its key in the capture, from `telemetry_identity`
    doubts: tuple[str, ...] = ()  # codes

    @property
    def key(self) -> str:
        """What tells one accelerator from another, whatever its index: UUID, bus id, then index."""
        if self.accelerator is not None:
            return self.accelerator
        card = self.uuid or self.bus or (UNSURE if self.gpu is None else str(self.gpu))
        return card if self.chip is None else f"{card}/{self.chip}"


@dataclass(frozen=True)
class Sample:
    """A reading and its place; `t` is the middle of the call on the capture's clock."""

    record: int
    t: float | None
    reading: Reading


def by_accelerator(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of each accelerator by its key, in the order in which they are first seen; those
    whose accelerator cannot be told are left out.
    """
    out: dict[str, list[Sample]] = {}
    for sample in samples:
        if (key := sample.reading.key) != UNSURE:
            out.setdefault(key, []).append(sample)
    return out


@dataclass
class Parsed:
    """What one text held."""

    tool: str
    readings: list[Reading] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class Reader(NamedTuple):
    """One tool: how its output is known, and what reads it.

    `banner` proves whose output it is; `form` is only its look, which another tool may share. `read`
    takes the text and the field names of a CSV without header, and raises `UnreadableSmi`.
    """

    tool: str
    banner: re.Pattern[str]
    form: re.Pattern[str]
    read: Callable[[str, Sequence[str]], Parsed]


def not_known(cell: str) -> bool:
    """Does this cell say that the value is not known?  A bracketed token that was cut counts."""
    text = cell.strip()
    word = _WHY_NOT.sub("", text) if "(" in text else text
    return text.startswith("[") or word.strip("[]").strip().lower() in NOT_KNOWN


def quantity(metric: str, cell: str, unit: str | None = None) -> float | None:
    """A number in the metric's unit; None if it is no number or has another thing's unit."""
    found = _NUMBER.fullmatch(cell.strip().removeprefix("(").removesuffix(")"))
    if found is None:
        return None
    written = (found[2] or unit or "").lower()
    factor = UNITS[metric].get(written) if written else 1.0
    value = float(found[1])
    if factor is None or not math.isfinite(value) or (value == 0 and metric in NEVER_ZERO):
        return None
    return value * factor


def has_unit(cell: str) -> bool:
    """A number with a whole unit: it was not cut."""
    found = _NUMBER.fullmatch(cell.strip())
    return found is not None and any(found[2].lower() in units for units in UNITS.values())


def index(cell: str) -> int | None:
    """A small whole number, as devices are counted; None for anything else."""
    return int(cell) if re.fullmatch(r"[0-9]{1,9}", cell) else None


def uuid_of(cell: str) -> str | None:
    """A UUID, or whatever one word a tool gives as one; None for a number, a quantity, a message."""
    text = cell.strip()
    if not_known(text):
        return None
    if UUID.fullmatch(text) or _UNIQUE.fullmatch(text):
        return text
    return text if _OTHER_UUID.fullmatch(text) and not has_unit(text) else None


def first_words(text: str) -> str:
    """What a text begins with, for the message that it could not be read."""
    line = next((x.strip() for x in text.splitlines() if x.strip()), "")
    return f"the text begins with {line[:100]!r}" if line else "the text is empty"


def reject(reading: Reading) -> list[dict[str, Any]]:
    """Set values that cannot be true to None and say which and why."""
    values, out = reading.values, []

    def drop(metric: str, why: str) -> None:
        if (value := values[metric]) is not None:
            whose = {"gpu": reading.gpu, "uuid": reading.uuid, "bus": reading.bus}
            out.append({**whose, "metric": metric, "value": value, "why": why})
            values[metric] = None

    dead = values["temp_c"] == 0 and values["util_pct"] == 100
    for metric in SENTINEL_METRICS:
        if (values[metric] or 0.0) >= SENTINEL:
            drop(metric, "sentinel")
    for metric, limit in LIMITS.items():
        if (values[metric] or 0.0) > limit:
            drop(metric, f"above {limit:g} {METRICS[metric][0]}")
    power, cap = values["power_w"], values["power_cap_w"]
    if power is not None and cap and power > POWER_OVER_CAP * cap:
        drop("power_w", f"above {POWER_OVER_CAP} x cap")
    if dead:
        drop("temp_c", "0 C with 100 %: a dead card")
        drop("util_pct", "0 C with 100 %: a dead card")
    if (values["util_pct"] or 0.0) > 100:
        drop("util_pct", "above 100 %")
    used, total = values["mem_used_mib"], values["mem_total_mib"]
    if used is not None and total is not None and used > total:
        drop("mem_used_mib", "used above total")
    return out
