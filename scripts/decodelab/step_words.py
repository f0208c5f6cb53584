"""What is wrong or doubtful about a profile in plain words, for verdicts and the command line; and the reasons of
verdicts that profiles give.

In: a `Problem` and the catalogue, which holds the sentence of every code once, for the report too. Out: text. A figure
that the sentence has no place for is appended, one that it wants and nobody gave is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from decodelab import numbers
from decodelab.step_table import Problem
from decodelab.words import Words

TEXTS: dict[str, tuple[str, str]] = {
    "no_profile": (
        "{variant} 的运行没有 profile：{runs}",
        "these runs of {variant} were not profiled: {runs}",
    ),
    "profile_invalid": ("{run} 的 profile 无效：{why}", "the profile of {run} is invalid: {why}"),
    "profile_sync": (
        "{run} 的 profile 是 sync 模式：只能给区域排序，不能给出占比和时间",
        "{run} was profiled in mode sync, which orders regions and tells no share or time of them",
    ),
    "profiling_differs": (
        "只有 {variant} 插桩，两组还有别的不同：profiling 本身最多使速度慢 15%，不可比；请与 {twin} 比较，或两组都插桩",
        "{variant} alone is profiled, and the arms differ in more than that: profiling may cost up to"
        " 15%; compare with {twin}, or profile both",
    ),
    "profiling_compared": (
        "两组只差 profiling：这里的效应就是 {variant} 的 profiling 开销",
        "the arms differ in profiling only: the effect is what profiling costs in {variant}",
    ),
    "profiled": (
        "存疑：{variants} 是插桩的，其速率含 profiling 开销（{cost}）",
        "a doubt: {variants} is profiled, so its rates hold what profiling costs ({cost})",
    ),
}  # fmt: skip
_CHANGES = ("closure", "overhead")  # with their sign
_SHARES = ("spread", "limit", "share")
_SAID = ("complete", "profiled", "twin", "metric", "launches")  # by the code itself, or beside it
_ENDS = ".。"


def keys(kind: str, problem: Problem, words: Words) -> tuple[list[str], dict[str, Any]]:
    """The catalogue's texts of a code (`kind` is problem or doubt): what is, and what to do; and their figures."""
    key = f"profile.{kind}.{problem.code}"
    if key not in words:
        return [f"profile.{kind}.other"], {"code": problem.code, **problem.figures}
    remedy = f"profile.remedy.{problem.code}"
    return [key, *([remedy] if kind == "problem" and remedy in words else [])], problem.figures


def left(figures: Mapping[str, Any], wanted: set[str]) -> list[str]:
    """Figures that no text has a place for."""
    return [n for n, v in figures.items() if n not in wanted and n not in _SAID and v is not None]


def fact(problem: Problem, words: Words) -> str:
    """What makes a profile invalid, as a clause: neither a sentence's end nor what to do about it."""
    text = _plain(keys("problem", problem, words)[0][0], problem, words).rstrip(_ENDS)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def sentence(kind: str, problem: Problem, words: Words) -> str:
    """All that is to be said of it."""
    told, figures = keys(kind, problem, words)
    text = words.plain("profile.gap").join(_plain(key, problem, words) for key in told)
    more = left(figures, {name for key in told for name in words.wants(key)})
    if not more:
        return text
    rest = [f"{name} {figure(name, figures[name], words)}" for name in more]
    said = words.plain("sentence.comma").join(rest)
    return words.plain("profile.more_figures", text=text, rest=said)


def _plain(key: str, problem: Problem, words: Words) -> str:
    figures = {"code": problem.code, **problem.figures}
    shown = {name: figure(name, figures.get(name), words) for name in words.wants(key)}
    return words.plain(key, **shown)


def figure(name: str, value: Any, words: Words, quoted: Callable[[str], str] = str) -> str:
    """A figure by its name: `*_ms` in milliseconds, a closure and an overhead with their sign; `quoted` shows what
    is no figure but a name or a message.
    """
    if name == "why" and f"profile.why.{value}" in words:
        return words.plain(f"profile.why.{value}")
    if isinstance(value, list | tuple):
        items = [figure("", item, words, quoted) for item in value]
        return words.plain("sentence.comma").join(items) or numbers.DASH
    if isinstance(value, bool) or not isinstance(value, int | float):
        return numbers.DASH if value is None else quoted(str(value))
    return _number(name, value)


def _number(name: str, value: float) -> str:
    if name.endswith("_ms"):
        return numbers.milliseconds(value / 1000.0)
    if name.endswith(_CHANGES):
        return numbers.effect(value)
    if name.endswith(_SHARES):
        return numbers.size(value)
    return numbers.per_step(value)
