"""What is decided, as lines for a terminal: which experiments go on, which do not, and why.

In: the plan, choices. Out: text. The report has its own words, in two languages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from decodelab import decisions, forecast
from decodelab.decisions import Choice

Plan = Mapping[str, Any]


def line(name: str, choice: Choice, to_be_decided: Collection[str] = ()) -> str:
    """One experiment and what became of it. `to_be_decided`: all of theirs is measured."""
    if not choice.when:
        return f"{name}: waits for nothing"
    above, asked = choice.when["experiment"], choice.when["text"]
    why = {
        "met": f"{above} is {choice.verdict}",
        "not_met": f"{above} is {choice.verdict or 'without a verdict'}",
        "other_cause": f"{above} is {choice.verdict} for another cause",
        "not_chosen": f"{above} is not chosen itself",
        "undecided": f"{above} is undecided itself",
        "waiting": f"{above} is to be decided from what is measured already"
        if above in to_be_decided
        else f"{above} has no verdict yet",
        "invalid": f"{above} is invalid, which decides nothing; "
        f"see to the cause, then `--config retry={above}` measures it again",
    }[str(choice.why)]
    return f"{name}: {choice.state.replace('_', ' ')}: {why} (when: {asked})"


def lines(plan: Plan, made: Mapping[str, Choice], to_be_decided: Collection[str] = ()) -> list[str]:
    """One for each experiment behind a `when:`, with what its branch costs if it is measured whole."""
    return [
        f"{line(name, choice, to_be_decided)}: {cost(plan, name)}"
        for name, choice in made.items()
        if choice.when
    ]


def cost(plan: Plan, experiment: str) -> str:
    """What only experiments behind a `when:` want of this one's launches, by the host's own expectation."""
    mine = [x for x in plan["launches"] if x["when"] and experiment in x["experiments"]]
    if not mine:
        return "no launch of its own"
    seconds = sum(forecast.guess(plan, x["host"]).launch_s(plan, x) for x in mine)
    launches = "1 launch" if len(mine) == 1 else f"{len(mine)} launches"
    return f"{launches}, about {forecast.words(seconds)}"


def kept_back(plan: Plan, made: Mapping[str, Choice], state: str) -> int:
    """How many launches are not chosen, or undecided."""
    return list(decisions.launch_states(plan, made).values()).count(state)
