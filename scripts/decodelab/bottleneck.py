"""Suspects ranked by evidence, and the steps that the outcomes call for.

In: the plan's suspects, next_steps and actions (rules declared in the config), and what came out.
Out: rows for verdicts.json. Each rule that holds raises or lowers a suspect by one or excludes it;
suspects that the evidence leaves level keep their declared prior, and say so (`by`: "prior")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WEIGHTS = {"raise": 1, "lower": -1, "exclude": -1}
_ORDER = ("supported", "refuted", "inconclusive", "not_possible", "invalid")


@dataclass(frozen=True)
class Known:
    """What conditions may look at."""

    verdicts: Sequence[Mapping[str, Any]]
    experiments: Mapping[str, str | None]
    anomalies: Sequence[Mapping[str, Any]]
    starts: Sequence[Mapping[str, Any]]

    def question(self, name: str) -> str | None:
        """A question's verdict over its points; a single point may be named too."""
        found = {v["verdict"] for v in self.verdicts if name in (v["id"], v.get("question"))}
        return next((word for word in _ORDER if word in found), None)


def holds(condition: Mapping[str, Any] | None, known: Known) -> bool:
    """Every part of the condition must hold; none at all is a fact that always holds."""
    if not condition:
        return True
    verdicts = condition.get("verdict")
    asked = [known.question(condition["question"])] if condition.get("question") else []
    asked += [known.experiments.get(condition["experiment"])] if condition.get("experiment") else []
    for word in asked:
        if word is None or (verdicts and word not in verdicts):
            return False
    anomaly, start_class = condition.get("anomaly"), condition.get("start_class")
    if anomaly and not any(found["code"] == anomaly for found in known.anomalies):
        return False
    return not start_class or any(start.get("cause_class") == start_class for start in known.starts)


def rank(suspects: Sequence[Mapping[str, Any]], known: Known) -> list[dict[str, Any]]:
    """Suspects in order: by evidence, then by prior; the excluded last."""
    entries = []
    for suspect in suspects:
        rules = [rule for rule in suspect.get("evidence") or [] if holds(rule.get("when"), known)]
        entries.append(
            {
                "id": suspect["id"],
                "title": suspect["title"],
                "prior": suspect["prior"],
                "score": sum(WEIGHTS[rule["effect"]] for rule in rules),
                "excluded": any(rule["effect"] == "exclude" for rule in rules),
                "evidence": [
                    {
                        **(rule.get("text") or {}),
                        "weight": WEIGHTS[rule["effect"]],
                        "ref": rule.get("when"),
                    }
                    for rule in rules
                ],
            }
        )
    entries.sort(key=lambda e: (e["excluded"], -e["score"], e["prior"]))
    open_scores = [entry["score"] for entry in entries if not entry["excluded"]]
    for number, entry in enumerate(entries, start=1):
        entry["rank"] = number
        alone = entry["excluded"] or open_scores.count(entry["score"]) == 1
        entry["by"] = "evidence" if alone and entry["evidence"] else "prior"
    return entries


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
