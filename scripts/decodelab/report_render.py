"""From finished text to a page: one template of workflow/report, laid out.

In: the template's name, its content, the catalogue. Out: the Markdown text. A template holds no
arithmetic, no judgement and no words; whatever it prints that is not Markdown already is escaped on
the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import jinja2

from decodelab import markdown, numbers
from decodelab import words as words_module
from decodelab.markdown import Md
from decodelab.words import Words

FILTERS = ("cells", "rules")


def page(template: str, content: object, words: Words) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(words_module.CATALOGUES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,  # macros and Md pass, plain text meets _escaped first
        finalize=_escaped,
    )
    environment.filters["cells"] = markdown.cells
    environment.filters["rules"] = _rules
    text = environment.get_template(template).render(
        report=content, say=words.say, missing=numbers.DASH
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _escaped(value: object) -> object:
    return value if hasattr(value, "__html__") else markdown.escape(str(value))


def _rules(align: Sequence[str]) -> Md:
    return Md("|".join("---:" if side == "right" else "---" for side in align))
