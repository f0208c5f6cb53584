"""Questions judged: one verdict per point of a question, one overall verdict per experiment.

In: the plan and the tables. Out: the content of verdicts.json: verdicts, experiments, anomalies,
gates, the ranked suspects, and the steps that the outcomes call for. How a point becomes a verdict
is in `question_kinds`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from decodelab import (
    aa_check,
    anomalies,
    attribution,
    bottleneck,
    decided,
    decisions,
    gates,
    question_kinds,
    question_scaling,
    ranking,
    reasons,
    region_metric,
    score_table,
    stream_use,
    ttft_buckets,
)
from decodelab.evidence import Known
from decodelab.tables import Tables
from decodelab.verdict_making import BLANK, Verdict, stop

SCHEMA = "decodelab.verdicts/1"


def judge(
    plan: Mapping[str, Any], tables: Tables, pending: Collection[str] | None = None
) -> dict[str, Any]:
    """All of verdicts.json. `pending`: names of the runs that are still to be made, where known."""
    experiments, answers, settled, chosen = _experiments(plan, tables, pending)
    for name, experiment in plan["experiments"].items():
        mine = answers.get(name, [])
        experiments[name] |= {
            "stream": stream_use.judge(experiment, plan, tables),
            "aa": aa_check.results(experiment, plan, tables),
            "drift": _drifts(mine),
        }
    verdicts = [verdict for name in plan["experiments"] for verdict in answers.get(name, [])]
    for verdict in verdicts:
        verdict["reasons"] += [
            why for entry in experiments.values() for why in aa_check.doubts(verdict, entry["aa"])
        ]
    found = anomalies.find(plan, tables)
    known = Known(
        verdicts,
        {k: v["verdict"] for k, v in experiments.items()},
        found,
        tables.starts,
        tables.runs,
        anomalies.looked(plan, tables),
        region_metric.declared_profiles(plan, tables),
        plan.get("grids") or {},
        {k: v["questions"] for k, v in experiments.items()},
    )
    return {
        "schema": SCHEMA,
        "verdicts": verdicts,
        "experiments": experiments,
        "ranking": ranking.boards(plan, tables),
        "decisions": settled,
        "path": {name: chosen[name].as_dict() for name in plan["experiments"] if chosen[name].when},
        "anomalies": found,
        "gates": gates.table(plan, tables),
        "attribution": attribution.table(plan, tables),
        "scores": score_table.table(tables),
        "ttft_buckets": ttft_buckets.table(tables),
        "bottleneck": bottleneck.rank(plan.get("suspects") or [], known),
        "next": bottleneck.steps(plan.get("next_steps") or [], known),
        "actions": bottleneck.steps(plan.get("actions") or [], known),
    }


def _experiments(
    plan: Mapping[str, Any], tables: Tables, pending: Collection[str] | None
) -> tuple[dict[str, Any], dict[str, list[Verdict]], dict[str, Any], dict[str, decisions.Choice]]:
    """Summaries, verdicts, decisions and choices by experiment. One that others wait for comes before them,
    and one that is not to be measured is not judged, whatever an earlier choice has left of it.
    """
    experiments: dict[str, Any] = {}
    answers: dict[str, list[Verdict]] = {}
    settled: dict[str, Any] = {}
    made: dict[str, decisions.Choice] = {}
    deciding = decisions.deciders(plan)
    for name in decisions.ordered(plan):
        experiment = plan["experiments"][name]
        made[name] = decisions.choose(experiment.get("when"), settled, made)
        if made[name].state != decisions.CHOSEN:
            experiments[name] = {"verdict": None, "text": None, "questions": []}
        elif name in deciding:
            answers[name], experiments[name], settled[name] = alone(name, plan, tables, pending)
        else:
            answers[name] = _answers(name, plan, tables)
            experiments[name] = summary(experiment, answers[name], tables)
    return {name: experiments[name] for name in plan["experiments"]}, answers, settled, made


def alone(
    name: str,
    plan: Mapping[str, Any],
    tables: Tables,
    pending: Collection[str] | None = None,
) -> tuple[list[Verdict], dict[str, Any], dict[str, Any]]:
    """Verdicts, summary and decision of an experiment that others wait for: by its own launches
    alone, so that what a branch measures later cannot change the choice of the branch.
    """
    experiment = plan["experiments"][name]
    own = decisions.own_launches(plan, name)
    seen = tables.only({run["name"] for run in decisions.own_runs(plan, name)}, set(own))
    verdicts = _answers(name, plan, seen)
    found = summary(experiment, verdicts, seen)
    return verdicts, found, decided.of(experiment, verdicts, found, seen, pending)


def _answers(name: str, plan: Mapping[str, Any], tables: Tables) -> list[Verdict]:
    questions = plan["experiments"][name]["questions"]
    return [verdict for asked in questions for verdict in answer(name, asked, plan, tables)]


def _drifts(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """The drift checks of an experiment's baselines, each once."""
    found = [verdict["drift"] for verdict in verdicts if verdict["drift"]]
    return [one for n, one in enumerate(found) if one not in found[:n]]


