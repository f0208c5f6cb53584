"""A plan as a table for people: launches in queue order, their runs, and a forecast.

In: the document of a plan. Out: text, or seconds.
"""

from __future__ import annotations

from typing import Any

from decodelab import decision_words, forecast

Plan = dict[str, Any]


def launch_seconds(plan: Plan, launch: dict[str, Any]) -> float:
    """First guess, by the host's own expectation."""
    return forecast.guess(plan, launch["host"]).launch_s(plan, launch)


def seconds(plan: Plan) -> float:
    """All that waits for no verdict, if nothing has been measured yet and nothing fails to start."""
    return sum(launch_seconds(plan, launch) for launch in plan["launches"] if not launch["when"])


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
    return "\n".join([*rows, *_totals(plan)])


def _totals(plan: Plan) -> list[str]:
    certain = [launch for launch in plan["launches"] if not launch["when"]]
    counts = f"{len(certain)} launches, {sum(len(launch['runs']) for launch in certain)} runs"
    about = f"about {seconds(plan):.0f} s if all is measured"
    if len(certain) == len(plan["launches"]):
        return [f"{counts}, {len(plan['runs'])} names; {about}", *_waiting(plan)]
    return [f"{counts} in any case; {about}", *_waiting(plan)]


def _waiting(plan: Plan) -> list[str]:
    """What each experiment behind a `when:` adds, if it comes to that."""
    return [
        f"{name}, if {entry['when']['text']}: {decision_words.cost(plan, name)}"
        for name, entry in plan["experiments"].items()
        if entry["when"] and not plan["replay"]
    ]


def _head(plan: Plan, launch: dict[str, Any]) -> str:
    words = [
        f"{launch['position']:>3}",
        launch["digest"],
        f"{' = '.join(launch['variants'])} start {launch['start']}",
        f"on {launch['host']}",
        f"{launch_seconds(plan, launch):.1f} s",
        f"[{', '.join(launch['experiments'])}]",
    ]
    return "  ".join(words + _condition(launch))


def _condition(launch: dict[str, Any]) -> list[str]:
    whens = launch["when"] or []
    return ["if " + " or ".join(when["text"] for when in whens)] if whens else []


def _names(plan: Plan) -> dict[tuple[str, int, str], list[str]]:
    out: dict[tuple[str, int, str], list[str]] = {}
    for run in plan["runs"]:
        out.setdefault((run["server"], run["start"], run["run"]), []).append(run["name"])
    return out
