"""Rate against TTFT of a parameter grid as an interactive figure: the points of figure_pareto."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decodelab import figure_pareto, plot
from decodelab.figure_pareto import Board, Entry
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.words import Words


def build(findings: Findings, experiment: str, words: Words) -> Plot | None:
    boards = figure_pareto.drawable(findings, experiment)
    if not boards:
        return None
    runs = [
        run for board in boards for entry in figure_pareto.points(board) for run in entry["runs"]
    ]
    title = words.plain("plot.pareto.title", experiment=experiment)
    made = Plot(title, findings.sources(runs))
    for board in boards:
        _board(made, board, words)
    return made


def _board(made: Plot, board: Board, words: Words) -> None:
    load, concurrency = str(board["workload"]), str(board["concurrency"])
    panel = made.panel(
        words.plain("plot.load", workload=load, concurrency=concurrency),
        plot.axis(words.plain("plot.pareto.ttft")),
        plot.axis(words.plain("plot.pareto.rate")),
        height=300,
    )
    points = figure_pareto.points(board)
    front = [entry for entry in points if entry["pareto"]]
    rest = [entry for entry in points if not entry["pareto"]]
    base = figure_pareto.baseline(board)
    looks: list[tuple[str, Sequence[Entry], dict[str, Any]]] = [
        ("front", front, _mark(figure_pareto.FRONT, size=12)),
        ("rest", rest, _mark(figure_pareto.OTHER, size=9)),
        (
            "baseline",
            [base] if base else [],
            _mark(figure_pareto.BASE, size=20, symbol="circle-open"),
        ),
    ]
    for name, entries, marker in looks:
        if entries:
            made.trace(
                panel,
                name=words.plain(f"plot.pareto.{name}"),
                legendgroup=name,
                showlegend=panel == 0,
                mode="lines+markers+text" if name == "front" else "markers",
                text=[str(place + 1) for place in range(len(entries))],  # as in the drawn figure
                textposition="top center",
                line={"shape": "hv", "width": 1.2, "color": figure_pareto.FRONT},
                x=[entry["ttft"] for entry in entries],
                y=[entry["rate"] for entry in entries],
                marker=marker,
                hovertext=[_hover(entry, words) for entry in entries],
                hovertemplate="%{hovertext}<extra></extra>",
            )


def _mark(colour: str, size: int, symbol: str = "circle") -> dict[str, Any]:
    return {"color": colour, "size": size, "symbol": symbol, "line": {"color": colour, "width": 2}}


def _hover(entry: Entry, words: Words) -> str:
    return plot.hover(
        (words.plain("plot.variant"), str(entry["variant"])),
        (words.plain("plot.pareto.settings"), figure_pareto.label(entry)),
        plot.said(words, "ttft_s_p90", entry["ttft"]),
        plot.said(words, "output_tps_total", entry["rate"]),
        (words.plain("plot.run"), ", ".join(entry["runs"])),
    )