def answer(
    experiment: str, question: Mapping[str, Any], plan: Mapping[str, Any], tables: Tables
) -> list[Verdict]:
    """The verdicts of one question, one a point."""
    kinds = {
        "compare_variants": question_kinds.compare,
        "compare_workloads": question_kinds.compare,
        "threshold": question_kinds.threshold,
        "level": question_kinds.level,
        "scaling": question_scaling.scaling,
    }
    points = _points(question)
    several_caps = len({point.get("concurrency") for point in points}) > 1
    out = []
    for point in points:
        load = _load(point, plan, tables, several_caps)
        verdict = {**_base(experiment, question, point), **BLANK, "point": load}
        if len(points) > 1:
            label = _label(point, points, load or {"concurrency": point.get("concurrency")})
            verdict["id"] = f"{question['id']}.{label}"
        seen = region_metric.tables_for(question, tables)
        kinds[question["kind"]](verdict, question, point, plan, seen)
        out.append(verdict)
    if not points:
        verdict = {**_base(experiment, question, {}), **BLANK}
        stop(verdict, "invalid", [reasons.reason("nothing_to_compare")])
        out.append(verdict)
    return out


def summary(
    experiment: Mapping[str, Any], verdicts: Sequence[Verdict], tables: Tables
) -> dict[str, Any]:
    """The experiment's verdict: of its first question (later ones are controls), or of those that
    say `decides`. One that asks nothing still has an outcome where none of its variants can start.
    """
    questions = experiment["questions"]
    deciding = [q["id"] for q in questions if q.get("decides")] or [q["id"] for q in questions[:1]]
    mine = [v["verdict"] for v in verdicts if v["question"] in deciding]
    verdict = decisions.overall(mine)
    if not questions and _all_refused(experiment, tables):
        verdict = "not_possible"
    text = (experiment.get("then") or {}).get(verdict) if verdict else None
    return {"verdict": verdict, "text": text, "questions": deciding}


def _all_refused(experiment: Mapping[str, Any], tables: Tables) -> bool:
    variants = set(experiment.get("variants") or [])
    refused = {start["variant"] for start in tables.starts if start["status"] == "not_possible"}
    measured = {row["variant"] for row in tables.runs.values()}
    return bool(variants) and variants <= refused - measured


def _points(question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A threshold or level asks each concurrency for itself; a scaling question asks the whole
    curve at once.
    """
    points = list(question.get("points") or [])
    if question["kind"] not in ("threshold", "level"):
        return points
    return [
        {"variant": point["variant"], "concurrency": int(level), "runs": names}
        for point in points
        for level, names in point["runs"].items()
    ]


def _load(
    point: Mapping[str, Any], plan: Mapping[str, Any], tables: Tables, several_caps: bool
) -> dict[str, float] | None:
    """What the point was measured at: a concurrency, or the rate of an open loop, whose concurrency
    is a cap; None where two workloads differ in that and their names have to tell.
    """
    if point.get("concurrency") is None:
        return None
    sides = [point[side] for side in ("baseline", "candidate", "runs") if side in point]
    rates = {_rate(name, plan, tables) for names in sides for name in names} or {None}
    rate = rates.pop()
    if rates:
        return None
    at = {"concurrency": point["concurrency"]}
    return at if rate is None else {"rate": rate, **(at if several_caps else {})}


def _rate(run: str, plan: Mapping[str, Any], tables: Tables) -> float | None:
    """As planned, since a run that was not made yet has a load too; else as its record says."""
    digests = [entry.get("run") for entry in plan["runs"] if entry["name"] == run]
    told = (plan.get("points") or {}).get(digests[0] if digests else None) or {}
    found: float | None = told.get("rate") or tables.runs.get(run, {}).get("rate")
    return found or None


def _label(
    point: Mapping[str, Any], points: Sequence[Mapping[str, Any]], load: Mapping[str, Any]
) -> str:
    """What tells this point from the question's others."""
    parts = []
    variants = {p.get("candidate_variant") or p.get("variant") for p in points}
    baselines = {p.get("baseline_variant") for p in points}
    if len(variants) > 1:
        parts.append(str(point.get("candidate_variant") or point["variant"]))
    if len(baselines) > 1:
        parts.append(str(point["baseline_variant"]))
    if load.get("rate") is not None:
        parts.append(f"{load['rate']:g}rps")
    if load.get("concurrency") is not None:
        parts.append(f"c{load['concurrency']}")
    return ".".join(parts)


def _base(experiment: str, question: Mapping[str, Any], point: Mapping[str, Any]) -> Verdict:
    compares = question["kind"] == "compare_workloads"
    base = point.get("baseline_workload") if compares else point.get("baseline_variant")
    cand = point.get("candidate_workload") if compares else point.get("candidate_variant")
    concurrency = point.get("concurrency")
    return {
        "id": question["id"],
        "question": question["id"],
        "experiment": experiment,
        "kind": question["kind"],
        "metric": question["metric"],
        "region": question.get("region"),
        "workload": question.get("workload"),
        "variant": point.get("variant") or question.get("variant"),
        "point": None if concurrency is None else {"concurrency": concurrency},
        "baseline": base or question.get("baseline"),
        "candidate": cand
        or question.get("candidate")
        or point.get("variant")
        or question.get("variant"),
        "direction": question.get("direction"),
        "smallest_effect": question.get("smallest_effect"),
        "target": question.get("target"),
        "expected": question.get("expected"),
        "verdict": "invalid",
        "n_requests": [0, 0],
        "n_launches": [0, 0],
        "runs": [],
        "reasons": [],
        "suspect_runs": [],
    }
