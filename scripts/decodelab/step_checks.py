"""Is a profile of the step profiler to be believed? What it shows by itself.

In: the profile with its ranks, cycles and processes. Out: the profile with its problems (any makes
it invalid: it ranks nothing and states no shares) and doubts. What only an unprofiled twin can show
(overhead, output) is in `step_twin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from decodelab import step_expected, step_lines, step_ranks, step_regions, step_tables
from decodelab.step_closure import Cycle
from decodelab.step_lines import Process
from decodelab.step_ranks import Rank
from decodelab.step_table import Problem, Profile, Table

CLOSURE = 0.03  # of the step that the named regions may lack or exceed
SPREAD = 0.10  # between ranks, of their mean
LARGE = 0.05  # of the step: smaller regions are not held against each other
LEAST_STEPS = 20  # a P90 of fewer is the slowest or two
EAGER = "--enforce-eager"
_INNER = ("attention", "linear_attention", "moe", "mlp")  # called inside the model's forward
_ELSEWHERE = ("scheduler", "handover", "output", "engine")  # no rank's own
Cycles = Mapping[int, Sequence[Cycle]]


def checked(
    profile: Profile,
    ranks: Sequence[Rank],
    cycles: Cycles,
    processes: Sequence[Process],
    told: Mapping[str, Any],
) -> Profile:
    """`told`: what the agent says of the run."""
    skipped = set((told.get("spec") or {}).get("skip") or ())
    needed = {region for region, n in _needed(ranks).items() if n} - skipped
    lacking, doubted = _targets(profile, needed)
    problems = [*lacking, *_steps(ranks, cycles, processes)]
    missing = {region for one in lacking for region in one.figures["regions"]}
    if any(cycles.values()):
        problems += _ranks_missing(ranks, cycles)
        problems += _calls(ranks, cycles, skipped | missing)
        problems += _closed(profile)
        problems += _agree(ranks, profile)
    dropped = sum(process.dropped for process in processes)
    if dropped:
        problems.append(Problem("dropped", {"steps": dropped}))
    doubts = [*doubted, *_incomplete(processes, told), *_unchecked(ranks, skipped)]
    doubts += [*_never_called(profile, cycles), *_troubles(processes)]
    return final(replace(profile, problems=tuple(problems), doubts=tuple(doubts)))


def final(profile: Profile) -> Profile:
    """Shares stand only where they may be stated."""
    if profile.states_shares:
        return profile
    return replace(profile, tables=tuple(map(step_tables.without_shares, profile.tables)))


def _steps(ranks: Sequence[Rank], cycles: Cycles, processes: Sequence[Process]) -> list[Problem]:
    others = sorted({process.schema for process in processes if process.schema is not None})
    if others:
        return [Problem("other_schema", {"found": others, "known": step_lines.SCHEMA})]
    decode = [sum(step.phase == "decode" for step in rank.steps) for rank in ranks]
    if not any(decode):
        troubles = [text for process in processes for text in process.troubles]
        untold = sum(process.untold for process in processes)
        figures = {"processes": len(processes), "untold": untold, "troubles": troubles[:3]}
        return [Problem("no_steps", figures)]
    fewest = min((len(found) for found in cycles.values() if found), default=0)
    if fewest < LEAST_STEPS:
        return [Problem("too_few_steps", {"steps": fewest, "least": LEAST_STEPS})]
    return []


def _needed(ranks: Sequence[Rank]) -> dict[str, int]:
    """Regions without which the model's step is not told, by calls on any rank."""
    out = {"forward": 1}
    for rank in ranks:
        for region, calls in step_expected.calls(rank.process.model or {}).items():
            if region != "mlp":  # its classes are each model's own; else it is part of the forward
                out[region] = max(out.get(region, 0), calls or 0)
    return out


def _targets(profile: Profile, needed: set[str]) -> tuple[list[Problem], list[Problem]]:
    """(problems, doubts): regions of which no target was found; another era's target is no loss."""
    regions = {one["region"] for one in profile.targets}
    found = {one["region"] for one in profile.targets if one["found"]}
    lost = sorted(regions - found, key=step_regions.order)
    problems = [region for region in lost if region in needed]
    doubts = [region for region in lost if region not in needed]
    return (
        [Problem("target_missing", {"regions": problems})] if problems else [],
        [Problem("targets_not_found", {"regions": doubts})] if doubts else [],
    )


def _ranks_missing(ranks: Sequence[Rank], cycles: Cycles) -> list[Problem]:
    there = sorted(rank.number for rank in ranks if cycles[rank.number])
    expected = max(len(ranks), step_ranks.expected(ranks) or 0)
    if len(there) >= expected:
        return []
    missing = [number for number in range(expected) if number not in there]
    figures = {"expected": expected, "found": len(there), "missing": missing}
    return [Problem("rank_missing", figures)]


def _calls(ranks: Sequence[Rank], cycles: Cycles, left_out: set[str]) -> list[Problem]:
    """Each step against the config; one problem a region, of the first rank that shows it."""
    unseen: list[str] = []
    wrong: dict[str, Problem] = {}
    for rank in ranks:
        model = rank.process.model or {}
        for region, wanted in _accepted(step_expected.calls(model)).items():
            if region in left_out or not cycles[rank.number]:
                continue
            seen = [cycle.calls.get(region, 0) for cycle in cycles[rank.number]]
            odd = [calls for calls in seen if calls not in wanted]
            if odd and region in _INNER and not any(seen) and captured(model):
                unseen.append(region)
            elif odd and not (region == "mlp" and not any(seen)):
                figures = {"region": region, "rank": rank.number, "expected": wanted[0]}
                figures |= {"seen": odd[0], "steps": len(odd), "of": len(seen)}
                wrong.setdefault(region, Problem("calls_unlike_config", figures))
    hidden = list(dict.fromkeys(unseen))
    found = [Problem("inner_not_seen", {"regions": hidden, "hint": EAGER})] if hidden else []
    return found + list(wrong.values())


