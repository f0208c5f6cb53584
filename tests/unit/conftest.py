"""A test that leaves a child process behind fails, here and not in another test that counts its own."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = children()  # those of fixtures that serve a whole module: these come first
    yield
    assert children() <= before, "this test leaves a child process behind"
