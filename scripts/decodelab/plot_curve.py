"""The concurrency curve as an interactive figure: the same lines and panels as figure_curve draws."""

from __future__ import annotations

from decodelab import figure_curve, figure_style, numbers, plot
from decodelab.figure_curve import Line
from decodelab.findings import Findings, Row
from decodelab.plot import Plot
from decodelab.words import Words


def build(findings: Findings, experiment: str, words: Words) -> Plot | None:
    curves = figure_curve.lines(findings, experiment)
    panels = figure_curve.panels(curves)
    if not curves or not panels:
        return None
    sources = findings.sources([row["run"] for line in curves for row in line.rows])
    title = words.plain("plot.curve.title", experiment=experiment)
    made = Plot(title, sources, columns=len(panels))
    colours = figure_style.plan_colours(findings.plan)
    named: set[str] = set()
    for name, columns in panels:
        place = made.panel(words.plain(f"plot.curve.{name}"), _x(curves, words), _y())
        for line in curves:
            for column in columns:
                _line(made, place, line, column, colours[line.variant], words, named)
        if name == "total":
            _ideal(made, place, curves, colours, words)
        target = (findings.plan.get("targets") or {}).get("e2e_tps_p10")
        if "e2e_tps_p10" in columns and target:
            told = words.plain("plot.target", target=numbers.target("e2e_tps_p10", target))
            made.level(place, target["value"], told, plot.WARN)
    return made


def _x(curves: list[Line], words: Words) -> dict[str, object]:
    ticks = figure_curve.ticks(curves)
    logarithmic = {"type": "log"} if figure_curve.is_wide(ticks) else {}
    return plot.axis(words.plain("plot.concurrency"), tickvals=ticks, **logarithmic)


def _y() -> dict[str, object]:
    return plot.axis("tok/s", rangemode="tozero")


def _line(
    made: Plot,
    panel: int,
    line: Line,
    column: str,
    look: tuple[str, str],
    words: Words,
    named: set[str],
) -> None:
    rows = [row for row in line.rows if row.get(column) is not None]
    if not rows:
        return
    half, colour = column.endswith("p50"), plot.colour(look[0])
    made.trace(
        panel,
        name=line.variant,
        legendgroup=line.variant,
        showlegend=line.variant not in named,
        mode="lines+markers",
        x=[row["concurrency"] for row in rows],
        y=[row[column] for row in rows],
        line={"color": colour, "width": 2, "dash": "dash" if half else "solid"},
        marker={
            "color": plot.PAPER if half else colour,
            "symbol": plot.SYMBOLS[look[1]],
            "size": 6 if half else 9,
            "line": {"color": colour, "width": 1.5},
        },
        text=[_hover(row, column, words) for row in rows],
        hovertemplate="%{text}<extra></extra>",
    )
    named.add(line.variant)


def _hover(row: Row, column: str, words: Words) -> str:
    return plot.hover(
        (words.plain("plot.variant"), row["variant"]),
        (words.plain("plot.concurrency"), numbers.count(row["concurrency"])),
        plot.said(words, column, row[column]),
        plot.said(words, "ttft_s_p90", row.get("ttft_s_p90")),
        (words.plain("plot.requests"), numbers.count(row.get("n_ok"))),
        (words.plain("plot.run"), row["run"]),
    )


def _ideal(
    made: Plot,
    panel: int,
    curves: list[Line],
    colours: dict[str, tuple[str, str]],
    words: Words,
) -> None:
    shown = False
    for variant, x, y in figure_curve.ideals(curves):
        made.trace(
            panel,
            name=words.plain("plot.curve.ideal"),
            legendgroup="ideal",
            showlegend=not shown,
            mode="lines",
            x=x,
            y=y,
            line={"color": plot.colour(colours[variant][0]), "width": 1.5, "dash": "dot"},
            hoverinfo="skip",
        )
        shown = True
