"""The concurrency curve: per-request and total rates against concurrency, with the target and the
ideal line.

In: the rows of runs.csv of one experiment. Out: a matplotlib figure, or None where no variant has
two concurrencies. One point is one start; a line joins the points of one start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import ScalarFormatter

from decodelab import figure_style
from decodelab.findings import Findings, Row

WIDE = 8  # a wider span of concurrencies is drawn on a logarithmic axis
P10: Any = "-"
P50: Any = (0, (4, 2))
_PANELS = (
    ("decode", ("decode_tps_p10", "decode_tps_p50")),
    ("official", ("e2e_tps_p10",)),
    ("total", ("output_tps_total",)),
)
_NAMES = {
    "decode": "per request: Output TPS (decode)",
    "official": "per request: e2e TPS (official)",
    "total": "total Output TPS",
}


@dataclass(frozen=True)
class Line:
    variant: str
    start: float
    rows: list[Row]  # by concurrency


def lines(findings: Findings, experiment: str) -> list[Line]:
    """The runs of each variant, start and workload, where they make a curve. An open loop has none:
    its concurrency is a cap.
    """
    groups: dict[tuple[str, float, str], list[Row]] = {}
    for arm in findings.arms(experiment):
        if findings.is_cell(arm.variant):
            continue
        for row in findings.rows(arm):
            drawn = row.get("validity") != "invalid" and row.get("rate") is None
            if drawn and row.get("concurrency") is not None:
                key = (arm.variant, row.get("start") or 1.0, arm.workload)
                groups.setdefault(key, []).append(row)
    curves = [
        Line(v, s, sorted(rows, key=lambda r: r["concurrency"]))
        for (v, s, _), rows in groups.items()
    ]
    return [line for line in curves if len({row["concurrency"] for row in line.rows}) > 1]


def panels(curves: Sequence[Line]) -> list[tuple[str, tuple[str, ...]]]:
    """Name and columns of runs.csv of each panel that has a value."""
    return [panel for panel in _PANELS if _has(curves, panel[1])]


def ticks(curves: Sequence[Line]) -> list[float]:
    """Every concurrency that a curve has, ascending."""
    return sorted({row["concurrency"] for line in curves for row in line.rows})


def is_wide(concurrencies: Sequence[float]) -> bool:
    """Whether the axis is logarithmic."""
    return concurrencies[-1] > WIDE * concurrencies[0]


def ideals(curves: Sequence[Line]) -> list[tuple[str, list[float], list[float]]]:
    """Variant, concurrencies and rates (tok/s) of each ideal line: proportional to concurrency from
    the lowest point of each variant's first start.
    """
    found: dict[str, tuple[str, list[float], list[float]]] = {}
    for line in curves:
        first = line.rows[0]
        if line.variant not in found and first.get("output_tps_total"):
            slope = first["output_tps_total"] / first["concurrency"]
            x = [row["concurrency"] for row in line.rows]
            found[line.variant] = (line.variant, x, [slope * c for c in x])
    return list(found.values())


def draw(findings: Findings, experiment: str) -> Figure | None:
    curves = lines(findings, experiment)
    shown = panels(curves)
    if not curves or not shown:
        return None
    colours = figure_style.plan_colours(findings.plan)
    target = (findings.plan.get("targets") or {}).get("e2e_tps_p10")
    with figure_style.style():
        figure, grid = plt.subplots(
            1, len(shown), figsize=(3.9 * len(shown), 4.4), squeeze=False, layout="constrained"
        )
        for axes, (name, columns) in zip(grid[0], shown, strict=True):
            for line in curves:
                _plot(axes, line, columns, colours)
            if "output_tps_total" in columns:
                _ideal(axes, curves, colours)
            if "e2e_tps_p10" in columns and target:
                _target(axes, target)
            _axes(axes, curves, name)
        _legend(figure, curves, colours, shown)
        figure_style.title(figure, f"Concurrency curve: {experiment}")
        figure_style.room(figure)
        figure_style.banner(
            figure, findings.sources([row["run"] for line in curves for row in line.rows])
        )
    return figure


def _has(curves: Sequence[Line], columns: Sequence[str]) -> bool:
    return any(
        row.get(column) is not None for line in curves for row in line.rows for column in columns
    )


def _plot(
    axes: Axes, line: Line, columns: Sequence[str], colours: Mapping[str, tuple[str, str]]
) -> None:
    colour, marker = colours[line.variant]
    for column in columns:
        points = [
            (row["concurrency"], row[column]) for row in line.rows if row.get(column) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            style = P50 if column.endswith("p50") else P10
            half = column.endswith("p50")
            face, size = ("white", 3.5) if half else (colour, 6.5)
            axes.plot(
                x,
                y,
                linestyle=style,
                color=colour,
                marker=marker,
                markerfacecolor=face,
                ms=size,
                lw=1.8,
            )


def _ideal(axes: Axes, curves: Sequence[Line], colours: Mapping[str, tuple[str, str]]) -> None:
    totals = [row["output_tps_total"] for line in curves for row in line.rows]
    top = max(total for total in totals if total)
    for variant, x, y in ideals(curves):
        axes.plot(x, y, linestyle=":", color=colours[variant][0], lw=1.4, alpha=0.75)
        top = max(top, y[-1])
    axes.set_ylim(0, top * 1.06)


def _target(axes: Axes, target: Mapping[str, Any]) -> None:
    axes.axhline(target["value"], color=figure_style.TARGET, lw=1.4, linestyle=(0, (6, 2)))
    axes.annotate(
        f"target {target['op']} {target['value']:g}",
        (0.02, target["value"]),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color=figure_style.TARGET,
        fontsize=10,
    )


def _axes(axes: Axes, curves: Sequence[Line], name: str) -> None:
    known = ticks(curves)
    if is_wide(known):
        axes.set_xscale("log", base=2)
    axes.set_xticks(known)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.margins(x=0.08)
    axes.set_ylim(
        0, max(axes.get_ylim()[1], 1e-9) * 1.08 if name != "total" else axes.get_ylim()[1]
    )
    figure_style.finish(axes, "concurrency (requests in flight)", "tok/s", _NAMES[name])


def _legend(
    figure: Figure,
    curves: Sequence[Line],
    colours: Mapping[str, tuple[str, str]],
    shown: Sequence[Any],
) -> None:
    variants = list(dict.fromkeys(line.variant for line in curves))
    handles = [
        Line2D([], [], color=colours[name][0], marker=colours[name][1], lw=1.8, label=name)
        for name in variants
    ]
    handles.append(
        Line2D([], [], color=figure_style.INK, linestyle=P10, lw=1.6, label="P10 / total")
    )
    if any("decode_tps_p50" in columns for _, columns in shown):
        handles.append(Line2D([], [], color=figure_style.INK, linestyle=P50, lw=1.6, label="P50"))
    handles.append(
        Line2D([], [], color=figure_style.INK, linestyle=":", lw=1.6, label="ideal (proportional)")
    )
    figure_style.legend_below(figure, handles)
