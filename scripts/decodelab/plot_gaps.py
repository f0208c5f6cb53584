"""How the gaps between output deltas are spread, as an interactive figure: the lines of figure_gaps."""

from __future__ import annotations

from typing import Any

from decodelab import figure_gaps, figure_style, numbers, plot
from decodelab.figure_gaps import Line, Panel
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.words import Words


def build(findings: Findings, experiment: str, words: Words) -> Plot | None:
    shown = figure_gaps.panels(findings, experiment)
    if not shown:
        return None
    runs = [line.run for panel in shown for line in panel.lines]
    title = words.plain("plot.itl.title", experiment=experiment)
    columns = min(figure_gaps.COLUMNS, len(shown))
    made = Plot(title, findings.sources(runs), columns, shared_y=True)
    looks = figure_style.plan_colours(findings.plan)
    dashes = figure_style.plan_dashes(findings.plan)
    named: set[str] = set()
    for one in shown:
        panel = made.panel(_name(one, words), _x(shown, words), _y(words))
        for line in one.lines:
            colour = plot.colour(looks[line.variant][0])
            _line(made, panel, line, colour, plot.dash(dashes[line.variant]), words, named)
    _explained(made, any(line.marked for one in shown for line in one.lines), words)
    return made


def _name(one: Panel, words: Words) -> str:
    if one.rate is not None:
        return words.plain("plot.open_load", workload=one.workload, rate=f"{one.rate:g}")
    concurrency = numbers.count(one.concurrency)
    return words.plain("plot.load", workload=one.workload, concurrency=concurrency)


def _x(shown: list[Panel], words: Words) -> dict[str, Any]:
    longest = max(ms for one in shown for line in one.lines for ms in line.drawn_ms)
    least = figure_gaps.LEAST_MS
    ticks = [least * 10**power for power in range(9) if least * 10**power <= longest * 10]
    said = [f"{tick:g}" for tick in ticks]
    shortest = min(ms for one in shown for line in one.lines for ms in line.ms)
    if shortest < least:
        said[0] = f"≤ {said[0]}"  # shorter gaps stand there
    return plot.axis(words.plain("plot.itl.gap"), type="log", tickvals=ticks, ticktext=said)


def _y(words: Words) -> dict[str, Any]:
    return plot.axis(words.plain("plot.itl.share"), range=[-2, 102])


def _line(
    made: Plot, panel: int, line: Line, colour: str, dash: str, words: Words, named: set[str]
) -> None:
    told = plot.hover(
        (words.plain("plot.variant"), line.variant),
        (words.plain("plot.run"), line.run),
        (words.plain("plot.itl.n"), numbers.count(line.n_gaps)),
    )
    common = {"legendgroup": line.variant, "meta": told}
    made.trace(
        panel,
        **common,
        name=line.variant,
        showlegend=line.variant not in named,
        mode="lines",
        x=line.drawn_ms,
        y=[100 * share for share in line.shares],
        line={"color": colour, "dash": dash, "width": 2, "shape": "hv"},
        text=[
            _hover(ms, share, several, words)
            for ms, share, several in zip(line.ms, line.shares, line.several, strict=True)
        ],
        hovertemplate="%{meta}<br>%{text}<extra></extra>",
    )
    named.add(line.variant)
    if line.marked:
        made.trace(
            panel,
            **common,
            showlegend=False,
            mode="markers",
            x=[ms for ms, _ in line.marked],
            y=[100 * share for _, share in line.marked],
            marker=_diamond(colour),
            hoverinfo="skip",
        )
    made.trace(
        panel,
        **common,
        showlegend=False,
        mode="markers",
        x=[max(line.median_ms, figure_gaps.LEAST_MS)],
        y=[50],
        marker={"color": colour, "size": 9, "line": {"color": plot.PAPER, "width": 1}},
        text=[plot.hover((words.plain("plot.itl.median"), _ms(line.median_ms)))],
        hovertemplate="%{meta}<br>%{text}<extra></extra>",
    )


def _diamond(colour: str) -> dict[str, Any]:
    return {"symbol": "diamond-open", "color": colour, "size": 7, "line": {"width": 1.2}}


def _ms(value: float) -> str:
    return numbers.milliseconds(value / 1000)


def _hover(ms: float, share: float, several: bool, words: Words) -> str:
    told = plot.hover(
        (words.plain("plot.itl.below", gap=_ms(ms)), numbers.show("success_rate", share))
    )
    return told + (f"<br>{plot.text(words.plain('plot.itl.several'))}" if several else "")


def _explained(made: Plot, several: bool, words: Words) -> None:
    """Entries of the legend for marks that every line has."""
    ink = {"color": plot.INK, "size": 9}
    marks = {"median": ink, **({"several": _diamond(plot.INK)} if several else {})}
    for name, marker in marks.items():
        made.trace(
            0,
            name=words.plain(f"plot.itl.{name}"),
            mode="markers",
            x=[None],
            y=[None],
            marker=marker,
            hoverinfo="skip",
        )
