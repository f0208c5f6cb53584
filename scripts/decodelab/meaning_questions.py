"""Meaning of questions: what each kind needs, and whether the experiment runs it.

In: a Check. Out: mistakes added to it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from decodelab import (
    flags,
    launches,
    meaning_profiles,
    meaning_servers,
    mistakes,
    questions,
    races,
    targets,
    variants,
    workloads,
)
from decodelab.vocabulary import EVENT_METRICS, METRIC_ALIASES, METRICS

if TYPE_CHECKING:
    from decodelab.meaning import Check

Path = mistakes.Path
# kind -> the keys it needs; those of _ANY_KIND may stand beside them.
NEEDS = {
    "compare_variants": ("workload", "baseline", "candidate", "smallest_effect"),
    "compare_workloads": ("variant", "baseline", "candidate", "smallest_effect"),
    "threshold": ("variant", "workload"),
    "scaling": ("variant", "workload", "smallest_effect"),
    "level": ("variant", "workload", "expected"),
}
_ANY_KIND = ("id", "kind", "metric", "region", "concurrency", "ask")
_MAY = {
    "compare_variants": ("direction", "explains_gap_to", "guard"),
    "compare_workloads": ("direction", "explains_gap_to", "guard"),
    "threshold": ("target",),
    "scaling": ("direction",),
    "level": (),
}


def check(todo: Check) -> None:
    seen: list[str] = []
    for name, entry in (todo.config.get("experiments") or {}).items():
        for n, (path, question) in enumerate(paths(name, entry), start=1):
            if not question:
                continue
            identity = questions.question_id(name, n, question)
            if identity in seen:
                todo.add((*path, "id"), f'the id "{identity}" again', "each question's id once")
            seen.append(identity)
            _question(todo, path, question, races.all_loads(entry))


def paths(name: str, entry: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    single: list[tuple[Path, dict[str, Any]]] = []
    if entry.get("question"):
        single = [(("experiments", name, "question"), entry["question"])]
    several = entry.get("questions") or []
    return single + [(("experiments", name, "questions", n), q) for n, q in enumerate(several)]


def _question(todo: Check, path: Path, question: dict[str, Any], runs: dict[str, Any]) -> None:
    kind, name = question.get("kind"), question.get("metric")
    known = name is not None and todo.metric((*path, "metric"), name)
    _numbers(todo, path, question)
    if kind not in NEEDS:
        return
    _keys(todo, path, question, str(kind))
    meaning_profiles.question(todo, path, question, str(kind))
    if known:
        _metric(todo, path, question, str(kind), METRICS[METRIC_ALIASES.get(str(name), str(name))])
    _arms(todo, path, question, str(kind), runs)


def _keys(todo: Check, path: Path, question: dict[str, Any], kind: str) -> None:
    given = todo.names(*[str(p) for p in path]) or list(question)
    for key in NEEDS[kind]:
        if question.get(key) is None and key not in given:
            todo.add((*path, key), "nothing", f"{key}, which a question of kind {kind} needs")
    allowed = (*_ANY_KIND, *NEEDS[kind], *_MAY[kind])
    for key in question:
        if key not in allowed:
            todo.add((*path, key), f"{key} in a question of kind {kind}", ", ".join(allowed))


def _metric(todo: Check, path: Path, question: dict[str, Any], kind: str, metric: Any) -> None:
    if kind == "threshold" and not question.get("target"):
        names = [questions.metric(n) for n in todo.config["targets"]]
        if questions.metric(question["metric"]) not in names:
            found = f"no target for {question['metric']}"
            todo.add(
                (*path, "target"),
                found,
                f"a target here, or a metric of `targets`: {mistakes.listed(names)}",
            )
    if "direction" in _MAY[kind] and metric.direction is None and not question.get("direction"):
        found = f"nothing, and {question['metric']} has no better side of its own"
        todo.add((*path, "direction"), found, "higher or lower")
    if metric.level == "telemetry":
        sampled(todo, path, question, kind)


def sampled(todo: Check, path: Path, question: dict[str, Any], kind: str) -> None:
    keys = ("baseline", "candidate") if kind == "compare_workloads" else ("workload",)
    for key in keys:
        load = (todo.config.get("workloads") or {}).get(question.get(key))
        if load and load.get("telemetry") is False:
            found = f'{question["metric"]} of workload "{question[key]}", which takes no samples'
            todo.add((*path, "metric"), found, "a workload with telemetry: true")


def _numbers(todo: Check, path: Path, question: dict[str, Any]) -> None:
    unit = questions.unit(str(question.get("metric")))
    if question.get("smallest_effect") is not None:
        todo.text((*path, "smallest_effect"), question["smallest_effect"], targets.share)
    if question.get("target") is not None:
        todo.text((*path, "target"), question["target"], partial(targets.target, unit=unit))
    low, high = (question.get("expected") or [None, None])[:2]
    for n, end in enumerate((low, high)):
        if end is not None:
            todo.text((*path, "expected", n), end, partial(targets.limit, unit=unit))
    if low is not None and high is not None and low > high:
        todo.add((*path, "expected"), mistakes.shown([low, high]), "the low end first")
    gap = question.get("explains_gap_to")
    if isinstance(gap, (int, float)):
        todo.text((*path, "explains_gap_to"), gap, partial(targets.limit, unit=unit))
    if isinstance(gap, str):
        names = list(todo.config["targets"])
        if questions.metric(gap) not in map(questions.metric, names):
            todo.known((*path, "explains_gap_to"), gap, names, "no target for")


# arms


def _arms(
    todo: Check, path: Path, question: dict[str, Any], kind: str, runs: dict[str, Any]
) -> None:
    if kind == "compare_variants":
        load = question.get("workload")
        arms = [(side, question.get(side), "workload", load) for side in ("baseline", "candidate")]
    elif kind == "compare_workloads":
        arms = [
            ("variant", question.get("variant"), side, question.get(side))
            for side in ("baseline", "candidate")
        ]
    else:
        arms = [("variant", question.get("variant"), "workload", question.get("workload"))]
    well = [_arm(todo, path, runs, *arm) for arm in arms]
    if all(well):
        _point(todo, path, question, [str(arm[3]) for arm in arms], kind)
        _difference(todo, path, question, kind)
        if todo.whole:
            names = [str(arm[1]) for arm in arms]
            events(todo, path, question, names, str(arms[0][3]))


def _arm(
    todo: Check, path: Path, runs: dict[str, Any], vkey: str, variant: Any, wkey: str, load: Any
) -> bool:
    """Whether the experiment runs this workload against this variant."""
    if variant is None or load is None or not runs:
        return False
    known = meaning_servers.variant_names(todo)
    if not todo.known((*path, vkey), variant, known, "unknown variant"):
        return False
    if not todo.known((*path, wkey), load, todo.names("workloads"), "unknown workload"):
        return False
    loaded = {item for items in runs.values() for item in items}
    if not set(runs) <= set(known) or not loaded <= set(todo.names("workloads")):
        return False  # said there already; what the experiment really runs is not known
    grid = meaning_servers.cells(todo).get(variant)
    loads = [*(runs.get(variant) or []), *(runs.get(grid) or [] if grid else [])]
    if not loads and variant not in runs:
        _once(
            todo,
            (*path, vkey),
            f'"{variant}", which this experiment does not run',
            mistakes.listed(runs),
        )
        return False
    if load not in loads:
        found = f'"{load}", which this experiment does not run against {variant}'
        _once(todo, (*path, wkey), found, mistakes.listed(loads))
        return False
    return True


def _once(todo: Check, path: Path, found: str, allowed: str) -> None:
    if not any(m.path == path and m.found == found for m in todo.found):
        todo.add(path, found, allowed)


def _point(todo: Check, path: Path, question: dict[str, Any], loads: list[str], kind: str) -> None:
    entries = [todo.config["workloads"].get(load) or {} for load in loads]
    curves = [c if isinstance(c, list) else [c] for c in (e.get("concurrency") for e in entries)]
    chosen = question.get("concurrency")
    for load, curve in zip(loads, curves, strict=True):
        if chosen is not None and chosen not in curve:
            todo.add(
                (*path, "concurrency"),
                str(chosen),
                f"a concurrency of {load}: {mistakes.listed(curve)}",
            )
            return
    if kind == "scaling" and len(curves[0]) < 2:
        found = f'"{loads[0]}", which has one concurrency'
        todo.add((*path, "workload"), found, "a workload with a list of concurrencies")


def _difference(todo: Check, path: Path, question: dict[str, Any], kind: str) -> None:
    base, cand = question.get("baseline"), question.get("candidate")
    if not kind.startswith("compare"):
        return
    if base == cand:
        todo.add(
            (*path, "candidate"),
            f'"{cand}", the baseline itself',
            "another " + kind.removeprefix("compare_")[:-1],
        )
    elif kind == "compare_variants" and todo.whole and not todo.found:
        arms = variants.resolve(todo.config)
        if base in arms and cand in arms and arms[base].server == arms[cand].server:
            hint = "an arm against itself is the experiment's `aa`, which gives the noise between starts"
            todo.add(
                (*path, "candidate"),
                f'"{cand}", the same server as "{base}"',
                "a variant that differs",
                hint,
            )
    elif kind == "compare_workloads" and todo.whole and not todo.found:
        _one_run(todo, path, question)


def _one_run(todo: Check, path: Path, question: dict[str, Any]) -> None:
    """Runs that ask the same of one start are one run, however their workloads are called. Of a
    replay each name is a file of its own.
    """
    config = todo.config
    if config.get("replay"):
        return
    points, resolved = workloads.points(config, todo.root), variants.resolve(config)
    base, cand = str(question["baseline"]), str(question["candidate"])
    chosen = question.get("concurrency")
    for cell in variants.grids(config).get(question["variant"], [question["variant"]]):
        sampling = launches.tool(config, resolved[cell]) != "none"
        one, other = (
            {
                p.run(p.telemetry and sampling)
                for p in points[load]
                if chosen in (None, p.concurrency)
            }
            for load in (base, cand)
        )
        if one & other:
            hint = "give one of the two another seed; a scenario's name, suffix and timeout_s make no other run"
            if points[base][0].telemetry != points[cand][0].telemetry:
                hint = f'they differ in telemetry, but the host of "{cell}" has no telemetry tool'
            found = f'"{cand}", whose run is that of "{base}": both arms would be one and the same'
            todo.add((*path, "candidate"), found, "a workload that is measured by itself", hint)
            return


def events(todo: Check, path: Path, question: dict[str, Any], names: list[str], load: str) -> None:
    """Metrics that rest on when events came, of arms whose events hold unlike many tokens."""
    metric = questions.metric(str(question.get("metric")))
    differing = _bursts_differ(todo, names) if metric in EVENT_METRICS else None
    if differing is None:
        return
    if question["kind"] == "compare_variants" and metric.startswith("itl_s"):
        figure = metric.removeprefix("itl_s")
        todo.add(
            (*path, "metric"),
            f"{question['metric']} of arms that differ in {differing}",
            f"a metric per token: tpot_s{figure} or decode_rate{figure}",
            "events come in bursts there, and the gap between two events is no time per token",
        )
    elif not todo.config.get("replay"):
        _counts(todo, path, question, differing, load)


def _counts(todo: Check, path: Path, question: dict[str, Any], differing: str, load: str) -> None:
    """Where events may hold several tokens in one arm and not in another, each must say how many."""
    entry = todo.config["workloads"].get(load) or {}
    if entry.get("continuous_usage_stats") or entry.get("return_token_ids"):
        return
    at: Path = ("workloads", load, "continuous_usage_stats")
    if not any(m.path == at for m in todo.found):
        todo.add(
            at,
            f"no token counts in the events, but {mistakes.dotted(path)} asks for"
            f" {question['metric']} of arms that differ in {differing}",
            "continuous_usage_stats or return_token_ids: true, where one event may hold several"
            " tokens",
            f"write continuous_usage_stats: true in workloads.{load}",
        )


def _bursts_differ(todo: Check, names: list[str]) -> str | None:
    """The first flag that puts several tokens into one event and is not the same in all arms, a
    grid being all its cells.
    """
    resolved, grids = variants.resolve(todo.config), variants.grids(todo.config)
    cells = [cell for name in names for cell in grids.get(name, [name]) if cell in resolved]
    told = [flags.bursts(flags.canonical(resolved[c].flags, resolved[c].engine)) for c in cells]
    each = dict.fromkeys(flag for one in told for flag in one)
    return next((f for f in each if any(one.get(f) != told[0].get(f) for one in told)), None)
