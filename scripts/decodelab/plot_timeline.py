"""Figures over time as interactive ones: the bars and samples of figure_timeline on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decodelab import figure_style, figure_timeline, numbers, plot, request_bars
from decodelab.findings import Findings, Row
from decodelab.plot import Plot
from decodelab.request_bars import Bar, Batch
from decodelab.words import Words

METER_PX = 120
BATCH_PX = 130
ROW_PX = 20  # of a request


def requests(findings: Findings, run: str, words: Words) -> Plot | None:
    shown = request_bars.bars(findings, run)
    if not shown:
        return None
    made = Plot(words.plain("plot.timeline.title", run=run), findings.sources([run]), shared_x=True)
    samples = figure_timeline.timed_samples(findings, run)
    _bars(made, shown, len(request_bars.all_timed(findings, run)), words)
    counted = request_bars.batch(findings, run)
    if counted:
        _batch(made, counted, words)
    meters = [m for m in figure_timeline.METERS[:2] if figure_timeline.has(samples, m[0])]
    _meters(made, [column for column, _ in meters], samples, [one.row for one in shown], words)
    _name_time(made, words.plain("plot.timeline.time"))
    return made


def telemetry(findings: Findings, run: str, words: Words) -> Plot | None:
    samples = figure_timeline.timed_samples(findings, run)
    related = bool(samples)
    samples = samples or figure_timeline.samples_by_record(findings, run)
    meters = [m for m in figure_timeline.METERS if figure_timeline.has(samples, m[0])]
    if not meters:
        return None
    made = Plot(words.plain("plot.telemetry.title", run=run), findings.sources([run]))
    made.shared_x = True
    timed = request_bars.timed(findings, run) if related else []
    _meters(made, [column for column, _ in meters], samples, timed, words)
    _name_time(made, words.plain("plot.timeline.time" if related else "plot.timeline.record"))
    return made


def _name_time(made: Plot, name: str) -> None:
    for panel in made.panels:
        panel["x"] = plot.axis(name)


def _bars(made: Plot, bars: Sequence[Bar], total: int, words: Words) -> None:
    places = request_bars.ticks(bars)
    cut = words.plain("plot.timeline.request_of", shown=str(len(bars)), total=str(total))
    panel = made.panel(
        "",
        {},
        plot.axis(
            words.plain("plot.timeline.request") if total == len(bars) else cut,
            tickvals=places,
            ticktext=[str(bars[place].number) for place in places],
            range=[len(bars) - 0.4, -0.6],
            showgrid=False,
        ),
        height=max(120, 30 + ROW_PX * len(bars)),
    )
    apart = request_bars.told_apart(bars)
    for name, colour in figure_timeline.COLOURS.items():
        spans = [
            (place, bar, begin, end)
            for place, bar in enumerate(bars)
            for part, begin, end in bar.parts
            if part == name
        ]
        if spans:
            made.trace(
                panel,
                type="bar",
                orientation="h",
                name=words.plain(
                    f"plot.timeline.{'prefill' if apart and name == 'wait' else name}"
                ),
                y=[place for place, *_ in spans],
                base=[begin for *_, begin, _ in spans],
                x=[end - begin for *_, begin, end in spans],
                width=0.62,
                marker=_fill(name, colour),
                text=[_request(bar, words) for _, bar, *_ in spans],
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
            )


def _fill(name: str, colour: str) -> dict[str, Any]:
    """What is estimated is hatched."""
    if name != "queue":
        return {"color": colour, "line": {"color": colour, "width": 2}}
    edge = figure_timeline.QUEUE_EDGE
    shape = {"shape": "/", "fgcolor": edge, "bgcolor": colour, "size": 6, "solidity": 0.3}
    return {"color": colour, "pattern": shape, "line": {"width": 0}}


def _batch(made: Plot, counted: Batch, words: Words) -> None:
    """How many requests at once; on an axis from zero, with the server's limit where it is near."""
    most = max([*counted.in_flight, counted.limit or 0])
    axis = plot.axis(words.plain("plot.timeline.at_once"), range=[0, 1.25 * most], nticks=5)
    panel = made.panel("", {}, axis, height=BATCH_PX)
    colours = figure_timeline.COLOURS
    looks: dict[str, dict[str, Any]] = {
        "in_flight": {
            "line": {"color": colours["wait"], "width": 1, "shape": "hv"},
            "fill": "tozeroy",
            "fillcolor": colours["wait"],
        },
        "running": {"line": {"color": plot.INK, "width": 1.5, "shape": "hv", "dash": "dash"}},
        "in_decode": {"line": {"color": colours["decode"], "width": 2, "shape": "hv"}},
    }
    for name, counts in counted.lines.items():
        made.trace(
            panel,
            name=words.plain(f"plot.timeline.{name}"),
            mode="lines",
            x=counted.t_s,
            y=counts,
            **looks[name],
            text=[
                _count(t_s, count, words) for t_s, count in zip(counted.t_s, counts, strict=True)
            ],
            meta=plot.text(words.plain(f"plot.timeline.{name}")),
            hovertemplate="%{meta}: %{text}<extra></extra>",
        )
    if counted.limit is not None:
        made.level(panel, counted.limit, f"max-num-seqs {counted.limit}", plot.WARN)


