"""The targets against what was measured: one panel a target, one row a variant and load.

In: the gates of verdicts.json. Out: a matplotlib figure, or None where no gate has a value. One dot is one start; an
interval is drawn where one is known: of a share by its counts, else that of a threshold question about the same runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from decodelab import figure_style, numbers, proportions
from decodelab.findings import Findings
from decodelab.vocabulary import METRICS

PANELS = 4  # beside each other
LABEL = 34
CLOSE = 0.1  # a margin below that is told to 0.1 %
MET, MISSED = "#007A53", figure_style.TARGET
Gate = Mapping[str, Any]


@dataclass(frozen=True)
class Dot:
    """One start: a value in the metric's unit; None: not known."""

    value: float | None
    met: bool | None  # None: not known, or the run is invalid
    margin: float | None  # share of the target; + on the side that meets it
    interval: tuple[float, float] | None
    n: int | None  # requests
    run: str


@dataclass(frozen=True)
class Panel:
    metric: str
    op: str
    target: float
    rows: dict[str, list[Dot]]  # by label; every panel has the same labels

    @property
    def limit(self) -> str:
        return numbers.target(self.metric, self.target, self.op)


def panels(findings: Findings) -> list[Panel]:
    """Grid cells are left out: the ranking is their table."""
    gates = [g for g in findings.judged.get("gates") or [] if not findings.is_cell(g["variant"])]
    labels = {gate["run"]: _label(findings, gate, gates) for gate in gates}
    order = list(dict.fromkeys(labels.values()))
    found: dict[str, Panel] = {}
    for gate in gates:
        panel = found.setdefault(
            gate["metric"],
            Panel(gate["metric"], gate["op"], gate["target"], {label: [] for label in order}),
        )
        panel.rows[labels[gate["run"]]].append(_dot(findings, gate))
    return [
        p for p in found.values() if any(d.value is not None for r in p.rows.values() for d in r)
    ]


def _label(findings: Findings, gate: Gate, gates: Sequence[Gate]) -> str:
    """The variant, and its load where it is held at several."""
    own = {
        (g.get("workload"), _load(findings, g)) for g in gates if g["variant"] == gate["variant"]
    }
    variant = str(gate["variant"])
    load = ", ".join(filter(None, (gate.get("workload"), _load(findings, gate))))
    return variant if len(own) < 2 else f"{variant}\n{load}"


def _load(findings: Findings, gate: Gate) -> str:
    row = findings.runs.get(gate["run"], {})
    if row.get("rate") is not None:
        return f"{row['rate']:g}/s"
    return f"c{row['concurrency']:g}" if row.get("concurrency") is not None else ""


def _dot(findings: Findings, gate: Gate) -> Dot:
    return Dot(
        gate.get("value"),
        gate.get("met"),
        gate.get("margin"),
        _interval(findings, gate),
        gate.get("n"),
        gate["run"],
    )


def _interval(findings: Findings, gate: Gate) -> tuple[float, float] | None:
    value, n = gate.get("value"), gate.get("n")
    if value is None:
        return None
    if gate["metric"] == "success_rate" and n:
        return proportions.wilson(round(value * n), n)
    for verdict in findings.verdicts:
        bounds = verdict.get("value_interval")
        same = verdict["kind"] == "threshold" and verdict.get("metric") == gate["metric"]
        if (
            same
            and bounds
            and None not in bounds
            and list(verdict.get("runs") or []) == [gate["run"]]
        ):
            return bounds[0], bounds[1]
    return None


