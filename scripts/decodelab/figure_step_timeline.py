"""A few decode steps as they went: spans by depth, the engine and every rank on rows of their own.

In: the timeline of one run's profile (`step_table.Profile.timeline`, milliseconds since its first step began). Out: a
matplotlib figure; None where there are no spans. Only the first steps and ranks are drawn; the trace has all.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decodelab import figure_font, figure_step_style, figure_style
from decodelab.findings import Findings

MAX_STEPS = 3
MAX_RANKS = 8
MAX_SPANS = 6000  # shapes of one figure: fewer steps where they would be more
FINE = 0.004  # of the axis: spans as short have no edge, which would hide their colour
INCHES = 0.24  # one depth of a track
EDGE = figure_step_style.EDGE
Span = tuple[str, int, float, float]  # region, depth, begin and end in ms


@dataclass(frozen=True)
class Track:
    label: str
    spans: tuple[Span, ...]

    @property
    def depths(self) -> int:
        return 1 + max(depth for _, depth, _, _ in self.spans)


def steps(timeline: Sequence[Mapping[str, Any]]) -> list[int]:
    """The first steps of the workers, as many as can be drawn."""
    workers = [one for one in timeline if one["rank"] is not None and one["spans"]]
    numbers = sorted({one["step"] for one in workers})[:MAX_STEPS]
    while (
        len(numbers) > 1
        and sum(len(o["spans"]) for o in workers if o["step"] in numbers) > MAX_SPANS
    ):
        numbers.pop()
    return numbers


def tracks(timeline: Sequence[Mapping[str, Any]]) -> list[Track]:
    """The engine first, then each rank: its host's spans, and its device's where there are any."""
    chosen = steps(timeline)
    ranks = sorted({one["rank"] for one in timeline if one["rank"] is not None})[:MAX_RANKS]
    shown = window(timeline, chosen)
    found = [_track("engine", [o for o in timeline if o["rank"] is None], shown)]
    for rank in ranks:
        mine = [o for o in timeline if o["rank"] == rank and o["step"] in chosen]
        for device in (False, True):
            label = f"rank {rank}" + (" device" if device else "")
            own = [o for o in mine if bool(o.get("device")) is device]
            found.append(_track(label, own, shown))
    return [track for track in found if track.spans]


def window(timeline: Sequence[Mapping[str, Any]], chosen: Sequence[int]) -> tuple[float, float]:
    spans = [
        s for o in timeline if o["rank"] is not None and o["step"] in chosen for s in o["spans"]
    ]
    return min((s[2] for s in spans), default=0.0), max((s[3] for s in spans), default=0.0)


def _track(label: str, entries: Sequence[Mapping[str, Any]], shown: tuple[float, float]) -> Track:
    begin, end = shown
    spans = [(str(r), int(d), float(b), float(e)) for one in entries for r, d, b, e in one["spans"]]
    return Track(label, tuple(s for s in spans if s[3] >= begin and s[2] <= end))


def renamed(timeline: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return figure_font.stand_ins(
        (s[0] for track in tracks(timeline) for s in track.spans), "region"
    )


def draw(findings: Findings, run: str) -> Figure | None:
    timeline = findings.profiles[run].timeline
    shown = tracks(timeline)
    if not shown:
        return None
    regions = figure_step_style.order({s[0] for track in shown for s in track.spans})
    high = sum(track.depths for track in shown) * INCHES + 0.12 * len(shown)
    of, names = figure_step_style.looks(findings), renamed(timeline)
    below = figure_step_style.legend_inches(regions, names)
    with figure_style.style():
        figure, axes = plt.subplots(
            figsize=(11, max(1.2, high) + below + 1.4), layout="constrained"
        )
        _rows(axes, shown, of)
        _steps(axes, timeline)
        axes.set_xlim(*window(timeline, steps(timeline)))
        axes.set_xlabel("ms since the first step began")
        figure_step_style.legend(figure, regions, of, names)
        figure_style.title(figure, f"Decode steps: {run}")
        figure_style.room(figure)
        figure_style.banner(figure, findings.sources([run]))
    return figure


def _rows(axes: Axes, shown: Sequence[Track], of: Mapping[str, figure_step_style.Look]) -> None:
    """A track is as high as it is deep; what is called inside another lies below it."""
    fine_ms = FINE * (
        max(s[3] for t in shown for s in t.spans) - min(s[2] for t in shown for s in t.spans)
    )
    places = tops(shown)
    for track, y in zip(shown, places, strict=False):
        for name in dict.fromkeys(span[0] for span in track.spans):
            for depth in range(track.depths):
                own = [(b, e - b) for r, d, b, e in track.spans if (r, d) == (name, depth)]
                if own:
                    colour, hatch = of[name]
                    line = 0.25 if statistics.median(ms for _, ms in own) > fine_ms else 0.0
                    axes.broken_barh(
                        own,
                        (y + depth, 0.92),
                        facecolor=colour,
                        hatch=hatch,
                        edgecolor=EDGE,
                        lw=line,
                    )
        axes.axhline(y + track.depths + 0.21, color="#bbbbbb", lw=0.6)
    ticks = [y + track.depths / 2 for track, y in zip(shown, places, strict=False)]
    axes.set_yticks(ticks, [track.label for track in shown])
    axes.set_ylim(places[-1] - 0.3, -0.2)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def begins(timeline: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """When each step begins (ms) on the first rank that begins it."""
    workers = [one for one in timeline if one["rank"] is not None]
    return {
        number: min(s[2] for one in workers if one["step"] == number for s in one["spans"])
        for number in steps(timeline)
    }


def tops(shown: Sequence[Track]) -> list[float]:
    """Where each track begins on the axis, counted downwards; the last one is the axis's end."""
    found = [0.0]
    for track in shown:
        found.append(found[-1] + track.depths + 0.5)
    return found


def _steps(axes: Axes, timeline: Sequence[Mapping[str, Any]]) -> None:
    for number, begin in begins(timeline).items():
        axes.axvline(begin, color=figure_style.INK, lw=0.9, linestyle=(0, (2, 2)))
        axes.annotate(
            f"step {number}",
            (begin, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize=9,
        )
