"""How every figure looks: colours, sizes, the source's banner, and a file that is the same for the
same data.

In: a matplotlib figure. Out: an SVG without date or random ids, its text as outlines, so that it
needs no font.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from decodelab import figure_font

# Okabe and Ito's palette without its yellow (too light for lines): told apart by colour-blind
# readers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
INK = "#222222"
TARGET = "#B00020"
FAINT = "#6B6B6B"
LEGEND_CHARACTERS = 48
LINE_INCHES = 0.26  # of a legend
SIMULATED_WORDS = {
    "simulated": "SIMULATED",
    "reconstructed": "RECONSTRUCTED",
    "imported": "IMPORTED",
    "measured": "",
}
_RC: dict[Any, Any] = {
    "svg.hashsalt": "decodelab",
    "svg.fonttype": "path",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "text.parse_math": False,
    "figure.dpi": 100,
}


@contextmanager
def style() -> Iterator[None]:
    with matplotlib.rc_context({**_RC, "font.family": list(figure_font.families())}):
        yield


def colours(variants: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each variant, by its place in the plan: the same in every figure of a
    study.
    """
    return {
        name: (
            PALETTE[place % len(PALETTE)],
            MARKERS[(place + place // len(PALETTE)) % len(MARKERS)],
        )
        for place, name in enumerate(variants)
    }


def plan_colours(plan: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    names = [
        name for name, variant in (plan.get("variants") or {}).items() if not variant.get("grid")
    ]
    return colours(names)


def plan_dashes(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What tells lines of one colour apart where they have no markers: solid for the first seven."""
    return {
        name: DASHES[place // len(PALETTE) % len(DASHES)]
        for place, name in enumerate(plan_colours(plan))
    }


def banner_text(sources: Sequence[str]) -> str:
    """Empty where everything was measured."""
    text = " + ".join(
        SIMULATED_WORDS.get(source, source.upper()) or "MEASURED" for source in sources
    )
    return "" if text == "MEASURED" else text


def banner(figure: Figure, sources: Sequence[str]) -> None:
    """SIMULATED or RECONSTRUCTED stands in the picture itself: it survives being copied out of the
    report.
    """
    text = banner_text(sources)
    if not text:
        return
    figure.text(
        0.992,
        _below_top(figure),
        text,
        ha="right",
        va="top",
        fontsize=10,
        fontweight="bold",
        color="white",
        bbox={"boxstyle": "square,pad=0.3", "facecolor": TARGET, "edgecolor": "none"},
    )


def title(figure: Figure, text: str) -> None:
    figure.text(
        0.012,
        _below_top(figure),
        text,
        ha="left",
        va="top",
        fontsize=12,
        fontweight="bold",
        color=INK,
    )


def _below_top(figure: Figure) -> float:
    """The same distance from the edge in a low and in a high figure."""
    return float(1.0 - 0.1 / figure.get_figheight())


def room(figure: Figure, inches: float = 0.36) -> None:
    """Keep the top of a constrained figure free for title and banner."""
    engine = figure.get_layout_engine()
    top = 1.0 - inches / figure.get_figheight()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0.0, 0.0, 1.0, top), w_pad=0.08, h_pad=0.08)


def shortened(text: str, most: int) -> str:
    """Both ends of a long name: what sets names apart is often the last part."""
    if figure_font.width(text) <= most:
        return text
    head, tail = text[: most // 2 - 1], text[-(most // 2) :]
    return f"{head}…{tail}"


def legend_below(figure: Figure, handles: Sequence[Any]) -> None:
    """Under the panels of a constrained figure, in as many columns as its width has room for; the figure grows with it,
    so that the panels keep their height. Before title and banner, which stand at the figure's top.
    """
    for handle in handles:
        handle.set_label(shortened(str(handle.get_label()), LEGEND_CHARACTERS))
    widths = [figure_font.width(str(handle.get_label())) + 7 for handle in handles]
    room = 12.5 * figure.get_figwidth()  # half-width characters
    columns = next(n for n in range(len(widths), 0, -1) if n == 1 or _across(widths, n) <= room)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.4)


def _across(widths: Sequence[int], columns: int) -> int:
    """A legend fills its columns one after the other, the first ones with one more."""
    least, more = divmod(len(widths), columns)
    sizes = [least + (column < more) for column in range(columns)]
    begins = [sum(sizes[:column]) for column in range(columns)]
    return sum(max(widths[b : b + n]) for b, n in zip(begins, sizes, strict=True))


def finish(axes: Axes, xlabel: str = "", ylabel: str = "", name: str = "") -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if name:
        axes.set_title(name, loc="left", color=INK)


def save(figure: Figure, path: Path) -> None:
    with style():
        figure.savefig(path, format=path.suffix[1:], metadata=_metadata(path))
    plt.close(figure)


def _metadata(path: Path) -> dict[str, Any]:
    return {"Date": None, "Creator": "decodelab"} if path.suffix == ".svg" else {}
