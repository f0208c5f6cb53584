"""The one page for a hand-off: the answer, targets, verdicts, bottleneck, next step, and what must not
be concluded.

In: the same `Findings` and words as the report. Out: the Markdown text, at most about 45 lines however
large the study: what does not fit is counted and stands in the report, to which every part links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decodelab import (
    markdown,
    numbers,
    report_estimates,
    report_guidance,
    report_head,
    report_path,
    report_render,
    report_summary,
    report_targets,
)
from decodelab import report_sentences as sentences
from decodelab.findings import Findings, Verdict, values
from decodelab.markdown import Md, link
from decodelab.report_labels import asked_label, metric_label
from decodelab.report_tables import Table
from decodelab.report_verdicts import names, points, word
from decodelab.words import Words

TEMPLATE = "summary.md.j2"
MOST_TARGETS = 5
MOST_MISSED = 2  # targets that are told in the answer
MOST_CAUSE = 100  # characters of a root cause
MOST_ROWS = 9  # of both tables together
NAMED = 6  # experiments, versions or runs named in one line


@dataclass
class Content:
    title: Md
    date: str
    about: Md
    engine: Md
    banner: list[Md]
    answer: Md
    targets: Table | None
    verdicts: Table | None
    bottleneck: list[Md]
    next: list[Md]
    caution: list[Md]
    evidence: list[Md]


def write(findings: Findings, page: str, words: Words) -> str:
    """`page` is the file name of the whole report, which lies beside this one."""
    return report_render.page(TEMPLATE, compose(findings, page, words), words)


def compose(findings: Findings, page: str, words: Words) -> Content:
    headline = report_summary.headline(findings, words)
    return Content(
        title=words.say("handoff.title", title=report_head.title(findings, words)),
        date=report_head.date(findings),
        about=report_head.about(findings, words),
        engine=_engine(findings, words),
        banner=report_head.banner(findings, words),
        answer=_answer(findings, words),
        targets=_targets(findings, words),
        verdicts=_verdicts(findings, page, words),
        bottleneck=headline or [words.say("bottleneck.none")],
        next=_next(findings, words),
        caution=_caution(findings, page, words) or [words.say("handoff.no_caution")],
        evidence=_evidence(findings, page, words),
    )


def _engine(findings: Findings, words: Words) -> Md:
    """The versions that the starts told, and the build that the config names."""
    versions = dict.fromkeys(str(told) for told in values(findings.starts, "version"))
    if not versions:
        return words.say("handoff.engine_unknown")
    return words.say("handoff.engine", versions=names(versions, words, NAMED))


# the answer ---------------------------------------------------------------------------------------


def _answer(findings: Findings, words: Words) -> Md:
    """The targets that are missed with their numbers, and what the evidence points at."""
    grouped = report_targets.by_metric(findings)
    states = {metric: report_targets.state_of(some)[0] for metric, some in grouped.items()}
    missed = [metric for metric, state in states.items() if state in ("missed", "mixed")]
    met = [metric for metric, state in states.items() if state == "met"]
    parts = [report_targets.told(metric, grouped[metric], words) for metric in missed[:MOST_MISSED]]
    if len(missed) > MOST_MISSED:
        parts.append(words.say_n("handoff.more_missed", len(missed) - MOST_MISSED))
    if met:
        key = "others_met" if missed else "all_met" if len(met) == len(states) else "some_met"
        parts.append(words.say_n(f"handoff.{key}", len(met), of=str(len(states))))
    leading = report_guidance.leading(findings)
    if leading is not None:
        by = leading.get("by") or "prior"
        title = sentences.suspect(leading, words)
        parts.append(words.say(f"handoff.leading.{by}", title=title))
    if not parts:
        return words.say("summary.none")
    text = markdown.joined(parts, words.say("sentence.semicolon"))
    return words.say("handoff.answer", text=text)


def _targets(findings: Findings, words: Words) -> Table | None:
    grouped = report_targets.by_metric(findings)
    if not grouped:
        return None
    head = [words.say(f"gates.{key}") for key in ("metric", "aim", "measured", "result")]
    rows: list[list[str]] = []
    for metric, gates in list(grouped.items())[:MOST_TARGETS]:
        state, met, n = report_targets.state_of(gates)
        key = "open" if state == "open" else "met" if state == "met" else "missed"
        result = words.say(f"gates.{key}")
        if n:
            result = words.say("handoff.of_runs", result=result, met=str(met), n=str(n))
        rows.append(
            [
                metric_label(words, metric),
                report_targets.aim(metric, gates),
                report_targets.measured(metric, gates),
                result,
            ]
        )
    load = report_targets.load(
        findings, [gate for some in grouped.values() for gate in some], words
    )
    title = words.say("handoff.targets", load=load)
    left = len(grouped) - len(rows)
    notes = [words.say_n("handoff.more_targets", left)] if left else []
    return Table(head, ["left", "right", "right", "left"], rows, title=title, notes=notes)


# the verdicts -------------------------------------------------------------------------------------


def _verdicts(findings: Findings, page: str, words: Words) -> Table | None:
    """A row an experiment; of many those that decide first, those without valid data last: they are
    named below in any case.
    """
    told = [name for name in findings.experiments if sentences.state(findings, name)]
    if not told:
        return None
    targets = min(len(report_targets.by_metric(findings)), MOST_TARGETS)
    kept = report_summary.first(findings, told, MOST_ROWS - targets)
    head = [words.say(f"handoff.{key}") for key in ("experiment", "verdict", "effect", "starts")]
    rows = [_row(findings, name, words) for name in kept]
    left = len(told) - len(kept)
    there = link(words.say("summary.section_results"), words.say("heading.results"), page)
    notes = [words.say_n("handoff.more_verdicts", left, where=there)] if left else []
    title = words.say_n("handoff.verdicts", len(told), counts=_counts(findings, told, words))
    return Table(head, ["left", "left", "left", "right"], rows, title=title, notes=notes)


def _counts(findings: Findings, told: Sequence[str], words: Words) -> Md:
    states = [sentences.state(findings, name) for name in told]
    counts = [
        words.say("summary.tally.count", n=str(states.count(state)), word=word(state, words))
        for state in dict.fromkeys(state for state in states if state)
    ]
    return markdown.joined(counts, words.say("sentence.clause"))


def _row(findings: Findings, name: str, words: Words) -> list[str]:
    state = sentences.state(findings, name) or "pending"
    speaker = sentences.deciding(findings, name)
    counts = [numbers.count(n) for n in (speaker or {}).get("n_launches") or [] if n is not None]
    return [
        sentences.title(findings, name, words),
        word(state, words),
        _number(findings, name, speaker, words),
        " / ".join(counts) or numbers.DASH,
    ]


def _number(findings: Findings, name: str, verdict: Verdict | None, words: Words) -> str:
    """The verdict's number with its interval and what it is a number of; or why there is none."""
    causes = report_summary.causes(findings, name)
    if verdict is None or verdict["verdict"] == "not_possible":
        return markdown.code(markdown.cut(causes[0], MOST_CAUSE)) if causes else numbers.DASH
    change = report_estimates.change(verdict)
    told, within = points(verdict, change.value, words), points(verdict, change.interval, words)
    aim: Md | None = None
    if verdict["kind"] in ("threshold", "level"):
        value = report_estimates.value(findings, verdict)
        told, within, aim = value.value, value.interval, _aim(findings, verdict, words)
    if told == numbers.DASH or verdict["verdict"] == "invalid":
        return numbers.DASH
    if within != numbers.DASH:
        told = words.say("handoff.bracketed", value=told, interval=within)
    text = words.say("handoff.number", metric=asked_label(findings, verdict, words), value=told)
    return markdown.joined([text, *([aim] if aim else [])], words.say("sentence.clause"))


