"""The heat map of a parameter grid: one cell a combination, hatched where it cannot start, dotted
where it was screened out.

In: the grid's arms and their rows of runs.csv. Out: a matplotlib figure, one panel a workload and
concurrency.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from decodelab import figure_style, numbers, words
from decodelab.findings import Arm, Findings, Row, values
from decodelab.report_labels import cell_parameters, metric_label, setting, statistic

MAP = "cividis"  # even in lightness, readable by colour-blind readers and in grey
STATES = {"not_possible": ("#d9d9d9", "////", "cannot\nstart"), "pending": ("white", "", "pending")}
STATES["invalid"] = ("white", "xx", "invalid")
STATES["screened_out"] = ("#f4ead5", "..", "screened\nout")
ABREAST = 2  # panels


@dataclass(frozen=True)
class Cell:
    x: int  # place among the columns of the grid
    y: int
    arm: Arm
    values: list[float]  # of the metric; none: `state` says why
    state: str


@dataclass(frozen=True)
class Grid:
    metric: str
    across: list[str]  # flags
    down: list[str]
    columns: list[tuple[object, ...]]  # their values, in the plan's order
    rows: list[tuple[object, ...]]
    panels: dict[tuple[str, int], list[Cell]]  # by workload and concurrency

    @property
    def known(self) -> list[float]:
        return [value for cells in self.panels.values() for cell in cells for value in cell.values]

    @property
    def runs(self) -> list[str]:
        cells = [cell for panel in self.panels.values() for cell in panel]
        return [name for cell in cells for name in cell.arm.names]


def grid(findings: Findings, experiment: str) -> Grid | None:
    """What the heat map of an experiment shows; None where it has no grid."""
    arms = [arm for arm in findings.arms(experiment) if findings.is_cell(arm.variant)]
    if not arms:
        return None
    metric = metric_of(findings, experiment)
    flags = cell_parameters(findings, [arm.variant for arm in arms])
    down, across = flags[: len(flags) // 2], flags[len(flags) // 2 :]
    rows, columns = _combinations(findings, arms, down), _combinations(findings, arms, across)
    why = {run["name"]: run["why"] for run in findings.missing()}
    panels: dict[tuple[str, int], list[Cell]] = {}
    for arm in arms:
        cell = findings.variant(arm.variant).get("cell") or {}
        state = next((why[name] for name in arm.names if name in why), "pending")
        made = Cell(
            columns.index(tuple(cell.get(flag) for flag in across)),
            rows.index(tuple(cell.get(flag) for flag in down)),
            arm,
            _values(findings, arm, metric),
            "invalid" if findings.rows(arm) else state,
        )
        panels.setdefault((arm.workload, arm.concurrency), []).append(made)
    return Grid(metric, across, down, columns, rows, panels)


def metric_of(findings: Findings, experiment: str) -> str:
    """The column of runs.csv that the experiment's first question is about."""
    questions = findings.experiments[experiment].get("questions") or [{}]
    row: Row = next(iter(findings.runs.values()), {})
    return statistic(questions[0].get("metric") or "decode_rate", row)


def draw(findings: Findings, experiment: str) -> Figure | None:
    shown = grid(findings, experiment)
    if shown is None:
        return None
    abreast = min(ABREAST, len(shown.panels))
    high = -(-len(shown.panels) // abreast)
    known = shown.known
    scale = Normalize(min(known, default=0.0), max(known, default=1.0))
    with figure_style.style():
        width = max(5.0, 1.25 * len(shown.columns) + 2.6)
        figure, places = plt.subplots(
            high,
            abreast,
            figsize=(width * abreast, (0.62 * len(shown.rows) + 1.9) * high + 0.5),
            squeeze=False,
            layout="constrained",
        )
        for axes in places.flat[len(shown.panels) :]:
            axes.set_visible(False)
        for axes, ((load, concurrency), cells) in zip(
            places.flat, shown.panels.items(), strict=False
        ):
            _panel(axes, shown, cells, scale)
            axes.set_title(f"{load}, concurrency {concurrency}", loc="left")
        if known:
            bar = figure.colorbar(
                plt.cm.ScalarMappable(scale, MAP), ax=places.ravel().tolist(), shrink=0.9, pad=0.02
            )
            bar.set_label(_bar_label(shown.metric))
        figure_style.title(figure, f"Parameter grid: {experiment}")
        figure_style.room(figure)
        figure_style.banner(figure, findings.sources(shown.runs))
    return figure


def _bar_label(metric: str) -> str:
    """`total Output TPS (tok/s)`: as the report calls it; figures are in English."""
    name, unit = metric_label(words.load("en"), metric), numbers.unit(metric)
    return f"{name} ({unit})" if unit else str(name)


def _combinations(
    findings: Findings, arms: Sequence[Arm], flags: Sequence[str]
) -> list[tuple[object, ...]]:
    """All combinations of the flags' values, in the order in which the plan names them."""
    candidates = []
    for flag in flags:
        seen = [(findings.variant(arm.variant).get("cell") or {}).get(flag) for arm in arms]
        candidates.append(list(dict.fromkeys(seen)))
    return list(itertools.product(*candidates))


def _values(findings: Findings, arm: Arm, metric: str) -> list[float]:
    return values([row for row in findings.rows(arm) if row.get("validity") != "invalid"], metric)


def _panel(axes: Axes, shown: Grid, cells: Sequence[Cell], scale: Normalize) -> None:
    for cell in cells:
        text = range_text(shown.metric, cell)
        _cell(axes, cell.x, cell.y, text, cell.values, cell.state, scale)
    axes.set_xlim(0, len(shown.columns))
    axes.set_ylim(len(shown.rows), 0)
    axes.set_xticks([x + 0.5 for x in range(len(shown.columns))], [_text(c) for c in shown.columns])
    axes.set_yticks([y + 0.5 for y in range(len(shown.rows))], [_text(c) for c in shown.rows])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(names(shown.across))
    axes.set_ylabel(names(shown.down))


def range_text(metric: str, cell: Cell) -> str | None:
    """What stands in a cell; None where it has no value."""
    if not cell.values:
        return None
    return numbers.show_range(metric, cell.values, bare=True, coarse=True)


def _cell(
    axes: Axes,
    x: int,
    y: int,
    text: str | None,
    found: Sequence[float],
    state: str,
    scale: Normalize,
) -> None:
    if text is not None:
        colour = colormaps[MAP](scale(min(found)))
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", lw=2))
        light = 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2] > 0.45
        axes.text(
            x + 0.5,
            y + 0.5,
            text,
            ha="center",
            va="center",
            color=figure_style.INK if light else "white",
        )
        return
    face, hatch, word = STATES.get(state, STATES["pending"])
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="#9a9a9a", hatch=hatch, lw=1))
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    axes.text(
        x + 0.5,
        y + 0.5,
        word,
        ha="center",
        va="center",
        fontsize=8.5,
        color=figure_style.INK,
        bbox=box,
    )


def _text(combination: Sequence[object]) -> str:
    return "\n".join(setting(value) for value in combination)


def names(flags: Sequence[str]) -> str:
    return "  /  ".join(
        flag.lstrip("-").removeprefix("enable-").replace("-", "_") for flag in flags
    )
