"""Two versions of report.html: what they say and the data of their interactive figures.

In: two texts. Out: `Difference`s. Pictures, styles and scripts are not compared here: they depend on
the machine that drew them, and no number of the report comes from them.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from decodelab import difference, difference_text
from decodelab.difference import Difference

_SILENT = ("style", "script", "svg")
_LINES = ("p", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "figcaption", "table", "ul", "ol")
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}


def compare(old: str, new: str, file: str) -> list[Difference]:
    before, after = _read(old), _read(new)
    said = difference_text.compare(before.text(), after.text(), file)
    return [*said, *difference.of_json(before.data(), after.data(), file, "figures")]


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader


class _Reader(HTMLParser):
    """Visible text, a block a line, headings marked as in Markdown; and the element `data`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._data: list[str] = []
        self._silent = 0
        self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_data = tag == "script" and ("id", "data") in attrs
        if tag in _SILENT:
            self._silent += 1
        elif tag in _LINES:
            self._parts.append(f"\n{_HEADINGS.get(tag, '')} ")
        elif tag in ("td", "th"):
            self._parts.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent -= 1
            self._in_data = False
        elif tag in _LINES:
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self._data.append(data)
        elif not self._silent:
            self._parts.append(data)

    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._parts).splitlines())
        return "\n".join(line for line in lines if line)

    def data(self) -> Any:
        try:
            return json.loads("".join(self._data) or "null")
        except ValueError as error:
            return f"cannot be read: {error}"
