"""The differences of an experiment as an interactive figure: the rows of figure_effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from decodelab import figure_effects, figure_style, numbers, plot
from decodelab.figure_effects import Point
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.report_labels import metric_label
from decodelab.words import Words

SYMBOLS = {word: plot.SYMBOLS[marker] for word, marker in figure_effects.MARKERS.items()}
Row = tuple[int, Point]


def build(findings: Findings, experiment: str, words: Words) -> Plot | None:
    shown = figure_effects.points(findings, experiment)
    if not shown:
        return None
    title = words.plain("plot.effects.title", experiment=experiment)
    made = Plot(title, figure_effects.sources_of(findings, experiment))
    reach = list(figure_effects.reach_of(shown))
    x = plot.axis(_named(shown, words), range=reach, zerolinecolor=plot.INK, zerolinewidth=1.5)
    panel = made.rows("", x, [_label(one, words) for one in shown], row_px=46)
    rows = list(enumerate(shown))
    _noise(made, panel, [row for row in rows if row[1].interval and row[1].noise], words)
    looks = figure_style.plan_colours(findings.plan)
    of: dict[str, list[Row]] = {}
    for row, one in rows:
        made.note(panel, row, _said(one, words), plot.INK if one.interval else plot.SOFT)
        if one.interval:
            of.setdefault(one.candidate if one.candidate in looks else "", []).append((row, one))
    for candidate, those in of.items():
        colour = plot.colour(looks[candidate][0]) if candidate else plot.INK
        _effects(made, panel, candidate, those, colour, words)
    _smallest(made, panel, [row for row in rows if row[1].interval and row[1].smallest], words)
    return made


def _label(one: Point, words: Words) -> str:
    names = {name: words.plain(f"plot.{name}") for name in ("concurrency", "rate")}
    return one.told(words.plain("plot.effects.against"), names)


def _named(shown: Sequence[Point], words: Words) -> str:
    metric = figure_effects.one_metric(shown)
    told = {} if metric is None else {"metric": plot.plain(metric_label(words, metric))}
    unit = "points" if figure_effects.all_in_points(shown) else "percent"
    kind = "axis" if told else "axis_of_several"
    return words.plain(f"plot.effects.{kind}", **told, unit=words.plain(f"plot.effects.{unit}"))


def _amount(one: Point, value: float | None, words: Words) -> str:
    told = numbers.effect(value)
    return words.plain("plot.effects.in_points", value=told) if one.in_points else told


def _said(one: Point, words: Words) -> str:
    verdict = words.plain(f"verdict.{one.word}")
    return f"{_amount(one, one.effect, words)}, {verdict}" if one.interval else verdict


def _noise(made: Plot, panel: int, rows: Sequence[Row], words: Words) -> None:
    if rows:
        made.trace(
            panel,
            type="bar",
            orientation="h",
            name=words.plain("plot.effects.noise"),
            y=[row for row, _ in rows],
            base=[-100 * one.noise for _, one in rows],
            x=[200 * one.noise for _, one in rows],
            width=0.7,
            marker={"color": plot.SOFT, "line": {"width": 0}},
            opacity=0.28,
            text=["±" + numbers.size(one.noise) for _, one in rows],
            textposition="none",
            meta=plot.text(words.plain("plot.effects.noise")),
            hovertemplate="%{meta}: <b>%{text}</b><extra></extra>",
        )


def _smallest(made: Plot, panel: int, rows: Sequence[Row], words: Words) -> None:
    if rows:
        made.trace(
            panel,
            name=words.plain("plot.effects.smallest"),
            mode="markers",
            x=[100 * (one.smallest or 0.0) for _, one in rows],
            y=[row for row, _ in rows],
            marker={
                "symbol": "line-ns-open",
                "size": 28,
                "color": plot.MISSED,
                "line": {"color": plot.MISSED, "width": 2},
            },
            text=[numbers.size(one.smallest) for _, one in rows],
            meta=plot.text(words.plain("plot.effects.smallest")),
            hovertemplate="%{meta}: <b>%{text}</b><extra></extra>",
        )


def _effects(
    made: Plot, panel: int, candidate: str, rows: Sequence[Row], colour: str, words: Words
) -> None:
    """A candidate's differences with their intervals; combinations of a grid together."""
    told = [(row, one, one.effect, one.interval) for row, one in rows]
    known = [(r, one, e, i) for r, one, e, i in told if e is not None and i is not None]
    made.trace(
        panel,
        name=candidate or words.plain("plot.effects.cells"),
        mode="markers",
        x=[100 * effect for _, _, effect, _ in known],
        y=[row for row, *_ in known],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [100 * (high - effect) for _, _, effect, (_, high) in known],
            "arrayminus": [100 * (effect - low) for _, _, effect, (low, _) in known],
            "color": colour,
            "thickness": 2.4,
            "width": 6,
        },
        marker={
            "color": colour,
            "symbol": [SYMBOLS.get(one.word, "x") for _, one, _, _ in known],
            "size": 11,
            "line": {"color": plot.PAPER, "width": 1},
        },
        text=[_hover(one, words) for _, one, _, _ in known],
        hovertemplate="%{text}<extra></extra>",
    )


def _hover(one: Point, words: Words) -> str:
    names: Mapping[str, str | None] = {
        "noise": numbers.size(one.noise) if one.noise else None,
        "smallest": numbers.size(one.smallest) if one.smallest else None,
    }
    bounds = " … ".join(_amount(one, bound, words) for bound in one.interval or ())
    return plot.hover(
        (words.plain("plot.effects.question"), _label(one, words).replace("\n", ", ")),
        (plot.plain(metric_label(words, one.metric)), _amount(one, one.effect, words)),
        (words.plain("plot.interval"), bounds),
        *((words.plain(f"plot.effects.{name}"), value) for name, value in names.items() if value),
        (words.plain("plot.effects.verdict"), words.plain(f"verdict.{one.word}")),
        (words.plain("plot.runs"), numbers.count(len(one.runs))),
    )
