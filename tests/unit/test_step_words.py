"""The codes of a profile's problems and doubts have their words once, for report, verdicts and command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from decodelab import (
    given_profiles,
    profiled_runs,
    region_metric,
    step_checks,
    step_collective,
    step_plain,
    step_show,
    step_trace,
    step_twin,
    step_words,
    words,
)
from decodelab.step_table import Problem
from tests.unit.problem_codes import problem_codes
from tests.unit.profile_samples import DOUBTS, PROBLEMS, event

ROOT = Path(__file__).resolve().parents[2]
OURS = (given_profiles, profiled_runs, step_checks, step_collective, step_twin)


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_every_code_has_its_words(language: str) -> None:
    say = words.load(language)
    codes = problem_codes(*OURS)
    assert len(codes) > 15, "they are found"
    untold = [c for c in codes if not any(f"profile.{k}.{c}" in say for k in ("problem", "doubt"))]
    assert not untold
    for code in problem_codes(step_trace, step_plain):
        assert f"profile.doubt.{code}" in say
    for problem in PROBLEMS:
        assert f"profile.remedy.{problem.code}" in say, "what to do about it"


def test_no_profile_module_is_forgotten() -> None:
    users = {
        path.stem
        for path in (ROOT / "scripts" / "decodelab").glob("*.py")
        if re.search(r"import .*\bProblem\b", text := path.read_text(encoding="utf-8"))
        and "step_table" in text
        and re.search(r"(?<!\[)Problem\(", text)
    }
    assert users == {m.__name__.split(".")[-1] for m in (*OURS, step_trace, step_plain)}


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.code)
def test_a_verdict_has_the_fact_alone(problem: Problem, language: str) -> None:
    said = step_words.fact(problem, words.load(language))
    assert said and "`" not in said and not said.endswith((".", "。"))
    whole = step_words.sentence("problem", problem, words.load(language))
    assert whole.lower().startswith(said.lower()) and len(whole) > len(said)
    assert problem.code not in said


@pytest.mark.parametrize(("language", "mark"), [("zh", "；"), ("en", "; ")])
def test_a_verdicts_reason_and_the_table_for_people_say_the_same(language: str, mark: str) -> None:
    told = event(problems=PROBLEMS, doubts=DOUBTS)
    reason = region_metric.invalid("a", told)
    assert reason is not None and reason[language].count(mark) >= len(PROBLEMS) - 1
    lines = "\n".join(step_show.lines({"": told})).lower()
    for problem in PROBLEMS:
        assert step_words.fact(problem, words.load(language)) in reason[language]
        assert step_words.fact(problem, words.load("en")).lower() in lines


def test_a_code_that_nobody_knows_and_figures_that_nobody_asked_for_are_not_lost() -> None:
    say = words.load("en")
    odd = Problem("new_code", {"a": 1.5, "b_ms": 3.0, "none": None})
    assert step_words.sentence("doubt", odd, say) == "new_code. (a 1.5, b_ms 3.00 ms)"
    assert "lacking" not in step_words.sentence("problem", Problem("dropped", {}), say)
    assert step_words.fact(Problem("dropped", {}), say).startswith("— steps")


def test_one_word_for_one_thing_in_chinese() -> None:
    """Engineers write profile and profiling; the dictionary's word for it stands nowhere."""
    files = [
        *ROOT.glob("scripts/**/*.py"),
        *ROOT.glob("workflow/**/*.yaml"),
        *ROOT.glob("config/*"),
    ]
    files += [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]
    assert not [f.name for f in files if f.is_file() and "剖析" in f.read_text(encoding="utf-8")]
