"""A profiled run against its unprofiled twin: what profiling costs, and whether it changes the output.

In: the runs of a profiled variant at one point, and those of its twin, by start number. Out: the
profile with its overhead and sameness, and the problems that these make.

Overhead: the time per token over that of the twin, minus 1: the geometric mean over the starts that
both made, since restarts alone scatter by some percent. In mode sync it is told and not held against
the profile, which states no shares anyhow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from decodelab import step_checks
from decodelab.step_table import Problem, Profile

OVERHEAD = 0.15  # in either direction: a profiled server that is faster was another one
# (column of runs.csv, 1: a time per token, -1: a rate)
_MEASURES = (("tpot_s_p50", 1), ("decode_rate_median", -1))


@dataclass(frozen=True)
class Made:
    """A run as far as its twin is concerned."""

    run: str
    start: int
    valid: bool
    figures: Mapping[str, float | None]  # of _MEASURES
    outputs: Mapping[int, str | None]  # by index of a successful request, its digest
    greedy: bool
    asked: tuple[Any, Any]  # what the prompts were made of


def made(run: Any, row: Mapping[str, Any]) -> Made:
    """Of a `records.Run` and its row of runs.csv."""
    told = run.record["run"]
    outputs = {request["index"]: request.get("output_sha256") for request in run.ok}
    return Made(
        run=run.planned["name"],
        start=run.planned["start"],
        valid=row["validity"] != "invalid",
        figures={name: row.get(name) for name, _ in _MEASURES},
        outputs=outputs,
        greedy=told.get("temperature") == 0,
        asked=(told.get("prompt_sha256"), told.get("seed")),
    )


def beside_twin(
    profile: Profile, mine: Made, arm: Sequence[Made], twin: str | None, twins: Sequence[Made]
) -> Profile:
    """`arm`: the profiled runs of this point, this one among them; `twins`: those of its twin."""
    cost = overhead(arm, twins)
    same, why = output(mine, twins)
    problems = []
    if cost is None:
        problems.append(Problem("no_twin", {"twin": twin}))
    elif profile.mode != "sync" and abs(cost["overhead"]) > OVERHEAD:
        problems.append(Problem("overhead", {**cost, "limit": OVERHEAD}))
    if why is not None:
        problems.append(Problem("output_not_compared", {"why": why, "twin": twin}))
    elif same is not None and same["same"] < same["compared"]:
        problems.append(Problem("output_differs", same))
    doubts = list(profile.doubts)
    if cost is not None and profile.mode == "sync":
        doubts.append(Problem("overhead_of_sync", cost))
    found = replace(
        profile,
        problems=(*profile.problems, *problems),
        doubts=tuple(doubts),
        overhead=cost,
        same_output=same,
    )
    return step_checks.final(found)


def overhead(arm: Sequence[Made], twins: Sequence[Made]) -> dict[str, Any] | None:
    """{profiled, twin, overhead, metric, launches}; the figures are means over the paired starts.
    None: no start was made by both, or they tell no figure of the same kind.
    """
    of = {one.start: one for one in twins if one.valid}
    pairs = [(one, of[one.start]) for one in arm if one.valid and one.start in of]
    for name, sign in _MEASURES:
        figures = [(a.figures.get(name), b.figures.get(name)) for a, b in pairs]
        known = [(a, b) for a, b in figures if a and b and a > 0 and b > 0]
        if known:
            logs = [sign * math.log(a / b) for a, b in known]
            return {
                "profiled": statistics.fmean(a for a, _ in known),
                "twin": statistics.fmean(b for _, b in known),
                "overhead": math.expm1(statistics.fmean(logs)),
                "metric": name,
                "launches": len(known),
            }
    return None


def output(mine: Made, twins: Sequence[Made]) -> tuple[dict[str, Any] | None, str | None]:
    """({same, compared, requests that differ}, None), or (None, why they were not compared)."""
    other = next((one for one in twins if one.start == mine.start), None)
    if other is None:
        return None, "no_twin"
    if not (mine.greedy and other.greedy):
        return None, "not_greedy"
    if mine.asked != other.asked:
        return None, "prompts_differ"
    both = [n for n in mine.outputs if mine.outputs[n] and other.outputs.get(n)]
    if not both:
        return None, "no_digest"
    unlike = [n for n in both if mine.outputs[n] != other.outputs[n]]
    return {"same": len(both) - len(unlike), "compared": len(both), "differ": unlike[:10]}, None
