"""A test that leaves a child process behind fails, here and not in another test that counts its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from decodelab import figure_font


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = children()  # those of fixtures that serve a whole module: these come first
    yield
    assert children() <= before, "this test leaves a child process behind"


@pytest.fixture
def no_chinese_font(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without the Debian package."""
    known = (figure_font.families, figure_font.has_chinese, figure_font._drawable)
    monkeypatch.setattr(figure_font, "CHINESE_FILE", Path("/nonexistent"))
    for function in known:
        function.cache_clear()
    yield
    for function in known:
        function.cache_clear()
