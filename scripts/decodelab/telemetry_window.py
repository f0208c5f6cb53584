"""Figures of a capture, or of some of its accelerators: over all its samples, and inside the window
of the run and its phases.

In: samples (`telemetry.Sample`) and, where the clocks are related, the window [first t0, last tL]
in seconds on the samples' clock and its phases. Out: a dict of columns. `*_all` are plain means over
all samples of all accelerators (the 2026-07-14 report's); `*_window`, `*_prefill` and `*_decode` are
time-weighted inside the window or the phase, edges interpolated, averaged over the accelerators that
report it (draw and cap: over boards, where two dies share a reading); a maximum or minimum is that of
real samples. Energy is the trapezoid under power, summed over accelerators, each board once. None
where a figure cannot be known; `doubts` says why, or what speaks against a figure that is there.

The window is trimmed by time and never by a threshold of utilisation, which would hide real stalls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from decodelab import telemetry_boards, telemetry_rejected
from decodelab.telemetry import METRICS, Reading, Sample, by_accelerator
from decodelab.telemetry_curve import (
    Points,
    Span,
    Value,
    area,
    clipped,
    count,
    curve,
    hole,
    inside,
    length,
    of,
    spacing,
    time_of,
)
from decodelab.telemetry_phases import Phases
from decodelab.telemetry_rejected import Counts

FIGURES = tuple(METRICS)
CORE = ("util_pct", "mem_used_mib", "power_w")  # doubt about these is doubt about the run
PHASED = ("util_pct", "power_w")
PHASES = ("prefill", "decode")
OF_BOARDS = ("power_w", "power_cap_w")
GAP_FACTOR = 3.0  # a gap between samples above this multiple of the interval is a hole
FEW_SAMPLES = 10  # a mean over fewer is no level
Values = dict[str, float | int | None]


class Doubt(NamedTuple):
    """What speaks against a figure, or why there is none: a reason code and what it is about (a
    metric, a phase, "" for all).
    """

    code: str
    about: str = ""


@dataclass(frozen=True)
class WindowFigures:
    values: Values
    reasons: tuple[str, ...]  # codes of doubts that make the run suspect
    doubts: tuple[Doubt, ...] = ()


@dataclass
class _Group:
    """Some accelerators of a capture, and what was found about them."""

    samples: Sequence[Sample]
    by_gpu: Mapping[str, Sequence[Sample]]
    window: Span | None
    interval_s: float  # that the sampler promised; where it is not known, what the samples have
    silent: Mapping[str, str]  # dies whose board's draw another die carries
    rejected: Mapping[str, Counts]
    values: Values = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    drawn: dict[str | Value, list[Points]] = field(default_factory=dict)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The window, if there is one."""
        return () if self.window is None else (self.window,)

    def known(self, metric: str | Value) -> list[list[float]]:
        """What each accelerator told, whenever it was."""
        value = of(metric)
        return [
            [v for s in samples if (v := value(s.reading)) is not None]
            for samples in self.by_gpu.values()
        ]

    def curves(self, metric: str | Value) -> list[Points]:
        """A metric of each accelerator over time."""
        if metric not in self.drawn:
            self.drawn[metric] = [curve(samples, metric) for samples in self.by_gpu.values()]
        return self.drawn[metric]

    @property
    def distance_s(self) -> float:
        """Between two samples, at least the promised one: a tool may be slower."""
        return max(self.interval_s, spacing(self.by_gpu.values()))

    def of_boards(self, metric: str) -> list[Points]:
        """Draw or cap of each board, or of each die that has its own."""
        pairs = zip(self.by_gpu, self.curves(metric), strict=True)
        return [points for key, points in pairs if key not in self.silent]


def figures(
    samples: Sequence[Sample],
    records: int,
    window: Span | None,
    interval_s: float | None,
    phases: Phases | None = None,
    silent: Mapping[str, str] | None = None,
    rejected: Mapping[str, Counts] | None = None,
) -> WindowFigures:
    """Every telemetry column of runs.csv for one capture, or for those of its accelerators whose
    samples are given; `silent` is of the whole capture (left out: of these samples), and so is
    `rejected`.
    """
    by_gpu = by_accelerator(samples)
    found = telemetry_boards.silent(by_gpu) if silent is None else silent
    interval = interval_s or spacing(by_gpu.values())
    mine = {key: counts for key, counts in (rejected or {}).items() if key in by_gpu}
    group = _Group(samples, by_gpu, window, interval, found, mine)
    group.values = {
        "smi_records": records,
        "smi_samples": len(samples),
        "gpus": len(by_gpu) or None,
    }
    if window is None:
        group.doubts.append(Doubt("telemetry_no_window"))
    _caps(group)
    for metric in FIGURES:
        _levels(group, metric)
    _energy(group)
    _headroom(group)
    _idle_share(group)
    _boards(group)
    _rejected(group)
    _unsure(group)
    _count(group)
    for place, name in enumerate(PHASES):
        _phase(group, name, phases[place] if phases is not None else None)
    told = tuple(dict.fromkeys(group.doubts))
    serious = {d.code for d in told if d.about in CORE and d.code in _SERIOUS}
    return WindowFigures(group.values, tuple(sorted(serious)), told)


