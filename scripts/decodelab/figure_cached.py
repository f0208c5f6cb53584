"""What the prefix cache does to the wait: TTFT against cached tokens, request by request.

In: requests.csv of an experiment's runs. Out: a matplotlib figure, or None where the successes do not differ in their
cached tokens. Cold is a request of which nothing was cached; warm is any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from decodelab import figure_style
from decodelab.findings import Findings

MAX_PANELS = 4
SMALL, LARGE = 5.0, 15.0  # size of a marker (points) for the fewest and the most prompt tokens
Look = tuple[str, str]


@dataclass(frozen=True)
class Point:
    """One success."""

    variant: str
    run: str
    index: int
    cached_tokens: float
    prompt_tokens: float | None
    ttft_s: float

    @property
    def warm(self) -> bool:
        return self.cached_tokens > 0


@dataclass(frozen=True)
class Panel:
    workload: str
    concurrency: int
    declared: str | None  # state of the cache that the workload declares: as_is, cold or warm
    points: list[Point]

    @property
    def name(self) -> str:
        told = f" (declared {self.declared})" if self.declared in ("cold", "warm") else ""
        return f"{self.workload}, concurrency {self.concurrency}{told}"


def panels(findings: Findings, experiment: str) -> list[Panel]:
    """The loads whose requests differ in their cached tokens, those with the most requests where they are too many."""
    groups: dict[tuple[str, int, str | None], list[Point]] = {}
    for arm in findings.arms(experiment):
        if findings.is_cell(arm.variant):
            continue
        for row in findings.rows(arm):
            if row.get("validity") != "invalid":
                key = (arm.workload, arm.concurrency, row.get("cache"))
                groups.setdefault(key, []).extend(_points(findings, arm.variant, row["run"]))
    found = [
        Panel(*key, points)
        for key, points in groups.items()
        if len({point.cached_tokens for point in points}) > 1
    ]
    kept = sorted(found, key=lambda panel: -len(panel.points))[:MAX_PANELS]
    return [panel for panel in found if panel in kept]


def _points(findings: Findings, variant: str, run: str) -> list[Point]:
    return [
        Point(
            variant,
            run,
            int(row.get("index") or 0),
            row["cached_tokens"],
            row.get("prompt_tokens"),
            row["ttft_s"],
        )
        for row in findings.requests.get(run, [])
        if row.get("outcome") == "ok"
        and row.get("cached_tokens") is not None
        and row.get("ttft_s") is not None
    ]


def draw(findings: Findings, experiment: str) -> Figure | None:
    shown = panels(findings, experiment)
    if not shown:
        return None
    looks = figure_style.plan_colours(findings.plan)
    sizes = sizes_of(shown)
    unit, factor = time_unit(shown)
    with figure_style.style():
        figure, grid = plt.subplots(
            1,
            len(shown),
            sharey=True,
            squeeze=False,
            figsize=(max(7.5, 3.4 + 2.9 * len(shown)), 4.6),
            layout="constrained",
        )
        for axes, panel in zip(grid[0], shown, strict=True):
            for point in panel.points:
                _plot(axes, point, looks[point.variant], sizes, factor)
            axes.set_title(figure_style.shortened(panel.name, 44), loc="left", fontsize=10)
            axes.set_xlabel("cached prompt tokens")
            axes.margins(x=0.08)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        grid[0][0].set_ylim(0, 1.08 * factor * max(p.ttft_s for one in shown for p in one.points))
        grid[0][0].set_ylabel(f"TTFT ({unit})")
        figure_style.legend_below(figure, _handles(shown, looks, sizes))
        figure_style.title(figure, f"TTFT against cached tokens: {experiment}")
        figure_style.room(figure)
        runs = [point.run for panel in shown for point in panel.points]
        figure_style.banner(figure, findings.sources(runs))
    return figure


def time_unit(shown: Sequence[Panel]) -> tuple[str, float]:
    """The axis's unit, and the factor from seconds to it."""
    longest = max(point.ttft_s for panel in shown for point in panel.points)
    return ("s", 1.0) if longest >= 1.0 else ("ms", 1000.0)


def sizes_of(shown: Sequence[Panel]) -> Mapping[float | None, float]:
    """Diameter of a mark by prompt tokens. Its area grows with them; one size where all prompts are as long, or where
    their length is not known.
    """
    known = sorted(
        {p.prompt_tokens for panel in shown for p in panel.points if p.prompt_tokens is not None}
    )
    if len(known) < 2:
        return dict.fromkeys([None, *known], 8.0)
    least, most = known[0], known[-1]
    area = {n: (n - least) / (most - least) * (LARGE**2 - SMALL**2) + SMALL**2 for n in known}
    return {None: SMALL, **{n: math.sqrt(found) for n, found in area.items()}}


def _plot(
    axes: Axes, point: Point, look: Look, sizes: Mapping[float | None, float], factor: float
) -> None:
    colour, marker = look
    axes.plot(
        [point.cached_tokens],
        [point.ttft_s * factor],
        marker=marker,
        color=colour,
        mfc=colour if point.warm else "none",
        ms=sizes[point.prompt_tokens],
        mew=1.3,
        lw=0,
        alpha=0.75,
    )


def _handles(
    shown: Sequence[Panel], looks: Mapping[str, Look], sizes: Mapping[float | None, float]
) -> list[Any]:
    points = [point for panel in shown for point in panel.points]
    ink = figure_style.INK
    handles = [
        Line2D([], [], color=look[0], marker=look[1], lw=0, ms=7, label=name)
        for name, look in looks.items()
        if any(point.variant == name for point in points)
    ]
    for warm, label in ((False, "cold: nothing cached"), (True, "warm")):
        if any(point.warm == warm for point in points):
            face = ink if warm else "none"
            handles.append(Line2D([], [], color=ink, marker="o", mfc=face, lw=0, label=label))
    known = sorted(n for n in sizes if n is not None)
    for n in dict.fromkeys([known[0], known[-1]] if len(known) > 1 else known):
        label = f"{n:g} prompt tokens"
        handles.append(
            Line2D([], [], color="#999999", marker="o", mfc="none", lw=0, ms=sizes[n], label=label)
        )
    return handles
