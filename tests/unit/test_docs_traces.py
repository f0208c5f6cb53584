"""docs/step-profiler-traces.md says what the code does: its tables are its tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from decodelab import step_kernels, step_plain, step_trace, trace_events
from tests.unit.problem_codes import problem_codes

PAGE = (Path(__file__).parents[2] / "docs/step-profiler-traces.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    table = PAGE.split(f"| {head} |", 1)[1].split("\n\n", 1)[0]
    return [[c.strip() for c in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_categories() -> None:
    told = [name for cell, _ in rows("category") for name in names(cell)]
    assert sorted(told) == sorted([*trace_events.CATEGORIES, "ac2g"])


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        ("class", [*step_kernels.CLASSES, step_kernels.OTHER]),
        ("cause", list(step_kernels.IDLE)),
    ],
)
def test_names(head: str, wanted: list[str]) -> None:
    assert [names(cells[0])[0] for cells in rows(head)] == wanted


def test_doubts() -> None:
    told = [names(cells[0])[0] for cells in rows("code")]
    assert sorted(told) == sorted(problem_codes(step_trace, step_plain))


def test_columns() -> None:
    told = {what: tuple(names(cell)) for what, cell in rows("what")}
    assert told == step_plain.COLUMNS