_SERIOUS = ("telemetry_gap", "telemetry_does_not_cover")


def _caps(group: _Group) -> None:
    caps = [cap for told in group.known("power_cap_w") for cap in told]
    group.values["power_cap_w"] = max(caps) if caps else None


def _levels(group: _Group, metric: str) -> None:
    """Mean and maximum of a metric, over all samples and inside the window."""
    values, doubt = group.values, Doubt("telemetry_does_not_cover", metric)
    known = [v for s in group.samples if (v := s.reading.values[metric]) is not None]
    values[f"{metric}_mean_all"] = sum(known) / len(known) if known else None
    values[f"{metric}_max_all"] = max(known) if known else None
    values[f"{metric}_mean_window"] = values[f"{metric}_max_window"] = None
    if metric in CORE and _not_reported(group, metric):
        group.doubts.append(Doubt("telemetry_not_reported", metric))
    curves = [points for points in _curves(group, metric) if points]
    if group.window is None or not curves:
        return
    if group.interval_s and max(hole(p, group.window) for p in curves) > (
        GAP_FACTOR * group.interval_s
    ):
        group.doubts.append(Doubt("telemetry_gap", metric))
    if any(clipped(points, group.window) is None for points in curves):
        group.doubts.append(doubt)
        return
    values[f"{metric}_mean_window"] = _mean(curves, (group.window,))
    values[f"{metric}_max_window"] = _extreme(curves, group.window, max)


def _curves(group: _Group, metric: str) -> list[Points]:
    return group.of_boards(metric) if metric in OF_BOARDS else group.curves(metric)


def _not_reported(group: _Group, metric: str) -> bool:
    """Whether an accelerator never said it: one whose values were rejected did, and of a board with
    two dies one die speaks.
    """
    lost = {key for key, told in zip(group.by_gpu, group.known(metric), strict=True) if not told}
    said = {
        key for key, counts in group.rejected.items() if any(r.metric == metric for r in counts)
    }
    return bool(lost - said - (set(group.silent) if metric in OF_BOARDS else set()))


def _extreme(
    curves: Sequence[Points], window: Span, of_all: Callable[[Iterable[float]], float]
) -> float | None:
    """The least or greatest sample inside the window; None unless each curve covers it and has one
    there. The interpolated edges are no samples.
    """
    covered = bool(curves) and all(clipped(points, window) is not None for points in curves)
    told = [inside(points, window) for points in curves]
    return of_all(v for values in told for v in values) if covered and all(told) else None


def _mean(curves: Sequence[Points], spans: Sequence[Span]) -> float | None:
    """Time-weighted inside the spans, averaged over accelerators; None unless all are covered."""
    areas = _areas(curves, spans)
    return None if areas is None else sum(areas) / length(spans) / len(areas)


def _areas(curves: Sequence[Points], spans: Sequence[Span]) -> list[float] | None:
    areas = [area(points, spans) for points in curves]
    known = [a for a in areas if a is not None]
    return known if known and len(known) == len(areas) else None


def _total(curves: Sequence[Points], spans: Sequence[Span]) -> float | None:
    """Area of all curves inside the spans; None if one of them is not known over all of it."""
    areas = _areas(curves, spans)
    return None if areas is None else sum(areas)


def _energy(group: _Group) -> None:
    """Joules of all accelerators, and the share of what their caps allow in the same time."""
    energy = _total(group.of_boards("power_w"), group.spans)
    allowed = _total(group.of_boards("power_cap_w"), group.spans)
    group.values["energy_j_window"] = energy
    group.values["cap_share_window"] = None if energy is None or not allowed else energy / allowed


def free_mib(reading: Reading) -> float | None:
    """Device memory that is not in use."""
    used, total = reading.values["mem_used_mib"], reading.values["mem_total_mib"]
    return None if used is None or total is None else total - used


