"""docs/reference/files.md lists the keys of the files that a study really leaves, no more and no fewer.

A small study is measured on the embedded host, and each list of the page is held against its files.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decodelab import profiled_runs, step_table
from decodelab.columns import COLUMNS
from tests.docs import pages
from tests.e2e.lab import Lab
from tests.e2e.small import study

PAGE = pages.read("docs/reference/files.md")
OPTIONAL = "*(only"


def keys(heading: str, lead: str = "") -> tuple[set[str], set[str]]:
    """(all keys, those that may be left out) of the first list below a heading, or below a line in it."""
    part = PAGE.split(f"\n### {heading}\n", 1)[1].split("\n### ")[0]
    part = part.split(f"{lead}\n", 1)[1] if lead else part
    lines = part.split("| key | is |\n|---|---|\n", 1)[1].split("\n\n")[0].splitlines()
    found = {m[1]: OPTIONAL in line for line in lines if (m := re.match(r"\| `(\w+)` \|", line))}
    assert len(found) == len(lines), heading
    return set(found), {name for name, optional in found.items() if optional}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab.copy(tmp_path_factory.mktemp("files") / "checkout")
    config = study()
    config["experiments"]["later"] = {
        "when": "parser is not supported",
        "runs": {"parser": ["two"]},
    }
    config["experiments"]["busy"] = {
        "runs": {"noparser": ["two"]},
        "question": {
            "kind": "level",
            "metric": "util_pct_mean_all",
            "variant": "noparser",
            "workload": "two",
            "expected": [0, 100],
        },
    }
    made.write_config(config)
    call = made.run("--cores", "1", "report")
    assert call.exit_code == 0, call.text
    yield made
    made.end_all()


def one(lab: Lab, pattern: str) -> Path:
    return sorted(lab.root.glob(pattern))[0]


RESULTS = "results/small"
FILES = {
    "`DONE.json`": "results/raw/*/start1/start-*/DONE.json",
    "`start.json`": "results/raw/*/start1/start-*/start.json",
    "`run.json`": "results/raw/*/start1/*/*/run.json",
    "The plan": f"{RESULTS}/plan/*.json",
    "Receipts": f"{RESULTS}/launches/*.json",
    "Decisions": f"{RESULTS}/decisions/parser.*.json",
    "`runs/decode_runs.json`": f"{RESULTS}/runs/decode_runs.json",
    "`runs/ixsmi_capture.json`": f"{RESULTS}/runs/ixsmi_capture.json",
    "`tables/profiles.json`": f"{RESULTS}/tables/profiles.json",
    "`verdicts.json`": f"{RESULTS}/verdicts.json",
    "`figures/figures.json`": "report/small/figures/figures.json",
    "`evidence.json`": "report/small/evidence.json",
}
ENTRIES = {
    ("`runs/decode_runs.json`", "Each of `runs`, by name:", "runs"): FILES[
        "`runs/decode_runs.json`"
    ],
    ("`runs/decode_runs.json`", "each of `starts`:", "starts"): FILES["`runs/decode_runs.json`"],
    ("`runs/ixsmi_capture.json`", "Each of `captures`, by name:", "captures"): FILES[
        "`runs/ixsmi_capture.json`"
    ],
    ("`verdicts.json`", "Each of `verdicts`:", "verdicts"): FILES["`verdicts.json`"],
    ("`figures/figures.json`", "Each of `figures`:", "figures"): FILES["`figures/figures.json`"],
}


def held(told: tuple[set[str], set[str]], found: dict[str, Any], what: str) -> None:
    every, optional = told
    assert set(found) <= every, f"{what}: not on the page: {set(found) - every}"
    assert every - optional <= set(found), (
        f"{what}: not in the file: {every - optional - set(found)}"
    )


@pytest.mark.parametrize("heading", FILES)
def test_keys(lab: Lab, heading: str) -> None:
    files = sorted(lab.root.glob(FILES[heading]))
    assert files, heading
    for file in files:
        held(keys(heading), json.loads(file.read_text(encoding="utf-8")), file.name)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e[0]} {e[2]}")
def test_keys_of_entries(lab: Lab, entry: tuple[str, str, str]) -> None:
    heading, lead, name = entry
    found = json.loads(one(lab, ENTRIES[entry]).read_text(encoding="utf-8"))[name]
    assert found, name
    for value in found.values() if isinstance(found, dict) else found:
        held(keys(heading, lead), value, name)


def test_header_of_a_capture(lab: Lab) -> None:
    first = one(lab, "results/raw/*/start1/*/*/capture.jsonl").read_text(encoding="utf-8")
    held(keys("`capture.jsonl`"), json.loads(first.splitlines()[0]), "capture")
    held(keys("`capture.jsonl`", "Each further line:"), json.loads(first.splitlines()[1]), "record")


def test_a_profile_has_the_fields_of_its_class() -> None:
    fields = {field.name for field in dataclasses.fields(step_table.Profile)}
    every, _ = keys("`tables/profiles.json`", "Each profile:")
    assert every == fields | {"schema", "valid", "states_shares"}
    assert profiled_runs.SCHEMA in PAGE and step_table.SCHEMA in PAGE


def test_tables_are_those_that_are_written(lab: Lab) -> None:
    part = PAGE.split("### `tables/*.csv`")[1].split("\n### ")[0]
    named = set(re.findall(r"`(\w+)\.csv`", part))
    assert named == set(COLUMNS) == {f.stem for f in lab.root.glob(f"{RESULTS}/tables/*.csv")}
