"""Can an arm that makes several tokens a step be used? Judged by what its streams show.

In: the plan and the tables. Out: for an experiment whose arms differ in what may put several tokens
into one step (`flags.bursts`), one entry for each such arm, beside the experiment's verdict.

An arm is *not usable* where its stream shows a fault that its control's does not, or not as often;
*usable* where none shows and each check had something to look at; else, also where the control tells
nothing of a fault, *not told*. What an engine throws away within a
step is in no stream, see `stream_facts`.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scipy.special import bdtrc  # scipy.stats is slow to import

from decodelab import flags
from decodelab.tables import Row, Tables

# Chance that lengths of independent replies all end a step: below it they do so by rule.
BY_CHANCE = 0.01
# A run that is invalid for one of these alone still shows its stream: they are what is looked for.
_SHOWN_BY_STREAM = {"usage_impossible"}
# code -> the column that counts it, and the one that counts what could have it
FAULTS = {
    "over_max": ("over_max_n", "n_ok"),
    "after_finish": ("after_finish_n", "text_told_n"),
    "late_tokens": ("finish_late_tokens", "finish_told_n"),
    "after_stop": ("after_stop_chars", "stop_named_n"),
    "step_ends": ("stop_at_step_n", "stop_n"),
    "think_leak": ("think_tags_n", "text_told_n"),
    "tool_leak": ("tool_tags_n", "text_told_n"),
    "broken_calls": ("tool_calls_broken_n", "tool_calls_n"),
}
# Many of these come from one reply, so that two arms' numbers of them tell no difference of shares.
_IN_ONE_REPLY = ("late_tokens", "after_stop", "step_ends")
Entry = dict[str, Any]
Plan = Mapping[str, Any]


def judge(experiment: Mapping[str, Any], plan: Plan, tables: Tables) -> list[Entry]:
    """One entry an arm; none where the arms do not differ in bursts."""
    arms = _arms(experiment, plan)
    if len({several for _name, several in arms}) < 2:
        return []
    return [
        _entry(experiment, arm, _control(arm, arms, experiment, plan), arms, plan, tables)
        for arm in arms
        if arm[1]
    ]


Arm = tuple[str, tuple[tuple[str, str], ...]]  # variant or grid, its flags of several tokens


def _arms(experiment: Mapping[str, Any], plan: Plan) -> dict[Arm, list[str]]:
    """Variants by name and by those flags: the cells of a grid that agree in them are one arm."""
    out: dict[Arm, list[str]] = {}
    for name in experiment.get("variants") or []:
        variant = (plan.get("variants") or {}).get(name) or {}
        several = flags.bursts(variant.get("canonical") or {})
        key = (variant.get("grid") or name, tuple((f, str(v)) for f, v in sorted(several.items())))
        out.setdefault(key, []).append(name)
    return out


def _control(
    arm: Arm, arms: Iterable[Arm], experiment: Mapping[str, Any], plan: Plan
) -> Arm | None:
    """The arm it is compared with where that makes single tokens: a question's baseline, the same
    grid, the variant it extends; else the first that does.
    """
    plain = [other for other in arms if not other[1]]
    variant = (plan.get("variants") or {}).get(arm[0]) or {}
    asked = [
        question.get("baseline")
        for question in experiment.get("questions") or []
        if question.get("candidate") == arm[0]
    ]
    for name in (*asked, arm[0], variant.get("extends")):
        for other in plain:
            if other[0] == name:
                return other
    return plain[0] if plain else None


def _entry(
    experiment: Mapping[str, Any],
    arm: Arm,
    control: Arm | None,
    arms: Mapping[Arm, list[str]],
    plan: Plan,
    tables: Tables,
) -> Entry:
    rows = _rows(experiment, arms[arm], tables)
    beside = _rows(experiment, arms[control], tables) if control else []
    parsers = _parsers(arms[arm], plan)
    asked = _parsers(arms[control], plan) if control else set()
    found, shared, unmatched = _faults(rows, beside, parsers, asked)
    missing = _missing(rows, parsers)
    entry: Entry = {
        "variant": arm[0],
        "flags": dict(arm[1]),
        "control": control[0] if control else None,
        "runs": [row["run"] for row in rows],
        "arrivals": arrivals(rows),
        "faults": found,
        "also_in_control": shared,
        "control_not_told": unmatched,
        "not_told": missing,
        "split_tags": _sum(rows, "tags_split_n"),
        "tool_calls": _sum(rows, "tool_calls_n"),
    }
    entry["usable"] = "not_usable" if found else "not_told" if missing or unmatched else "usable"
    return entry


def _rows(experiment: Mapping[str, Any], variants: Iterable[str], tables: Tables) -> list[Row]:
    wanted = set(variants)
    return [
        row
        for name in experiment.get("runs") or []
        if (row := tables.runs.get(name)) is not None
        and row["variant"] in wanted
        and (row["validity"] != "invalid" or _reasons(row) <= _SHOWN_BY_STREAM)
    ]


def _reasons(row: Row) -> set[str]:
    return set(filter(None, (row["reasons"] or "").split(";")))


def _parsers(variants: Iterable[str], plan: Plan) -> set[str]:
    """think, tool: the parsers that every one of these variants has."""
    out = {"think", "tool"}
    for name in variants:
        told = ((plan.get("variants") or {}).get(name) or {}).get("canonical") or {}
        if not told.get("--reasoning-parser"):
            out.discard("think")
        if not told.get("--tool-call-parser"):
            out.discard("tool")
    return out


def arrivals(rows: Sequence[Row]) -> Entry:
    """How tokens arrive over the runs of an arm: kind, k with its share, time from step to step."""
    kinds = collections.Counter(row["burst_kind"] for row in rows if row["burst_kind"])
    if not kinds:
        return {"kind": None, "k": None, "share": None, "step_s": None}
    kind = kinds.most_common(1)[0][0]
    alike = [row for row in rows if row["burst_kind"] == kind]
    sizes = [
        (row["step_tokens_mode"], row["step_tokens_mode_share"])
        if row["step_tokens_mode"] is not None
        else (row["event_tokens_mode"], row["event_tokens_mode_share"])
        for row in alike
    ]
    known = [(k, share) for k, share in sizes if k is not None]
    k = collections.Counter(k for k, _share in known).most_common(1)[0][0] if known else None
    times = [row["step_s_p50"] for row in alike if row["step_s_p50"] is not None]
    return {
        "kind": kind,
        "k": k,
        "share": statistics.fmean(share for size, share in known if size == k) if known else None,
        "step_s": statistics.median(times) if times else None,
    }


def _faults(
    rows: Sequence[Row], beside: Sequence[Row], parsers: set[str], asked: set[str]
) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """What the arm's streams show and its control's do not; what they show as well; what they tell
    nothing of, by what they had to look at and the parsers (`asked`) of the control.
    """
    found: list[Entry] = []
    shared: list[Entry] = []
    unmatched: list[Entry] = []
    for code in FAULTS:
        n = _count(code, rows, parsers)
        if not n:
            continue
        of, of_control = (_sum(some, FAULTS[code][1]) for some in (rows, beside))
        control = _count(code, beside, asked) if of_control else None
        more = control == 0 or (control is not None and _more(code, n, of, control, of_control))
        kind = unmatched if control is None else found if more else shared
        kind.append({"code": code, "n": n, "control": control})
    return found, shared, unmatched


def _more(code: str, n: int, of: int | None, control: int, of_control: int | None) -> bool:
    """Is it more often in the arm than in its control, beyond chance? Of all the faults of two equally
    bad arms each has its part by what could have them.
    """
    if code in _IN_ONE_REPLY or not of or not of_control:
        return False
    part = of / (of + of_control)
    return bool(bdtrc(n - 1, n + control, part) < BY_CHANCE)


def _count(code: str, rows: Sequence[Row], parsers: set[str]) -> int | None:
    needs = {"think_leak": "think", "tool_leak": "tool", "broken_calls": "tool"}
    if code in needs and needs[code] not in parsers:
        return None  # nobody was to take the tags out
    if code == "step_ends":
        return sum(_by_rule(row) for row in rows)
    return _sum(rows, FAULTS[code][0])


def _by_rule(row: Row) -> bool:
    """Do more replies end with a step than chance would have it?"""
    k, n = row["step_tokens_mode"], row["stop_lengths_n"]
    if k is None or k < 2 or not n or row["stop_at_step_n"] != n:
        return False
    return bool(k ** -(n - 1.0) <= BY_CHANCE)


def _missing(rows: Sequence[Row], parsers: set[str]) -> list[str]:
    """Checks that had nothing to look at."""
    if not rows:
        return ["no_runs"]
    out = []
    if arrivals(rows)["kind"] is None:
        out.append("no_arrivals")
    if not _sum(rows, "stop_n"):
        out.append("no_own_end")
    if not _sum(rows, "text_told_n"):
        return [*out, "no_text"]
    ended = _sum(rows, "think_ended_n"), _sum(rows, "think_tags_n")
    called = _sum(rows, "tool_calls_n"), _sum(rows, "tool_tags_n")
    if "think" not in parsers:
        out.append("no_think_parser")
    elif not any(ended):
        out.append("no_think_end")
    if "tool" not in parsers:
        out.append("no_tool_parser")
    elif not any(called):
        out.append("no_tool_call")
    return out


def _sum(rows: Iterable[Row], name: str) -> int | None:
    values = [row[name] for row in rows if row[name] is not None]
    return sum(values) if values else None
