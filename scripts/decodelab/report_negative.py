"""The annex of negative results: what was tried and did not help, so that nobody tries it again.

In: `Findings` and the catalogue. Out: labelled lists of `Bullet`s, each line with its number and a
link to where it is told in full: what was refuted, what cannot start and why, what stayed open and how
small an effect could have been seen, what was screened out, which options had no effect. A target that
is missed is no attempt, and stands in the annex of targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from decodelab import (
    effective,
    markdown,
    numbers,
    report_estimates,
    report_experiment,
    report_ranking,
    report_verdicts,
)
from decodelab.effective import Option
from decodelab.findings import Findings, Verdict
from decodelab.markdown import Md, link
from decodelab.report_labels import asked_label
from decodelab.report_verdicts import Bullet, names
from decodelab.words import Words

NAMED = 6  # candidates, variants or cells that are named in one line
_TRIED = ("compare_variants", "compare_workloads", "scaling")

Group = tuple[Md, list[Bullet]]


def groups(findings: Findings, words: Words) -> list[Group]:
    """The lists that have an entry, in their order."""
    made = {
        "refuted": _answered(findings, "refuted", words),
        "not_possible": _refused(findings, words),
        "inconclusive": _answered(findings, "inconclusive", words),
        "screened_out": _screened_out(findings, words),
        "ignored": _without_effect(findings, words),
    }
    return [(words.say(f"negative.{name}"), told) for name, told in made.items() if told]


def _line(text: str, where: Md, words: Words) -> Bullet:
    return Bullet(words.say("negative.line", text=text, where=where))


def _section(findings: Findings, experiment: str, words: Words) -> Md:
    heading = report_experiment.headings(findings, words)[experiment]
    return link(heading, heading)


# verdicts -----------------------------------------------------------------------------------------


def _answered(findings: Findings, verdict: str, words: Words) -> list[Bullet]:
    """One line a question; a question with many candidates or points has one line for all of them."""
    asked: dict[tuple[str, str], list[Verdict]] = {}
    for one in findings.verdicts:
        if (
            one["verdict"] == verdict
            and one["kind"] in _TRIED
            and not report_verdicts.screened_out(one)
        ):
            key = (one["experiment"], one.get("question") or one["id"])
            asked.setdefault(key, []).append(one)
    return [
        _line(_question(findings, some, words), _section(findings, name, words), words)
        for (name, _), some in asked.items()
    ]


def _question(findings: Findings, some: Sequence[Verdict], words: Words) -> Md:
    if len(some) == 1:
        said = [report_verdicts.answer(findings, some[0], words, coarse=True)]
    else:
        candidates = dict.fromkeys(one.get("candidate") or one["id"] for one in some)
        said = [
            words.say(
                "negative.several",
                candidates=names(candidates, words, NAMED),
                baseline=some[0].get("baseline") or numbers.DASH,
                metric=asked_label(findings, some[0], words),
                effects=_effects(some, words),
                n=str(len(some)),
            )
        ]
    return markdown.joined([*said, *_seen(some, words)], words.say("sentence.semicolon"))


def _effects(some: Sequence[Verdict], words: Words) -> str:
    """Least and greatest effect, each in its own digits."""
    known = sorted((one for one in some if one.get("effect") is not None), key=_effect)
    if not known:
        return numbers.DASH
    ends = [report_estimates.change(one).value for one in (known[0], known[-1])]
    shown = f" {numbers.ELLIPSIS} ".join(dict.fromkeys(ends))
    return report_verdicts.points(known[0], shown, words)


def _effect(verdict: Verdict) -> float:
    return float(verdict["effect"])


def _seen(some: Sequence[Verdict], words: Words) -> list[Md]:
    """Of what stayed open, how large an effect these starts could have shown."""
    if some[0]["verdict"] != "inconclusive":
        return []
    known = [one for one in some if one.get("smallest_detectable") is not None]
    if not known:
        return []
    least = min(known, key=lambda one: float(one["smallest_detectable"]))
    shown = numbers.size(least["smallest_detectable"])
    shown = report_verdicts.points(least, shown, words)
    return [words.say("evidence.smallest_detectable", value=shown)]


# starts -------------------------------------------------------------------------------------------


def _refused(findings: Findings, words: Words) -> list[Bullet]:
    """What cannot start as configured, by its cause; tried or known beforehand."""
    causes: dict[str, dict[str, None]] = {}
    for row in findings.failed_starts():
        if row.get("status") == "not_possible":
            cause = row.get("root_cause") or row.get("cause_class") or numbers.DASH
            causes.setdefault(cause, {})[row["variant"]] = None
    annex = words.say("heading.failed")
    return [
        _line(
            words.say("negative.refused", variants=names(variants, words, NAMED), cause=cause),
            link(annex, annex),
            words,
        )
        for cause, variants in causes.items()
    ]


# the grid -----------------------------------------------------------------------------------------


def _screened_out(findings: Findings, words: Words) -> list[Bullet]:
    """The cells that a cheap run ruled out: each with its value against the best of then."""
    told = []
    for experiment in findings.experiments:
        boards = report_ranking.boards(findings, experiment)
        out = {e["variant"]: e["screened"] for b in boards for e in b["entries"] if e["screened"]}
        if out:
            told.append(_line(_cells(out, words), _section(findings, experiment, words), words))
    return told


def _cells(out: Mapping[str, Mapping[str, Any]], words: Words) -> Md:
    shown = [
        words.say("negative.cell", cell=name, why=report_ranking.screened(facts, words))
        for name, facts in list(out.items())[:NAMED]
    ]
    text = markdown.joined(shown, words.say("sentence.semicolon"))
    left = len(out) - len(shown)
    return Md(f"{text} {numbers.ELLIPSIS} (+{left})") if left else text


# options ------------------------------------------------------------------------------------------


def _without_effect(findings: Findings, words: Words) -> list[Bullet]:
    """Options that an engine accepted and did not follow."""
    owners: dict[Option, dict[str, None]] = {}
    rows = [row for row in findings.starts if row.get("effective") or row.get("ignored")]
    for row in rows:
        for option in _not_followed(effective.options(findings.variant(row["variant"]), row)):
            owners.setdefault(option, {})[row["variant"]] = None
    annex = words.say("heading.effective")
    return [
        _line(
            words.say(
                f"negative.option_{option.verdict}",
                option=option.name,
                requested=option.requested,
                effective=option.effective or numbers.DASH,
                variants=names(variants, words, NAMED),
            ),
            link(annex, annex),
            words,
        )
        for option, variants in owners.items()
    ]


def _not_followed(options: Iterable[Option]) -> list[Option]:
    wrong = (effective.DIFFERS, effective.IGNORED)
    return [option for option in options if option.verdict in wrong]
