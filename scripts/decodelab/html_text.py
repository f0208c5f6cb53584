"""A page of the report as HTML: the very Markdown of one language, rendered.

In: the Markdown text, the figures that are at hand. Out: an `Article`: its HTML, its headings with
anchors, the figures that it shows. HTML inside the Markdown stays text; whatever a value holds was
escaped when the Markdown was written and is escaped again here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from decodelab import markdown

# file name of a figure, alt text, caption in HTML -> HTML of the figure
ShowFigure = Callable[[str, str, str], str]
_NO_WORD = re.compile(r"[^\w]+")
WIDE = 8  # columns: a table of more is printed on a page of its own, turned


@dataclass(frozen=True)
class Heading:
    level: int
    anchor: str
    html: str


@dataclass(frozen=True)
class Article:
    language: str
    title: str
    html: str
    headings: list[Heading]


class _Renderer(RendererHTML):
    def figure(self, tokens: Sequence[Token], place: int, *_: object) -> str:
        return tokens[place].content


def article(text: str, language: str, known: Collection[str], show: ShowFigure) -> Article:
    """`known`: the file names of figures that `show` can show; any other image leaves its alt text.

    Two headings of the same words get two anchors; an anchor starts with the language, so that both
    languages fit into one file.
    """
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    tokens = _figures(parser, parser.parse(text), known, show)
    headings = list(_anchored(parser, tokens, language))
    _local_links(tokens)
    _tables(tokens)
    body = parser.renderer.render(tokens, parser.options, {})
    title = next((h.html for h in headings if h.level == 1), "")
    return Article(language, html.unescape(re.sub(r"<[^>]*>", "", title)), body, headings)


def _inline(parser: MarkdownIt, tokens: Sequence[Token]) -> str:
    renderer = parser.renderer
    assert isinstance(renderer, _Renderer)
    return renderer.renderInline(tokens, parser.options, {})


# headings -----------------------------------------------------------------------------------------


def _anchored(parser: MarkdownIt, tokens: Sequence[Token], language: str) -> Iterator[Heading]:
    taken: set[str] = set()
    for place, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        inner = tokens[place + 1].children or []
        words = "".join(child.content for child in inner if child.type in ("text", "code_inline"))
        stem = f"{language}-{_NO_WORD.sub('-', words.lower()).strip('-') or 'section'}"
        anchor, number = stem, 1
        while anchor in taken:
            number += 1
            anchor = f"{stem}-{number}"
        taken.add(anchor)
        token.attrSet("id", anchor)
        yield Heading(int(token.tag[1:]), anchor, _inline(parser, inner))


def _local_links(tokens: Sequence[Token]) -> None:
    """A link to a heading of the Markdown page leads to the heading's anchor here."""
    anchors: dict[str, str] = {}
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            slug = markdown.slug(tokens[place + 1].content)
            anchors.setdefault(slug, str(token.attrGet("id")))
    for child in (child for token in tokens for child in token.children or []):
        target = str(child.attrGet("href") or "")
        if child.type == "link_open" and target.startswith("#"):
            child.attrSet("href", f"#{anchors.get(unquote(target[1:]), target[1:])}")


# tables -------------------------------------------------------------------------------------------


def _tables(tokens: list[Token]) -> None:
    """Each table in a box that may scroll, named by the heading above it; its first column and its
    first row are headers.
    """
    heading, first = "", False
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = str(token.attrGet("id"))
        elif token.type == "tr_open":
            first = True
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "td_open" and first:
            first = False
            token.attrSet("scope", "row")
            token.tag = tokens[place + 2].tag = "th"
        elif token.type == "table_open":
            token.meta["columns"] = _columns(tokens[place:])
            token.meta["heading"] = heading
    boxed: list[Token] = []
    for token in tokens:
        if token.type == "table_open":
            kind = "box wide" if token.meta["columns"] > WIDE else "box"
            label = html.escape(token.meta["heading"])
            boxed.append(_raw(f'<div class="{kind}" role="group" aria-labelledby="{label}">\n'))
        boxed.append(token)
        if token.type == "table_close":
            boxed.append(_raw("</div>\n"))
    tokens[:] = boxed


def _columns(tokens: Sequence[Token]) -> int:
    end = next(place for place, token in enumerate(tokens) if token.type == "tr_close")
    return sum(token.type == "th_open" for token in tokens[:end])


def _raw(text: str) -> Token:
    return Token("figure", "", 0, content=text)


# figures ------------------------------------------------------------------------------------------


def _figures(
    parser: MarkdownIt, tokens: Sequence[Token], known: Collection[str], show: ShowFigure
) -> list[Token]:
    """A paragraph of one image becomes a figure; a paragraph of one emphasis below it, its
    caption.
    """
    out: list[Token] = []
    place = 0
    while place < len(tokens):
        image = _only(tokens, place, "image")
        if image is None:
            out.append(tokens[place])
            place += 1
            continue
        place += 3
        caption = ""
        if _emphasised(tokens, place):
            caption = _inline(parser, (tokens[place + 1].children or [])[1:-1])
            place += 3
        alt, name = image.content, PurePosixPath(str(image.attrGet("src"))).name
        if image.children:
            alt = "".join(child.content for child in image.children)
        shown = show(name, alt, caption) if name in known else f"<p>{html.escape(alt)}</p>\n"
        out.append(_raw(shown))
    return out


def _paragraph(tokens: Sequence[Token], place: int) -> list[Token]:
    if place + 2 >= len(tokens) or tokens[place].type != "paragraph_open":
        return []
    return tokens[place + 1].children or []


def _only(tokens: Sequence[Token], place: int, kind: str) -> Token | None:
    inner = _paragraph(tokens, place)
    return inner[0] if len(inner) == 1 and inner[0].type == kind else None


def _emphasised(tokens: Sequence[Token], place: int) -> bool:
    inner = _paragraph(tokens, place)
    ends = [place for place, token in enumerate(inner) if token.type == "em_close"]
    return bool(ends) and inner[0].type == "em_open" and ends == [len(inner) - 1]
