"""Stacked bars of a step: milliseconds by region, one bar an arm; decode above, prefill below.

In: the profiles of an experiment's arms. Out: a matplotlib figure; None where no profile states shares. What is
invalid, or gives an order only, keeps its place and has no bar.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decodelab import figure_font, figure_step_style, figure_style, step_groups
from decodelab.findings import Findings
from decodelab.step_groups import Group

SMALL = 0.01  # of its step: a region below that in every bar is put together with its like
LABELLED = 0.055  # of the axis: a segment as wide has its figure in it
PHASES = ("decode", "prefill")
INCHES = 0.62  # a bar


@dataclass(frozen=True)
class Bar:
    label: str
    ms: Mapping[str, float]  # by region
    launches: int
    state: str  # "", invalid, order only, no times

    @property
    def total_ms(self) -> float:
        return sum(self.ms.values())


def bars(findings: Findings, experiment: str, phase: str) -> list[Bar]:
    groups = step_groups.of_experiment(findings, experiment)
    loads = {(g.arm.workload, g.arm.concurrency) for g in groups if g.arm}
    return [_bar(group, phase, len(loads) > 1) for group in groups]


def _bar(group: Group, phase: str, named: bool) -> Bar:
    label = group.variant if group.arm else next(iter(group.profiles))
    if group.arm and named:
        label = f"{label} {group.arm.workload} c{group.arm.concurrency}"
    if not group.states_shares:
        return Bar(str(label), {}, 0, "order only" if group.usable else "invalid")
    tables = [table for one in group.usable.values() if (table := one.table(phase))]
    if phase != "decode":
        tables = [table for table in tables if table.phase == phase]
    each: dict[str, list[float]] = {}
    for table in tables:
        for region in table.regions:
            if region.ms_mean is None:
                return Bar(str(label), {}, len(tables), "no times")
            each.setdefault(region.region, []).append(region.ms_mean)
    return Bar(str(label), {n: statistics.mean(v) for n, v in each.items()}, len(tables), "")


def renamed(findings: Findings, experiment: str) -> dict[str, str]:
    names = [n for phase in PHASES for bar in bars(findings, experiment, phase) for n in bar.ms]
    return figure_font.stand_ins(names, "region")


def panels(findings: Findings, experiment: str) -> dict[str, list[Bar]]:
    """The bars of each phase that has any, small regions put together."""
    found = {phase: bars(findings, experiment, phase) for phase in PHASES}
    found["prefill"] = [bar for bar in found["prefill"] if bar.ms]
    found = {phase: those for phase, those in found.items() if any(bar.ms for bar in those)}
    together = _small([bar for those in found.values() for bar in those])
    return {p: [_gathered(bar, together) for bar in those] for p, those in found.items()}


def regions_of(shown: Mapping[str, Sequence[Bar]]) -> list[str]:
    """As a step goes."""
    return figure_step_style.order({n for found in shown.values() for bar in found for n in bar.ms})


def draw(findings: Findings, experiment: str) -> Figure | None:
    shown = panels(findings, experiment)
    if not shown:
        return None
    regions = regions_of(shown)
    high = [len(found) * INCHES + 0.3 for found in shown.values()]
    of, names = figure_step_style.looks(findings), renamed(findings, experiment)
    below = figure_step_style.legend_inches(regions, names)
    with figure_style.style():
        figure, grid = plt.subplots(
            len(shown),
            1,
            squeeze=False,
            figsize=(10.5, sum(high) + 0.62 * len(shown) + below + 0.75),
            height_ratios=high,
            layout="constrained",
        )
        for axes, (phase, found) in zip(grid[:, 0], shown.items(), strict=True):
            _panel(axes, found, regions, of)
            axes.set_title(f"{phase} step", loc="left")
        grid[-1][0].set_xlabel("ms a step (mean)")
        figure_step_style.legend(figure, regions, of, names)
        figure_style.title(figure, f"Where a step's time goes: {experiment}")
        figure_style.room(figure)
        figure_style.banner(figure, findings.sources(runs(findings, experiment)))
    return figure


def runs(findings: Findings, experiment: str) -> list[str]:
    return [n for g in step_groups.of_experiment(findings, experiment) if g.arm for n in g.profiles]


def _small(found: Sequence[Bar]) -> set[str]:
    """Regions too small to be seen in any bar; one alone keeps its name."""
    large = {name for bar in found for name, ms in bar.ms.items() if ms >= SMALL * bar.total_ms}
    small = {name for bar in found for name in bar.ms} - large
    return small if len(small) > 1 else set()


def _gathered(bar: Bar, together: set[str]) -> Bar:
    ms = {name: value for name, value in bar.ms.items() if name not in together}
    small = sum(value for name, value in bar.ms.items() if name in together)
    if small:
        ms[figure_step_style.OTHERS] = small
    return Bar(bar.label, ms, bar.launches, bar.state)


def _panel(
    axes: Axes,
    found: Sequence[Bar],
    regions: Sequence[str],
    of: Mapping[str, figure_step_style.Look],
) -> None:
    longest = max(bar.total_ms for bar in found)
    axes.set_xlim(0, longest * 1.16)
    for place, bar in enumerate(found):
        left = 0.0
        for name in (region for region in regions if region in bar.ms):
            _segment(axes, place, left, bar.ms[name], of[name], longest)
            left += bar.ms[name]
        text = f"{left:.1f} ms" if bar.ms else bar.state or "none measured"
        if bar.launches > 1:
            text += f" (n = {bar.launches})"
        axes.text(
            left + longest * 0.01,
            place,
            text,
            va="center",
            fontsize=9.5,
            color=figure_style.INK if bar.ms else figure_style.TARGET,
        )
    labels = [figure_step_style.wrapped(bar.label) for bar in found]
    axes.set_yticks(range(len(found)), labels)
    axes.set_ylim(len(found) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _segment(
    axes: Axes, place: int, left: float, ms: float, look: figure_step_style.Look, longest: float
) -> None:
    colour, hatch = look
    edge = figure_step_style.EDGE if hatch else "white"
    axes.barh(place, ms, left=left, height=0.66, color=colour, hatch=hatch, edgecolor=edge, lw=0.6)
    if ms < LABELLED * longest:
        return
    box = (
        {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"} if hatch else None
    )
    axes.text(
        left + ms / 2,
        place,
        f"{ms:.1f}",
        ha="center",
        va="center",
        fontsize=9,
        color=figure_style.INK if hatch else figure_step_style.ink(colour),
        bbox=box,
    )
