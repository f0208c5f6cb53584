"""What an experiment, an anomaly, a suspect says in a report, chosen by what was computed.

In: `Findings` and the catalogue. Out: Markdown text. A sentence that states a result is looked up
under `<kind>.<verdict>`; none is written for one study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from decodelab import markdown
from decodelab.findings import Findings, Verdict
from decodelab.markdown import Md
from decodelab.report_verdicts import Bullet, names, refused, screened_out, unmeasured
from decodelab.words import Words


def overall(findings: Findings, experiment: str) -> str | None:
    """The experiment's verdict; None while nothing was judged, and of one that is not to be measured."""
    if findings.held_back(experiment):
        return None
    judged = (findings.judged.get("experiments") or {}).get(experiment) or {}
    verdict = judged.get("verdict")
    if verdict:
        return str(verdict)
    own = findings.verdicts_of(experiment)
    if len(own) == 1:
        return str(own[0]["verdict"])
    entry = findings.experiments[experiment]
    if (
        not entry.get("questions")
        and not entry.get("runs")
        and findings.refused(findings.variants_of(experiment))
    ):
        return "not_possible"  # an experiment that asks one thing only: does it start?
    return None


def deciding(findings: Findings, experiment: str) -> Verdict | None:
    """The verdict that speaks for the experiment: its first question's that agrees with it; of
    that question's points the one with the largest effect.
    """
    wanted = overall(findings, experiment)
    agreeing = [v for v in findings.verdicts_of(experiment) if v["verdict"] == wanted]
    if not agreeing:
        return None
    order = [item["id"] for item in findings.experiments[experiment].get("questions") or []]
    asked = [v.get("question") or v["id"] for v in agreeing]
    first = min(asked, key=lambda name: order.index(name) if name in order else len(order))
    points = [v for v, name in zip(agreeing, asked, strict=True) if name == first]
    return max(points, key=lambda v: (_size(v), not unmeasured(findings, v)))


def _size(verdict: Verdict) -> float:
    effect = verdict.get("effect")
    return float("-inf") if effect is None else float(effect)


def state(findings: Findings, experiment: str) -> str | None:
    """The experiment's verdict, or `unmeasured` where it is invalid only because runs wait."""
    speaker = deciding(findings, experiment)
    if speaker is not None and unmeasured(findings, speaker):
        return "unmeasured"
    return overall(findings, experiment)


def asks_nothing(findings: Findings, experiment: str) -> bool:
    """Whether it is there for its data alone, so that no verdict is waited for."""
    asks = bool(findings.experiments[experiment].get("questions"))
    return not asks and overall(findings, experiment) is None


def without_result(findings: Findings, experiment: str) -> list[str]:
    """Names of its runs that have no record; of one that only starts servers, of its variants that
    were not started.
    """
    if not findings.experiments[experiment].get("runs"):
        started = {start["variant"] for start in findings.starts}
        return sorted(findings.variants_of(experiment) - started)
    return [r["name"] for r in findings.missing() if experiment in (r.get("experiments") or [])]


def made(findings: Findings, experiment: str, words: Words) -> Md:
    """Of an experiment that asks nothing: that all of it was made, or what was not."""
    missing = without_result(findings, experiment)
    if not missing:
        return words.say("sentence.all_made")
    return words.say("sentence.without_result", runs=names(missing, words))


def explanation(findings: Findings, experiment: str, words: Words) -> Md:
    """The config's text for the computed verdict; where it has none, what the verdict means by its
    kind.
    """
    verdict = overall(findings, experiment)
    if asks_nothing(findings, experiment):
        return words.say("explain.asks_nothing", made=made(findings, experiment, words))
    if verdict is None:
        return words.say("explain.pending")
    if state(findings, experiment) == "unmeasured":
        return words.say("explain.unmeasured")
    speaker = deciding(findings, experiment)
    if speaker is not None and speaker.get("guarded"):
        return words.say("explain.guarded")  # the config's text is about the metric asked for
    if speaker is not None and screened_out(speaker):
        return words.say("explain.screened_out")
    then: Mapping[str, Any] = findings.experiments[experiment].get("then") or {}
    judged = ((findings.judged.get("experiments") or {}).get(experiment) or {}).get("text")
    text = words.pick(then.get(verdict)) or words.pick(judged)
    if text:
        return markdown.prose(text)
    if speaker is None:
        return words.say(f"explain.any.{verdict}")
    return words.say(
        f"explain.{speaker['kind']}.{verdict}", refused=refused(findings, speaker, words)
    )


def title(findings: Findings, experiment: str, words: Words) -> Md:
    text = words.pick(findings.experiments[experiment].get("title"))
    return markdown.prose(text) if text else markdown.code(experiment)


def anomalies(
    findings: Findings, runs: Iterable[str] | None, words: Words, shown: int
) -> list[Bullet]:
    """Anomalies of these runs (all: of the study); of one sort only the first few in full."""
    found = list(findings.judged.get("anomalies") or [])
    if runs is not None:
        found = findings.anomalies_of(runs)
    sorts: dict[str, list[Mapping[str, Any]]] = {}
    for item in found:
        sorts.setdefault(item["code"], []).append(item)
    bullets = []
    for items in sorts.values():
        texts = [markdown.escape(words.pick(item) or item["code"]) for item in items]
        more = len(texts) - shown
        if more > 0:
            rest = words.say("sentence.more_of_this_sort", n=str(more))
            texts = [*texts[: shown - 1], markdown.joined([texts[shown - 1], rest], "")]
        bullets += [Bullet(text) for text in texts]
    return bullets


def suspect(item: Mapping[str, Any], words: Words) -> Md:
    return markdown.prose(words.pick(item.get("title")) or item["id"])
