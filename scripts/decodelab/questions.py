"""Experiments, questions, suspects and next steps, as the plan holds them.

In: a filled config, its variants and run entries. Out: plain data for the judge and the report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decodelab import given_profiles, launches, targets
from decodelab.columns import COLUMNS
from decodelab.variants import Variant
from decodelab.vocabulary import LANGUAGES, METRIC_ALIASES, METRICS, VERDICTS

Config = dict[str, Any]
Runs = dict[str, dict[str, Any]]


def text(given: Any) -> dict[str, str] | None:
    """A text in every language; a plain string is the same in all."""
    if given is None:
        return None
    if isinstance(given, dict):
        return {language: given[language] for language in LANGUAGES if language in given}
    return dict.fromkeys(LANGUAGES, str(given))


def lines(given: Any) -> dict[str, list[str]]:
    """Lines in every language; a plain list is the same in all."""
    if isinstance(given, dict):
        return {language: list(given.get(language, [])) for language in LANGUAGES}
    return {language: list(given or []) for language in LANGUAGES}


def metric(name: str) -> str:
    return METRIC_ALIASES.get(name, name)


def unit(name: str) -> str | None:
    """Of a metric or a numeric column of runs.csv; None for neither."""
    known = METRICS.get(metric(name)) or COLUMNS["runs"].get(name)
    return known.unit if known else None


def study_targets(config: Config) -> dict[str, dict[str, Any]]:
    return {
        metric(name): targets.target(given, unit(name)) for name, given in config["targets"].items()
    }


def asked(experiment: dict[str, Any]) -> list[dict[str, Any]]:
    """`question:` and `questions:` as one list."""
    single = [experiment["question"]] if experiment.get("question") else []
    return single + list(experiment.get("questions") or [])


def question_id(experiment: str, number: int, question: dict[str, Any]) -> str:
    return str(question.get("id") or f"{experiment}_{number}")


def experiments(
    config: Config, grids: dict[str, list[str]], variants: dict[str, Variant], runs: Runs
) -> dict[str, dict[str, Any]]:
    out = {}
    for name, entry in config["experiments"].items():
        mine = {run: value for run, value in runs.items() if name in value["experiments"]}
        asks = [
            _question(config, question_id(name, n, q), q, grids, variants, mine)
            for n, q in enumerate(asked(entry), start=1)
        ]
        out[name] = {
            "name": name,
            "title": text(entry.get("title")) or text(name),
            "purpose": text(entry.get("purpose")),
            "section": entry.get("section"),
            "repeats": entry["repeats"],
            "aa": entry.get("aa"),
            "variants": [cell for given in entry["runs"] for cell in grids.get(given, [given])],
            "workloads": list(
                dict.fromkeys(
                    [
                        *(load for loads in entry["runs"].values() for load in loads),
                        *((entry.get("screen") or {}).get("then") or []),
                    ]
                )
            ),
            "runs": list(mine),
            "questions": asks,
            "then": {v: text(entry["then"][v]) for v in VERDICTS if v in (entry.get("then") or {})},
            "when": launches.condition(entry),
        }
    return out


def _question(
    config: Config,
    identity: str,
    question: dict[str, Any],
    grids: dict[str, list[str]],
    variants: dict[str, Variant],
    runs: Runs,
) -> dict[str, Any]:
    name = metric(question["metric"])
    aim = question.get("target")
    gap = question.get("explains_gap_to")
    return {
        "id": identity,
        "kind": question["kind"],
        "metric": name,
        "unit": METRICS[name].unit,
        "region": question.get("region"),
        "variant": question.get("variant"),
        "workload": question.get("workload"),
        "baseline": question.get("baseline"),
        "candidate": question.get("candidate"),
        "direction": question.get("direction") or METRICS[name].direction,
        "smallest_effect": None
        if question.get("smallest_effect") is None
        else targets.share(question["smallest_effect"]),
        "target": targets.target(aim, unit(name)) if aim else study_targets(config).get(name),
        "expected": question.get("expected"),
        "explains_gap_to": metric(gap) if isinstance(gap, str) else gap,
        "guard": guards(question),
        "points": _points(question, grids, variants, runs),
        "ask": text(question.get("ask")),
    }


def guards(question: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics that must not get worse, each with what it may lose; a bare name has the default."""
    out = []
    for given in question.get("guard") or []:
        entry = {"metric": given} if isinstance(given, str) else given
        name, loss = metric(entry["metric"]), entry.get("worse_by")
        limit = guard_limit(name) if loss is None else targets.share(loss)
        out.append({"metric": name, "worse_by": limit})
    return out


def guard_limit(name: str) -> float:
    """What a guarded metric may lose where nothing is said: of a share, in points of it."""
    return 0.01 if METRICS[name].unit == "share" else 0.05


