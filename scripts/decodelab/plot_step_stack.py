"""Where a step's time goes as an interactive figure: the bars of figure_step_stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decodelab import figure_step_stack, figure_step_style, figure_style, numbers, plot
from decodelab.figure_step_stack import Bar
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.words import Words

WIDTH = 0.5  # of a row
PATTERNS = {".": ".", "/": "/", "\\": "\\", "x": "x", "+": "+", "o": "|"}  # of matplotlib's hatches


def build(findings: Findings, experiment: str, words: Words) -> Plot | None:
    shown = figure_step_stack.panels(findings, experiment)
    if not shown:
        return None
    title = words.plain("plot.step_stack.title", experiment=experiment)
    made = Plot(title, findings.sources(figure_step_stack.runs(findings, experiment)))
    looks = figure_step_style.looks(findings)
    named: set[str] = set()
    for phase, bars in shown.items():
        x = plot.axis(words.plain("plot.step_stack.ms"), rangemode="tozero")
        labels = [figure_step_style.wrapped(bar.label) for bar in bars]
        panel = made.rows(words.plain(f"plot.step_stack.{phase}"), x, labels, row_px=48)
        for row, bar in enumerate(bars):
            made.note(panel, row, _said(bar, words), plot.INK if bar.ms else plot.MISSED)
        for region in figure_step_stack.regions_of({phase: bars}):
            _region(made, panel, bars, region, looks[region], words, region not in named)
            named.add(region)
    return made


def _said(bar: Bar, words: Words) -> str:
    state = bar.state.replace(" ", "_") or "none_measured"
    told = _ms(bar.total_ms) if bar.ms else words.plain(f"plot.step_stack.{state}")
    return f"{told} (n = {bar.launches})" if bar.launches > 1 else told


def _ms(value: float) -> str:
    return numbers.show("region_ms", value)


def pattern(look: figure_step_style.Look) -> dict[str, Any]:
    """The fill of a region, as its colour and hatch are drawn."""
    colour, hatch = look
    line = {"color": figure_step_style.EDGE, "width": 0.6}
    if not hatch:
        return {"color": colour, "line": line}
    shape = {
        "shape": PATTERNS[hatch[0]],
        "fgcolor": figure_step_style.EDGE,
        "bgcolor": colour,
        "size": 6,
        "solidity": 0.25,
    }
    return {"color": colour, "pattern": shape, "line": line}


def _region(
    made: Plot,
    panel: int,
    bars: Sequence[Bar],
    region: str,
    look: figure_step_style.Look,
    words: Words,
    first: bool,
) -> None:
    """A region's part of each bar; labelled where the drawn figure labels it."""
    longest = max(bar.total_ms for bar in bars)
    found = [(row, bar, bar.ms[region]) for row, bar in enumerate(bars) if region in bar.ms]
    least = figure_step_stack.LABELLED * longest
    label = figure_style.INK if look[1] else figure_step_style.ink(look[0])
    made.trace(
        panel,
        type="bar",
        orientation="h",
        name=region,
        legendgroup=region,
        showlegend=first,
        x=[ms for *_, ms in found],
        y=[row for row, *_ in found],
        width=WIDTH,
        marker=pattern(look),
        text=[f"{ms:.1f}" if ms >= least and not look[1] else "" for *_, ms in found],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": label, "size": 11},
        hovertext=[_hover(bar, region, ms, words) for _, bar, ms in found],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _hover(bar: Bar, region: str, ms: float, words: Words) -> str:
    return plot.hover(
        (words.plain("plot.variant"), bar.label),
        (words.plain("plot.step_stack.region"), region),
        (words.plain("plot.step_stack.ms"), _ms(ms)),
        (words.plain("plot.step_stack.share"), numbers.show("region_share", ms / bar.total_ms)),
        (words.plain("plot.step_stack.whole"), _ms(bar.total_ms)),
        (words.plain("plot.launches"), numbers.count(bar.launches)),
    )
