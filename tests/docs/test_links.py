"""All links between the documents, and to files and headings of the checkout, lead somewhere."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote

import pytest

from tests.docs import pages

PAGES = pages.all_pages()


def resolved(page: str, target: str) -> tuple[str, str]:
    """(path in the checkout, anchor) of a relative link; the page itself for a bare anchor."""
    path, _, anchor = target.partition("#")
    if not path:
        return page, anchor
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / unquote(path)).parts:
        if part == "..":
            assert parts, f"{page}: {target} leads out of the checkout"
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts), anchor


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    files = set(pages.tracked())
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    wrong = []
    for number, target in pages.links(page):
        path, anchor = resolved(page, target)
        there = path in files or path.rstrip("/") in folders
        if not there:
            wrong.append(f"{page}:{number}: {target}: no {path}")
        elif anchor and path.endswith(".md") and anchor not in pages.anchors(path):
            wrong.append(f"{page}:{number}: {target}: no heading {anchor}")
    assert not wrong, "\n".join(wrong)


def test_links_and_anchors_are_found() -> None:
    """What the checks above rest on: there are links with an anchor, without one, and pictures."""
    found = [target for page in PAGES for _, target in pages.links(page)]
    assert sum("#" in target for target in found) > 3
    assert sum(target.endswith(".svg") for target in found) > 3
    assert "every-key" in pages.anchors("config/README.md")


def test_every_page_can_be_reached_from_the_front() -> None:
    """From README.md by links alone, in as many steps as it takes."""
    seen, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        found = (resolved(page, target)[0] for _, target in pages.links(page))
        todo += [path for path in found if path in PAGES]
    assert sorted(set(pages.documents()) - seen) == []
