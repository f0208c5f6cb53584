"""The path taken: which experiments the verdicts chose, which they did not, and what comes next.

In: `Findings` and the catalogue. Out: `Bullet`s, sentences. What is chosen was decided by the judge
(verdicts.json: decisions, path); here are only the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import markdown, report_verdicts
from decodelab import report_sentences as sentences
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_verdicts import Bullet
from decodelab.words import Words

Choice = Mapping[str, Any]


def taken(findings: Findings, words: Words) -> list[Bullet]:
    """One for each experiment that others wait for: its verdict and figures; under it what hangs on it."""
    path: Mapping[str, Choice] = findings.judged.get("path") or {}
    above = dict.fromkeys(choice["when"]["experiment"] for choice in path.values())
    bullets = []
    for name in (n for n in findings.experiments if n in above):
        mine = [n for n, choice in path.items() if choice["when"]["experiment"] == name]
        under = [*_spoilt(findings, name, words), *(branch(findings, n, words) for n in mine)]
        bullets.append(Bullet(_decider(findings, name, words), under))
    return bullets


def _decider(findings: Findings, name: str, words: Words) -> Md:
    title = sentences.title(findings, name, words)
    speaker = sentences.deciding(findings, name)
    word = _word(findings, name, words)
    figures = report_verdicts.evidence(findings, speaker, words) if speaker else ""
    causes = _decided(findings, name).get("causes")
    if speaker and speaker["verdict"] == "not_possible" and causes:
        figures = words.say("path.causes", causes=", ".join(causes))
    if not figures:
        return words.say("path.decider", title=title, word=word)
    return words.say("path.decider_figures", title=title, word=word, figures=figures)


def _decided(findings: Findings, name: str) -> Mapping[str, Any]:
    decided: Mapping[str, Any] = (findings.judged.get("decisions") or {}).get(name) or {}
    return decided


def _spoilt(findings: Findings, name: str, words: Words) -> list[Md]:
    """Why an experiment decides nothing: its invalid points and their reasons."""
    decided = _decided(findings, name)
    if not decided or decided.get("decision") is not None or decided.get("unmeasured"):
        return []
    wanted = decided.get("invalid_points") or []
    mine = [v for v in findings.verdicts_of(name) if v["id"] in wanted]
    semicolon = words.say("sentence.semicolon")
    told = [(v["id"], report_verdicts.reasons(v, words)) for v in mine]
    return [
        words.say("path.spoilt", point=point, reasons=markdown.joined(why, semicolon))
        for point, why in told
        if why
    ]


def _word(findings: Findings, name: str, words: Words) -> Md:
    choice = findings.choice(name)
    held_back = choice["state"] if choice and choice["state"] != "chosen" else None
    if not held_back and sentences.asks_nothing(findings, name):
        return words.say("path.asks_nothing", made=sentences.made(findings, name, words))
    state = held_back or sentences.state(findings, name) or "pending"
    return report_verdicts.word(state, words)


def branch(findings: Findings, name: str, words: Words) -> Md:
    """One experiment behind a `when:`: chosen or not, and why."""
    choice = findings.choice(name) or {}
    return words.say(
        f"path.{choice['state']}",
        title=sentences.title(findings, name, words),
        why=why(findings, choice, words),
        when=choice["when"]["text"],
        own=_word(findings, name, words),
    )


def why(findings: Findings, choice: Choice, words: Words) -> Md:
    """The reason of a choice, as part of a sentence."""
    above, code = choice["when"]["experiment"], choice["why"]
    if code == "not_met" and choice["verdict"] is None:
        code = "started"
    decided = _decided(findings, above)
    points = decided.get("invalid_points") or []
    return words.say(
        f"path.why.{code}",
        above=above,
        word=report_verdicts.word(choice["verdict"], words) if choice["verdict"] else "",
        causes=", ".join(decided.get("causes") or []) or "-",
        points=report_verdicts.names(points, words) if points else "",
    )


def explanation(findings: Findings, name: str, words: Words) -> Md | None:
    """What stands in the section of an experiment that is not to be measured; None for the others."""
    choice = findings.choice(name)
    if choice is None or choice["state"] == "chosen":
        return None
    return branch(findings, name, words)


def recommended(findings: Findings, words: Words) -> Md | None:
    """The next step and its reason, of a study with branches: what would decide an undecided one
    first, else what the judge puts first, else what the last verdict on the path says.
    """
    path: Mapping[str, Choice] = findings.judged.get("path") or {}
    if not path:
        return None
    for choice in path.values():
        if choice["why"] in ("invalid", "waiting"):
            replay = findings.plan.get("kind") == "replay"
            key = "replay" if replay else choice["why"]
            reason = why(findings, choice, words)
            above = choice["when"]["experiment"]
            return words.say(f"path.next.{key}", above=above, reason=reason)
    for step in findings.judged.get("next") or []:
        title, because = words.pick(step), words.pick(step.get("reason"))
        if title and because:
            said = {"text": markdown.prose(title), "reason": markdown.prose(because)}
            return words.say("path.next.step", **said)
    return _last(findings, path, words)


def _last(findings: Findings, path: Mapping[str, Choice], words: Words) -> Md | None:
    """What follows from the last experiment on the path that has a verdict."""
    on_it = [n for n in findings.experiments if n in path or _waited_for(n, path)]
    told = [n for n in on_it if sentences.overall(findings, n)]
    if not told:
        return None
    title, word = sentences.title(findings, told[-1], words), _word(findings, told[-1], words)
    text = sentences.explanation(findings, told[-1], words)
    return words.say("path.next.last", title=title, word=word, text=text)


def _waited_for(name: str, path: Mapping[str, Choice]) -> bool:
    return any(choice["when"]["experiment"] == name for choice in path.values())
