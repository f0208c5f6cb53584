"""Sections four to six of a report: what the verdicts point at, what to do next, what to do first.

In: `Findings` and the catalogue. Out: `Bullet`s. Their order and their texts follow from the
verdicts; nothing is ranked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import markdown, numbers, report_annex, report_labels, report_verdicts
from decodelab import report_sentences as sentences
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_verdicts import Bullet
from decodelab.words import Words

MAX_ACTIONS = 6


def bottleneck(findings: Findings, words: Words) -> tuple[list[Bullet], list[Bullet]]:
    """The suspects in their rank, and those that evidence excludes."""
    entries = sorted(findings.judged.get("bottleneck") or [], key=lambda item: item["rank"])
    ranked, excluded = [], []
    for item in entries:
        under = [_evidence(line, words) for line in item.get("evidence") or []]
        under += [_not_known(line, words) for line in item.get("not_known") or []]
        if item.get("excluded"):
            text = words.say("bottleneck.excluded", title=sentences.suspect(item, words))
            excluded.append(Bullet(text, under))
        else:
            by = words.say(f"bottleneck.by_{_basis(item)}")
            ranked.append(Bullet(sentences.suspect(item, words), [*under, by]))
    return ranked, excluded


def _basis(item: Mapping[str, Any]) -> str:
    """Evidence that does not set a suspect apart leaves it to its prior, which is not the same as
    no evidence.
    """
    if item.get("by") == "evidence":
        return "evidence"
    return "prior_level" if item.get("evidence") else "prior"


def _evidence(line: Mapping[str, Any], words: Words) -> Md:
    """A line of evidence may quote a log: what stands outside code spans is escaped."""
    text, found = markdown.prose(words.pick(line) or ""), line.get("figure")
    if not found:
        return text
    return words.say("bottleneck.with_figure", text=text, figure=_figure(found, words))


def _not_known(line: Mapping[str, Any], words: Words) -> Md:
    """A rule that could not be looked at: it moved nothing."""
    text = markdown.prose(words.pick(line) or "")
    return words.say(
        "bottleneck.not_known", text=text, why=words.say(f"bottleneck.why_{line['why']}")
    )


def _figure(found: Mapping[str, Any], words: Words) -> Md:
    if "profile" in found:
        value, most, limit = (
            numbers.show("multi_token_share", share)
            for share in (found["value"], found["most"], found["limit"])
        )
        key = "bottleneck.figure_profile" + ("" if found["most"] == found["value"] else "_range")
        told = {"profile": found["profile"], "ops": found["ops"], "op": found["op"]}
        return words.say(key, value=value, most=most, limit=limit, **told)
    name = found["metric"]
    narrowed = [str(found[key]) for key in ("variant", "workload") if found.get(key) is not None]
    narrowed += [f"c{found['concurrency']}"] if found.get("concurrency") is not None else []
    return words.say(
        "bottleneck.figure_metric",
        metric=report_labels.metric_label(words, name),
        value=numbers.show(name, found["value"]),
        op=found["op"],
        limit=numbers.show(name, found["limit"]),
        where=markdown.code(" ".join(narrowed) or numbers.DASH),
        n=str(found["n"]),
    )


def next_steps(findings: Findings, words: Words) -> list[Bullet]:
    """What the judge recommends, with the plan's own account of how and what it would decide."""
    return [_step(findings, item, words) for item in findings.judged.get("next") or []]


def _step(findings: Findings, item: Mapping[str, Any], words: Words) -> Bullet:
    text = words.pick(item) or words.pick(item.get("title")) or ""
    told = {**_planned(findings, item), **{key: value for key, value in item.items() if value}}
    under = []
    for key in ("reason", "purpose"):
        if words.pick(told.get(key)):
            under.append(words.say(f"next.{key}", text=markdown.prose(words.pick(told[key]) or "")))
    for key in ("how", "decide"):
        lines = [markdown.prose(line) for line in (told.get(key) or {}).get(words.language) or []]
        if lines:
            under.append(
                words.say(
                    f"next.{key}", text=markdown.joined(lines, words.say("sentence.semicolon"))
                )
            )
    if words.pick(told.get("risk")):
        under.append(words.say("next.risk", text=markdown.prose(words.pick(told["risk"]) or "")))
    return Bullet(markdown.prose(text), under)


