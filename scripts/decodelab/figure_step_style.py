"""The look of a step's regions: one colour a region in every figure of a study, and names that can be drawn.

In: `Findings` for the user's own regions. Out: colour and hatch by region. Hues by Okabe-Ito and Tol, told apart by
colour-blind readers; host work is pale, what nobody accounts for is white and hatched.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from matplotlib import colors
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from decodelab import figure_font, step_regions
from decodelab.findings import Findings

OTHERS = "others (< 1% each)"
Look = tuple[str, str]  # colour, hatch
LOOKS: dict[str, Look] = {
    "scheduler": ("#F0E442", ""),
    "handover": ("#D9C67A", "..."),
    "prepare": ("#DDCC77", ""),
    "forward": ("#56B4E9", ""),
    "attention": ("#0072B2", ""),
    "linear_attention": ("#332288", ""),
    "moe": ("#D55E00", ""),
    "mlp": ("#E69F00", ""),
    "collective": ("#CC79A7", ""),
    "logits": ("#009E73", ""),
    "sampler": ("#44AA99", "..."),
    "sync": ("#882255", ""),
    "launch_gap": ("#FFFFFF", "...."),
    "output": ("#C8C8C8", ""),
    "engine": ("#8C8C8C", ""),
    "gemm": ("#117733", ""),
    "copy": ("#88CCEE", "///"),
    "norm": ("#AA4499", "..."),
    "elementwise": ("#661100", ""),
    "other": ("#EEEEEE", ""),
    step_regions.UNATTRIBUTED: ("#FFFFFF", "////"),
    OTHERS: ("#F4F4F4", "xx"),
}
_OWN = ("#999933", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#332288")
_OWN_HATCH = ("xxx", "\\\\\\", "+++", "ooo")
EDGE = "#555555"
LEGEND_CHARACTERS = 24  # of a line


def looks(findings: Findings) -> dict[str, Look]:
    """Every region of the study's profiles; the user's own by their place among all of them."""
    profiles = (*findings.profiles.values(), *findings.given_profiles.values())
    names = {r.region for one in profiles for table in one.tables for r in table.regions}
    names |= {str(span[0]) for one in profiles for step in one.timeline for span in step["spans"]}
    own = sorted(names - set(LOOKS))
    told = {
        name: (_OWN[place % len(_OWN)], _OWN_HATCH[place // len(_OWN) % len(_OWN_HATCH)])
        for place, name in enumerate(own)
    }
    return {**LOOKS, **told}


def order(regions: Iterable[str]) -> list[str]:
    """As a step goes; what is put together and what lies in no region come last."""
    return sorted(regions, key=lambda name: (name == OTHERS, step_regions.order(name)))


def ink(colour: str) -> str:
    """Black or white, whichever can be read better on the colour (WCAG: at least 4.5 to 1 of any)."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colors.to_rgb(colour)
    ]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
    return "#000000" if light / 0.05 > 1.05 / light else "#ffffff"


def legend(
    figure: Figure, regions: Sequence[str], of: dict[str, Look], names: dict[str, str]
) -> None:
    """Below the panels, in as many columns as the longest name leaves room for."""
    handles = [
        Patch(facecolor=of[r][0], hatch=of[r][1], edgecolor=EDGE, lw=0.5, label=_named(r, names))
        for r in regions
    ]
    columns = _columns(regions, names)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.4)


def legend_inches(regions: Sequence[str], names: dict[str, str]) -> float:
    lines = max((_named(r, names).count("\n") + 1 for r in regions), default=1)
    return 0.24 * -(-len(regions) // _columns(regions, names)) * (1 if lines == 1 else 1.3)


def _named(region: str, names: dict[str, str]) -> str:
    return wrapped(names.get(region, region), LEGEND_CHARACTERS)


def _columns(regions: Sequence[str], names: dict[str, str]) -> int:
    widest = max(figure_font.width(line) for r in regions for line in _named(r, names).split("\n"))
    return max(1, min(6, len(regions), 118 // (widest + 7)))


def wrapped(name: str, width: int = 26) -> str:
    """A long name over lines, broken after its own separators where it has any."""
    parts = textwrap.wrap(name.replace("_", "_ ").replace("-", "- "), width, break_long_words=True)
    return "\n".join(part.replace("_ ", "_").replace("- ", "-") for part in parts)
