"""Text that stays text inside a Markdown file.

In: strings of any origin (log lines, error messages, texts of a config). Out: `Md` strings that a
Markdown viewer shows exactly as they were, whatever pipes, backticks or HTML they hold.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable


class Md(str):
    """A string that is Markdown already; every other string is escaped on its way into a report."""

    __slots__ = ()

    def __html__(self) -> str:
        """Template engines ask this before they escape."""
        return str(self)


_SPECIAL = re.compile(r"[\\`*\[\]<~$]|(?<![^\W_])_|_(?![^\W_])")
_BLOCK_START = re.compile(r"^(?:[-+#=>](?=\s|$|[-+#=>])|\d+(?=[.)](?:\s|$)))")
_CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def one_line(text: str) -> str:
    """Line breaks would end a list item or a table row; control characters would hide text."""
    return " ".join(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).split())


def escape(text: str) -> Md:
    """Text that may stand anywhere, at the start of a line too."""
    return text if isinstance(text, Md) else guarded(inline(text))


def inline(text: str) -> Md:
    """Text inside a line."""
    if isinstance(text, Md):
        return text
    flat = one_line(text).replace("&", "&amp;")
    return Md(_SPECIAL.sub(lambda match: "\\" + match.group(0), flat))


def guarded(text: str) -> Md:
    """What would open a list, a heading or a quotation at the start of a line does not."""
    start = _BLOCK_START.match(text)
    if start and start.group(0).isdigit():
        return Md(f"{start.group(0)}\\{text[start.end() :]}")
    return Md("\\" + text) if start else Md(text)


def code(text: str) -> Md:
    """A code span whose fence is longer than any run of backticks inside."""
    flat = one_line(str(text))
    if not flat:
        return Md("")
    if "|" in flat and "\\" in flat:  # inside a table no code span can hold both safely
        return escape(flat)
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return Md(f"{fence}{pad}{flat}{pad}{fence}")


def prose(text: str) -> Md:
    """A text of the config: its author may use code spans and emphasis, but no HTML and no new
    blocks.
    """
    if isinstance(text, Md):
        return text
    flat = one_line(text)
    parts, position = [], 0
    for span in _CODE_SPAN.finditer(flat):
        parts += [_without_html(flat[position : span.start()]), span.group(0)]
        position = span.end()
    parts.append(_without_html(flat[position:]))
    return guarded("".join(parts))


def _without_html(text: str) -> str:
    return re.sub(r"[<\[`]", lambda match: "\\" + match.group(0), text.replace("&", "&amp;"))


def cell(text: str) -> Md:
    """One table cell; a pipe inside would end it."""
    return Md(inline(text).replace("|", "\\|"))


def cells(row: Iterable[str]) -> Md:
    return Md(" | ".join(cell(value) for value in row))


def cut(text: str, most: int) -> str:
    """So many characters of a text, with a mark where it goes on."""
    return text if len(text) <= most else text[:most] + "…"


def slug(heading: str) -> str:
    """The anchor that GitHub and its kin give a heading: words in small letters, spaces as hyphens."""
    plain = html.unescape(re.sub(r"[`*]|\\(?=\W)", "", heading))
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def link(text: str, heading: str, page: str = "") -> Md:
    """A link to a heading, of this page or of another."""
    return Md(f"[{inline(text)}]({page}#{slug(heading)})")


def joined(parts: Iterable[str], separator: str) -> Md:
    """Escaped parts with a separator of the catalogue between them."""
    return Md(separator.join(inline(part) for part in parts))
