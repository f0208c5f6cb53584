"""The profile of a decode step in the report: exact text, and nothing that an invalid or a sync profile may not say."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from profile_samples import (
    DECODE,
    DOUBTS,
    FIXTURE,
    MIXED,
    PREFILL,
    PROBLEMS,
    changed,
    event,
    study,
    sync,
    table,
    timeline,
    trace,
    write,
)

from decodelab import (
    findings,
    profiled_runs,
    report,
    report_experiment,
    report_step,
    report_summary,
    report_verdicts,
    step_table,
    words,
)
from decodelab.findings import Findings, UnreadableInput
from decodelab.step_table import Problem, Profile

GOLDEN = FIXTURE.parent
VALID = ("decode_noparser_short_c1_t128_r3", "decode_noparser_short_c1_t128_r3_start2")
INVALID = "decode_full_parser_short_c1_t128_r3"
SYNC = "decode_full_parser_tool_c1_t128_r3"
TRACE = "decode_noparser_short_c2_t128_r4"
RUNS = {
    VALID[0]: event(table(DECODE), PREFILL, MIXED, doubts=DOUBTS, timeline=timeline()),
    VALID[1]: event(table(changed(DECODE, moe=27.0))),
    INVALID: event(problems=(*PROBLEMS, Problem("new_code", {"a": 1.5, "b_ms": 3.0}))),
    SYNC: sync(),
    TRACE: trace(),
}


def text(found: Findings, language: str) -> str:
    return report.write(found, [], "figures", words.load(language))


def parts(found: Findings, language: str) -> str:
    """Of a whole report what is of profiles: each section's, the bottleneck's and the summary's."""
    say = words.load(language)
    whole = text(found, language)
    label = re.escape(str(say.say("label.profiles")))
    ends = "|".join(
        re.escape(str(say.say(f"label.{name}"))) for name in ("verdicts", "noise", "explanation")
    )
    told = re.findall(rf"{label}\n.*?(?=\n(?:{ends}))", whole, re.DOTALL)
    head, note = (re.escape(str(say.say(key))) for key in ("label.step", "bottleneck.note"))
    told += re.findall(rf"{head}\n.*?(?=\n{note})", whole, re.DOTALL)
    return "\n\n".join([*told, *report_step.summary(found, say), ""])


def block(profile: Profile, language: str = "en", run: str = VALID[0]) -> str:
    return parts(study({run: profile}), language)


@pytest.mark.parametrize(("language", "name"), [("zh", "profile.md"), ("en", "profile.en.md")])
def test_the_profiles_are_told_in_this_text(language: str, name: str) -> None:
    """UPDATE_GOLDEN=1 writes the golden text anew; read the difference before you commit it."""
    told = parts(study(RUNS, {"kernels": trace()}, [VALID[0]]), language)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(told, encoding="utf-8")
    assert told == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_a_study_without_profiles_says_nothing_of_them(language: str) -> None:
    found, say = study({}), words.load(language)
    assert str(say.say("label.profiles")) not in text(found, language)
    assert str(say.say("label.step")) not in text(found, language)
    assert report_step.summary(found, say) == []


def test_both_languages_have_one_structure() -> None:
    parser = MarkdownIt("commonmark").enable("table")
    zh, en = (
        [t.type for t in parser.parse(text(study(RUNS), language)) if t.type != "inline"]
        for language in words.LANGUAGES
    )
    assert zh == en


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.code)
def test_an_invalid_profile_says_why_and_shows_no_region(problem: Problem, language: str) -> None:
    say = words.load(language)
    told = block(event(table(DECODE), PREFILL, problems=(problem,), timeline=timeline()), language)
    assert f"profile.problem.{problem.code}" in say
    assert "| " not in told.replace("|---", "")  # no table
    for figure in (
        "26.0",
        "25.74",
        "42.",
        "1.74",
        "61.4",
    ):  # of MoE, its share and ceiling; the step
        assert figure not in told
    assert str(say.say("step.unranked.invalid")) in told
    assert report_step.summary(study({VALID[0]: event(problems=(problem,))}), say) == []


@pytest.mark.parametrize("kind", ["problem", "doubt"])
def test_a_code_that_nobody_knows_keeps_its_figures(kind: str) -> None:
    odd = (Problem("brand_new", {"rank": 3, "gap_ms": 1.25, "nothing": None}),)
    told = block(event(**{f"{kind}s": odd}))
    assert "`brand_new`" in told and "`rank` 3" in told and "`gap_ms` 1.25 ms" in told
    assert "`nothing`" not in told


def test_a_figure_that_nobody_gave_is_a_dash() -> None:
    told = block(event(problems=(Problem("too_few_steps", {"steps": 3}),)))
    assert "Only 3 decode steps, at least — are needed." in told


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_a_sync_profile_gives_an_order_and_its_overhead_and_no_share(language: str) -> None:
    told = block(sync(), language)
    assert "+81.6%" in told and "`moe` > " in told
    assert re.findall(r"\d%", re.sub(r"[+−][\d.]+%", "", told)) == []
    assert " ms" not in told and "×" not in told