def _aim(findings: Findings, verdict: Verdict, words: Words) -> Md:
    metric = verdict.get("metric") or ""
    if verdict["kind"] == "threshold":
        return words.say("handoff.target", target=numbers.target(metric, verdict.get("target")))
    bounds = verdict.get("expected") or findings.question(verdict).get("expected")
    shown = numbers.expected(metric, bounds) if bounds else numbers.DASH
    return words.say("handoff.expected", expected=shown)


# what follows -------------------------------------------------------------------------------------


def _next(findings: Findings, words: Words) -> list[Md]:
    """The first step and its reason."""
    recommended = report_path.recommended(findings, words)
    if recommended is not None:
        return [recommended]
    for step in findings.judged.get("next") or []:
        text = markdown.prose(words.pick(step) or words.pick(step.get("title")) or "")
        because = words.pick(step.get("reason"))
        if because:
            return [words.say("handoff.next_because", text=text, reason=markdown.prose(because))]
        return [words.say("handoff.next", text=text)]
    return [words.say("next.none")]


def _caution(findings: Findings, page: str, words: Words) -> list[Md]:
    """What the data does not bear."""
    states = {name: sentences.state(findings, name) for name in findings.experiments}
    speakers = {name: sentences.deciding(findings, name) for name in findings.experiments}
    once = [
        name
        for name, one in speakers.items()
        if one and states[name] in ("supported", "refuted") and _one_start(one)
    ]
    suspect = [name for name, one in speakers.items() if one and one.get("suspect_runs")]
    found = {
        "invalid": [name for name, state in states.items() if state == "invalid"],
        "inconclusive": [name for name, state in states.items() if state == "inconclusive"],
        "unmeasured": [name for name, state in states.items() if state == "unmeasured"],
        "suspect": suspect,
        "once": once,
    }
    annex = words.say("heading.validity")
    return [
        words.say(
            f"handoff.caution.{why}",
            experiments=_titles(findings, some, words),
            where=link(words.say("summary.annex_validity"), annex, page),
        )
        for why, some in found.items()
        if some
    ]


def _titles(findings: Findings, some: Sequence[str], words: Words) -> Md:
    told = [sentences.title(findings, name, words) for name in some[:NAMED]]
    text = markdown.joined(told, words.say("sentence.comma"))
    left = len(some) - len(told)
    return Md(f"{text} {numbers.ELLIPSIS} (+{left})") if left else text


def _one_start(verdict: Verdict) -> bool:
    counts: Sequence[float] = [n for n in verdict.get("n_launches") or [] if n is not None]
    return bool(counts) and min(counts) == 1


def _evidence(findings: Findings, page: str, words: Words) -> list[Md]:
    study = findings.plan["study"]
    annex = words.say("heading.provenance")
    return [
        words.say(
            "handoff.report",
            page=page,
            provenance=link(words.say("handoff.annex_provenance"), annex, page),
        ),
        words.say(
            "handoff.data",
            tables=f"results/{study}/tables/",
            verdicts=f"results/{study}/verdicts.json",
            runs=f"results/{study}/runs/",
        ),
    ]
