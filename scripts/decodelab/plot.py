"""What an interactive figure is made of: panels with axes, traces in them, a title and its source.

In: values of the tables. Out: a `Plot`, whose document is plain data in plotly's own words, without
any place, theme or size of a page: workflow/report/html/figures.js gives it those. Colours are
those of the drawn figures; `INK`, `SOFT`, `PAPER`, `WARN`, `MET` and `MISSED` are the theme's.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decodelab import figure_style, numbers
from decodelab.report_labels import metric_label
from decodelab.words import Words

INK, SOFT, PAPER, WARN = "@ink", "@soft", "@paper", "@warn"
MET, MISSED = "@met", "@missed"  # on a light page those of figure_gates
# Of matplotlib's markers, in the same order.
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
}
# Of figure_style.DASHES and of the other lines that the figures draw.
DASHES = ("solid", "dash", "dot", "dashdot")
LEGEND_COLUMNS = 4  # entries that a wide legend has in a row, at least


@dataclass
class Plot:
    title: str
    sources: Sequence[str]
    columns: int = 1  # panels abreast, where the page is wide
    shared_x: bool = False  # all panels have the first one's x axis
    shared_y: bool = False  # panels abreast have the first one's y axis
    left: int = 62  # px: room for the labels of the y axes
    right: int = 16
    panels: list[dict[str, Any]] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)

    def panel(
        self, title: str, x: Mapping[str, Any], y: Mapping[str, Any], height: int = 270
    ) -> int:
        """A new panel `height` px high; returns its number, which its traces name."""
        self.panels.append({"title": text(title), "x": x, "y": y, "height": height})
        return len(self.panels) - 1

    def rows(
        self, title: str, x: Mapping[str, Any], labels: Sequence[str], row_px: int = 40
    ) -> int:
        """A panel of one row a label, the first on top; where the page is narrow each label stands above its row."""
        lines = [text(label).replace("\n", "<br>") for label in labels]
        y = {
            "tickvals": list(range(len(lines))),
            "ticktext": lines,
            "range": [len(lines) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
        }
        panel = self.panel(title, x, y, height=30 + row_px * len(lines))
        self.panels[panel]["rows"] = lines
        return panel

    def note(self, panel: int, row: int, said: str, colour: str = INK) -> None:
        """Words beside a row of a panel of rows."""
        if said:
            note = {"row": row, "text": text(said), "colour": colour}
            self.panels[panel].setdefault("notes", []).append(note)

    def trace(self, panel: int, **given: Any) -> None:
        """One trace of plotly; what the legend calls it and its group are escaped here."""
        named: dict[str, Any] = {
            key: text(given[key]) for key in ("name", "legendgroup") if key in given
        }
        self.traces.append({"panel": panel, "type": "scatter", **given, **named})

    def level(self, panel: int, at: float, said: str, colour: str, right: bool = False) -> None:
        """A dashed line across a panel."""
        line = {"at": at, "text": text(said), "colour": colour, "right": right}
        self.panels[panel].setdefault("levels", []).append(line)

    def upright(self, panel: int, at: float, said: str, colour: str) -> None:
        """A dashed line up a panel; what it says stands at its top."""
        line = {"at": at, "text": text(said), "colour": colour}
        self.panels[panel].setdefault("uprights", []).append(line)

    def span(self, panel: int, start: float, end: float) -> None:
        """A shaded part of a panel's x axis."""
        self.panels[panel].setdefault("spans", []).append({"from": start, "to": end})

    def document(self) -> dict[str, Any]:
        legend = [trace for trace in self.traces if trace.get("showlegend", True)]
        return {
            "title": text(self.title),
            "banner": figure_style.banner_text(self.sources),
            "columns": self.columns,
            "shared_x": self.shared_x,
            "shared_y": self.shared_y,
            "left": self.left,
            "right": self.right,
            "legend_rows": math.ceil(len(legend) / LEGEND_COLUMNS),
            "panels": self.panels,
            "traces": self.traces,
        }


def colour(given: str) -> str:
    """Black is the ink's, which is light on a dark page."""
    return INK if given == "#000000" else given


def text(value: object) -> str:
    """Plotly reads some tags in labels and hover texts: a value that holds them stays text."""
    return html.escape(str(value), quote=False)


def axis(title: str, **given: Any) -> dict[str, Any]:
    return {"title": {"text": text(title)}, **given}


def hover(*lines: tuple[str, str]) -> str:
    """Lines `name: value` of one mark's hover text; the values come finished from numbers.py."""
    return "<br>".join(f"{text(name)}: <b>{text(value)}</b>" for name, value in lines)


def dash(given: object) -> str:
    """The name of one of figure_style.DASHES."""
    return DASHES[figure_style.DASHES.index(given)]


def said(words: Words, metric: str, value: float | None) -> tuple[str, str]:
    """A metric's name and its value with its unit, as the tables of the report write them."""
    return plain(metric_label(words, metric)), numbers.show(metric, value)


def plain(label: str) -> str:
    """A label of the catalogue without the marks of Markdown."""
    return label.replace("`", "").replace("\\", "")
