"""The heat map of a parameter grid: one cell a combination, hatched where it cannot start, dotted
where it was screened out.

In: the grid's arms and their rows of runs.csv. Out: a matplotlib figure, one panel a workload and
concurrency.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from decodelab import figure_style, numbers, words
from decodelab.findings import Arm, Findings, values
from decodelab.report_labels import cell_parameters, metric_label, setting

MAP = "cividis"  # even in lightness, readable by colour-blind readers and in grey
STATES = {"not_possible": ("#d9d9d9", "////", "cannot\nstart"), "pending": ("white", "", "pending")}
STATES["invalid"] = ("white", "xx", "invalid")
STATES["screened_out"] = ("#f4ead5", "..", "screened\nout")
ABREAST = 2  # panels


def draw(findings: Findings, experiment: str, metric: str) -> Figure | None:
    arms = [arm for arm in findings.arms(experiment) if findings.is_cell(arm.variant)]
    if not arms:
        return None
    flags = cell_parameters(findings, [arm.variant for arm in arms])
    down, across = flags[: len(flags) // 2], flags[len(flags) // 2 :]
    rows, columns = _combinations(findings, arms, down), _combinations(findings, arms, across)
    loads = list(dict.fromkeys((arm.workload, arm.concurrency) for arm in arms))
    abreast = min(ABREAST, len(loads))
    high = -(-len(loads) // abreast)
    known = [value for arm in arms for value in _values(findings, arm, metric)]
    scale = Normalize(min(known, default=0.0), max(known, default=1.0))
    with figure_style.style():
        width = max(5.0, 1.25 * len(columns) + 2.6)
        figure, grid = plt.subplots(
            high,
            abreast,
            figsize=(width * abreast, (0.62 * len(rows) + 1.9) * high + 0.5),
            squeeze=False,
            layout="constrained",
        )
        for axes in grid.flat[len(loads) :]:
            axes.set_visible(False)
        for axes, (load, concurrency) in zip(grid.flat, loads, strict=False):
            chosen = [a for a in arms if (a.workload, a.concurrency) == (load, concurrency)]
            _panel(axes, findings, chosen, (down, rows), (across, columns), metric, scale)
            axes.set_title(f"{load}, concurrency {concurrency}", loc="left")
        if known:
            bar = figure.colorbar(
                plt.cm.ScalarMappable(scale, MAP), ax=grid.ravel().tolist(), shrink=0.9, pad=0.02
            )
            bar.set_label(_bar_label(metric))
        figure_style.title(figure, f"Parameter grid: {experiment}")
        figure_style.room(figure)
        figure_style.banner(figure, findings.sources([name for arm in arms for name in arm.names]))
    return figure


def _bar_label(metric: str) -> str:
    """`total Output TPS (tok/s)`: as the report calls it; figures are in English."""
    name, unit = metric_label(words.load("en"), metric), numbers.unit(metric)
    return f"{name} ({unit})" if unit else str(name)


def _combinations(
    findings: Findings, arms: Sequence[Arm], flags: Sequence[str]
) -> list[tuple[object, ...]]:
    """All combinations of the flags' values, in the order in which the plan names them."""
    candidates = []
    for flag in flags:
        seen = [(findings.variant(arm.variant).get("cell") or {}).get(flag) for arm in arms]
        candidates.append(list(dict.fromkeys(seen)))
    return list(itertools.product(*candidates))


def _values(findings: Findings, arm: Arm, metric: str) -> list[float]:
    return values([row for row in findings.rows(arm) if row.get("validity") != "invalid"], metric)


def _panel(
    axes: Axes,
    findings: Findings,
    arms: Sequence[Arm],
    down: tuple[Sequence[str], list[tuple[object, ...]]],
    across: tuple[Sequence[str], list[tuple[object, ...]]],
    metric: str,
    scale: Normalize,
) -> None:
    why = {run["name"]: run["why"] for run in findings.missing()}
    for arm in arms:
        cell = findings.variant(arm.variant).get("cell") or {}
        y = down[1].index(tuple(cell.get(flag) for flag in down[0]))
        x = across[1].index(tuple(cell.get(flag) for flag in across[0]))
        found = _values(findings, arm, metric)
        state = (
            "invalid"
            if findings.rows(arm)
            else next((why[n] for n in arm.names if n in why), "pending")
        )
        _cell(
            axes,
            x,
            y,
            numbers.show_range(metric, found, bare=True, coarse=True) if found else None,
            found,
            state,
            scale,
        )
    axes.set_xlim(0, len(across[1]))
    axes.set_ylim(len(down[1]), 0)
    axes.set_xticks([x + 0.5 for x in range(len(across[1]))], [_text(c) for c in across[1]])
    axes.set_yticks([y + 0.5 for y in range(len(down[1]))], [_text(c) for c in down[1]])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(_names(across[0]))
    axes.set_ylabel(_names(down[0]))


def _cell(
    axes: Axes,
    x: int,
    y: int,
    text: str | None,
    found: Sequence[float],
    state: str,
    scale: Normalize,
) -> None:
    if text is not None:
        colour = colormaps[MAP](scale(min(found)))
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", lw=2))
        light = 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2] > 0.45
        axes.text(
            x + 0.5,
            y + 0.5,
            text,
            ha="center",
            va="center",
            color=figure_style.INK if light else "white",
        )
        return
    face, hatch, word = STATES.get(state, STATES["pending"])
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="#9a9a9a", hatch=hatch, lw=1))
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    axes.text(
        x + 0.5,
        y + 0.5,
        word,
        ha="center",
        va="center",
        fontsize=8.5,
        color=figure_style.INK,
        bbox=box,
    )


def _text(combination: Sequence[object]) -> str:
    return "\n".join(setting(value) for value in combination)


def _names(flags: Sequence[str]) -> str:
    return "  /  ".join(
        flag.lstrip("-").removeprefix("enable-").replace("-", "_") for flag in flags
    )
