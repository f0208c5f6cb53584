"""Figures over time: the requests of one run, and what the accelerators did meanwhile.

In: the rows of requests.csv and telemetry.csv of one run. Out: matplotlib figures; None where the
times or the samples are not there. Zero is the start of the run's first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from decodelab import figure_style, request_bars
from decodelab.findings import Findings, Row
from decodelab.request_bars import Bar, Batch

COLOURS = {"queue": "#F0E442", "wait": "#C9D6E2", "decode": "#0072B2", "failed": "#B00020"}
QUEUE_EDGE = "#8A7F00"
BATCH_INCHES = 1.5
METERS = (
    ("util_pct", "GPU-Util (%)"),
    ("power_w", "power (W)"),
    ("mem_used_mib", "memory (MiB)"),
)


def draw_requests(findings: Findings, run: str) -> Figure | None:
    """Queue, prefill and decode of each request; how many run at once, utilisation and power below on the same axis,
    where they are known.
    """
    shown = request_bars.bars(findings, run)
    if not shown:
        return None
    samples = timed_samples(findings, run)
    meters = [meter for meter in METERS[:2] if has(samples, meter[0])]
    counted = request_bars.batch(findings, run)
    height = min(6.0, 1.4 + 0.34 * len(shown))
    heights = [height, *([BATCH_INCHES] if counted else []), *[1.7] * len(meters)]
    with figure_style.style():
        figure, grid = plt.subplots(
            len(heights),
            1,
            sharex=True,
            squeeze=False,
            figsize=(10, sum(heights) + 0.9),
            height_ratios=heights,
            layout="constrained",
        )
        axes = list(grid[:, 0])
        _bars(axes[0], shown, len(request_bars.all_timed(findings, run)))
        if counted:
            _batch(axes[1], counted)
        for panel, (column, label) in zip(axes[len(axes) - len(meters) :], meters, strict=True):
            _meter(panel, samples, column, label)
            _shade(panel, [one.row for one in shown])
        if meters:
            _gpus(axes[-len(meters)], samples)
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
    requests = request_bars.timed(findings, run) if related else []
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


def timed_samples(findings: Findings, run: str) -> list[Row]:
    return [row for row in findings.telemetry.get(run, []) if row.get("t_s") is not None]


def samples_by_record(findings: Findings, run: str) -> list[Row]:
    """Samples whose clock is not related to the run's: in their order only."""
    rows = [row for row in findings.telemetry.get(run, []) if row.get("record") is not None]
    return [{**row, "t_s": row["record"]} for row in rows]


def has(samples: Sequence[Row], column: str) -> bool:
    return any(row.get(column) is not None for row in samples)


_QUEUE_LOOK: dict[str, Any] = {"hatch": "////", "edgecolor": QUEUE_EDGE, "lw": 0}


def _bars(axes: Axes, shown: Sequence[Bar], total: int) -> None:
    for place, one in enumerate(shown):
        for name, begin, end in one.parts:
            look = _QUEUE_LOOK if name == "queue" else {}
            axes.barh(place, end - begin, left=begin, height=0.62, color=COLOURS[name], **look)
        if one.failed:
            said = f"  {one.outcome}"
            axes.text(one.end, place, said, va="center", color=COLOURS["failed"], fontsize=9)
    places = request_bars.ticks(shown)
    axes.set_yticks(places, [str(shown[place].number) for place in places])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    cut = f" (first {len(shown)} of {total})" if total > len(shown) else ""
    axes.set_ylabel(f"request{cut}")
    _bar_legend(axes, shown)


def _bar_legend(axes: Axes, shown: Sequence[Bar]) -> None:
    """A wait is told apart where it is known of every request."""
    apart = request_bars.told_apart(shown)
    waits = "prefill" if apart else "waiting (queue + prefill)"
    handles = [Patch(color=COLOURS["wait"], label=waits)]
    if apart and any(one.queue for one in shown):
        handles.insert(
            0,
            Patch(
                facecolor=COLOURS["queue"],
                hatch="////",
                edgecolor=QUEUE_EDGE,
                lw=0,
                label="queue (estimated)",
            ),
        )
    handles.append(Patch(color=COLOURS["decode"], label="decode"))
    if any(one.failed for one in shown):
        handles.append(Patch(color=COLOURS["failed"], label="not ok"))
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles))


def _batch(axes: Axes, counted: Batch) -> None:
    lines, t_s = counted.lines, counted.t_s
    axes.fill_between(
        t_s, lines["in_flight"], step="post", color=COLOURS["wait"], label="in flight"
    )
    if "running" in lines:
        axes.step(
            t_s,
            lines["running"],
            where="post",
            color=figure_style.INK,
            lw=1.3,
            linestyle=(0, (4, 1.5)),
            zorder=4,
            label="running (estimated)",
        )
    axes.step(
        t_s,
        lines["in_decode"],
        where="post",
        color=COLOURS["decode"],
        lw=1.6,
        label="in decode",
    )
    top, limit = max(counted.in_flight), counted.limit
    if limit is not None:
        axes.axhline(limit, color=figure_style.TARGET, lw=1.1, linestyle=(0, (6, 2)), zorder=1.5)
        axes.annotate(
            f"max-num-seqs {limit}",
            (0.005, limit),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            color=figure_style.TARGET,
            fontsize=9,
        )
        top = max(top, limit)
    axes.set_ylim(0, top * 1.25)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylabel("requests")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3)


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
