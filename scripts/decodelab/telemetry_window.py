"""Figures of a capture: over all its samples, and inside the window of the run.

In: samples (`telemetry.Sample`) and, where the clocks are related, the window [first t0, last tL]
in seconds on the samples' clock. Out: one dict for runs.csv. `*_all` are plain means over all
samples of all accelerators (the 2026-07-14 report's); `*_window` are time-weighted inside the
window, edges interpolated, averaged over accelerators. Energy is the trapezoid under power, summed
over accelerators. None where a figure cannot be known; `reasons` says why."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from decodelab.telemetry import Sample

FIGURES = ("util_pct", "mem_used_mib", "power_w")
GAP_FACTOR = 3.0  # a gap between samples above this multiple of the interval is a hole
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class WindowFigures:
    values: dict[str, float | int | None]
    reasons: tuple[str, ...]  # telemetry_gap, telemetry_does_not_cover


def figures(
    samples: Sequence[Sample],
    records: int,
    window: tuple[float, float] | None,
    interval_s: float | None,
) -> WindowFigures:
    """Every telemetry column of runs.csv for one capture."""
    values: dict[str, float | int | None] = {"smi_records": records, "smi_samples": len(samples)}
    by_gpu: dict[str, list[Sample]] = {}
    for sample in samples:
        by_gpu.setdefault(sample.reading.key, []).append(sample)
    values["gpus"] = len(by_gpu) or None
    caps = [
        s.reading.values["power_cap_w"]
        for s in samples
        if s.reading.values["power_cap_w"] is not None
    ]
    values["power_cap_w"] = max(caps) if caps else None
    reasons: set[str] = set()
    for metric in FIGURES:
        known = [v for s in samples if (v := s.reading.values[metric]) is not None]
        values[f"{metric}_mean_all"] = sum(known) / len(known) if known else None
        values[f"{metric}_max_all"] = max(known) if known else None
        curves = [curve(group, metric) for group in by_gpu.values()]
        values.update(_inside(metric, [c for c in curves if c], window, reasons))
    power = [curve(group, "power_w") for group in by_gpu.values()]
    values["energy_j_window"] = _energy(power, window)
    values["idle_share_window"] = _idle_share(samples, window)
    spacing = max(
        interval_s or 0.0, _spacing(by_gpu)
    )  # a tool slower than asked holds its own pace
    if window is not None and spacing and _gap(by_gpu, window) > GAP_FACTOR * spacing:
        reasons.add("telemetry_gap")
    return WindowFigures(values, tuple(sorted(reasons)))


def curve(samples: Sequence[Sample], metric: str) -> Points:
    """(t, value) of one accelerator in time order; without time or value: left out."""
    points = [
        (s.t, v) for s in samples if s.t is not None and (v := s.reading.values[metric]) is not None
    ]
    return sorted(points)


def clipped(points: Points, window: tuple[float, float]) -> Points | None:
    """The curve inside the window with both edges interpolated; None unless samples lie on both
    sides.
    """
    begin, end = window
    if not points or points[0][0] > begin or points[-1][0] < end or end <= begin:
        return None
    inside = [(t, v) for t, v in points if begin < t < end]
    return [(begin, _at(points, begin)), *inside, (end, _at(points, end))]


def integral(points: Points) -> float:
    """Area under the curve by trapezoids."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def _at(points: Points, t: float) -> float:
    """The value at t by linear interpolation between the samples around it."""
    before = max((p for p in points if p[0] <= t), key=lambda p: p[0])
    after = min((p for p in points if p[0] >= t), key=lambda p: p[0])
    if after[0] == before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (t - before[0]) / (after[0] - before[0])


def _inside(
    metric: str, curves: list[Points], window: tuple[float, float] | None, reasons: set[str]
) -> dict[str, float | int | None]:
    empty: dict[str, float | int | None] = {
        f"{metric}_mean_window": None,
        f"{metric}_max_window": None,
    }
    if window is None or not curves:
        return empty
    parts = [clipped(points, window) for points in curves]
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts):
        reasons.add("telemetry_does_not_cover")
        return empty
    span = window[1] - window[0]
    return {
        f"{metric}_mean_window": sum(integral(part) for part in whole) / span / len(whole),
        f"{metric}_max_window": max(v for part in whole for _, v in part),
    }


def _energy(curves: list[Points], window: tuple[float, float] | None) -> float | None:
    """Joules of all accelerators; None if one of them is not known over the whole window."""
    if window is None or not curves:
        return None
    parts = [clipped(points, window) for points in curves]
    if any(part is None for part in parts):
        return None
    return sum(integral(part) for part in parts if part is not None)


def _idle_share(samples: Sequence[Sample], window: tuple[float, float] | None) -> float | None:
    """Share of the samples inside the window that read 0 % utilisation."""
    if window is None:
        return None
    inside = [
        v
        for s in samples
        if s.t is not None
        and window[0] <= s.t <= window[1]
        and (v := s.reading.values["util_pct"]) is not None
    ]
    return sum(v == 0 for v in inside) / len(inside) if inside else None


def _spacing(by_gpu: dict[str, list[Sample]]) -> float:
    """The usual time between two samples of an accelerator."""
    steps: list[float] = []
    for group in by_gpu.values():
        times = sorted(s.t for s in group if s.t is not None)
        steps.extend(b - a for a, b in itertools.pairwise(times))
    return statistics.median(steps) if steps else 0.0


def _gap(by_gpu: dict[str, list[Sample]], window: tuple[float, float]) -> float:
    """The longest time inside the window without a sample of an accelerator."""
    longest = 0.0
    for group in by_gpu.values():
        times = sorted(s.t for s in group if s.t is not None)
        marks = [window[0], *[t for t in times if window[0] < t < window[1]], window[1]]
        longest = max([longest, *[b - a for a, b in itertools.pairwise(marks)]])
    return longest
