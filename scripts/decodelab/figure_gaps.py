"""How the gaps between output deltas (ITL) are spread: the share of gaps at or below each length.

In: itl.csv of an experiment's runs. Out: a matplotlib figure, or None where no run has gaps. One line is one start;
one panel is one load, so that lines of a panel can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter

from decodelab import figure_style
from decodelab.findings import Findings, Row

MAX_PANELS = 6
COLUMNS = 3
LEAST_GAPS = 20  # fewer are no distribution
LEAST_MS = 0.1  # of the axis: shorter gaps are deltas of one read, and stand at its left end
MARKS = 20  # of a line, about
SEVERAL = 0.5  # a point is marked where most of its gaps end in a delta of several tokens

Look = tuple[str, str]


@dataclass(frozen=True)
class Line:
    """One run. `ms` and `shares` are as long as each other, shares from 0 to 1."""

    variant: str
    start: float
    run: str
    n_gaps: int
    ms: list[float]
    shares: list[float]
    several: list[bool]  # by point: most of its gaps end in a delta known to hold several tokens

    @property
    def drawn_ms(self) -> list[float]:
        """As the axis has room for them."""
        return [max(value, LEAST_MS) for value in self.ms]

    @property
    def marked(self) -> list[tuple[float, float]]:
        """Of the points of several tokens, as many as can be told apart: ms as drawn, and share."""
        found = [
            (ms, share)
            for ms, share, several in zip(self.drawn_ms, self.shares, self.several, strict=True)
            if several
        ]
        return found[:: max(1, len(found) // MARKS)]

    @property
    def median_ms(self) -> float:
        return next(ms for ms, share in zip(self.ms, self.shares, strict=True) if share >= 0.5)


@dataclass(frozen=True)
class Panel:
    workload: str
    concurrency: float | None  # None: of an open loop
    rate: float | None
    lines: list[Line]

    @property
    def name(self) -> str:
        if self.rate is not None:
            return f"{self.workload}, {self.rate:g} requests/s"
        return f"{self.workload}, concurrency {self.concurrency:g}"


def panels(findings: Findings, experiment: str) -> list[Panel]:
    """The loads of an experiment, those with the most variants where they are too many. A grid has none: its map tells
    more than dozens of lines.
    """
    if any(findings.is_cell(arm.variant) for arm in findings.arms(experiment)):
        return []
    groups: dict[tuple[str, float | None, float | None], list[Line]] = {}
    for arm in findings.arms(experiment):
        for row in findings.rows(arm):
            line = None if row.get("validity") == "invalid" else _line(findings, row)
            if line:
                rate = row.get("rate")
                key = (arm.workload, None if rate is not None else arm.concurrency, rate)
                groups.setdefault(key, []).append(line)
    found = [Panel(*key, lines=lines) for key, lines in groups.items()]
    widest = sorted(found, key=lambda panel: -len({line.variant for line in panel.lines}))
    kept = widest[:MAX_PANELS]
    return [panel for panel in found if panel in kept]


def _line(findings: Findings, row: Row) -> Line | None:
    points = findings.gaps.get(row["run"], [])
    if not points or points[0]["n_gaps"] < LEAST_GAPS:
        return None
    return Line(
        row["variant"],
        row.get("start") or 1.0,
        row["run"],
        int(points[0]["n_gaps"]),
        [1000 * point["itl_s"] for point in points],
        [point["share"] for point in points],
        [(point.get("several_share") or 0.0) > SEVERAL for point in points],
    )


def draw(findings: Findings, experiment: str) -> Figure | None:
    shown = panels(findings, experiment)
    if not shown:
        return None
    looks = figure_style.plan_colours(findings.plan)
    dashes = figure_style.plan_dashes(findings.plan)
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    with figure_style.style():
        figure, grid = plt.subplots(
            rows,
            columns,
            sharex=True,
            sharey=True,
            squeeze=False,
            figsize=(3.2 + 3.0 * columns, 3.1 * rows + 1.4),
            layout="constrained",
        )
        for axes, panel in zip(grid.flat, shown, strict=False):
            for line in panel.lines:
                _plot(axes, line, looks[line.variant][0], dashes[line.variant])
            _axes(axes, panel)
        for axes in grid.flat[len(shown) :]:
            axes.set_visible(False)
        for column in range(columns):
            last = max(p for p in range(len(shown)) if p % columns == column)
            grid.flat[last].tick_params(labelbottom=True)
            grid.flat[last].set_xlabel("gap between output deltas (ms)")
        for line in grid[:, 0]:
            line.set_ylabel("gaps at or below (%)")
        _legend(figure, shown, looks, dashes)
        figure_style.title(figure, f"Inter-token latency (ITL): {experiment}")
        figure_style.room(figure)
        runs = [line.run for panel in shown for line in panel.lines]
        figure_style.banner(figure, findings.sources(runs))
    return figure


def _plot(axes: Axes, line: Line, colour: str, dash: Any) -> None:
    axes.plot(
        line.drawn_ms, line.shares, color=colour, linestyle=dash, lw=1.6, drawstyle="steps-post"
    )
    axes.plot([max(line.median_ms, LEAST_MS)], [0.5], "o", color=colour, ms=6, mec="white", mew=0.8)
    if line.marked:
        x, y = zip(*line.marked, strict=True)
        axes.plot(x, y, "d", color=colour, mfc="white", ms=4.5, mew=1.0, lw=0)


def _axes(axes: Axes, panel: Panel) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_milliseconds))
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_title(figure_style.shortened(panel.name, 44), loc="left", fontsize=10)


def _milliseconds(value: float, _place: int) -> str:
    return f"≤ {value:g}" if value <= LEAST_MS * 1.001 else f"{value:g}"


def _legend(
    figure: Figure, shown: Sequence[Panel], looks: dict[str, Look], dashes: dict[str, Any]
) -> None:
    lines = [line for panel in shown for line in panel.lines]
    handles = [
        Line2D([], [], color=looks[v][0], linestyle=dashes[v], lw=1.8, label=v)
        for v in looks
        if any(line.variant == v for line in lines)
    ]
    ink = figure_style.INK
    handles.append(Line2D([], [], color=ink, marker="o", lw=0, mec="white", label="median"))
    if any(any(line.several) for line in lines):
        handles.append(
            Line2D(
                [],
                [],
                color=ink,
                marker="d",
                mfc="white",
                lw=0,
                label="ends in a delta of several tokens",
            )
        )
    figure_style.legend_below(figure, handles)
