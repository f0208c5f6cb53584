"""Suspects ranked by evidence, and the steps that the outcomes call for.

In: the plan's suspects, next_steps and actions (rules declared in the config), and what came out.
Out: rows for verdicts.json. Each rule that holds raises or lowers a suspect by one or excludes it;
suspects that the evidence leaves level keep their declared prior, and say so (`by`: "prior"). A rule
that could not be looked at moves nothing and is listed under `not_known`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decodelab.evidence import Known, Outcome, look

WEIGHTS = {"raise": 1, "lower": -1, "exclude": -1}
Rule = Mapping[str, Any]


def holds(condition: Mapping[str, Any] | None, known: Known) -> bool:
    """What is not known does not hold: no step is taken for it."""
    return look(condition, known).holds is True


def rank(suspects: Sequence[Mapping[str, Any]], known: Known) -> list[dict[str, Any]]:
    """Suspects in order: by evidence, then by prior; the excluded last."""
    entries = [_entry(suspect, known) for suspect in suspects]
    entries.sort(key=lambda e: (e["excluded"], -e["score"], e["prior"]))
    open_scores = [entry["score"] for entry in entries if not entry["excluded"]]
    for number, entry in enumerate(entries, start=1):
        entry["rank"] = number
        alone = entry["excluded"] or open_scores.count(entry["score"]) == 1
        entry["by"] = "evidence" if alone and entry["evidence"] else "prior"
    return entries


def _entry(suspect: Mapping[str, Any], known: Known) -> dict[str, Any]:
    seen = [(rule, look(rule.get("when"), known)) for rule in suspect.get("evidence") or []]
    found = [(rule, outcome) for rule, outcome in seen if outcome.holds]
    return {
        "id": suspect["id"],
        "title": suspect["title"],
        "prior": suspect["prior"],
        "score": sum(WEIGHTS[rule["effect"]] for rule, _outcome in found),
        "excluded": any(rule["effect"] == "exclude" for rule, _outcome in found),
        "evidence": [_line(rule, outcome) for rule, outcome in found],
        "not_known": [
            {**_line(rule, outcome), "why": outcome.why}
            for rule, outcome in seen
            if outcome.holds is None
        ],
    }


def _line(rule: Rule, outcome: Outcome) -> dict[str, Any]:
    return {
        **(rule.get("text") or {}),
        "weight": WEIGHTS[rule["effect"]],
        "ref": rule.get("when"),
        "figure": outcome.figure,
    }


def steps(entries: Sequence[Mapping[str, Any]], known: Known) -> list[dict[str, Any]]:
    """The steps whose conditions all hold, in declared order, with their reason."""
    out = []
    for step in entries:
        if all(holds(condition, known) for condition in step.get("when") or []):
            rest = {
                key: step.get(key) for key in ("id", "purpose", "how", "decide", "risk", "reason")
            }
            out.append({**(step.get("title") or {}), **rest})
    return out
