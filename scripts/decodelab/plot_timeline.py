"""Figures over time as interactive ones: the bars and samples of figure_timeline on one time axis."""

from __future__ import annotations

from collections.abc import Sequence

from decodelab import figure_style, figure_timeline, numbers, plot
from decodelab.figure_timeline import Bar
from decodelab.findings import Findings, Row
from decodelab.plot import Plot
from decodelab.words import Words

METER_PX = 120
ROW_PX = 20  # of a request


def requests(findings: Findings, run: str, words: Words) -> Plot | None:
    timed = figure_timeline.timed(findings, run)
    if not timed:
        return None
    made = Plot(words.plain("plot.timeline.title", run=run), findings.sources([run]), shared_x=True)
    samples = figure_timeline.timed_samples(findings, run)
    _bars(made, [figure_timeline.bar(row) for row in timed], words)
    meters = [m for m in figure_timeline.METERS[:2] if figure_timeline.has(samples, m[0])]
    _meters(made, [column for column, _ in meters], samples, timed, words)
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
    timed = figure_timeline.timed(findings, run) if related else []
    _meters(made, [column for column, _ in meters], samples, timed, words)
    _name_time(made, words.plain("plot.timeline.time" if related else "plot.timeline.record"))
    return made


def _name_time(made: Plot, name: str) -> None:
    for panel in made.panels:
        panel["x"] = plot.axis(name)


def _bars(made: Plot, bars: Sequence[Bar], words: Words) -> None:
    panel = made.panel(
        "",
        {},
        plot.axis(
            words.plain("plot.timeline.request"),
            tickvals=list(range(len(bars))),
            ticktext=[str(bar.number) for bar in bars],
            range=[len(bars) - 0.4, -0.6],
            showgrid=False,
        ),
        height=max(120, 30 + ROW_PX * len(bars)),
    )
    places = list(enumerate(bars))
    parts = {
        "waiting": (figure_timeline.WAIT, [(p, b, b.start, b.first) for p, b in places]),
        "decode": (
            figure_timeline.DECODE,
            [(p, b, b.first, b.end) for p, b in places if not b.failed and b.end != b.first],
        ),
        "failed": (
            figure_timeline.FAILED,
            [(p, b, b.first, b.end) for p, b in places if b.failed],
        ),
    }
    for name, (colour, spans) in parts.items():
        if spans:
            made.trace(
                panel,
                type="bar",
                orientation="h",
                name=words.plain(f"plot.timeline.{name}"),
                y=[place for place, *_ in spans],
                base=[start for *_, start, _ in spans],
                x=[end - start for *_, start, end in spans],
                width=0.62,
                marker={"color": colour, "line": {"color": colour, "width": 2}},
                text=[_request(bar, words) for _, bar, *_ in spans],
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
            )


def _request(bar: Bar, words: Words) -> str:
    row = bar.row
    return plot.hover(
        (words.plain("plot.timeline.request"), str(bar.number)),
        (words.plain("plot.timeline.outcome"), bar.outcome),
        (words.plain("plot.timeline.begin"), numbers.show("e2e_s", bar.start)),
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
                hovertemplate=f"{plot.text(name)}<br>%{{x:.2f}}: <b>%{{text}}</b><extra></extra>",
            )
        if ends:
            made.span(panel, 0.0, max(ends))
        if column == "power_w":
            for cap in sorted({row["power_cap_w"] for row in samples if row.get("power_cap_w")}):
                said = words.plain("plot.telemetry.cap", cap=numbers.plain("power_cap_w", cap))
                made.level(panel, cap, said, plot.INK, right=True)
