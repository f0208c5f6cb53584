"""Figures over time: the requests of one run, and what the accelerators did meanwhile.

In: the rows of requests.csv and telemetry.csv of one run. Out: matplotlib figures; None where the
times or the samples are not there. Zero is the start of the run's first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from decodelab import figure_style
from decodelab.findings import Findings, Row

MAX_REQUESTS = 64
WAIT, DECODE, FAILED = "#C9D6E2", "#0072B2", "#B00020"
METERS = (
    ("util_pct", "GPU-Util (%)"),
    ("power_w", "power (W)"),
    ("mem_used_mib", "memory (MiB)"),
)


def draw_requests(findings: Findings, run: str) -> Figure | None:
    """Waiting and decode of each request; utilisation and power below on the same axis where there
    are samples.
    """
    requests = timed(findings, run)
    if not requests:
        return None
    samples = timed_samples(findings, run)
    meters = [meter for meter in METERS[:2] if has(samples, meter[0])]
    height = min(6.0, 1.4 + 0.34 * len(requests))
    with figure_style.style():
        figure, grid = plt.subplots(
            1 + len(meters),
            1,
            sharex=True,
            squeeze=False,
            figsize=(10, height + 1.7 * len(meters) + 0.9),
            height_ratios=[height, *[1.7] * len(meters)],
            layout="constrained",
        )
        axes = grid[:, 0]
        _bars(axes[0], requests, figure)
        for panel, (column, label) in zip(axes[1:], meters, strict=True):
            _meter(panel, samples, column, label)
            _shade(panel, requests)
        if meters:
            _gpus(axes[1], samples)
        axes[-1].set_xlabel("time since the run's first request (s)")
        _head(figure, f"Request timeline: {run}", findings, run)
    return figure


def draw_telemetry(findings: Findings, run: str) -> Figure | None:
    """Utilisation, power and memory of each GPU over the whole capture."""
    samples = timed_samples(findings, run)
    related = bool(samples)
    samples = samples or samples_by_record(findings, run)
    meters = [meter for meter in METERS if has(samples, meter[0])]
    if not meters:
        return None
    requests = timed(findings, run) if related else []
    with figure_style.style():
        figure, grid = plt.subplots(
            len(meters),
            1,
            sharex=True,
            squeeze=False,
            figsize=(10, 2.0 * len(meters) + 1.3),
            layout="constrained",
        )
        for axes, (column, label) in zip(grid[:, 0], meters, strict=True):
            _meter(axes, samples, column, label)
            _shade(axes, requests)
        _gpus(grid[0][0], samples)
        grid[-1][0].set_xlabel(
            "time since the run's first request (s)" if related else "number of the SMI record"
        )
        _head(figure, f"Hardware samples: {run}", findings, run)
    return figure


def timed(findings: Findings, run: str) -> list[Row]:
    """The run's requests that have times, in order of their start, their times counted from the
    first start.
    """
    known = [row for row in findings.requests.get(run, []) if row.get("t_start_s") is not None]
    if not known:
        return []
    zero = min(row["t_start_s"] for row in known)
    moved = [
        {**row, **{name: row[name] - zero for name in _TIMES if row.get(name) is not None}}
        for row in known
    ]
    return sorted(moved, key=lambda row: (row["t_start_s"], row.get("index") or 0))[:MAX_REQUESTS]


_TIMES = ("t_start_s", "t_first_s", "t_last_s", "t_end_s")


def timed_samples(findings: Findings, run: str) -> list[Row]:
    return [row for row in findings.telemetry.get(run, []) if row.get("t_s") is not None]


def samples_by_record(findings: Findings, run: str) -> list[Row]:
    """Samples whose clock is not related to the run's: in their order only."""
    rows = [row for row in findings.telemetry.get(run, []) if row.get("record") is not None]
    return [{**row, "t_s": row["record"]} for row in rows]


def has(samples: Sequence[Row], column: str) -> bool:
    return any(row.get(column) is not None for row in samples)


@dataclass(frozen=True)
class Bar:
    """One request: it waits from `start` to `first`, then decodes to `end` (seconds)."""

    number: int  # from 1
    start: float
    first: float  # `end` where no token came
    end: float
    outcome: str
    row: Row

    @property
    def failed(self) -> bool:
        return self.outcome != "ok"


