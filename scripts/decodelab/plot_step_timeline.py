"""A few decode steps as they went, as an interactive figure: the spans of figure_step_timeline."""

from __future__ import annotations

from collections.abc import Sequence

from decodelab import figure_step_style, figure_step_timeline, numbers, plot
from decodelab.figure_step_timeline import Track
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.plot_step_stack import pattern
from decodelab.words import Words

DEPTH_PX = 22
HIGH = 0.92  # of a depth


def build(findings: Findings, run: str, words: Words) -> Plot | None:
    timeline = findings.profiles[run].timeline
    shown = figure_step_timeline.tracks(timeline)
    if not shown:
        return None
    tops = figure_step_timeline.tops(shown)
    made = Plot(words.plain("plot.step_timeline.title", run=run), findings.sources([run]))
    window = list(figure_step_timeline.window(timeline, figure_step_timeline.steps(timeline)))
    panel = made.panel(
        "",
        plot.axis(words.plain("plot.step_timeline.ms"), range=window),
        plot.axis(
            "",
            tickvals=[top + track.depths / 2 for track, top in zip(shown, tops, strict=False)],
            ticktext=[plot.text(track.label) for track in shown],
            range=[tops[-1] - 0.3, -0.2],
            showgrid=False,
            zeroline=False,
        ),
        height=max(130, round(DEPTH_PX * tops[-1])),
    )
    looks = figure_step_style.looks(findings)
    for region in figure_step_style.order({s[0] for track in shown for s in track.spans}):
        _region(made, panel, shown, tops, region, looks[region], words)
    for number, begin in figure_step_timeline.begins(timeline).items():
        told = words.plain("plot.step_timeline.step", number=str(number))
        made.upright(panel, begin, told, plot.INK)
    return made


def _region(
    made: Plot,
    panel: int,
    shown: Sequence[Track],
    tops: Sequence[float],
    region: str,
    look: figure_step_style.Look,
    words: Words,
) -> None:
    spans = [
        (track.label, top + depth + HIGH / 2, begin, end)
        for track, top in zip(shown, tops, strict=False)
        for name, depth, begin, end in track.spans
        if name == region
    ]
    made.trace(
        panel,
        type="bar",
        orientation="h",
        name=region,
        y=[y for _, y, _, _ in spans],
        base=[begin for _, _, begin, _ in spans],
        x=[end - begin for _, _, begin, end in spans],
        width=HIGH,
        marker={**pattern(look), "line": {"width": 0}},
        text=[_hover(track, begin, end, words) for track, _, begin, end in spans],
        textposition="none",
        meta=plot.hover((words.plain("plot.step_stack.region"), region)),
        hovertemplate="%{meta}<br>%{text}<extra></extra>",
    )


def _hover(track: str, begin: float, end: float, words: Words) -> str:
    return plot.hover(
        (track, numbers.show("region_ms", end - begin)),
        (words.plain("plot.step_timeline.begin"), numbers.show("region_ms", begin)),
    )
