"""What a sceptic asks of an experiment's noise: did the server agree with itself, did the host drift,
and what else moved.

In: `Findings` (verdicts.json: `aa` and `drift` of an experiment, `guards` and `population` of a
verdict) and the catalogue. Out: Markdown sentences; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import markdown, numbers
from decodelab.findings import Findings, Verdict
from decodelab.markdown import Md
from decodelab.report_labels import metric_label
from decodelab.words import Words

Fact = Mapping[str, Any]


def checks(findings: Findings, experiment: str, words: Words) -> list[Md]:
    """The A/A comparisons and drift checks of an experiment, one a line."""
    judged = (findings.judged.get("experiments") or {}).get(experiment) or {}
    told = [_aa(one, words) for one in judged.get("aa") or []]
    return told + [_drift(one, words) for one in judged.get("drift") or []]


def _aa(one: Fact, words: Words) -> Md:
    places = {**_where(one, words), "n": _counts(one["n_launches"])}
    if one["effect"] is None:
        why = [markdown.escape(words.pick(item) or item["code"]) for item in one["reasons"]]
        return words.say("noise.aa_open", why=markdown.joined(why, "; "), **places)
    told = numbers.change(one["effect"], one["interval"], against=[one["floor"], -one["floor"]])
    state = {True: "differs", False: "agrees", None: "untold"}[one["differs"]]
    return words.say(
        f"noise.aa_{state}",
        effect=told.value,
        interval=told.interval,
        floor=numbers.size(one["floor"]),
        source=words.say(f"noise.floor_{one['floor_source']}"),
        **places,
    )


def _drift(one: Fact, words: Words) -> Md:
    return words.say(
        "noise.drift_beyond" if one["exceeds"] else "noise.drift_within",
        effect=numbers.effect(one["effect"], against=[one["floor"], -one["floor"]]),
        floor=numbers.size(one["floor"]),
        source=words.say(f"noise.floor_{one['floor_source']}"),
        n=str(one["n_launches"]),
        span=numbers.count(one["span_s"]),
        **_where(one, words),
    )


def _where(one: Fact, words: Words) -> dict[str, object]:
    return {
        "variant": one["variant"],
        "metric": metric_label(words, one["metric"]),
        "load": one["workload"],
        "concurrency": str(one["concurrency"]),
    }


def _counts(given: Sequence[float | None]) -> str:
    return " / ".join(numbers.count(n) for n in given)


def population(verdict: Verdict) -> str:
    """`12/12 (100%)` for each arm: who succeeded of those that were sent."""
    arms = [arm for arm in verdict.get("population") or [] if arm.get("attempted") is not None]
    shown = [
        f"{arm['ok']:g}/{arm['attempted']:g} ({numbers.show('success_rate', arm['success_rate'])})"
        for arm in arms
    ]
    return " · ".join(shown) or numbers.DASH


def guard_lines(verdict: Verdict, words: Words) -> list[Md]:
    """Each guard with its effect, interval and outcome."""
    return [_guard(guard, words) for guard in verdict.get("guards") or []]


def _guard(guard: Fact, words: Words) -> Md:
    metric = guard["metric"]
    outcome = words.say(f"guard.{guard['outcome']}")
    label, limit = metric_label(words, metric), numbers.size(guard["worse_by"])
    if guard["effect"] is None:
        why = [markdown.escape(words.pick(item) or item["code"]) for item in guard["reasons"]]
        return words.say(
            "guard.untold", metric=label, outcome=outcome, why=markdown.joined(why, "; ")
        )
    told = numbers.change(guard["effect"], guard["interval"], against=[-guard["worse_by"]])
    return words.say(
        "guard.points" if guard["in_points"] else "guard.told",
        metric=label,
        outcome=outcome,
        before=numbers.show(metric, guard["baseline_value"], bare=numbers.unit_moves(metric)),
        after=numbers.show(metric, guard["candidate_value"]),
        effect=told.value,
        interval=told.interval,
        limit=limit,
    )