def draw(findings: Findings) -> Figure | None:
    shown = panels(findings)
    if not shown:
        return None
    columns = min(PANELS, len(shown))
    lines = -(-len(shown) // columns)
    labels = list(shown[0].rows)
    high = sum(0.34 + 0.14 * label.count("\n") for label in labels)
    with figure_style.style():
        figure, grid = plt.subplots(
            lines,
            columns,
            sharey=True,
            squeeze=False,
            figsize=(2.6 + 2.7 * columns, lines * (high + 1.0) + 0.9),
            layout="constrained",
        )
        for axes, panel in zip(grid.flat, shown, strict=False):
            _panel(axes, panel)
        for axes in grid.flat[len(shown) :]:
            axes.set_visible(False)
        figure_style.legend_below(figure, _handles(shown))
        figure_style.title(figure, "Measured against the targets")
        figure_style.room(figure)
        runs = [dot.run for panel in shown for row in panel.rows.values() for dot in row]
        figure_style.banner(figure, findings.sources(runs))
    return figure


def _panel(axes: Axes, panel: Panel) -> None:
    factor = factor_of(panel)
    aim = panel.target * factor
    values = [d.value for row in panel.rows.values() for d in row if d.value is not None]
    bounds = [b for row in panel.rows.values() for d in row for b in d.interval or ()]
    ends = [0.0, aim, *(factor * v for v in (*values, *bounds))]
    axes.set_xlim(0, max(ends) * 1.05)
    axes.axvline(aim, color=figure_style.INK, lw=1.4, linestyle=(0, (6, 2)))
    for place, dots in enumerate(panel.rows.values()):
        for dot in dots:
            _dot_drawn(axes, place, dot, factor)
        axes.annotate(
            said(dots),
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=_colour(dots),
        )
    labels = [short(label) for label in panel.rows]
    axes.set_yticks(range(len(labels)), labels, fontsize=9)
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"{panel.metric} {panel.limit}", loc="left", fontsize=10)
    axes.set_xlabel(numbers.unit(panel.metric))


def short(label: str) -> str:
    return "\n".join(figure_style.shortened(line, LABEL) for line in label.split("\n"))


def factor_of(panel: Panel) -> float:
    """From the metric's unit to the axis's: a share is told in percent."""
    return 100.0 if METRICS[panel.metric].unit == "share" else 1.0


def _dot_drawn(axes: Axes, place: int, dot: Dot, factor: float) -> None:
    if dot.value is None:
        return
    colour = _colour([dot])
    if dot.interval:
        low, high = (factor * bound for bound in dot.interval)
        axes.plot([low, high], [place, place], color=colour, lw=2.0, alpha=0.6)
    face = "white" if dot.met is None else colour
    axes.plot(
        [factor * dot.value],
        [place],
        "s" if dot.met is False else "o",
        color=colour,
        mfc=face,
        ms=6.5,
        clip_on=False,
    )


def worst(dots: Sequence[Dot]) -> bool | None:
    """Whether all starts met the target; None: of one it is not known, and none missed it."""
    states = [dot.met for dot in dots]
    if False in states:
        return False
    return True if True in states and None not in states else None


def _colour(dots: Sequence[Dot]) -> str:
    met = worst(dots)
    return figure_style.FAINT if met is None else MET if met else MISSED


def said(dots: Sequence[Dot], unknown: str = "not known", undecided: str = "open") -> str:
    """The margin of the worst start, or the word that stands for it."""
    margins = [dot.margin for dot in dots if dot.margin is not None]
    if all(dot.value is None for dot in dots):
        return unknown if dots else ""
    if not margins:
        return undecided
    worst = min(margins)
    return numbers.effect(worst, 1 if abs(worst) < CLOSE else 0)


def _handles(shown: Sequence[Panel]) -> list[Any]:
    dots = [dot for panel in shown for row in panel.rows.values() for dot in row]
    known = [dot for dot in dots if dot.value is not None]
    ink = figure_style.INK
    handles = [Line2D([], [], color=ink, lw=1.4, linestyle=(0, (6, 2)), label="target")]
    for met, colour, marker, label in (
        (True, MET, "o", "met"),
        (False, MISSED, "s", "missed"),
        (None, figure_style.FAINT, "o", "open"),
    ):
        if any(dot.met is met for dot in known):
            face = "white" if met is None else colour
            handles.append(Line2D([], [], color=colour, marker=marker, mfc=face, lw=0, label=label))
    if any(dot.interval for dot in known):
        handles.append(Line2D([], [], color=ink, lw=2, alpha=0.6, label="95 % interval"))
    return handles


def variants(findings: Findings) -> list[str]:
    return list(dict.fromkeys(label.split("\n")[0] for p in panels(findings) for label in p.rows))
