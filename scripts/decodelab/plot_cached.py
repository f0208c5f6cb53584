"""TTFT against cached tokens as an interactive figure: the points of figure_cached."""

from __future__ import annotations

from decodelab import figure_cached, figure_style, numbers, plot
from decodelab.figure_cached import Panel, Point
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.words import Words


def build(findings: Findings, experiment: str, words: Words) -> Plot | None:
    shown = figure_cached.panels(findings, experiment)
    if not shown:
        return None
    runs = [point.run for panel in shown for point in panel.points]
    title = words.plain("plot.cached.title", experiment=experiment)
    made = Plot(title, findings.sources(runs), len(shown), shared_y=True)
    looks = figure_style.plan_colours(findings.plan)
    unit, factor = figure_cached.time_unit(shown)
    top = 1.08 * factor * max(point.ttft_s for one in shown for point in one.points)
    sizes = figure_cached.sizes_of(shown)
    named: set[str] = set()
    for one in shown:
        x = plot.axis(words.plain("plot.cached.tokens"), nticks=6)
        y = plot.axis(f"TTFT ({unit})", range=[0, top])
        panel = made.panel(_name(one, words), x, y)
        for variant in [name for name in looks if any(p.variant == name for p in one.points)]:
            points = [point for point in one.points if point.variant == variant]
            colour, symbol = plot.colour(looks[variant][0]), plot.SYMBOLS[looks[variant][1]]
            made.trace(
                panel,
                name=variant,
                legendgroup=variant,
                showlegend=variant not in named,
                mode="markers",
                x=[point.cached_tokens for point in points],
                y=[factor * point.ttft_s for point in points],
                marker={
                    "color": colour,
                    "symbol": [symbol if point.warm else f"{symbol}-open" for point in points],
                    "size": [1.3 * sizes[point.prompt_tokens] for point in points],
                    "opacity": 0.75,
                    "line": {"color": colour, "width": 1.6},
                },
                text=[_hover(point, words) for point in points],
                meta=plot.hover((words.plain("plot.variant"), variant)),
                hovertemplate="%{meta}<br>%{text}<extra></extra>",
            )
            named.add(variant)
    _explained(made, {point.warm for one in shown for point in one.points}, words)
    return made


def _name(one: Panel, words: Words) -> str:
    load = words.plain("plot.load", workload=one.workload, concurrency=str(one.concurrency))
    if one.declared not in ("cold", "warm"):
        return load
    return words.plain("plot.cached.declared", load=load, state=one.declared)


def _explained(made: Plot, states: set[bool], words: Words) -> None:
    """What hollow and filled marks mean, in the legend."""
    for warm, name, symbol in ((False, "cold", "circle-open"), (True, "warm", "circle")):
        if warm in states:
            made.trace(
                0,
                name=words.plain(f"plot.cached.{name}"),
                mode="markers",
                x=[None],
                y=[None],
                marker={"symbol": symbol, "color": plot.INK, "size": 9},
                hoverinfo="skip",
            )


def _hover(point: Point, words: Words) -> str:
    return plot.hover(
        (words.plain("plot.run"), point.run),
        (words.plain("plot.timeline.request"), str(point.index + 1)),
        plot.said(words, "ttft_s", point.ttft_s),
        plot.said(words, "cached_tokens", point.cached_tokens),
        (plot.said(words, "prompt_tokens", None)[0], numbers.count(point.prompt_tokens)),
    )
