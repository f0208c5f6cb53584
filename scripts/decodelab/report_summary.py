"""Section one of a report: at most ten lines, each a verdict with its number.

In: `Findings` and the catalogue. Out: Markdown lines. What does not fit is counted, with a link to
its section.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from decodelab import decisions, markdown, numbers, report_guidance, report_step, report_targets
from decodelab.findings import Findings, Verdict
from decodelab.markdown import Md, link
from decodelab.report_sentences import (
    anomalies,
    asks_nothing,
    deciding,
    made,
    overall,
    suspect,
    title,
)
from decodelab.report_sentences import state as state_of
from decodelab.report_verdicts import answer, names, state, word
from decodelab.vocabulary import VERDICTS
from decodelab.words import Words

LINES = 10
ALONE = 2  # experiments without valid data that have a line each; more share one
NOTICES = 2  # lines on experiments without a verdict; more share one
NAMED = 6  # experiments named in one line
# What is kept when there are too many lines: the smaller, the sooner.
HEAD, INVALID, DECIDES, DECIDED, OPEN, ANOMALY = range(6)
_SHOWN_ORDER = ("supported", "refuted", "not_possible", "inconclusive")


@dataclass(frozen=True)
class Line:
    weight: int
    text: Md
    experiment: str | None = None


def lines(findings: Findings, words: Words) -> list[Md]:
    """At most ten, however large the study. Always kept: the bottleneck, the targets, what has no
    valid data, where a decode step goes, what was not measured. Then experiments that others wait
    for, those with an answer, those without; anomalies last. Experiments that do not fit share one
    line with their counts; anomalies that do not fit are counted in the last one.
    """
    head = [
        Line(HEAD, line)
        for line in (*headline(findings, words), *report_targets.lines(findings, words))
    ]
    told = [line for name in findings.experiments for line in _experiment(findings, name, words)]
    step = [Line(HEAD, line) for line in report_step.summary(findings, words)]
    notices = _notices(findings, words)
    found = [Line(ANOMALY, item.text) for item in anomalies(findings, None, words, shown=1)]
    whole = [*head, *told, *step, *notices, *found]
    if len(whole) > LINES:
        whole = _fitted(findings, head, told, [*step, *_few(notices, words)], found, words)
    return [line.text for line in whole]


def _fitted(
    findings: Findings,
    head: Sequence[Line],
    told: Sequence[Line],
    kept: Sequence[Line],
    found: Sequence[Line],
    words: Words,
) -> list[Line]:
    """Ten lines; the order in which they are read stays the same."""
    invalid = [line for line in told if line.weight == INVALID]
    if len(invalid) > ALONE:
        spoilt = _grouped_invalid([line.experiment or "" for line in invalid], words)
        told = [line for line in told if line.weight != INVALID]
        head = [*head, Line(INVALID, spoilt)]
    room = LINES - len(head) - len(kept)
    shown = _kept(told, room - 1 if found else room)
    left = [line.experiment or "" for line in told if line not in shown]
    together = [Line(OPEN, _grouped(findings, left, words))] if left else []
    extra = _kept(found, room - len(shown) - len(together))
    missing = len(found) - len(extra)
    more = [Line(ANOMALY, words.say_n("summary.more", missing, where=_there(words)))]
    return [*head, *shown, *together, *kept, *extra, *(more if missing else [])]


def _few(notices: Sequence[Line], words: Words) -> list[Line]:
    if len(notices) <= NOTICES:
        return list(notices)
    text = markdown.joined([line.text for line in notices], words.say("sentence.space"))
    return [Line(HEAD, text)]


def first(findings: Findings, experiments: Sequence[str], most: int) -> list[str]:
    """Of many experiments those that decide first, in the config's order; invalid ones come last."""
    weights = {name: _weight(findings, name) for name in experiments}
    last = {name: ANOMALY if weight == INVALID else weight for name, weight in weights.items()}
    lines = [Line(last[name], Md(""), name) for name in experiments]
    return [line.experiment or "" for line in _weightiest(lines, most)]


def _kept(some: Sequence[Line], room: int) -> list[Line]:
    """All of them, or the weightiest with one place left for the line that counts the others."""
    return list(some) if len(some) <= room else _weightiest(some, max(room - 1, 0))


def _weightiest(some: Sequence[Line], most: int) -> list[Line]:
    """In their own order."""
    order = sorted(range(len(some)), key=lambda place: (some[place].weight, place))
    return [some[place] for place in sorted(order[:most])]


def _grouped(findings: Findings, experiments: Sequence[str], words: Words) -> Md:
    """`12 more experiments: 7 refuted (`a`, `b`), 5 inconclusive (`c`): see section 3`."""
    states = {name: state_of(findings, name) or "pending" for name in experiments}
    parts = []
    for verdict in (*_SHOWN_ORDER, *sorted(set(states.values()) - set(_SHOWN_ORDER))):
        mine = [name for name in experiments if states[name] == verdict]
        if mine:
            parts.append(
                words.say(
                    "summary.group",
                    n=str(len(mine)),
                    word=word(verdict, words),
                    experiments=names(mine, words, NAMED),
                )
            )
    text = markdown.joined(parts, words.say("sentence.semicolon"))
    return words.say_n("summary.grouped", len(experiments), text=text, where=_there(words))


def _grouped_invalid(experiments: Sequence[str], words: Words) -> Md:
    return words.say(
        "summary.invalid",
        n=str(len(experiments)),
        experiments=names(experiments, words, NAMED),
        where=link(words.say("summary.annex_validity"), words.say("heading.validity")),
    )


