"""The path taken, in both languages: what each verdict chose, and the next step with its reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from decodelab import (
    decisions,
    findings,
    report,
    report_guidance,
    report_path,
    report_sentences,
    report_summary,
    targets,
    words,
)
from decodelab.findings import Findings

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "report"
FIXTURE = GOLDEN / "fixture"
# Of the small study: parser refuted, concurrency refuted, D supported by one point, B not possible.
WHENS: dict[str, Any] = {
    "concurrency": "parser is not supported",
    "D": "parser is supported",
    "late": "D is supported",
    "B": "concurrency is refuted",
    "tools": {
        "experiment": "B",
        "verdict": "not_possible",
        "start_class": "feature_not_supported_by_backend",
    },
}


def study(whens: dict[str, Any], parser: str = "refuted", **more: Any) -> Findings:
    """The small study of the report's golden text, with conditions. `more`: of parser's decision."""
    found = findings.load(
        FIXTURE / "plan.json", FIXTURE / "tables", FIXTURE / "verdicts.json", FIXTURE / "runs"
    )
    plan = json.loads(json.dumps(found.plan))
    for name, when in whens.items():
        plan["experiments"][name]["when"] = targets.when(when)
    judged = dict(found.judged)
    known = {
        name: {
            "verdict": entry["verdict"],
            "decision": entry["verdict"],
            "causes": ["bad_argument"],
        }
        for name, entry in judged["experiments"].items()
    }
    known["parser"] |= {"verdict": parser, **more}
    judged["experiments"]["parser"] = {**judged["experiments"]["parser"], "verdict": parser}
    spoilt = [{"code": "no_success", "zh": "没有成功的请求", "en": "no request succeeded"}]
    made = decisions.choices(plan, known)
    judged["decisions"] = {name: known[name] for name in decisions.deciders(plan)}
    judged["path"] = {name: made[name].as_dict() for name in whens}
    gone = {name for name in whens if made[name].state != "chosen"}
    judged["experiments"] = {
        name: {**entry, "verdict": None} if name in gone else entry
        for name, entry in judged["experiments"].items()
    }
    verdicts = [
        {**v, "verdict": parser, "reasons": spoilt if parser == "invalid" else v["reasons"]}
        if v["experiment"] == "parser"
        else v
        for v in found.verdicts
        if v["experiment"] not in gone
    ]
    return Findings(**{**vars(found), "plan": plan, "judged": judged, "verdicts": verdicts})


def told(found: Findings, language: str) -> str:
    catalogue = words.load(language)
    lines = []
    for bullet in report_path.taken(found, catalogue):
        lines += [f"1. {bullet.text}", *(f"   - {under}" for under in bullet.under)]
    return "\n".join([*lines, "", str(report_path.recommended(found, catalogue)), ""])


INVALID = {"decision": None, "invalid_points": ["parser_1"]}


@pytest.mark.parametrize(("language", "name"), [("zh", "path.md"), ("en", "path.en.md")])
def test_the_path_is_this_text(language: str, name: str) -> None:
    """UPDATE_GOLDEN=1 writes the golden text anew; read the difference before you commit it."""
    parts = [
        told(study(WHENS), language),
        told(study(WHENS, "invalid", **INVALID), language),
        told(study({"late": "D is not supported"}), language),
    ]
    text = "\n".join(parts)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_whole_report_of_a_branching_study(language: str) -> None:
    catalogue = words.load(language)
    found = study(WHENS)
    text = report.write(found, [], "figures", catalogue)
    assert str(catalogue.say("label.taken")) in text
    assert str(catalogue.say("summary.not_chosen", experiments="`D`, `late`"))[:12] in text
    assert text.count(str(report_path.branch(found, "D", catalogue))) == 2, (
        "in its section and here"
    )
    assert {run["why"] for run in found.missing() if run["experiments"] == ["late"]} == {
        "not_chosen"
    }


def test_a_study_without_conditions_has_no_path() -> None:
    found = study({})
    assert report_path.taken(found, words.load("en")) == []
    assert report_path.recommended(found, words.load("en")) is None


def test_of_a_replay_it_is_the_logs_that_are_missing() -> None:
    found = study({"D": "parser is supported"}, "invalid", **INVALID)
    replay = Findings(**{**vars(found), "plan": {**found.plan, "kind": "replay"}})
    step = str(report_path.recommended(replay, words.load("en")))
    assert "add the logs of `parser`" in step and "--config retry" not in step


@pytest.mark.parametrize("missing", [False, True])
def test_an_experiment_without_a_question_waits_for_no_verdict(missing: bool) -> None:
    """It says that it asks nothing, and whether all its runs were made; never "pending"."""
    found = study({"D": "parser is not supported"})
    found.plan["experiments"]["D"]["questions"] = []
    found.judged["experiments"]["D"] = {}
    verdicts = [v for v in found.verdicts if v["experiment"] != "D"]
    own = [r["name"] for r in found.plan["runs"] if "D" in r["experiments"]]
    (gone,) = [name for name in own if name not in found.runs]  # as the fixture is
    whole = {gone: {**found.runs[next(n for n in own if n != gone)], "run": gone}}
    runs = found.runs if missing else {**found.runs, **whole}
    found = Findings(**{**vars(found), "verdicts": verdicts, "runs": runs})
    catalogue = words.load("en")
    made = f"without a result: `{gone}`" if missing else "all that it names was made"
    assert f"it asks no question ({made}" in str(report_path.branch(found, "D", catalogue))
    summary = [str(line) for line in report_summary.lines(found, catalogue)]
    (line,) = [line for line in summary if "ask no question" in line]
    assert f"`D` ({made}" in line
    assert not any("without a verdict yet" in line and "`D`" in line for line in summary)
    title = str(report_sentences.title(found, "D", catalogue))
    undecided = report_guidance.undecided(found, catalogue)
    assert not any(str(bullet.text).startswith(title) for bullet in undecided)