def bar(row: Row) -> Bar:
    start, first = row["t_start_s"], row.get("t_first_s")
    last = row.get("t_last_s") if row.get("t_last_s") is not None else row.get("t_end_s")
    end = last if last is not None else start
    number = int(row.get("index") or 0) + 1
    return Bar(number, start, first if first is not None else end, end, str(row["outcome"]), row)


def _bars(axes: Axes, requests: Sequence[Row], figure: Figure) -> None:
    for place, row in enumerate(requests):
        one = bar(row)
        axes.barh(place, one.first - one.start, left=one.start, height=0.62, color=WAIT)
        if one.end != one.first:
            colour = FAILED if one.failed else DECODE
            axes.barh(place, one.end - one.first, left=one.first, height=0.62, color=colour)
        if one.failed:
            said = f"  {one.outcome}"
            axes.text(one.end, place, said, va="center", color=FAILED, fontsize=9)
    axes.set_yticks(range(len(requests)), [f"{int(row.get('index') or 0) + 1}" for row in requests])
    axes.set_ylim(len(requests) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_ylabel("request")
    handles = [
        Patch(color=WAIT, label="waiting (queue + prefill)"),
        Patch(color=DECODE, label="decode"),
    ]
    if any(row.get("outcome") != "ok" for row in requests):
        handles.append(Patch(color=FAILED, label="not ok"))
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles))


def _meter(axes: Axes, samples: Sequence[Row], column: str, label: str) -> None:
    """One line a GPU; the power cap where the instrument told it."""
    for place, gpu in enumerate(gpu_names(samples)):
        rows = [row for row in samples if row.get("gpu") == gpu and row.get(column) is not None]
        colour = figure_style.PALETTE[place % len(figure_style.PALETTE)]
        axes.plot(
            [r["t_s"] for r in rows], [r[column] for r in rows], color=colour, lw=1.3, alpha=0.85
        )
    axes.set_ylabel(label)
    if column == "util_pct":
        axes.set_ylim(-3, 105)
    elif column == "mem_used_mib":
        _memory_limits(axes, samples)
    else:
        _power_limits(axes, samples)


def _memory_limits(axes: Axes, samples: Sequence[Row]) -> None:
    totals = [row["mem_total_mib"] for row in samples if row.get("mem_total_mib")]
    axes.set_ylim(0, max(totals) * 1.05 if totals else None)


def _power_limits(axes: Axes, samples: Sequence[Row]) -> None:
    caps = {row["power_cap_w"] for row in samples if row.get("power_cap_w")}
    axes.set_ylim(0, max([*caps, axes.get_ylim()[1]]) * 1.1)
    for cap in caps:
        axes.axhline(cap, color=figure_style.INK, linestyle=(0, (6, 2)), lw=1.1)
        axes.annotate(
            f"cap {cap:g} W",
            (0.995, cap),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=9,
        )


def gpu_names(samples: Sequence[Row]) -> list[object]:
    return sorted({row.get("gpu") for row in samples}, key=str)


def _gpus(axes: Axes, samples: Sequence[Row]) -> None:
    names = gpu_names(samples)
    handles = [
        Patch(
            color=figure_style.PALETTE[place % len(figure_style.PALETTE)],
            label=gpu_label(gpu),
        )
        for place, gpu in enumerate(names)
    ]
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=min(len(handles), 8)
    )


def gpu_label(gpu: object) -> str:
    return f"GPU {gpu:g}" if isinstance(gpu, float) else f"GPU {gpu}"


def _shade(axes: Axes, requests: Sequence[Row]) -> None:
    ends = [row["t_end_s"] for row in requests if row.get("t_end_s") is not None]
    if ends:
        axes.axvspan(0.0, max(ends), color="#f2f2f2", zorder=0)


def _head(figure: Figure, text: str, findings: Findings, run: str) -> None:
    """Room above the panels for title and banner."""
    figure_style.title(figure, text)
    figure_style.room(figure)
    figure_style.banner(figure, findings.sources([run]))
