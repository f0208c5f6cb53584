"""A region's share or time as the metric of a question.

In: the question (`region`) and the tables with their profiles. Out: the tables with that figure as
a column of each profiled run, so that launches and the kinds of question take it like any other; and
what forbids to use it: a run that was not profiled, whose profile is invalid, or is of mode sync.

Also: what profiling does to every other figure. A profiled arm is slower, so its rates are compared
with an unprofiled arm's only where profiling is the whole difference, and otherwise told as such.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from decodelab import given_profiles, reasons, step_shares, step_words, words
from decodelab.tables import Row, Tables
from decodelab.vocabulary import REGION_METRICS

if TYPE_CHECKING:
    from decodelab.arms import Arm
    from decodelab.step_table import Profile, Region

_COLUMNS = {"region_share": "share", "region_ms": "ms_p50"}
_UNTOUCHED = ("success_rate", "cache_hit")  # by how fast a server is
Reason = dict[str, str]


def tables_for(question: Mapping[str, Any], tables: Tables) -> Tables:
    """The tables with the question's metric in the rows of its runs."""
    metric = question.get("metric")
    if metric not in REGION_METRICS:
        return tables
    rows = {name: _with(row, question, tables) for name, row in tables.runs.items()}
    return replace(tables, runs=rows)


def _with(row: Row, question: Mapping[str, Any], tables: Tables) -> Row:
    profile = tables.profiles.get(row["run"])
    found = region(profile, str(question.get("region"))) if profile is not None else None
    if profile is None or found is None or not profile.states_shares:
        return row
    return {**row, question["metric"]: getattr(found, _COLUMNS[question["metric"]])}


def region(profile: Profile, name: str, phase: str = "decode") -> Region | None:
    table = profile.table(phase)
    return next((r for r in table.regions if r.region == name), None) if table else None


def unusable(arm: Arm, tables: Tables) -> list[Reason]:
    """Why no figure of a region can be had from this arm; one bad profile spoils it, as a bad run does."""
    if arm.metric not in REGION_METRICS:
        return []
    without = [row["run"] for row in arm.rows if row["run"] not in tables.profiles]
    if without:
        return [reasons.reason("no_profile", variant=arm.variant, runs=", ".join(without))]
    return [why for row in arm.rows if (why := invalid(row["run"], tables.profiles[row["run"]]))]


def invalid(run: str, profile: Profile) -> Reason | None:
    """Why the profile states no shares; None: it does."""
    if profile.problems:
        zh, en = step_words.TEXTS["profile_invalid"]
        return {
            "code": "profile_invalid",
            "zh": zh.format(run=run, why=_whys(profile, "zh")),
            "en": en.format(run=run, why=_whys(profile, "en")),
        }
    return reasons.reason("profile_sync", run=run) if profile.mode == "sync" else None


def _whys(profile: Profile, language: str) -> str:
    told = words.load(language)
    return told.plain("sentence.semicolon").join(step_words.fact(p, told) for p in profile.problems)


def mismatch(base: Arm, cand: Arm, plan: Mapping[str, Any]) -> list[Reason]:
    """One arm profiled and the other not (or in another way), and that is not all they differ in."""
    if base.metric in (*REGION_METRICS, *_UNTOUCHED):
        return []
    a, b = (_variant(plan, arm) for arm in (base, cand))
    if a.get("profile") == b.get("profile") or _twins(base, cand, plan):
        return []
    mine, other = (cand, b) if b.get("profile") else (base, a)
    twin = other.get("twin") or "-"
    return [reasons.reason("profiling_differs", variant=mine.variant, twin=twin)]


def said(arms: Collection[Arm], plan: Mapping[str, Any], tables: Tables) -> list[Reason]:
    """That profiled servers are in it, where their speed is what was asked for."""
    metric = next((arm.metric for arm in arms), "")
    mine = {arm.variant: arm for arm in arms if _variant(plan, arm).get("profile")}
    if not mine or metric in (*REGION_METRICS, *_UNTOUCHED):
        return []
    pair = list(arms)
    if len(pair) == 2 and _twins(pair[0], pair[1], plan):
        return [reasons.reason("profiling_compared", variant=next(iter(mine)))]
    costs = {
        f"{profile.overhead['overhead']:+.1%}"
        for arm in mine.values()
        for row in arm.rows
        if (profile := tables.profiles.get(row["run"])) and profile.overhead
    }
    cost = ", ".join(sorted(costs)) or "?"
    return [reasons.reason("profiled", variants=", ".join(mine), cost=cost)]


def _twins(base: Arm, cand: Arm, plan: Mapping[str, Any]) -> bool:
    """Whether one is the other without the profiler, under whichever name."""
    servers = {arm.variant: _variant(plan, arm).get("server") for arm in (base, cand)}
    for one, other in ((base, cand), (cand, base)):
        twin = _variant(plan, one).get("twin")
        server = (plan["variants"].get(twin) or {}).get("server")
        if twin is not None and (twin == other.variant or server == servers[other.variant]):
            return server is not None or twin == other.variant
    return False


def _variant(plan: Mapping[str, Any], arm: Arm) -> Mapping[str, Any]:
    found: Mapping[str, Any] = plan["variants"].get(arm.variant) or {}
    return found


def declared_profiles(plan: Mapping[str, Any], tables: Tables) -> dict[str, dict[str, Any]]:
    """The plan's `profiles` with their shares: a file's, or the mean over the starts of the study's own runs.
    `why`: the code of what makes them unknown, with `problems` in words."""
    declared = plan.get("profiles") or {}
    return {
        name: {
            **entry,
            **(_of_file(name, entry, tables) if entry.get("file") else _measured(entry, tables)),
        }
        for name, entry in declared.items()
    }


def _of_file(name: str, entry: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    profile = tables.given.get(name)
    if profile is None:
        return {"shares": None, "why": "no_profile"}
    if wrong := invalid(name, profile):
        unread = profile.source == given_profiles.UNREAD
        why = "profile_unreadable" if unread else wrong["code"]
        return {"shares": None, "why": why, "problems": [wrong]}
    try:
        return {"shares": step_shares.of_profile(profile, entry.get("phase") or "decode")}
    except ValueError:
        return {"shares": None, "why": "profile_no_shares"}


def _measured(entry: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    there = [name for name in entry.get("runs") or () if name in tables.runs]
    found = {name: tables.profiles[name] for name in there if name in tables.profiles}
    if not found:
        return {"shares": None, "why": "no_profile"}
    wrong = [why for name, one in found.items() if (why := invalid(name, one))]
    if wrong:
        return {"shares": None, "why": wrong[0]["code"], "problems": wrong}
    tables_of = [one.table(entry.get("phase") or "decode") for one in found.values()]
    parts = [{r.region: r.share for r in one.regions} for one in tables_of if one is not None]
    names = {name for part in parts for name in part if name != "unattributed"}
    shares = {name: sum(p.get(name) or 0.0 for p in parts) / len(parts) for name in names}
    return {"shares": shares or None, **({} if shares else {"why": "no_profile"})}
