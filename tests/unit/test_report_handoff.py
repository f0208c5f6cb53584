"""The one-page summary, and the ten lines of the report's own: the same for three experiments and for
thirty.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import write_summary

from decodelab import findings, markdown, report, report_handoff, report_summary, words
from decodelab.findings import Findings

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "report"
FIXTURE = GOLDEN / "fixture"
PAGE = 45  # lines that a printed page takes
STATES = ("supported", "refuted", "inconclusive", "not_possible", "invalid")


def load() -> Findings:
    return findings.load(
        FIXTURE / "plan.json", FIXTURE / "tables", FIXTURE / "verdicts.json", FIXTURE / "runs"
    )


def large(n: int = 30) -> Findings:
    """The small study with so many experiments, one verdict each, of every sort in turn."""
    found = load()
    plan: dict[str, Any] = json.loads(json.dumps(found.plan))
    first = plan["experiments"]["parser"]
    one = next(v for v in found.verdicts if v["experiment"] == "parser")
    plan["experiments"] = {f"e{k:02}": {**first, "section": None} for k in range(n)}
    verdicts = [
        {**one, "experiment": name, "verdict": STATES[k % len(STATES)]}
        for k, name in enumerate(plan["experiments"])
    ]
    judged = {v["experiment"]: {"verdict": v["verdict"]} for v in verdicts}
    return Findings(
        **{
            **vars(found),
            "plan": plan,
            "verdicts": verdicts,
            "judged": {**found.judged, "experiments": judged, "ranking": []},
        }
    )


@pytest.mark.parametrize(("language", "name"), [("zh", "summary.md"), ("en", "summary.en.md")])
def test_the_page_is_this_text(language: str, name: str, tmp_path: Path) -> None:
    """UPDATE_GOLDEN=1 writes the golden text anew; read the difference before you commit it."""
    given = ["--plan", str(FIXTURE / "plan.json"), "--tables", str(FIXTURE / "tables")]
    given += ["--verdicts", str(FIXTURE / "verdicts.json"), "--language", language]
    assert write_summary.main([*given, "--out", str(tmp_path / name)]) == 0
    text = (tmp_path / name).read_text(encoding="utf-8")
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("found", [load(), large()], ids=["small", "thirty"])
def test_it_fits_on_a_page(language: str, found: Findings) -> None:
    text = report_handoff.write(found, "report.md", words.load(language))
    assert len(text.splitlines()) <= PAGE, text


def test_ten_lines_of_thirty_experiments_leave_none_out() -> None:
    found, say = large(), words.load("en")
    lines = [str(line) for line in report_summary.lines(found, say)]
    assert len(lines) <= report_summary.LINES
    (invalid,) = [line for line in lines if "no valid data" in line]
    assert "**6 experiments" in invalid
    alone = [
        line for line in lines if re.match(r"\*\*[^*]*: (supported|refuted|not possible)", line)
    ]
    (rest,) = [line for line in lines if line.startswith("The other")]
    assert int(re.findall(r"\d+", rest)[0]) + len(alone) + 6 == 30
    assert sum(int(n) for n in re.findall(r"(\d+) (?:supp|ref|not p|inc)", rest)) + len(alone) == 24
    assert "inconclusive" in rest and "](#3-results)" in rest


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("found", [load(), large()], ids=["small", "thirty"])
def test_every_link_leads_to_a_heading(language: str, found: Findings) -> None:
    say = words.load(language)
    whole = report.write(found, [], "figures", say)
    page = report_handoff.write(found, "report.md", say)
    known = {markdown.slug(line.lstrip("# ")) for line in whole.splitlines() if line[:1] == "#"}
    told = re.findall(r"\]\(#([^)]+)\)", whole) + re.findall(r"\]\(report\.md#([^)]+)\)", page)
    assert told and set(told) <= known


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_annexes_stand_in_the_order_of_their_letters(language: str) -> None:
    whole = report.write(load(), [], "figures", words.load(language))
    letters = re.findall(r"^### (?:附录|Annex) ([A-Z])", whole, re.MULTILINE)
    assert letters == sorted(letters) and letters[:8] == list("ABCDEFGH")


def test_what_is_invalid_or_rests_on_one_start_is_told() -> None:
    text = report_handoff.write(large(), "report.en.md", words.load("en"))
    cautions = text.partition("must not be concluded")[2]
    assert "supports no conclusion" in cautions and "started only once" in cautions
