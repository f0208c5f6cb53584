"""What is wrong or doubtful about a profile, in words: each code has a sentence with its figures and what to do.

In: `step_table.Problem`s and the catalogue. Out: Markdown sentences. A figure that the sentence has no place for is
appended, one that it wants and nobody gave is a dash: no code is lost, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from decodelab import markdown, numbers
from decodelab.markdown import Md
from decodelab.step_table import Problem
from decodelab.words import Words

_CHANGES = ("closure", "overhead")  # with their sign
_SHARES = ("spread", "limit", "share")
_SAID = ("complete", "profiled", "twin", "metric", "launches")  # by the code itself, or beside it


def sentences(kind: str, told: Iterable[Problem], words: Words) -> list[Md]:
    """`kind` is problem or doubt; each sentence once."""
    return list(dict.fromkeys(_sentence(kind, one, words) for one in told))


def _sentence(kind: str, problem: Problem, words: Words) -> Md:
    figures = dict(problem.figures)
    key = f"profile.{kind}.{problem.code}"
    if key not in words:
        key, figures = f"profile.{kind}.other", {"code": problem.code, **figures}
    wanted = words.wants(key)
    shown = {name: figure(name, value, words) for name, value in figures.items()}
    text = words.say(key, **{name: shown.get(name, numbers.DASH) for name in wanted})
    left = [name for name in shown if name not in wanted and name not in _SAID]
    rest = {name: shown[name] for name in left if figures[name] is not None}
    return (
        text if not rest else words.say("profile.more_figures", text=text, rest=_rest(rest, words))
    )


def _rest(figures: Mapping[str, Md], words: Words) -> Md:
    items = [words.say("profile.figure", name=name, value=value) for name, value in figures.items()]
    return markdown.joined(items, words.say("sentence.comma"))


def figure(name: str, value: Any, words: Words) -> Md:
    """A figure by its name: `*_ms` in milliseconds, a closure and an overhead with their sign."""
    if name == "why" and f"profile.why.{value}" in words:
        return words.say(f"profile.why.{value}")
    if isinstance(value, list | tuple):
        items = [figure("", item, words) for item in value]
        return markdown.joined(items, words.say("sentence.comma")) if items else Md(numbers.DASH)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Md(numbers.DASH) if value is None else markdown.code(str(value))
    return Md(_number(name, value))


def _number(name: str, value: float) -> str:
    if name.endswith("_ms"):
        return numbers.milliseconds(value / 1000.0)
    if name.endswith(_CHANGES):
        return numbers.effect(value)
    if name.endswith(_SHARES):
        return numbers.size(value)
    return numbers.per_step(value)