def _accepted(expected: Mapping[str, int | None]) -> dict[str, tuple[int, ...]]:
    """Numbers of calls that fit; the shared expert of a MoE layer may be one more `mlp`."""
    out: dict[str, tuple[int, ...]] = {
        region: (calls,) for region, calls in expected.items() if calls is not None
    }
    if "mlp" in out and expected.get("moe"):
        out["mlp"] += (out["mlp"][0] + (expected["moe"] or 0),)
    return out


def captured(model: Mapping[str, Any]) -> bool:
    """Whether the model runs as a captured graph or compiled, so that Python inside it is not run."""
    if model.get("enforce_eager"):
        return False
    modes = [model.get("cudagraph_mode"), model.get("compilation_mode")]
    if all(mode is None for mode in modes):
        return model.get("enforce_eager") is False
    return any(str(mode).rsplit(".", 1)[-1].upper() not in ("NONE", "0") for mode in modes if mode)


def _closed(profile: Profile) -> list[Problem]:
    """The rank that is farthest from closed speaks."""
    told = [t for t in profile.tables if t.phase == "decode" and t.closure is not None]
    worst = max(told, key=lambda t: abs(t.closure or 0.0), default=None)
    if worst is None or abs(worst.closure or 0.0) <= CLOSURE:
        return []
    figures = {"closure": worst.closure, "limit": CLOSURE, "rank": worst.rank}
    return [Problem("not_closed", figures)]


def _agree(ranks: Sequence[Rank], profile: Profile) -> list[Problem]:
    """The worst region of the ranks that do the same work."""
    of = {t.rank: t for t in profile.tables if t.phase == "decode" and t.rank is not None}
    groups: dict[tuple[int, int], list[Table]] = {}
    for rank in ranks:
        if rank.number in of:
            groups.setdefault(rank.group, []).append(of[rank.number])
    found = [item for tables in groups.values() if len(tables) > 1 for item in _spreads(tables)]
    worst = max(found, key=lambda item: item[1], default=None)
    if worst is None or worst[1] <= SPREAD:
        return []
    return [Problem("ranks_disagree", {"region": worst[0], "spread": worst[1], "limit": SPREAD})]


def _spreads(tables: Sequence[Table]) -> Iterable[tuple[str, float]]:
    """(region, spread of its median over ranks); of what waits for others there is none."""
    yield "step", _spread([table.step_ms_p50 for table in tables])
    by_rank = [{r.region: r for r in table.regions} for table in tables]
    for name in dict.fromkeys(name for regions in by_rank for name in regions):
        kind = step_regions.kind(name)
        if kind in ("collective", "sync") or name in (*_ELSEWHERE, step_regions.UNATTRIBUTED):
            continue
        mine = [regions.get(name) for regions in by_rank]
        calls = [region.calls_per_step if region else 0 for region in mine]
        if len(set(calls)) > 1:  # one rank may sample for all; what is in the model is in each
            if name in _INNER:
                yield name, _spread(calls)
            continue
        whole = max(
            (r.ms_mean or 0.0) / (t.step_ms_mean or 1.0)
            for r, t in zip(mine, tables, strict=True)
            if r
        )
        if whole >= LARGE:
            yield name, _spread([region.ms_p50 if region else None for region in mine])


def _spread(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    return (max(known) - min(known)) / mean if mean else 0.0


def _incomplete(processes: Sequence[Process], told: Mapping[str, Any]) -> list[Problem]:
    damaged = sum(process.damaged for process in processes)
    if told.get("complete") is not False and not damaged:
        return []
    return [Problem("incomplete", {"lines": damaged, "complete": told.get("complete")})]


def _unchecked(ranks: Sequence[Rank], skipped: set[str]) -> list[Problem]:
    """Calls that the config does not tell, in a way that is known here."""
    if not ranks:
        return []
    untold = {
        region
        for rank in ranks
        for region, calls in step_expected.calls(rank.process.model or {}).items()
        if calls is None
    } - skipped
    if not untold:
        return []
    return [Problem("calls_not_checked", {"regions": sorted(untold, key=step_regions.order)})]


def _never_called(profile: Profile, cycles: Cycles) -> list[Problem]:
    """Regions of the user's that are there and saw no call: of an overridden method, or in a captured graph."""
    called = {region for of in cycles.values() for cycle in of for region in cycle.calls}
    mine = {one["region"] for one in profile.targets if one["found"] and one["era"] == "user"}
    if not (never := sorted(mine - called)) or not any(cycles.values()):
        return []
    return [Problem("never_called", {"regions": never})]


def _troubles(processes: Sequence[Process]) -> list[Problem]:
    """Faults of the profiler's own, and regions that it could not read."""
    told = list(dict.fromkeys(text for process in processes for text in process.troubles))
    untimed = sum(process.untimed for process in processes)
    doubts = [Problem("troubles", {"troubles": told[:3]})] if told else []
    return doubts + ([Problem("untimed", {"steps": untimed})] if untimed else [])