def _count(t_s: float, count: int, words: Words) -> str:
    told = words.plain("plot.timeline.counted", n=str(count), at=numbers.show("e2e_s", t_s))
    return plot.text(told)


def _request(bar: Bar, words: Words) -> str:
    row, queue = bar.row, []
    if bar.queue is not None:
        queue.append((words.plain("plot.timeline.queue"), numbers.show("e2e_s", bar.queue)))
    return plot.hover(
        (words.plain("plot.timeline.request"), str(bar.number)),
        (words.plain("plot.timeline.outcome"), bar.outcome),
        (words.plain("plot.timeline.begin"), numbers.show("e2e_s", bar.start)),
        *queue,
        plot.said(words, "ttft_s", row.get("ttft_s")),
        plot.said(words, "e2e_s", row.get("e2e_s")),
        plot.said(words, "decode_rate", row.get("decode_rate")),
        plot.said(words, "completion_tokens", row.get("completion_tokens")),
        plot.said(words, "cached_tokens", row.get("cached_tokens")),
    )


def _meters(
    made: Plot, columns: Sequence[str], samples: Sequence[Row], timed: Sequence[Row], words: Words
) -> None:
    """One panel a column, one line a GPU; the power cap where the instrument told it."""
    palette = figure_style.PALETTE
    ends = [row["t_end_s"] for row in timed if row.get("t_end_s") is not None]
    for place, column in enumerate(columns):
        bounds = {"range": [-3, 105]} if column == "util_pct" else {"rangemode": "tozero"}
        axis = plot.axis(numbers.unit(column), **bounds)
        panel = made.panel(words.plain(f"plot.telemetry.{column}"), {}, axis, height=METER_PX)
        for number, gpu in enumerate(figure_timeline.gpu_names(samples)):
            rows = [r for r in samples if r.get("gpu") == gpu and r.get(column) is not None]
            name = figure_timeline.gpu_label(gpu)
            made.trace(
                panel,
                name=name,
                legendgroup=name,
                showlegend=place == 0,
                mode="lines",
                x=[row["t_s"] for row in rows],
                y=[row[column] for row in rows],
                line={"color": plot.colour(palette[number % len(palette)]), "width": 1.5},
                text=[numbers.show(column, row[column]) for row in rows],
                meta=plot.text(name),
                hovertemplate="%{meta}<br>%{x:.2f}: <b>%{text}</b><extra></extra>",
            )
        if ends:
            made.span(panel, 0.0, max(ends))
        if column == "power_w":
            for cap in sorted({row["power_cap_w"] for row in samples if row.get("power_cap_w")}):
                said = words.plain("plot.telemetry.cap", cap=numbers.plain("power_cap_w", cap))
                made.level(panel, cap, said, plot.INK, right=True)
