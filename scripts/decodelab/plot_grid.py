"""The heat map of a parameter grid as an interactive figure: the cells of figure_grid."""

from __future__ import annotations

from collections.abc import Sequence

from decodelab import figure_grid, numbers, plot
from decodelab.figure_grid import Cell, Grid
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.report_labels import metric_label, setting
from decodelab.words import Words

_SYMBOLS = {"not_possible": "x", "invalid": "x-thin-open", "screened_out": "circle-open"}
ROW_PX = 46  # at least, of a cell's height


def build(findings: Findings, experiment: str, words: Words) -> Plot | None:
    grid = figure_grid.grid(findings, experiment)
    if grid is None:
        return None
    title = words.plain("plot.grid.title", experiment=experiment)
    made = Plot(title, findings.sources(grid.runs), columns=min(2, len(grid.panels)), right=90)
    named: set[str] = set()
    for (workload, concurrency), cells in grid.panels.items():
        panel = made.panel(
            words.plain("plot.load", workload=workload, concurrency=str(concurrency)),
            _axis(grid.across, grid.columns),
            {**_axis(grid.down, grid.rows), "autorange": "reversed"},
            height=max(220, ROW_PX * len(grid.rows)),
        )
        _values(made, panel, grid, cells, words)
        _states(made, panel, grid, cells, words, named)
    return made


def _axis(flags: Sequence[str], combinations: Sequence[Sequence[object]]) -> dict[str, object]:
    return plot.axis(
        figure_grid.names(flags),
        tickvals=list(range(len(combinations))),
        ticktext=[plot.text(", ".join(setting(v) for v in c)) for c in combinations],
        showgrid=False,
        zeroline=False,
    )


def _values(made: Plot, panel: int, grid: Grid, cells: Sequence[Cell], words: Words) -> None:
    """Of several starts the smallest gives the colour, as in the drawn figure."""
    z: list[list[float | None]] = [[None] * len(grid.columns) for _ in grid.rows]
    shown = [[""] * len(grid.columns) for _ in grid.rows]
    hover = [[""] * len(grid.columns) for _ in grid.rows]
    for cell in cells:
        text = figure_grid.range_text(grid.metric, cell)
        if text is not None:
            z[cell.y][cell.x] = min(cell.values)
            shown[cell.y][cell.x] = plot.text(text)
            hover[cell.y][cell.x] = _hover(grid, cell, words)
    known = grid.known
    if not known:
        return
    unit = numbers.unit(grid.metric)
    made.trace(
        panel,
        type="heatmap",
        z=z,
        text=shown,
        texttemplate="%{text}",
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
        hoverongaps=False,
        colorscale="Cividis",
        zmin=min(known),
        zmax=max(known),
        xgap=2,
        ygap=2,
        showlegend=False,
        showscale=panel == 0,
        colorbar={"title": {"text": plot.text(unit)}, "thickness": 12, "outlinewidth": 0},
    )


def _states(
    made: Plot, panel: int, grid: Grid, cells: Sequence[Cell], words: Words, named: set[str]
) -> None:
    """Cells without a value: one entry of the legend for each reason."""
    reasons: dict[str, list[Cell]] = {}
    for cell in cells:
        if not cell.values:
            state = cell.state if cell.state in figure_grid.STATES else "pending"
            reasons.setdefault(state, []).append(cell)
    for state, those in reasons.items():
        made.trace(
            panel,
            name=words.plain(f"plot.grid.{state}"),
            legendgroup=state,
            showlegend=state not in named,
            mode="markers",
            x=[cell.x for cell in those],
            y=[cell.y for cell in those],
            marker={
                "symbol": _SYMBOLS.get(state, "square-open"),
                "color": plot.SOFT,
                "size": 13,
                "line": {"color": plot.SOFT, "width": 2},
            },
            text=[_hover(grid, cell, words, state) for cell in those],
            hovertemplate="%{text}<extra></extra>",
        )
        named.add(state)


def _hover(grid: Grid, cell: Cell, words: Words, state: str | None = None) -> str:
    flags = zip(
        (*grid.across, *grid.down), (*grid.columns[cell.x], *grid.rows[cell.y]), strict=True
    )
    settings = [(figure_grid.names([flag]), setting(value)) for flag, value in flags]
    name = plot.plain(metric_label(words, grid.metric))
    value = (
        words.plain(f"plot.grid.{state}") if state else numbers.show_range(grid.metric, cell.values)
    )
    return plot.hover(
        *settings, (name, value), (words.plain("plot.run"), ", ".join(cell.arm.names))
    )
