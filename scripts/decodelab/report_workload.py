"""What a workload asks of the server beside its length, in words: two workloads that differ in what
is sent must not read alike.

In: `Findings`, an arm and the catalogue. Out: one clause after another, each with its comma; what is
at its default is not told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from decodelab import numbers
from decodelab.findings import Arm, Findings
from decodelab.markdown import Md
from decodelab.words import Words

_SWITCHES = {"enable_thinking", "thinking"}  # what `thinking: on` and `off` set, both to one value
_SAID_BY_NAME = ("continuous_usage_stats", "return_token_ids", "cross_check")


def asked(findings: Findings, arm: Arm, words: Words) -> Md:
    digest = findings.planned[arm.names[0]].get("run")
    point = (findings.plan.get("points") or {}).get(digest) or {}
    content = (findings.plan.get("scenarios") or {}).get(point.get("scenario")) or {}
    parts = [*_arrival(point, words), *_prompt(content, words), *_output(point, words)]
    parts += _measuring(point, words)
    return Md("".join(parts))


def _arrival(point: Mapping[str, Any], words: Words) -> list[Md]:
    parts = []
    if point.get("rate"):
        rate, arrivals = numbers.plain("rate", point["rate"]), point.get("arrivals") or "poisson"
        parts.append(words.say("setup.open_loop", rate=rate, arrivals=arrivals))
    if point.get("cache"):
        parts.append(words.say("setup.cache", cache=point["cache"]))
    if point.get("warmup"):
        parts.append(words.say_n("setup.warmup", int(point["warmup"])))
    return parts


def _prompt(content: Mapping[str, Any], words: Words) -> list[Md]:
    parts = []
    if content.get("prompt_tokens"):
        parts.append(words.say("setup.prompt_tokens", n=str(content["prompt_tokens"])))
    if content.get("tools"):
        parts.append(words.say_n("setup.tools", len(content["tools"])))
    if content.get("tool_choice") is not None:
        parts.append(_set(words, "tool_choice", content["tool_choice"]))
    return parts + _template(content.get("chat_template_kwargs") or {}, words)


def _template(given: Mapping[str, Any], words: Words) -> list[Md]:
    """Thinking by its own name where both spellings of the switch say the same."""
    said = {given[name] for name in _SWITCHES if isinstance(given.get(name), bool)}
    parts = []
    if set(given) >= _SWITCHES and len(said) == 1:
        parts.append(words.say("setup.thinking_on" if said.pop() else "setup.thinking_off"))
        given = {name: value for name, value in given.items() if name not in _SWITCHES}
    return parts + ([_set(words, "chat_template_kwargs", given)] if given else [])


def _output(point: Mapping[str, Any], words: Words) -> list[Md]:
    parts = []
    if point.get("ignore_eos") is False:
        parts.append(words.say("setup.eos"))
    if point.get("min_tokens") is not None:
        parts.append(_set(words, "min_tokens", point["min_tokens"]))
    if point.get("extra_body"):
        parts.append(_set(words, "extra_body", point["extra_body"]))
    return parts


def _measuring(point: Mapping[str, Any], words: Words) -> list[Md]:
    """The client, what it asks for to count by, and what changes the prompts of a like workload."""
    parts = []
    if point.get("http") not in (None, "epoll"):
        parts.append(_set(words, "http", point["http"]))
    parts += [words.say("setup.also", name=name) for name in _SAID_BY_NAME if point.get(name)]
    if str(point.get("seed", 0)) != "0":
        parts.append(_set(words, "seed", point["seed"]))
    return parts


def _set(words: Words, name: str, value: Any) -> Md:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return words.say("setup.set", text=f"{name}={text}")