def _headroom(group: _Group) -> None:
    """The least memory that was free on any accelerator; None unless it is known of each."""
    told = group.known(free_mib)
    least = min(map(min, told)) if told and all(told) else None
    group.values["mem_headroom_mib_all"] = least
    free = group.curves(free_mib)
    least = None if group.window is None else _extreme(free, group.window, min)
    group.values["mem_headroom_mib_window"] = least


def _idle_share(group: _Group) -> None:
    """Share of the window's time at 0 % utilisation, over all accelerators; None unless it is known
    of each that tells its utilisation.
    """
    told = [points for points in group.curves("util_pct") if points]
    idle = [time_of(points, span, lambda v: v == 0) for points in told for span in group.spans]
    known = [seconds for seconds in idle if seconds is not None]
    whole = bool(known) and len(known) == len(idle)
    share = sum(known) / len(known) / length(group.spans) if whole else None
    group.values["idle_share_window"] = share


def _boards(group: _Group) -> None:
    """A draw that is a board's is told. Where not all of its dies are in the group it is not known
    what those drew: the draw of all would be charged to them, or none.
    """
    for die, partner in group.silent.items():
        if die in group.by_gpu and partner in group.by_gpu:
            group.doubts.append(Doubt("telemetry_board_power", "power_w"))
        elif die in group.by_gpu:
            group.doubts.append(Doubt("telemetry_power_on_other_die", "power_w"))
            group.values["energy_j_window"] = group.values["cap_share_window"] = None
        elif partner in group.by_gpu:
            group.doubts.append(Doubt("telemetry_power_of_whole_board", "power_w"))


def _rejected(group: _Group) -> None:
    counts = telemetry_rejected.total(group.rejected.values())
    group.values["smi_rejected"] = sum(counts.values())
    told = {found.metric for found in counts}
    group.doubts.extend(Doubt("telemetry_rejected", name) for name in METRICS if name in told)


def _unsure(group: _Group) -> None:
    """Readings whose accelerator, or whose board's share in the draw, cannot be told."""
    codes = {code for s in group.samples for code in s.reading.doubts}
    group.doubts.extend(Doubt(code, "power_w") for code in sorted(codes))
    if telemetry_boards.DOUBT in codes:
        group.values["energy_j_window"] = group.values["cap_share_window"] = None


def _count(group: _Group) -> None:
    """How many readings stand behind a mean utilisation: those of the accelerator with fewest."""
    curves = group.curves("util_pct")
    group.values["smi_samples_gpu"] = min(map(len, group.known("util_pct")), default=None)
    inside = min((count(points, group.spans) for points in curves), default=None)
    group.values["smi_samples_gpu_window"] = None if group.window is None else inside
    if group.window is not None and (inside or 0) < FEW_SAMPLES:
        group.doubts.append(Doubt("telemetry_few_samples"))


def _phase(group: _Group, name: str, spans: Sequence[Span] | None) -> None:
    """Share of the window, utilisation, power and energy of one phase. Its figures need as many
    samples as it has stretches, and stretches that are in the mean no shorter than the distance of
    the samples: of a phase that comes and goes between two samples a line through them says nothing,
    and one sample in a short stretch speaks of the time around it.
    """
    values = group.values
    empty = [f"{metric}_mean" for metric in PHASED] + ["energy_j", "time_share", "smi_samples_gpu"]
    values.update({f"{figure}_{name}": None for figure in empty})
    if group.window is None:
        return
    if spans is None:
        group.doubts.append(Doubt("telemetry_phases_unknown", name))
        return
    values[f"time_share_{name}"] = length(spans) / length(group.spans)
    if not spans:
        return  # no such time in this run: nothing to know
    held = {metric: [p for p in _curves(group, metric) if p] for metric in PHASED}
    fewest = {m: min((count(p, spans) for p in curves), default=0) for m, curves in held.items()}
    values[f"smi_samples_gpu_{name}"] = fewest["util_pct"]
    long_enough = length(spans) >= len(spans) * group.distance_s
    resolved = [m for m in PHASED if held[m] and fewest[m] >= len(spans) and long_enough]
    for metric in resolved:
        values[f"{metric}_mean_{name}"] = _mean(held[metric], spans)
    if any(held[metric] and metric not in resolved for metric in PHASED):
        group.doubts.append(Doubt("telemetry_phase_not_resolved", name))
    if "power_w" in resolved and values["energy_j_window"] is not None:
        values[f"energy_j_{name}"] = _total(group.of_boards("power_w"), spans)
