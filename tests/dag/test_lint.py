"""`snakemake --lint` finds nothing but what is meant, each with its reason."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
STUDIES = ["config/config.yaml", "config/2026-07-14-decode.yaml"]

ALLOWED = {
    "Specify a conda environment or container for each rule": (
        "requirements/*.lock pins every package with its hash; there is one environment for all"
    ),
    "No log directive defined": (
        "reading steps take seconds and say their errors on the terminal; launch has its log"
    ),
    "Shell command directly uses variable PY from outside of the rule": (
        "which interpreter runs a step is no reason to run it again, and a parameter would be one"
    ),
    "Param * is a prefix of input or output file but hardcoded": (
        "steps take folders, so that they can be run by hand; the folder is named once, in study.py"
    ),
}


@pytest.mark.parametrize("study", STUDIES)
def test_lint(study: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--lint", "--configfile", study],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
    )
    titles = set(re.findall(r"^    \* (.+?)\.?:$", done.stdout + done.stderr, re.MULTILINE))
    titles = {re.sub(r"^Param \w+ ", "Param * ", title) for title in titles}
    assert titles, "lint said nothing at all, not even what is allowed"
    assert titles <= set(ALLOWED), titles - set(ALLOWED)


def test_rules_are_thin() -> None:
    """No python bodies, no lambdas, no functions beside rules, no script: (a checkout makes it stale)."""
    for file in (REPO / "workflow" / "rules").glob("*.smk"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(run|script|notebook):", text, re.MULTILINE), file.name
        assert "lambda" not in text and not re.search(r"^\s*def ", text, re.MULTILINE), file.name
        assert text.startswith('"""'), f"{file.name} says nothing about itself"