def _planned(findings: Findings, item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plan's step behind a recommendation: by its id, else by its title."""
    for step in findings.plan.get("next_steps") or []:
        title = step.get("title") or {}
        if (step.get("id") and step["id"] == item.get("id")) or (
            title.get("zh") and title.get("zh") == item.get("zh")
        ):
            found: Mapping[str, Any] = step
            return found
    return {}


def path(findings: Findings, words: Words) -> list[Bullet]:
    """The decision path: where the verdicts of the experiments without a section number lead."""
    bullets = []
    for name, experiment in findings.experiments.items():
        if experiment.get("section"):
            continue  # told in its section
        verdict = sentences.state(findings, name)
        text = words.pick((experiment.get("then") or {}).get(verdict))
        if verdict and text:
            title = sentences.title(findings, name, words)
            word = report_verdicts.word(verdict, words)
            bullets.append(
                Bullet(words.say("next.path", title=title, word=word, text=markdown.prose(text)))
            )
    return bullets


def undecided(findings: Findings, words: Words) -> list[Bullet]:
    """Questions without an answer, and what an answer would take."""
    bullets = []
    for name in findings.experiments:
        if findings.held_back(name):
            continue  # told where the path taken is
        if sentences.asks_nothing(findings, name):
            continue  # there is nothing to answer; what of it is not made is among the actions
        verdict = sentences.state(findings, name) or "pending"
        if verdict not in ("inconclusive", "invalid", "pending", "unmeasured"):
            continue
        need = _need(findings, name, verdict, words)
        title, word = sentences.title(findings, name, words), report_verdicts.word(verdict, words)
        bullets.append(Bullet(words.say("next.undecided", title=title, word=word, need=need)))
    return bullets


def _need(findings: Findings, experiment: str, verdict: str, words: Words) -> Md:
    speaker = sentences.deciding(findings, experiment) or {}
    detectable = numbers.size(speaker.get("smallest_detectable"))
    if verdict == "invalid":
        return words.say("next.need_retry")
    if verdict in ("pending", "unmeasured"):
        return words.say("next.need_runs")
    if detectable != numbers.DASH:
        shown = report_verdicts.points(speaker, detectable, words)
        return words.say("next.need_detectable", value=shown)
    return words.say("next.need_more")


def actions(findings: Findings, words: Words) -> list[Bullet]:
    """First what is unfinished, then what the judge puts first."""
    bullets = []
    for key, why in (("next.retry", "invalid"), ("next.finish", "pending")):
        runs = report_annex.pending_names(findings, why, words)
        if runs:
            bullets.append(Bullet(words.say(key, runs=runs)))
    entries = findings.judged.get("actions") or findings.judged.get("next") or []
    texts = [words.pick(item) or words.pick(item.get("title")) for item in entries]
    bullets += [Bullet(markdown.prose(text)) for text in texts if text]
    return bullets[:MAX_ACTIONS]


def leading(findings: Findings) -> Mapping[str, Any] | None:
    """The suspect that is ranked first."""
    entries: list[Mapping[str, Any]] = findings.judged.get("bottleneck") or []
    ranked = [item for item in entries if not item.get("excluded")]
    return min(ranked, key=lambda item: float(item["rank"]), default=None)


def fact(findings: Findings, words: Words) -> Md | None:
    """A measured level that is decided; else the heaviest evidence of the suspect that leads."""
    for verdict in findings.verdicts:
        if verdict["kind"] == "level" and verdict["verdict"] in ("supported", "refuted"):
            return words.say("next.fact", text=report_verdicts.level_fact(findings, verdict, words))
    first = leading(findings)
    if not first or first.get("by") != "evidence" or not first.get("evidence"):
        return None
    heaviest = max(first["evidence"], key=lambda line: abs(line.get("weight") or 0))
    return words.say("next.fact", text=_evidence(heaviest, words))
