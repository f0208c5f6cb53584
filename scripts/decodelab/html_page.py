"""report.html: the pages of all languages in one file that needs nothing beside it.

In: the Markdown pages, the folder of the figures (figures.json, SVG and plot files), the
catalogues. Out: the page's text. Nothing in it comes from the network: its own policy forbids any
request, and lets only the scripts run that were written into it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from decodelab import figures, html_library, html_plate, html_text
from decodelab import words as words_module
from decodelab.html_plate import Plate
from decodelab.html_text import Article
from decodelab.words import Words

PARTS = words_module.CATALOGUES / "html"
SCRIPTS = ("page.js", "tables.js", "figures.js")
# What the scripts say, in the language that is shown.
SAID = [
    "sort",
    "sorted_up",
    "sorted_down",
    "zoom",
    "pan",
    "zoom_in",
    "zoom_out",
    "reset",
    "download",
]


def write(pages: Mapping[str, str], folder: Path) -> str:
    """`pages`: language -> Markdown, in the order of the study's languages."""
    entries = figures.read_list(folder)
    plates = {
        entry["file"]: html_plate.read(folder / entry["file"], f"plate{place}")
        for place, entry in enumerate(entries, start=1)
    }
    plots = {entry["file"]: _plot(entry, folder, list(pages)) for entry in entries}
    articles = [_article(language, text, plates, plots) for language, text in pages.items()]
    library = html_library.text()
    script = "\n".join((PARTS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PARTS),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    style = environment.get_template("page.css.j2").render()
    shown = {name: plot for name, plot in plots.items() if plot}
    return environment.get_template("page.html.j2").render(
        articles=[_page(article) for article in articles],
        policy=_policy(library, script),
        style=Markup(style),
        script=Markup(script),
        plates=Markup("\n".join(plate.symbol for plate in plates.values())),
        library=html_library.packed(library) if shown else "",
        data=Markup(_data({"plots": shown, "said": {a.language: _said(a) for a in articles}})),
    )


def _plot(entry: Mapping[str, Any], folder: Path, languages: Sequence[str]) -> dict[str, Any]:
    if not entry.get("plot"):
        return {}
    found = json.loads((folder / entry["plot"]).read_text(encoding="utf-8"))
    return {language: found[language] for language in languages}


def _article(
    language: str, text: str, plates: Mapping[str, Plate], plots: Mapping[str, Any]
) -> Article:
    def show(name: str, alt: str, caption: str) -> str:
        plate, said = plates[name], html.escape(alt)
        plot = f'<div class="plot" role="group" aria-label="{said}"></div>\n' if plots[name] else ""
        data = f' data-plot="{html.escape(name)}"' if plots[name] else ""
        return (
            f"<figure{data}>\n{plot}"
            f'<div class="plate"><svg role="img" aria-label="{said}" viewBox="{plate.view_box}"'
            f' style="max-width:{plate.width * 1.35:.0f}px">'
            f'<use href="#{plate.name}"/></svg></div>\n'
            f"<figcaption>{caption}</figcaption>\n</figure>\n"
        )

    return html_text.article(text, language, plates, show)


def _page(article: Article) -> dict[str, Any]:
    say = words_module.load(article.language).plain
    return {
        "language": article.language,
        "title": article.title,
        "html": Markup(article.html),
        "contents": [
            {"level": heading.level, "anchor": heading.anchor, "html": Markup(heading.html)}
            for heading in article.headings
            if heading.level in (2, 3)
        ],
        "say": lambda key: say(f"html.{key}"),
    }


def _said(article: Article) -> dict[str, str]:
    words: Words = words_module.load(article.language)
    return {key: words.plain(f"html.{key}") for key in SAID} | {"title": article.title}


def _data(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(library: bytes, script: str) -> str:
    scripts = " ".join(
        f"'{html_library.digest(part)}'" for part in (library, script.encode("utf-8"))
    )
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
