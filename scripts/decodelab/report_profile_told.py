"""What is wrong or doubtful about a profile, in words: each code has a sentence with its figures and what to do.

In: `step_table.Problem`s and the catalogue (through `step_words`). Out: Markdown sentences. No code is lost, whoever
wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from decodelab import markdown, step_words
from decodelab.markdown import Md
from decodelab.step_table import Problem
from decodelab.words import Words


def sentences(kind: str, told: Iterable[Problem], words: Words) -> list[Md]:
    """`kind` is problem or doubt; each sentence once."""
    return list(dict.fromkeys(_sentence(kind, one, words) for one in told))


def _sentence(kind: str, problem: Problem, words: Words) -> Md:
    keys, figures = step_words.keys(kind, problem, words)
    wanted = {name for key in keys for name in words.wants(key)}
    shown = {name: figure(name, figures.get(name), words) for name in {*wanted, *figures}}
    text = Md(words.plain("profile.gap").join(words.say(key, **shown) for key in keys))
    rest = {name: shown[name] for name in step_words.left(figures, wanted)}
    return (
        text if not rest else words.say("profile.more_figures", text=text, rest=_rest(rest, words))
    )


def _rest(figures: Mapping[str, Md], words: Words) -> Md:
    items = [words.say("profile.figure", name=name, value=value) for name, value in figures.items()]
    return markdown.joined(items, words.say("sentence.comma"))


def figure(name: str, value: Any, words: Words) -> Md:
    """As `step_words.figure`, names and messages as code."""
    return Md(step_words.figure(name, value, words, markdown.code))
