"""Text stays text: rendered by a real Markdown parser and compared with what went in."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from decodelab import markdown
from decodelab.markdown import Md

PARSER = MarkdownIt("commonmark").enable("table").enable("strikethrough")

NASTY = [
    "a | b",
    "`code` and ``more``",
    "<script>alert(1)</script>",
    "**bold** _em_ __init__ snake_case *",
    "[link](http://x) ![img](y)",
    "# heading",
    "- item",
    "1. item",
    "> quote",
    "a & b &amp; c",
    "back\\slash \\| pipe",
    "~~struck~~",
    "ends with `",
    "--- | ---",
    "=== ",
    "+ plus",
    "line\nbreak\tand\r\nmore",
    "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: xformers",
]


def shown(rendered: str) -> str:
    """The text that a reader sees."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", rendered)).split())


def expected(text: str) -> str:
    return " ".join(markdown.one_line(text).split())


@pytest.mark.parametrize("text", NASTY)
def test_a_paragraph_shows_the_text_itself(text: str) -> None:
    rendered = PARSER.render(markdown.escape(text))
    assert shown(rendered) == expected(text)
    assert re.fullmatch(r"<p>[^<]*</p>\n", rendered), rendered


@pytest.mark.parametrize("text", NASTY)
def test_a_code_span_shows_the_text_itself(text: str) -> None:
    rendered = PARSER.render("log: " + markdown.code(text))
    assert shown(rendered) == "log: " + expected(text)


@pytest.mark.parametrize("how", [markdown.escape, markdown.code])
@pytest.mark.parametrize("text", NASTY)
def test_a_table_keeps_its_shape(text: str, how: Callable[[str], Md]) -> None:
    row = markdown.cells([how(text), "second"])
    rendered = PARSER.render(f"| a | b |\n|---|---|\n| {row} |\n")
    cells = re.findall(r"<td>(.*?)</td>", rendered, re.DOTALL)
    assert [shown(cell) for cell in cells] == [expected(text), "second"]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=40))
def test_any_text_survives_in_a_table(text: str) -> None:
    row = markdown.cells([markdown.escape(text), "second"])
    rendered = PARSER.render(f"| a | b |\n|---|---|\n| {row} |\n")
    cells = re.findall(r"<td>(.*?)</td>", rendered, re.DOTALL)
    assert len(cells) == 2
    assert shown(cells[0]) == expected(text)


def test_a_config_text_keeps_its_code_and_loses_its_html() -> None:
    text = markdown.prose("use `--flag <x>` and <b>not</b> [this](javascript:x) **really**")
    rendered = PARSER.render(text)
    assert "<code>--flag &lt;x&gt;</code>" in rendered
    assert "<strong>really</strong>" in rendered
    assert "&lt;b&gt;not" in rendered and "<a " not in rendered


def test_markdown_is_escaped_once() -> None:
    once = markdown.escape("a*b")
    assert markdown.escape(once) is once
    assert markdown.joined([Md("*em*"), "a*b"], "; ") == "*em*; a\\*b"


def test_control_characters_are_seen() -> None:
    assert markdown.escape("a\x1b[31mb") == "a\N{REPLACEMENT CHARACTER}\\[31mb"
