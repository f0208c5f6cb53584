"""The targets against what was measured as an interactive figure: the dots of figure_gates."""

from __future__ import annotations

from collections.abc import Sequence

from decodelab import figure_gates, numbers, plot
from decodelab.figure_gates import Dot, Panel
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.report_labels import metric_label
from decodelab.words import Words

LOOKS = {
    "met": (True, plot.MET, "circle"),
    "missed": (False, plot.MISSED, "square"),
    "open": (None, plot.SOFT, "circle-open"),
}


def build(findings: Findings, _subject: str, words: Words) -> Plot | None:
    shown = figure_gates.panels(findings)
    if not shown:
        return None
    runs = [dot.run for panel in shown for row in panel.rows.values() for dot in row]
    columns = min(figure_gates.PANELS, len(shown))
    made = Plot(words.plain("plot.gates.title"), findings.sources(runs), columns, shared_y=True)
    named: set[str] = set()
    for one in shown:
        _panel(made, one, words, named)
    return made


def _panel(made: Plot, one: Panel, words: Words, named: set[str]) -> None:
    factor = figure_gates.factor_of(one)
    name = plot.plain(metric_label(words, one.metric))
    x = plot.axis(numbers.unit(one.metric), rangemode="tozero", nticks=5)
    labels = [figure_gates.short(label) for label in one.rows]
    panel = made.rows(f"{name} {one.limit}", x, labels)
    made.upright(panel, one.target * factor, "", plot.INK)
    for row, dots in enumerate(one.rows.values()):
        colour = next(c for met, c, _ in LOOKS.values() if met is figure_gates.worst(dots))
        unknown, undecided = words.plain("plot.gates.unknown"), words.plain("plot.gates.open")
        made.note(panel, row, figure_gates.said(dots, unknown, undecided), colour)
    for state in LOOKS:
        _dots(made, panel, one, state, words, named)


def _dots(made: Plot, panel: int, one: Panel, state: str, words: Words, named: set[str]) -> None:
    met, colour, symbol = LOOKS[state]
    found = [
        (row, label, dot)
        for row, (label, dots) in enumerate(one.rows.items())
        for dot in dots
        if dot.met is met and dot.value is not None
    ]
    if not found:
        return
    factor = figure_gates.factor_of(one)
    values = [dot.value or 0.0 for _, _, dot in found]
    made.trace(
        panel,
        name=words.plain(f"plot.gates.{state}"),
        legendgroup=state,
        showlegend=state not in named,
        mode="markers",
        x=[factor * value for value in values],
        y=[row for row, _, _ in found],
        error_x=_intervals([dot for _, _, dot in found], factor, colour),
        marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2}},
        cliponaxis=False,
        text=[_hover(one, label, dot, state, words) for _, label, dot in found],
        hovertemplate="%{text}<extra></extra>",
    )
    named.add(state)


def _intervals(dots: Sequence[Dot], factor: float, colour: str) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [factor * _beyond(dot)[1] for dot in dots],
        "arrayminus": [factor * _beyond(dot)[0] for dot in dots],
        "color": colour,
        "thickness": 2,
        "width": 4,
        "visible": any(dot.interval for dot in dots),
    }


def _beyond(dot: Dot) -> tuple[float, float]:
    """How far the interval reaches below and above the value; (0, 0) without one."""
    if dot.interval is None or dot.value is None:
        return 0.0, 0.0
    low, high = dot.interval
    return dot.value - low, high - dot.value


def _hover(one: Panel, label: str, dot: Dot, state: str, words: Words) -> str:
    lines = [
        (words.plain("plot.variant"), label.replace("\n", ", ")),
        plot.said(words, one.metric, dot.value),
        (words.plain("plot.gates.target"), one.limit),
        (words.plain("plot.gates.outcome"), words.plain(f"plot.gates.{state}")),
        (words.plain("plot.gates.margin"), numbers.effect(dot.margin)),
    ]
    if dot.interval:
        bounds = " … ".join(numbers.show(one.metric, bound) for bound in dot.interval)
        lines.append((words.plain("plot.interval"), bounds))
    if dot.n:
        lines.append((words.plain("plot.gates.requests"), numbers.count(dot.n)))
    return plot.hover(*lines, (words.plain("plot.run"), dot.run))