def _there(words: Words) -> Md:
    return link(words.say("summary.section_results"), words.say("heading.results"))


def _notices(findings: Findings, words: Words) -> list[Line]:
    """Experiments without a verdict, and why."""
    notices = []
    for why in ("not_chosen", "undecided"):
        held_back = [name for name in findings.experiments if findings.held_back(name) == why]
        if held_back:
            told = names(held_back, words, NAMED)
            notices.append(words.say(f"summary.{why}", experiments=told))
    unjudged = [
        name
        for name in findings.experiments
        if overall(findings, name) is None and not findings.held_back(name)
    ]
    silent = [name for name in unjudged if asks_nothing(findings, name)]
    unjudged = [name for name in unjudged if name not in silent]
    if silent:
        notices.append(_asks_nothing(findings, silent, words))
    if unjudged:
        notices.append(words.say("summary.pending", experiments=names(unjudged, words, NAMED)))
    return [Line(HEAD, text) for text in notices]


def _asks_nothing(findings: Findings, experiments: Sequence[str], words: Words) -> Md:
    """Those that are there for their data alone, each with whether all of it was made."""
    told = [
        words.say("summary.silent", experiment=name, made=made(findings, name, words))
        for name in experiments[:NAMED]
    ]
    left = len(experiments) - len(told)
    if left:
        told.append(words.say_n("summary.silent_more", left))
    semicolon = words.say("sentence.semicolon")
    return words.say("summary.asks_nothing", experiments=markdown.joined(told, semicolon))


def headline(findings: Findings, words: Words) -> list[Md]:
    """What the evidence points at, and what it excludes."""
    entries = findings.judged.get("bottleneck") or []
    excluded = [item for item in entries if item.get("excluded")]
    first = report_guidance.leading(findings)
    parts = []
    if first is not None:
        by = first.get("by") or "prior"
        parts.append(words.say(f"summary.bottleneck.{by}", title=suspect(first, words)))
    if excluded:
        titles = markdown.joined(
            [suspect(item, words) for item in excluded], words.say("sentence.comma")
        )
        parts.append(words.say("summary.excluded", titles=titles))
    return [markdown.joined(parts, words.say("sentence.space"))] if parts else []


def _experiment(findings: Findings, experiment: str, words: Words) -> list[Line]:
    verdict = overall(findings, experiment)
    if verdict is None:
        return []
    name = title(findings, experiment, words)
    told, key = word(state_of(findings, experiment) or verdict, words), "summary.experiment"
    speaker = deciding(findings, experiment)
    if speaker is not None:
        said = answer(findings, speaker, words, coarse=True)
        best = _best_cell(findings, speaker, words)
        said = markdown.joined([said, *best], words.say("sentence.and"))
        said = _tallied(findings, experiment, said, words)
    else:
        told_causes = causes(findings, experiment)
        said = words.say(f"explain.any.{verdict}")
        if told_causes:
            said, key = words.say("summary.refused", cause=told_causes[0]), "summary.start"
    text = words.say(key, title=name, word=told, answer=said)
    return [Line(_weight(findings, experiment), text, experiment)]


def _weight(findings: Findings, experiment: str) -> int:
    state = state_of(findings, experiment)
    if state == "invalid":
        return INVALID
    if experiment in decisions.deciders(findings.plan):
        return DECIDES
    return OPEN if state in ("inconclusive", "unmeasured") else DECIDED


def causes(findings: Findings, experiment: str) -> list[str]:
    variants = findings.variants_of(experiment)
    failed = findings.failed_starts()
    return [r["root_cause"] for r in failed if r["variant"] in variants and r["root_cause"]]


def _best_cell(findings: Findings, speaker: Verdict, words: Words) -> list[Md]:
    """Of a grid: among how many combinations this one is the best, and how sure its place is."""
    cell = speaker.get("candidate") or ""
    if not findings.is_cell(cell) or speaker.get("effect") is None:
        return []
    question, grid = speaker.get("question"), findings.variant(cell)["grid"]
    rivals = [
        v
        for v in findings.verdicts_of(speaker["experiment"])
        if v.get("question") == question
        and v.get("effect") is not None
        and findings.variant(v.get("candidate") or "").get("grid") == grid
    ]
    if len(rivals) < 2 or any(v["effect"] > speaker["effect"] for v in rivals):
        return []
    starts = [float(v["n_launches"][-1]) for v in rivals if v.get("n_launches")]
    return [
        words.say(
            "summary.best_cell",
            n=str(len({v["candidate"] for v in rivals})),
            starts=numbers.show_range("n_starts", starts),
            floor=numbers.size(speaker.get("floor")),
        )
    ]


def _tallied(findings: Findings, experiment: str, said: Md, words: Words) -> Md:
    """The answer, and where one verdict does not tell all, how many there are of each."""
    verdicts = findings.verdicts_of(experiment)
    if len(verdicts) < 2:
        return said
    found = Counter(state(findings, verdict) for verdict in verdicts)
    counts = [
        words.say("summary.tally.count", n=str(found[name]), word=word(name, words))
        for name in (*VERDICTS, "unmeasured")
        if found[name]
    ]
    questions = len({v.get("question") or v["id"] for v in verdicts})
    shape = "questions" if questions == len(verdicts) else "points" if questions == 1 else "both"
    return words.say(
        f"summary.tally.{shape}",
        answer=said,
        questions=str(questions),
        points=str(len(verdicts)),
        counts=markdown.joined(counts, words.say("sentence.clause")),
    )
