"""The annex on accelerators: a line a run and a line a card, each with what it is worth."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from decodelab import (
    columns_telemetry,
    findings,
    report,
    report_accelerators,
    telemetry_window,
    words,
)
from decodelab.columns import COLUMNS
from decodelab.findings import Findings

FIXTURE = Path(__file__).resolve().parents[1] / "golden" / "report" / "fixture"
FIGURES = {
    "gpus": 2.0, "util_pct_mean_all": 20.0, "util_pct_mean_window": 42.5,
    "power_w_mean_window": 77.5, "cap_share_window": 0.31, "mem_headroom_mib_all": 2213.0,
    "idle_share_window": 0.0, "energy_j_window": 3255.0, "tokens_per_joule": 0.031,
    "joules_per_token": 32.2277, "smi_samples_gpu_window": 11.0, "smi_samples_gpu": 14.0,
    "time_share_prefill": 0.25, "time_share_decode": 0.75, "util_pct_mean_decode": 30.0,
    "temp_c_max_all": 41.0,
}  # fmt: skip


def load() -> Findings:
    return findings.load(
        FIXTURE / "plan.json", FIXTURE / "tables", FIXTURE / "verdicts.json", FIXTURE / "runs"
    )


def row(run: str, scope: str, **more: Any) -> dict[str, Any]:
    blank = dict.fromkeys(COLUMNS["gpus"])
    return {**blank, "run": run, "scope": scope, "validity": "valid", **FIGURES, **more}


def sampled(*given: dict[str, Any]) -> Findings:
    found = load()
    run = next(iter(found.runs))
    rows = [row(run, **line) for line in given]
    return dataclasses.replace(found, gpus={run: rows})


def annex(found: Findings, language: str = "en") -> str:
    text = report.write(found, [], "figures", words.load(language))
    head = str(words.load(language).say("heading.accelerators"))
    start = text.find(f"### {head}")
    return "" if start < 0 else text[start:]


def test_a_study_without_samples_has_no_such_annex() -> None:
    assert annex(load()) == "" and report_accelerators.tables(load(), words.load("en")) == []


def test_the_line_of_a_run_is_that_of_the_accelerators_in_use() -> None:
    own = annex(
        sampled(
            {"scope": "gpu", "gpu": 0.0, "name": "Iluvatar BI-V100", "in_use": "yes"},
            {"scope": "in_use", "in_use_by": "env", "energy_j_window": 2205.0},
            {"scope": "all", "in_use_by": "env", "energy_j_window": 3255.0},
        )
    )
    assert (
        "| 2 | visible devices | 20.00% | 42.50% | 0% | 77.50 W | 31% | 2213 MiB | 11 / 14 |" in own
    )
    assert "| 2205 J | 0.031 tok/J | 32.23 J/tok | 25% / 75% | — / 30.00% |" in own
    assert "| 0 | Iluvatar BI-V100 | yes |" in own and "41 °C | valid |" in own
    runs = own.split("Energy and phases")[0]
    assert "3255" not in runs


def test_where_it_cannot_be_told_the_line_is_that_of_all() -> None:
    own = annex(sampled({"scope": "all", "reasons": "telemetry_gpus_in_use_unknown"}))
    assert "valid; which accelerators the run used cannot be told |" in own


def test_reasons_stand_beside_the_figures_they_are_about() -> None:
    codes = "telemetry_gap:power_w;telemetry_phase_not_resolved:prefill;telemetry_later_code"
    own = annex(sampled({"scope": "all", "validity": "suspect", "reasons": codes}))
    levels, phases = own.split("Energy and phases")
    assert "suspect; a gap in the samples (power); `telemetry_later_code` |" in levels
    assert "prefill" not in levels.split("Each run")[1]
    assert "shorter than the distance of the samples (prefill-heavy phase) |" in phases


def test_one_reason_for_several_figures_is_said_once() -> None:
    codes = "telemetry_gap:util_pct;telemetry_rejected:power_w;telemetry_gap:power_w"
    codes += ";telemetry_failed_output:tokens_per_joule;telemetry_failed_output:joules_per_token"
    why = "power_w:8:sentinel;power_w:1:above 1.5 x cap;temp_c:3:sentinel"
    given = {"validity": "suspect", "reasons": codes, "smi_rejected_why": why}
    levels, energy = annex(sampled({"scope": "all", **given})).split("Energy and phases")
    assert (
        "| suspect; a gap in the samples (GPU-Util, power); values that cannot be true were left out "
        "(power 8 × `sentinel` 1 × `above 1.5 x cap`) |"
    ) in levels
    assert "their tokens do not (tokens per joule, energy per token) |" in energy


def test_what_is_suspect_comes_first() -> None:
    found = load()
    given = dict(zip(found.runs, ("valid", "suspect", "valid", "invalid"), strict=False))
    gpus = {name: [row(name, "all", validity=state)] for name, state in given.items()}
    own = annex(dataclasses.replace(found, gpus=gpus)).split("Energy and phases")[0]
    lines = [line for line in own.splitlines() if line.startswith("| `")]
    order = [
        name for state in ("invalid", "suspect", "valid") for name in given if given[name] == state
    ]
    assert [line.split("`")[1] for line in lines] == order


HELD = {"smi_tool": "ixsmi", "smi_form": "csv", "smi_loop": "no", "smi_records": 9.0}
HELD |= {"smi_wanted_interval_s": 1.0, "smi_interval_s": 1.0, "smi_cost_s": 0.03}


def made(*given: dict[str, Any]) -> str:
    """The annex of a study whose runs were sampled so."""
    found = load()
    one = next(iter(found.runs.values()))
    runs = {f"r{n}": {**one, "run": f"r{n}", **HELD, **told} for n, told in enumerate(given)}
    return annex(dataclasses.replace(found, runs=runs))


def test_runs_that_were_sampled_alike_share_a_line() -> None:
    slow = {"smi_interval_s": 6.2, "smi_cost_s": 2.07, "smi_form": "xml"}
    own = made({}, {"smi_cost_s": 0.04}, slow, *[{}] * 3, {**slow, "smi_interval_s": 6.4})
    assert "| `r0`, `r1`, `r3` … (+2) | `ixsmi` | `csv` | 1.00s / 1.00s | 0.030-0.040s |" in own
    assert (
        "| `r2`, `r6` | `ixsmi` | `xml` | 6.20-6.40s / 1.00s (slower than wanted) | 2.07s |" in own
    )
    assert "no sample, because" not in own


def test_the_tools_own_loop_is_told() -> None:
    assert "| `csv`, the tool's own loop | 1.00s / 1.00s | 2.00s |" in made(
        {"smi_loop": "yes", "smi_cost_s": 2.0}
    )


def test_why_there_is_no_sample_stands_in_the_report() -> None:
    blank = {**dict.fromkeys(HELD), "smi_tool": "none", "smi_problem": "ixsmi: not found"}
    own = made(blank, {"smi_problem": "record 0: no output (rc None): no answer within 10 s" * 9})
    assert "| `r0` | `none` | — | — | — | ixsmi: not found |" in own
    assert "no answer within 10 s" in own and own.count("no answer") == 4  # cut


def test_an_old_log_does_not_say_how_it_was_sampled() -> None:
    old = dict.fromkeys(("smi_form", "smi_loop", "smi_wanted_interval_s", "smi_cost_s"))
    assert "| `r0` | `ixsmi` | 1.00s / — |" in made(old)


def test_a_figure_that_is_not_known_is_a_dash_and_an_empty_column_is_left_out() -> None:
    given = {"scope": "all", "power_w_mean_window": None, "cap_share_window": None}
    own = annex(sampled(given, {"scope": "gpu", "gpu": 1.0, **given}))
    assert "power, window" not in own and "None" not in own and "nan" not in own


def test_many_lines_are_cut_and_the_cut_is_told() -> None:
    limit = report_accelerators.MAX_ROWS
    cards = [{"scope": "gpu", "gpu": float(n)} for n in range(limit + 1)]
    own = annex(sampled(*cards))
    assert f"Only the first {limit} lines are shown; all of it is in `results/" in own
    assert f"| {limit - 1} |" in own and f"| {limit} |" not in own


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_every_reason_has_its_words(language: str) -> None:
    known = words.load(language)
    code = re.compile(r'Doubt\(\s*"(telemetry_\w+)"')
    folder = Path(telemetry_window.__file__).parent
    used = {c for path in folder.glob("telemetry_*.py") for c in code.findall(path.read_text())}
    assert len(used) >= 11
    assert {c for c in used if f"reason.{c}" not in known} == set()


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_every_way_to_know_the_accelerators_has_its_words(language: str) -> None:
    known = words.load(language)
    told = str(columns_telemetry.GPU["in_use_by"].meaning)
    for by in ("env", "devices", "all", "processes", "memory"):
        assert re.search(rf"\b{by}\b", told) and f"accelerators.by_{by}" in known


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_the_phases_are_defined_in_the_report(language: str) -> None:
    text = report.write(load(), [], "figures", words.load(language))
    for name in ("time_share_prefill", "time_share_decode", "energy_j_window", "joules_per_token"):
        assert f"`{name}`" in text and str(words.load(language).say(f"definition.{name}")) in text