def _points(
    question: dict[str, Any], grids: dict[str, list[str]], variants: dict[str, Variant], runs: Runs
) -> list[dict[str, Any]]:
    """The comparisons a question makes: one a concurrency (and a cell, where an arm is a grid)."""
    kind, chosen = question["kind"], question.get("concurrency")

    def pick(variant: str, workload: str) -> dict[int, list[str]]:
        by: dict[int, list[str]] = {}
        for name, run in runs.items():
            if (
                run["variant"] == variant
                and run["workload"] == workload
                and chosen in (None, run["concurrency"])
            ):
                by.setdefault(run["concurrency"], []).append(name)
        return by

    if kind == "compare_variants":
        sides = [
            ((base, question["workload"]), (cand, question["workload"]))
            for base in grids.get(question["baseline"], [question["baseline"]])
            for cand in grids.get(question["candidate"], [question["candidate"]])
            if variants[base].server != variants[cand].server
        ]
    elif kind == "compare_workloads":
        sides = [
            (
                (question["variant"], question["baseline"]),
                (question["variant"], question["candidate"]),
            )
        ]
    else:
        return [
            _alone(cell, pick(cell, question["workload"]), kind)
            for cell in grids[question["variant"]]
        ]
    return [point for base, cand in sides for point in _pairs(base, cand, pick(*base), pick(*cand))]


def _alone(variant: str, by: dict[int, list[str]], kind: str) -> Any:
    return {"variant": variant, "runs": {str(c): names for c, names in by.items()}}


def _pairs(
    base: tuple[str, str],
    cand: tuple[str, str],
    left: dict[int, list[str]],
    right: dict[int, list[str]],
) -> list[dict[str, Any]]:
    """Points at equal concurrency; two workloads of one concurrency each are one pair."""
    if base[1] != cand[1] and len(left) == len(right) == 1 and set(left) != set(right):
        pairs = [(next(iter(left)), next(iter(right)))]
    else:
        pairs = [(c, c) for c in left if c in right]
    return [
        {
            "concurrency": c,
            "baseline_variant": base[0],
            "candidate_variant": cand[0],
            "baseline_workload": base[1],
            "candidate_workload": cand[1],
            "baseline": left[b],
            "candidate": right[c],
        }
        for b, c in pairs
    ]


def rule(given: dict[str, Any]) -> dict[str, Any]:
    """One rule of evidence: what must have come out, what it does, what it says."""
    return {
        "when": condition(given.get("when")),
        "effect": given.get("effect"),
        "text": text(given.get("text")),
    }


def condition(given: Any) -> dict[str, Any] | None:
    """A condition on what came out; `verdict` is always a list, `is` an operator and a limit."""
    if not given:
        return None
    verdict = given.get("verdict")
    out = {**given, "verdict": [verdict] if isinstance(verdict, str) else verdict}
    if given.get("metric"):
        out["metric"] = metric(given["metric"])
    if given.get("is"):
        asked = unit(given["metric"]) if given.get("metric") else "share"  # of a profile
        aim = targets.target(given["is"], asked)
        out["is"] = {"op": aim["op"], "limit": aim["value"]}
    return out


def profiles(config: Config, root: Path, runs: Runs) -> dict[str, dict[str, Any]]:
    """Declared profiles: a file with its digest, so that what reads it does so again once it is another; of the
    study's own profiled runs their names, a start each.
    """
    out = {}
    for name, entry in config["profiles"].items():
        file = entry.get("file")
        out[name] = {
            "file": file,
            "sha256": given_profiles.digest(root / file) if file else None,
            "run": entry.get("run"),
            "variant": entry.get("variant"),
            "workload": entry.get("workload"),
            "concurrency": entry.get("concurrency"),
            "phase": entry["phase"],
            "runs": [] if file else [n for n, run in runs.items() if _is_of(run, entry)],
        }
    return out


def _is_of(run: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether a run is of the variant, workload and concurrency that a profile is declared to be of."""
    names = ("variant", "workload", "concurrency")
    return all(entry.get(name) in (None, run[name]) for name in names)


def suspects(config: Config) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "title": text(entry["title"]),
            "prior": entry["prior"],
            "evidence": [rule(r) for r in entry.get("evidence") or []],
        }
        for name, entry in config["suspects"].items()
    ]


def steps(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "id": entry.get("id"),
            "title": text(entry["title"]),
            "purpose": text(entry.get("purpose")),
            "how": lines(entry.get("how")),
            "decide": lines(entry.get("decide")),
            "risk": text(entry.get("risk")),
            "when": [condition(c) for c in _listed(entry.get("when"))],
            "reason": text(entry.get("reason")),
        }
        for entry in entries
    ]


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given] if given else []
