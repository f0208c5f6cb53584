"""The fonts of the figures, and names that none of them can write.

Latin text is in matplotlib's own DejaVu Sans; Chinese text in Debian's fonts-droid-fallback (Apache-2.0, 2 MB).
Both are known by their content, so that a figure is the same on every machine. Where the second is not installed,
or is another file, `stand_in` puts `name 1*` for what would be a row of boxes, and the caption says which is which.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import matplotlib
from matplotlib import font_manager
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

LATIN, CHINESE = "decodelab Latin", "decodelab Chinese"
CHINESE_FILE = Path("/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf")
CHINESE_SHA256 = "acb6440a713d880a13a21b468ba7cd43f5a2b2934972e51be791c880730777b8"
_OWN = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
_LATIN_FILES = {400: _OWN / "DejaVuSans.ttf", 700: _OWN / "DejaVuSans-Bold.ttf"}


@functools.cache
def families() -> tuple[str, ...]:
    """Names for font.family, under which matplotlib finds exactly these files."""
    for weight, path in _LATIN_FILES.items():
        _enter(LATIN, path, weight)
    if not has_chinese():
        return (LATIN,)
    for weight in _LATIN_FILES:  # one file for both: it has no bold
        _enter(CHINESE, CHINESE_FILE, weight)
    return LATIN, CHINESE


@functools.cache
def has_chinese() -> bool:
    try:
        return hashlib.sha256(CHINESE_FILE.read_bytes()).hexdigest() == CHINESE_SHA256
    except OSError:
        return False


def _enter(family: str, path: Path, weight: int) -> None:
    entry = font_manager.FontEntry(
        fname=str(path),
        name=family,
        style="normal",
        variant="normal",
        weight=weight,
        stretch="normal",
        size="scalable",
    )
    font_manager.fontManager.ttflist.append(entry)


@functools.cache
def _drawable() -> frozenset[int]:
    files = [_LATIN_FILES[400], *([CHINESE_FILE] if has_chinese() else [])]
    known = {code for path in files for code in FT2Font(str(path)).get_charmap()}
    return frozenset({*known, ord("\n")})


def can_draw(text: str) -> bool:
    return all(ord(character) in _drawable() for character in text)


def width(text: str) -> int:
    """In half-width characters: a Chinese one is as wide as two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def stand_ins(names: Iterable[str], kind: str = "name") -> dict[str, str]:
    """Names that no font can write -> what stands for them in the figure."""
    lacking = [name for name in dict.fromkeys(names) if not can_draw(name)]
    return {name: f"{kind} {place}*" for place, name in enumerate(lacking, start=1)}


def said(stands: dict[str, str]) -> str:
    """`name 1* = what it is`, for a caption."""
    return ", ".join(f"{stand} = {name}" for name, stand in stands.items())


def stand_in(figure: Figure) -> dict[str, str]:
    """Replace every word of a drawn figure that cannot be written; returns what now stands for which."""
    axes = [axis for one in figure.axes for axis in (one.xaxis, one.yaxis)]
    labels = {axis: [label.get_text() for label in axis.get_ticklabels()] for axis in axes}
    others = [item for item in figure.findobj(Text) if item.get_text()]
    texts = [*(item.get_text() for item in others), *(t for told in labels.values() for t in told)]
    stands = stand_ins(word for text in texts for word in text.split())
    if stands:
        for item in others:
            item.set_text(_replaced(item.get_text(), stands))
        for axis, told in labels.items():
            _relabel(axis, told, stands)
    return stands


def _relabel(axis: Axis, told: list[str], stands: dict[str, str]) -> None:
    """Labels of ticks are made anew at each drawing: they are replaced where they come from."""
    if not all(can_draw(text) for text in told):
        axis.set_ticks(axis.get_majorticklocs(), [_replaced(text, stands) for text in told])


def _replaced(text: str, stands: dict[str, str]) -> str:
    return re.sub(r"\S+", lambda found: stands.get(found.group(), found.group()), text)
