"""What each comparison found: the effect with its 95 % interval, beside what it has to exceed.

In: the compare verdicts of an experiment. Out: a matplotlib figure, or None where none has an interval. One row is one
point of one question; a positive effect is one in the direction that the question asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from decodelab import figure_style, numbers
from decodelab.findings import Findings, Verdict

MANY = 12  # rows; above that those without an interval are left out
INCHES = 0.42
LABEL = 40  # characters of a line
BAND = "#DADADA"
MARKERS = {"supported": "o", "refuted": "s", "inconclusive": "D"}

_BARE = ("metric", "workload")  # names that need no word before them


@dataclass(frozen=True)
class Point:
    """One comparison. Effect, interval and limits are shares (0.05: 5 %, or 5 points of a share)."""

    sides: tuple[str, str]  # candidate, baseline
    place: tuple[
        tuple[str, str], ...
    ]  # (what it is of, its value): metric, workload, concurrency, rate
    metric: str
    word: str  # the verdict
    effect: float | None
    interval: tuple[float, float] | None
    noise: float  # floor and drift allowance: what may be nothing
    smallest: float | None
    in_points: bool
    runs: tuple[str, ...]

    @property
    def candidate(self) -> str:
        return self.sides[0]

    @property
    def label(self) -> str:
        return self.told("vs", {})

    def told(self, against: str, names: Mapping[str, str]) -> str:
        """Candidate against baseline, and below it the point; `names` of what has another in this language."""
        mine, other = (figure_style.shortened(side, LABEL) for side in self.sides)
        joint = " " if len(mine) + len(other) < LABEL - 4 else "\n"
        parts = [
            value if of in _BARE else f"{names.get(of, of)} {value}" for of, value in self.place
        ]
        return f"{mine}{joint}{against} {other}\n" + figure_style.shortened(", ".join(parts), LABEL)


def points(findings: Findings, experiment: str) -> list[Point]:
    """In the order of the questions. Empty where no comparison has an interval."""
    asked = [v for v in findings.verdicts_of(experiment) if v["kind"].startswith("compare")]
    metrics = {verdict["metric"] for verdict in asked}
    found = [_point(findings, verdict, len(metrics) > 1) for verdict in asked]
    known = [one for one in found if one.interval]
    return [] if not known else found if len(found) <= MANY else known


def _point(findings: Findings, verdict: Verdict, named: bool) -> Point:
    bounds = verdict.get("interval") or [None, None]
    known = verdict.get("effect") is not None and None not in bounds
    noise = (verdict.get("floor") or 0.0) + (verdict.get("drift_allowance") or 0.0)
    return Point(
        (str(verdict.get("candidate")), str(verdict.get("baseline"))),
        tuple(_place(verdict, named)),
        verdict["metric"],
        str(verdict["verdict"]),
        verdict["effect"] if known else None,
        (bounds[0], bounds[1]) if known else None,
        noise,
        verdict.get("smallest_effect"),
        bool(verdict.get("in_points")),
        tuple(verdict.get("runs") or []),
    )


def _place(verdict: Verdict, named: bool) -> Iterator[tuple[str, str]]:
    """The point, and the metric where the rows are of several."""
    if named:
        yield "metric", str(verdict["metric"])
    if verdict.get("workload"):
        yield "workload", str(verdict["workload"])
    for name, value in (verdict.get("point") or {}).items():
        yield name, _plain(value)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def draw(findings: Findings, experiment: str) -> Figure | None:
    shown = points(findings, experiment)
    if not shown:
        return None
    looks = figure_style.plan_colours(findings.plan)
    heights = [INCHES * (1 + 0.32 * (one.label.count("\n") - 1)) for one in shown]
    with figure_style.style():
        figure, axes = plt.subplots(figsize=(10, sum(heights) + 2.0), layout="constrained")
        reach = reach_of(shown)
        for place, one in enumerate(shown):
            colour = looks[one.candidate][0] if one.candidate in looks else figure_style.INK
            _row(axes, place, one, colour, reach)
        axes.axvline(0.0, color=figure_style.INK, lw=1.0)
        _axes(axes, shown, reach)
        figure_style.legend_below(figure, _handles(shown))
        figure_style.title(figure, f"Differences with 95 % intervals: {experiment}")
        figure_style.room(figure)
        figure_style.banner(figure, sources_of(findings, experiment))
    return figure


def sources_of(findings: Findings, experiment: str) -> list[str]:
    """Of the compared runs; of the whole experiment where a verdict does not name its runs."""
    named = [one.runs for one in points(findings, experiment) if one.interval]
    own = findings.experiments[experiment].get("runs") or []
    return findings.sources([*(r for runs in named for r in runs), *([] if all(named) else own)])


def reach_of(shown: Sequence[Point]) -> tuple[float, float]:
    """The axis, in percent: every interval, every limit and zero, and room for the words."""
    ends = [0.0]
    for one in shown:
        ends += [*(one.interval or ()), -one.noise, one.noise, one.smallest or 0.0]
    low, high = min(ends) * 100, max(ends) * 100
    room = 0.06 * (high - low)
    return low - room, high + room


def _row(axes: Axes, place: int, one: Point, colour: str, reach: tuple[float, float]) -> None:
    said = one.word.replace("_", " ")
    if one.interval is None or one.effect is None:
        axes.text(0.0, place, f" {said}", va="center", color=figure_style.FAINT, fontsize=10)
        return
    if one.noise:
        axes.barh(place, 200 * one.noise, left=-100 * one.noise, height=0.7, color=BAND, zorder=0)
    if one.smallest:
        x = 100 * one.smallest
        axes.plot([x, x], [place - 0.35, place + 0.35], color=figure_style.TARGET, lw=1.6)
    low, high = (100 * bound for bound in one.interval)
    axes.plot([low, high], [place, place], color=colour, lw=2.2, solid_capstyle="butt")
    for end in (low, high):
        axes.plot([end, end], [place - 0.13, place + 0.13], color=colour, lw=1.6)
    marker = MARKERS.get(one.word, "X")
    axes.plot([100 * one.effect], [place], marker, color=colour, ms=8, mec="white", mew=0.8)
    unit = " points" if one.in_points else ""
    axes.annotate(
        f"{numbers.effect(one.effect)}{unit}, {said}",
        (1.0, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=10,
    )


def _axes(axes: Axes, shown: Sequence[Point], reach: tuple[float, float]) -> None:
    axes.set_xlim(*reach)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks(range(len(shown)), [one.label for one in shown], fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    metric = one_metric(shown)
    of = f" of {metric}" if metric else ""
    unit = "points of a share" if all_in_points(shown) else "%"
    axes.set_xlabel(f"change{of} ({unit}; right of zero: as asked for)")


def one_metric(shown: Sequence[Point]) -> str | None:
    """What all rows are of; None where they are of several."""
    metrics = {one.metric for one in shown}
    return metrics.pop() if len(metrics) == 1 else None


def all_in_points(shown: Sequence[Point]) -> bool:
    return all(one.in_points for one in shown if one.interval)


def _handles(shown: Sequence[Point]) -> list[Any]:
    ink = figure_style.INK
    told = {one.word for one in shown if one.interval}
    handles: list[Any] = [
        Line2D([], [], color=ink, marker=marker, lw=2, mec="white", label=word)
        for word, marker in MARKERS.items()
        if word in told
    ]
    if any(one.noise for one in shown):
        handles.append(Patch(color=BAND, label="noise floor and drift"))
    if any(one.smallest for one in shown):
        handles.append(
            Line2D([], [], color=figure_style.TARGET, lw=1.6, label="smallest effect of interest")
        )
    return handles


def texts(findings: Findings, experiment: str) -> Mapping[str, str]:
    """What its caption counts."""
    shown = points(findings, experiment)
    asked = [v for v in findings.verdicts_of(experiment) if v["kind"].startswith("compare")]
    return {"experiment": experiment, "n": str(len(shown)), "all": str(len(asked))}
