"""A plan as a table for people: launches in queue order, their runs, and a forecast.

In: the document of a plan. Out: text, or seconds.
"""

from __future__ import annotations

from typing import Any

from decodelab import forecast

Plan = dict[str, Any]


def launch_seconds(plan: Plan, launch: dict[str, Any]) -> float:
    """First guess, by the host's own expectation."""
    return forecast.guess(plan, launch["host"]).launch_s(plan, launch)


def seconds(plan: Plan) -> float:
    """The whole study if nothing has been measured yet and nothing fails to start."""
    return sum(launch_seconds(plan, launch) for launch in plan["launches"])


def table(plan: Plan) -> str:
    rows = [f"study {plan['study']}, {plan['kind']}, {plan['source']}"]
    names = _names(plan)
    for launch in plan["launches"]:
        rows.append(_head(plan, launch))
        for run in launch["runs"]:
            known = names[launch["server"], launch["start"], run]
            rows.append(f"       {run}  {' = '.join(known)}")
    if not plan["launches"]:
        rows += [f"       {run['name']}" for run in plan["runs"]]
    starts = len(plan["launches"])
    runs = sum(len(launch["runs"]) for launch in plan["launches"])
    total = f"{starts} launches, {runs} runs, {len(plan['runs'])} names"
    return "\n".join([*rows, f"{total}; about {seconds(plan):.0f} s if all is measured"])


def _head(plan: Plan, launch: dict[str, Any]) -> str:
    words = [
        f"{launch['position']:>3}",
        launch["digest"],
        f"{' = '.join(launch['variants'])} start {launch['start']}",
        f"on {launch['host']}",
        f"{launch_seconds(plan, launch):.1f} s",
        f"[{', '.join(launch['experiments'])}]",
    ]
    return "  ".join(words + ([f"if {launch['when']['text']}"] if launch["when"] else []))


def _names(plan: Plan) -> dict[tuple[str, int, str], list[str]]:
    out: dict[tuple[str, int, str], list[str]] = {}
    for run in plan["runs"]:
        out.setdefault((run["server"], run["start"], run["run"]), []).append(run["name"])
    return out
