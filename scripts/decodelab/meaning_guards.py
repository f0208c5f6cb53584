"""Meaning of guards: metrics of both arms that have a better side, each with what it may lose.

In: a Check. Out: mistakes added to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from decodelab import meaning_questions, mistakes, questions, targets
from decodelab.vocabulary import METRICS

if TYPE_CHECKING:
    from decodelab.meaning import Check


def check(todo: Check) -> None:
    for name, entry in (todo.config.get("experiments") or {}).items():
        for path, question in meaning_questions.paths(name, entry):
            kind = str((question or {}).get("kind"))
            if not kind.startswith("compare") or kind not in meaning_questions.NEEDS:
                continue  # beside another kind the key itself is a mistake
            seen: list[str] = []
            for n, given in enumerate(question.get("guard") or []):
                if given:
                    _guard(todo, (*path, "guard", n), question, given, seen)


def _guard(
    todo: Check,
    path: mistakes.Path,
    question: dict[str, Any],
    given: str | dict[str, Any],
    seen: list[str],
) -> None:
    entry = {"metric": given} if isinstance(given, str) else given
    at = path if isinstance(given, str) else (*path, "metric")
    if entry.get("worse_by") is not None:
        todo.text((*path, "worse_by"), entry["worse_by"], targets.share)
    if entry.get("metric") is None or not todo.metric(at, entry["metric"]):
        return
    name = questions.metric(entry["metric"])
    if METRICS[name].level == "profile":
        todo.add(at, f"{name}, which is of one region", "a metric of a whole run")
    elif METRICS[name].direction is None:
        todo.add(at, f"{name}, which has no better side", "a metric that can get worse")
    elif name == questions.metric(str(question.get("metric"))):
        todo.add(at, f"{name}, which the question itself compares", "another metric")
    elif name in seen:
        todo.add(at, f"{name} again", "each metric once")
    seen.append(name)
    asked = {**question, "metric": name}
    if METRICS[name].level == "telemetry" and METRICS[name].direction is not None:
        meaning_questions.sampled(todo, path, asked, str(question["kind"]))
    if todo.whole and not todo.found and question["kind"] == "compare_variants":
        names = [str(question["baseline"]), str(question["candidate"])]
        meaning_questions.events(todo, path, asked, names, str(question["workload"]))
