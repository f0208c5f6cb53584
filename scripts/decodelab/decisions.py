"""Which experiments are to be measured: what the verdicts that are known make of every `when:`.

In: the plan, and of each experiment that another waits for the judge's summary (verdict, decision,
causes), as far as there is one. Out: a `Choice` an experiment, and what that means for a launch or
run. Pure: the workflow asks it with decision files, the judge with its own verdicts.

An experiment is supported if any of its deciding points is; it is not supported only if every one
is refuted, inconclusive or not_possible. Invalid decides nothing: what hangs on it is undecided. The
report, the suspects and the conditions all use the one word that `overall` makes of the points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

CHOSEN, NOT_CHOSEN, UNDECIDED = "chosen", "not_chosen", "undecided"
Plan = Mapping[str, Any]
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """`why`: met, not_met (the verdict is another), other_cause (the verdict fits, the cause of the
    failed start does not), not_chosen or undecided (as the experiment that it waits for), waiting
    (no verdict yet), invalid; None for an experiment without a condition.
    """

    state: str
    why: str | None = None
    when: Mapping[str, Any] = field(default_factory=dict)
    verdict: str | None = None  # of the experiment that it waits for

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def overall(verdicts: Iterable[str]) -> str | None:
    """Of several points: supported if any is; else invalid if any is, since that one might have been
    supported; refuted or not_possible only if all are; a mixture of those is inconclusive.
    """
    found = set(verdicts)
    for word in ("supported", "invalid"):
        if word in found:
            return word
    return "inconclusive" if len(found) > 1 else next(iter(found), None)


def decision(word: str | None) -> str | None:
    """The verdict as far as it decides: invalid decides nothing."""
    return None if word == "invalid" else word


def deciders(plan: Plan) -> list[str]:
    """The experiments that others wait for; one that waits itself comes after what it waits for."""
    named = {e["when"]["experiment"] for e in plan["experiments"].values() if e.get("when")}
    return [name for name in ordered(plan) if name in named]


def ordered(plan: Plan) -> list[str]:
    """All experiments in plan order, but none before the one that it waits for."""
    out: list[str] = []
    for name in plan["experiments"]:
        out += [n for n in (*chain(plan, name), name) if n not in out]
    return out


def chain(plan: Plan, experiment: str) -> list[str]:
    """What an experiment waits for, outermost first: A, C for an E that waits for C, which waits for A."""
    out: list[str] = []
    when = plan["experiments"][experiment].get("when")
    while when:
        out.insert(0, when["experiment"])
        when = plan["experiments"][when["experiment"]].get("when")
    return out


def choices(plan: Plan, known: Mapping[str, Summary]) -> dict[str, Choice]:
    """A choice for every experiment, in plan order; `known` may hold summaries of any of them."""
    made: dict[str, Choice] = {}
    for name in ordered(plan):
        made[name] = choose(plan["experiments"][name].get("when"), known, made)
    return {name: made[name] for name in plan["experiments"]}


def choose(
    when: Mapping[str, Any] | None, known: Mapping[str, Summary], made: Mapping[str, Choice]
) -> Choice:
    """`made` has the choice of the experiment that this one waits for."""
    if not when:
        return Choice(CHOSEN)
    above = made[when["experiment"]]
    if above.state != CHOSEN:
        return Choice(above.state, above.state, when)
    summary = known.get(when["experiment"])
    if summary is None or summary.get("unmeasured"):
        return Choice(UNDECIDED, "waiting", when)
    verdict = summary.get("decision")
    if verdict is None and summary.get("verdict") is not None:
        return Choice(UNDECIDED, "invalid", when, summary["verdict"])
    if verdict not in when["verdicts"]:
        return Choice(NOT_CHOSEN, "not_met", when, verdict)
    classes = when.get("start_classes") or []
    if classes and not set(classes) & set(summary.get("causes") or []):
        return Choice(NOT_CHOSEN, "other_cause", when, verdict)
    return Choice(CHOSEN, "met", when, verdict)


def state_of(experiments: Iterable[str], made: Mapping[str, Choice]) -> str:
    """Of a launch or run that these experiments want: chosen if it is for any of them."""
    states = {made[name].state for name in experiments}
    return next((s for s in (CHOSEN, UNDECIDED, NOT_CHOSEN) if s in states), CHOSEN)


def launch_states(plan: Plan, made: Mapping[str, Choice]) -> dict[str, str]:
    """Launch digest -> state, in queue order."""
    return {x["digest"]: state_of(x["experiments"], made) for x in plan["launches"]}


def own_launches(plan: Plan, experiment: str) -> list[str]:
    """Digests of the launches that an experiment needs, in queue order."""
    return [x["digest"] for x in plan["launches"] if experiment in x["experiments"]]


def own_runs(plan: Plan, experiment: str) -> list[Mapping[str, Any]]:
    """Every run of its own launches, those of other experiments included; of a replay, which has no
    launches, its own runs.
    """
    digests = set(own_launches(plan, experiment))
    return [
        run
        for run in plan["runs"]
        if run.get("launch") in digests or experiment in run["experiments"]
    ]
