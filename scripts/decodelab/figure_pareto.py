"""What a grid trades off: total rate against TTFT, one point a combination, the Pareto set numbered.

In: the judge's boards of one experiment. Out: a matplotlib figure, one panel a board; None where no
board has two points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from decodelab import figure_style, naming
from decodelab.findings import Findings
from decodelab.report_labels import setting
from decodelab.report_ranking import boards

FRONT, OTHER, BASE = figure_style.PALETTE[0], "#9a9a9a", figure_style.PALETTE[1]
NEAR = 0.06  # of the axis: closer marks would cover each other
MAX_NAMED = 12  # of the Pareto set, in the legend
Board = Mapping[str, Any]
Entry = Mapping[str, Any]


def draw(findings: Findings, experiment: str) -> Figure | None:
    drawn = drawable(findings, experiment)
    if not drawn:
        return None
    with figure_style.style():
        figure, grid = plt.subplots(
            len(drawn),
            1,
            figsize=(9.0, 3.6 * len(drawn) + 0.4),
            squeeze=False,
            layout="constrained",
        )
        for axes, board in zip(grid[:, 0], drawn, strict=True):
            _panel(axes, board)
        figure_style.title(figure, f"Rate against TTFT: {experiment}")
        figure_style.room(figure)
        names = [run for board in drawn for entry in points(board) for run in entry["runs"]]
        figure_style.banner(figure, findings.sources(names))
    return figure


def drawable(findings: Findings, experiment: str) -> list[Board]:
    """The boards that have something to trade off."""
    return [board for board in boards(findings, experiment) if len(points(board)) > 1]


def points(board: Board) -> list[Entry]:
    """Measured and not invalid, both figures known; of fastest first tokens first."""
    known = [
        entry
        for entry in board["entries"]
        if entry["state"] == "measured" and entry["ttft"] is not None and entry["rate"] is not None
    ]
    return sorted(known, key=lambda entry: (entry["ttft"], -entry["rate"]))


def _panel(axes: Axes, board: Board) -> None:
    known = points(board)
    front = [entry for entry in known if entry["pareto"]]
    rest = [entry for entry in known if not entry["pareto"]]
    axes.plot(*_xy(rest), "o", color=OTHER, ms=6, alpha=0.8, zorder=2)
    axes.step(*_xy(front), where="post", color=FRONT, lw=1.2, alpha=0.6, zorder=3)
    handles = [_base(axes, board)]
    for number, place in _numbered(front, known):
        wide = 13 if len(number) == 1 else 19
        axes.plot(place["ttft"], place["rate"], "o", color=FRONT, ms=wide, zorder=4)
        axes.annotate(
            number,
            (place["ttft"], place["rate"]),
            ha="center",
            va="center",
            color="white",
            fontsize=8.5,
            fontweight="bold",
            zorder=5,
        )
    handles += [
        _handle(f"{number}  {label(entry)}", FRONT, "o")
        for number, entry in enumerate(front[:MAX_NAMED], start=1)
    ]
    if len(front) > MAX_NAMED:
        handles.append(_handle(f"and {len(front) - MAX_NAMED} more", FRONT, "o"))
    if rest:
        handles.append(_handle(f"{len(rest)} that another beats in both", OTHER, "o"))
    axes.legend(
        handles=[handle for handle in handles if handle is not None],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        handletextpad=0.3,
    )
    axes.margins(0.12)
    figure_style.finish(
        axes,
        "TTFT P90 (s), shorter is better",
        "total Output TPS (tok/s)",
        f"workload {board['workload']}, concurrency {board['concurrency']}",
    )


def _numbered(front: Sequence[Entry], reach: Sequence[Entry]) -> list[tuple[str, Entry]]:
    """Numbers of the legend; points whose marks would cover each other share one."""
    if not front:
        return []
    spans = [max(abs(e[k] - f[k]) for e in reach for f in reach) or 1.0 for k in ("ttft", "rate")]
    places: list[tuple[list[int], Entry]] = []
    for number, entry in enumerate(front, start=1):
        near = places and all(
            abs(entry[key] - places[-1][1][key]) <= NEAR * span
            for key, span in zip(("ttft", "rate"), spans, strict=True)
        )
        if near:
            places[-1][0].append(number)
        else:
            places.append(([number], entry))
    return [(_span(numbers), entry) for numbers, entry in places]


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def baseline(board: Board) -> Entry | None:
    """The point that the board compares the others with."""
    name = ((board["best"] or {}).get("baseline") or {}).get("variant")
    return next((entry for entry in points(board) if entry["variant"] == name), None)


def _base(axes: Axes, board: Board) -> Line2D | None:
    entry = baseline(board)
    if entry is None:
        return None
    axes.plot(entry["ttft"], entry["rate"], "o", mfc="none", mec=BASE, ms=19, mew=1.8, zorder=6)
    return _handle(f"baseline  {label(entry)}", BASE, "o", hollow=True)


def _handle(text: str, colour: str, marker: str, hollow: bool = False) -> Line2D:
    face = "none" if hollow else colour
    return Line2D([], [], ls="", marker=marker, mec=colour, mfc=face, ms=8, mew=1.6, label=text)


def _xy(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
    return [entry["ttft"] for entry in entries], [entry["rate"] for entry in entries]


def label(entry: Entry) -> str:
    """`mns 2, mnbt 4096, ecp off, nss 4`: the initials that the cell's name has too."""
    cell = entry["cell"]
    words = [f"{naming.initials(flag)} {setting(value)}" for flag, value in cell.items()]
    return ", ".join(words) or str(entry["variant"])