def test_launches_are_a_range_and_an_invalid_one_is_left_out() -> None:
    told = parts(study({VALID[0]: RUNS[VALID[0]], VALID[1]: RUNS[VALID[1]]}), "en")
    assert "**Valid** (2 of 2 launches" in told and "| 25.74-26.73 |" in told
    broken = dataclasses.replace(RUNS[VALID[1]], problems=PROBLEMS[2:3])
    told = parts(study({VALID[0]: RUNS[VALID[0]], VALID[1]: broken}), "en")
    assert "**Valid** (1 of 2 launches" in told and "| 25.74 |" in told
    assert f"`{VALID[1]}` is invalid:" in told and "27.0" not in told


def test_the_summary_has_one_line_of_all_profiles() -> None:
    found = study(dict.fromkeys((*VALID, TRACE), event()))
    lines = [
        line for line in report_summary.lines(found, words.load("en")) if "decode step" in line
    ]
    assert len(lines) == 1 and "work of the model" in lines[0]


def test_a_tie_is_no_summary() -> None:
    level = event(table({"moe": (40, 30.0, 5.0), "scheduler": (1, 29.0, 0.1)}))
    told = block(level)
    assert "no part leads; these are not told apart: work of the model 30.00 ms" in told
    assert report_step.summary(study({VALID[0]: level}), words.load("en")) == []


def test_a_table_of_means_shows_means() -> None:
    bare = tuple(dataclasses.replace(r, ms_p50=None, ms_p90=None) for r in table(DECODE).regions)
    plain = dataclasses.replace(table(DECODE, "all"), regions=bare, step_ms_p50=None, steps=None)
    told = block(event(plain, source="regions", mode=None))
    assert (
        "| ms per step, mean |" in told
        and "| 26.00 |" in told
        and "P50" not in told.split("Times")[0].split("| region")[1]
    )
    assert "the spread over steps is not known; nothing is ranked" in told


def test_a_given_profile_stands_with_its_variant() -> None:
    found = study({}, {"mine": trace()})
    plan = {**found.plan, "profiles": {"mine": {"file": "x.json.gz", "variant": "flash"}}}
    found = dataclasses.replace(found, plan=plan)
    say = words.load("en")
    section = report_experiment.section(found, "B", say.say("heading.summary"), [], "f", say)
    assert [str(one.title) for one in section.profiles] == ["Profile `mine`, given by the config:"]
    assert text(found, "en").count("Profile `mine`, given by the config:\n") == 1


@pytest.mark.parametrize(
    ("same", "said"),
    [
        ({"same": 4, "compared": 4}, "same greedy output as the twin in all 4 replies"),
        ({"same": 3, "compared": 4}, "greedy output **differs** from the twin's"),
        ({"same": 0, "compared": 4}, "greedy output **differs** from the twin's"),
        (None, "output not compared with the twin's"),
    ],
)
def test_the_output_is_the_same_only_where_every_reply_is(
    same: dict[str, int] | None, said: str
) -> None:
    assert said in block(event(same_output=same))


def test_a_log_line_in_a_profile_stays_text() -> None:
    odd = (Problem("no_steps", {"processes": 1, "untold": 0, "troubles": ["<script>|`x`|"]}),)
    html = MarkdownIt("commonmark").enable("table").render(block(event(problems=odd)))
    assert "<script" not in html


@pytest.mark.parametrize(
    ("language", "metric", "said"),
    [
        ("en", "region_ms", "time a step of `attention`"),
        ("en", "region_share", "share of the step of `attention`"),
        ("zh", "region_ms", "`attention` 单步用时"),
        ("zh", "region_share", "`attention` 占单步时间的比例"),
    ],
)
def test_a_question_about_a_region_names_it(language: str, metric: str, said: str) -> None:
    found = study({})
    verdict = {**found.verdicts[0], "metric": metric, "region": "attention"}
    verdict |= {"baseline_value": 0.3, "candidate_value": 0.25}
    told = str(report_verdicts.answer(found, verdict, words.load(language)))
    assert said in told
    values = {"region_ms": "0.30 → 0.25 ms", "region_share": "30% → 25%"}
    assert values[metric] in told


# read from a study's tables -----------------------------------------------------------------------


def load(folder: Path) -> Findings:
    return findings.load(
        folder / "plan.json", folder / "tables", folder / "verdicts.json", folder / "runs"
    )


def test_profiles_are_read_from_the_tables(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "study"))
    write(folder, RUNS, {"kernels": trace()})
    (folder / "traces").mkdir()
    (folder / "traces" / f"{VALID[0]}.json.gz").write_bytes(b"")
    found = load(folder)
    for language in words.LANGUAGES:
        assert text(found, language) == text(
            study(RUNS, {"kernels": trace()}, [VALID[0]]), language
        )


@pytest.mark.parametrize("damage", ["schema", "region"])
def test_a_damaged_profile_is_an_error(tmp_path: Path, damage: str) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "study"))
    told = step_table.to_json(event())
    if damage == "schema":
        told["schema"] = "another"
    else:
        told["tables"][0]["regions"][0]["colour"] = "red"
    document = {"schema": profiled_runs.SCHEMA, "profiles": {VALID[0]: told}}
    (folder / "tables" / "profiles.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UnreadableInput, match="no profile"):
        load(folder)
