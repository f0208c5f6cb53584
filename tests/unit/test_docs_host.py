"""docs/starts.md and docs/telemetry.md say what the code does: their tables are its tables."""

from __future__ import annotations

import re
from pathlib import Path

from cargo import smi_tools
from cargo.start_rules import CLASSES
from cargo.start_stages import STAGES
from decodelab import vocabulary
from decodelab.degradation import RULES
from decodelab.telemetry import METRICS

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIDES = {"config": "configuration: *not possible*", "host": "host: tried again", "none": "—"}


def rows(page: str, head: str) -> list[list[str]]:
    """The cells of the table whose first heading this is, as written."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = re.split(rf"^\| {re.escape(head)} \|.*\n\|[-|: ]+\|\n", text, flags=re.M)[1]
    lines = table.split("\n\n")[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_classes_of_failed_starts() -> None:
    wanted = [[f"`{name}`", SIDES[c.side], c.en] for name, c in CLASSES.items()]
    assert rows("starts.md", "class") == wanted


def test_stages() -> None:
    longer = {True: ", longer with the context", False: ""}
    wanted = [[f"`{s.name}`", s.words, f"{s.limit_s} s{longer[s.scaled]}"] for s in STAGES]
    assert rows("starts.md", "stage") == wanted


def test_degradation() -> None:
    def asked(names: tuple[str, ...]) -> str:
        return ", ".join(f"`{name}`" for name in names) or "—"

    wanted = [
        [f"`{r.name}`", r.en, "invalid" if r.spoils else "told", asked(r.asked_by)] for r in RULES
    ]
    assert rows("starts.md", "name") == wanted


def test_metrics() -> None:
    wanted = [[f"`{name}`", unit, meaning] for name, (unit, meaning) in METRICS.items()]
    assert rows("telemetry.md", "metric") == wanted


def test_tools() -> None:
    names = [cells[0].split("`")[1] for cells in rows("telemetry.md", "`telemetry:`")]
    assert sorted(names) == sorted(vocabulary.TELEMETRY_TOOLS)
    assert set(smi_tools.BY_NAME) == set(names) - {"auto", "none"}
