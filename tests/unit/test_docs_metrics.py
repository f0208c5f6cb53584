"""docs/reference/metrics.md says of every column and metric what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cargo import record
from decodelab import columns, metricspage, vocabulary
from decodelab.columns import COLUMNS
from decodelab.columns_telemetry import Column

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/metrics.md"


def test_page_is_made_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert metricspage.page(text) == text, "run: python scripts/make_metrics_page.py"


@pytest.mark.parametrize("table", COLUMNS)
def test_every_column_has_a_row_with_its_meaning(table: str) -> None:
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {table}.csv\n")[1].split("\n## ")[0]
    shown = re.findall(r"^\| `([^`]+)` \| ([^|]*) \| (.+) \|$", part, re.MULTILINE)
    assert [name for name, _, _ in shown] == list(COLUMNS[table])
    assert [unit.strip() for _, unit, _ in shown] == [c.unit for c in COLUMNS[table].values()]
    assert all(meaning.strip() for _, _, meaning in shown)


@pytest.mark.parametrize("part", record.FIELDS)
def test_every_field_of_a_record_has_a_row(part: str) -> None:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## run.json: {part}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE) == list(record.FIELDS[part])


def test_every_metric_of_a_question_is_defined() -> None:
    for name in vocabulary.METRICS:
        base = metricspage.base_of(name) or name
        label, definition = metricspage.said(base)
        assert label and definition, name


def test_page_notices_a_new_column(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    more = {**COLUMNS["itl"], "gap_n": Column("gaps", "a new | column")}
    monkeypatch.setitem(columns.COLUMNS, "itl", more)
    assert metricspage.page(text) != text
    assert "| `gap_n` | gaps | a new \\| column |" in metricspage.page(text)
