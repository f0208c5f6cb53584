"""The annex on requested against effective, and on who answered."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from decodelab import findings, report, words
from decodelab.findings import Findings

FIXTURE = Path(__file__).parents[1] / "golden" / "report" / "fixture"
TOLD = {
    "max_num_seqs": [2, "arguments"],
    "enable_chunked_prefill": [False, "engine config"],
    "tensor_parallel_size": [4, "engine config"],
}
IDENTITY = {"driver": "3.2.3", "packages.torch": "2.1.0", "packages.fastapi": "0.1"}


def study(variant: dict[str, Any], *starts: dict[str, Any]) -> Findings:
    found = findings.load(
        FIXTURE / "plan.json", FIXTURE / "tables", FIXTURE / "verdicts.json", FIXTURE / "runs"
    )
    plan = {**found.plan, "variants": {**found.plan["variants"]}}
    plan["variants"]["noparser"] = {**plan["variants"]["noparser"], **variant}
    own = [row for row in found.starts if row["variant"] == "noparser"]
    changed = [{**row, **start} for row, start in zip(own, starts, strict=False)]
    return dataclasses.replace(found, plan=plan, starts=changed)


def annex(found: Findings, language: str) -> str:
    text = report.write(found, [], "figures", words.load(language))
    own = text.partition("Annex C" if language == "en" else "附录 C")[2]
    return own.partition("\n### ")[0]


ASKED = {
    "engine": "vllm-v0",
    "flags": {"-tp": 4, "--max-num-seqs": 2, "--enable-chunked-prefill": True, "--seed": 1},
    "env": {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN"},
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_option_has_one_row_and_differences_come_first(language: str) -> None:
    start = {"effective": json.dumps(TOLD), "backend": "XFormers", "ignored": None}
    text = annex(study(ASKED, start, start), language)
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in text.splitlines() if line[:3] == "| `"]
    differs, not_told, fine = {
        "en": ("**differs**", "not told", "in effect"),
        "zh": ("**不一致**", "未说明", "生效"),
    }[language]
    assert [(row[0], row[1], row[2], row[4]) for row in rows] == [
        ("`--enable-chunked-prefill`", "`true`", "`false`", differs),
        ("`VLLM_ATTENTION_BACKEND`", "`FLASH_ATTN`", "`XFormers`", differs),
        ("`--seed`", "`1`", "`—`", not_told),
        ("`--tensor-parallel-size`", "`4`", "`4`", fine),
        ("`--max-num-seqs`", "`2`", "`2`", fine),
    ]


def test_starts_that_show_unlike_identities_have_a_row_each() -> None:
    other = {**IDENTITY, "driver": "4.0.0"}
    starts = [{"identity": json.dumps(told)} for told in (IDENTITY, other)]
    text = annex(study(ASKED, *starts), "en")
    assert "| `driver` | `3.2.3` | `noparser` |" in text
    assert "| `driver` | `4.0.0` | `noparser` |" in text
    assert "`packages.torch`" in text and "fastapi" not in text


def test_starts_that_tell_nothing_conclude_nothing() -> None:
    told = annex(study(ASKED, {}), "en")
    assert "nothing is concluded" in told and "|" not in told
