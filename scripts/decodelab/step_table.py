"""The table of a step profile: where a step's time goes, whatever the profile came from.

In: rows that a reader made (`step_events`, `step_trace`, `step_plain`). Out: `Profile`, and its JSON
{"schema": "decodelab.step_profile/1", ...}, which `scripts/read_profile.py` prints and the report reads.
What is not known is None, never 0. Times are milliseconds a step.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar

SCHEMA = "decodelab.step_profile/1"
T = TypeVar("T")
LARGEST = 1e300  # of a figure that can still be shown; a whole number may be larger than any float


@dataclass(frozen=True)
class Region:
    """One region of the step; its time is exclusive."""

    region: str
    calls_per_step: float | None  # median
    ms_p50: float | None
    ms_p90: float | None
    ms_mean: float | None
    share: float | None = None  # of the step's time, from the means; None: not to be stated
    ceiling: float | None = None  # 1 / (1 - share): how much faster the step, were the region free
    wait_ms: float | None = None  # of a collective: mean wait for the slowest rank
    transfer_ms: float | None = None  # of a collective: the rest
    total_ms: float | None = None  # over all that was read: where no steps are told, the only time


@dataclass(frozen=True)
class Kernel:
    name: str
    category: str
    calls_per_step: float | None
    ms_per_step: float | None
    share: float | None  # of the device's busy time
    total_ms: float | None = None  # over all that was read
    total_calls: float | None = None


@dataclass(frozen=True)
class Table:
    """The steps of one phase on one rank; rank None: all ranks together (mean)."""

    phase: str  # prefill, decode, mixed; all: not told apart
    rank: int | None
    steps: int | None
    step_ms_p50: float | None
    step_ms_p90: float | None
    step_ms_mean: float | None
    regions: tuple[Region, ...]
    closure: float | None = None  # (sum of regions - step) / step, from the means
    total_ms: float | None = None  # over all that was read


@dataclass(frozen=True)
class Problem:
    """What makes a profile invalid, or a doubt about it; `figures` fill the catalogue's text of `code`."""

    code: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    source: str  # events, trace, regions (a plain table of regions), kernels (of kernels)
    mode: str | None  # event, sync; None: not known
    files: tuple[str, ...]
    ranks: int | None
    tables: tuple[Table, ...]
    problems: tuple[Problem, ...] = ()  # any: invalid, and nothing is ranked
    doubts: tuple[Problem, ...] = ()
    targets: tuple[dict[str, Any], ...] = ()  # {region, target, found, why, era}
    model: dict[str, Any] | None = None
    timeline: tuple[
        dict[str, Any], ...
    ] = ()  # {rank, step, phase, spans: [[region, depth, begin_ms, end_ms]]}
    # From a trace of the device; None where nobody saw it.
    gpu_busy_share: float | None = None
    gap_ms_per_step: float | None = None  # device idle between kernels of a step
    launches_per_step: float | None = None
    kernels: tuple[Kernel, ...] = ()
    # Against the unprofiled twin: {profiled, twin, overhead (share), metric, launches} and {same, compared}.
    overhead: dict[str, Any] | None = None
    same_output: dict[str, Any] | None = None

    @property
    def valid(self) -> bool:
        return not self.problems

    @property
    def states_shares(self) -> bool:
        """A profile in mode sync may order regions, and states no shares."""
        return self.valid and self.mode != "sync"

    @property
    def shares_alone(self) -> bool:
        """It tells no times."""
        regions = [region for table in self.tables for region in table.regions]
        times = [t for r in regions for t in (r.ms_p50, r.ms_p90, r.ms_mean, r.total_ms)]
        times += [t for k in self.kernels for t in (k.ms_per_step, k.total_ms)]
        return all(time is None for time in times)

    def table(self, phase: str = "decode") -> Table | None:
        """Of all ranks together where there is one, else of the only rank."""
        mine = [t for t in self.tables if t.phase in (phase, "all")]
        together = [t for t in mine if t.rank is None]
        return next(iter(together or mine), None)


def to_json(profile: Profile) -> dict[str, Any]:
    told = dataclasses.asdict(profile)
    return {
        "schema": SCHEMA,
        "valid": profile.valid,
        "states_shares": profile.states_shares,
        **told,
    }


def of_json(told: dict[str, Any]) -> Profile:
    """Raises ValueError for another schema, TypeError or KeyError for a damaged one."""
    if told.get("schema") != SCHEMA:
        raise ValueError(f'schema "{SCHEMA}" expected, found {told.get("schema")!r}')
    given = {f.name: told[f.name] for f in dataclasses.fields(Profile) if f.name in told}
    given["tables"] = tuple(
        _made(Table, {**t, "regions": tuple(_made(Region, r) for r in t["regions"])})
        for t in told["tables"]
    )
    for name in ("problems", "doubts"):
        given[name] = tuple(_made(Problem, p) for p in told.get(name) or ())
    given["kernels"] = tuple(_made(Kernel, k) for k in told.get("kernels") or ())
    for name in ("files", "targets", "timeline"):
        given[name] = tuple(told.get(name) or ())
    for one in given["timeline"]:
        which = f"step {one['step']} ({one['phase']})"  # each says which
        for _region, *numbers in one["spans"]:
            if len(numbers) != 3 or not all(map(_is_number, numbers)):
                raise ValueError(f"timeline: a damaged span in {which}")
    return _made(Profile, given)


def _made(kind: type[T], told: dict[str, Any]) -> T:
    """As it was written: a figure is a finite number or None, a name a text."""
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]
        value, wanted = told.get(one.name), str(one.type)
        if value is None and wanted.endswith("None"):
            continue
        if wanted.startswith(("float", "int")) and not _is_number(value):
            raise ValueError(f"{one.name}: {str(value)[:40]} is no number")
        if wanted == "str" and not isinstance(value, str):
            raise ValueError(f"{one.name}: {str(value)[:40]} is no text")
        if wanted.startswith("dict") and value is not None and not isinstance(value, dict):
            raise ValueError(f"{one.name}: {str(value)[:40]} is no object")
    return kind(**told)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
