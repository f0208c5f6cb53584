"""Scenario and salt: what a request asks for, as the JSON body that is sent.

In:  a scenario (`short`, `tool`, or a JSON file), the model, limits and extra keys.
Out: the body's bytes; the same for every request of a run.

The salt is a line of fixed length derived from the seed. It opens the first message as a system
message, which chat templates render before the tools, so it lies in the first block of the prompt:
two runs with different seeds share no prefix. It is digits only, so that tokenizers which take
digits one by one or three by three see the same number of tokens for every seed.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, List, Optional

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios")
_RESERVED = ("messages", "model", "stream", "max_tokens")
_KEYS = ("name", "messages", "tools", "tool_choice", "chat_template_kwargs")


class ScenarioError(ValueError):
    """The scenario or the extra body cannot be used; the message says why."""


def shipped() -> List[str]:
    return sorted(name[:-5] for name in os.listdir(FOLDER) if name.endswith(".json"))


def load(name: str) -> Dict[str, Any]:
    """A shipped scenario by its name, or a JSON file by its path."""
    path = os.path.join(FOLDER, f"{name}.json") if name in shipped() else name
    try:
        with open(path, encoding="utf-8") as handle:
            found = json.load(handle)
    except OSError as problem:
        known = ", ".join(shipped())
        raise ScenarioError(f"scenario {name!r}: {problem.strerror} (shipped: {known})") from None
    except ValueError as problem:
        raise ScenarioError(f"scenario {name!r}: not JSON: {problem}") from None
    return check(found, name)


def check(scenario: Any, where: str) -> Dict[str, Any]:
    """The scenario itself, when it has the right shape."""
    if not isinstance(scenario, dict):
        raise ScenarioError(f"scenario {where!r}: a JSON object expected")
    unknown = sorted(set(scenario) - set(_KEYS))
    if unknown:
        allowed = ", ".join(_KEYS)
        raise ScenarioError(f"scenario {where!r}: unknown key {unknown[0]!r} (allowed: {allowed})")
    messages = scenario.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ScenarioError(f"scenario {where!r}: messages: a list with a message expected")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or "role" not in message:
            raise ScenarioError(f"scenario {where!r}: messages[{number}]: an object with a role")
    tools = scenario.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise ScenarioError(f"scenario {where!r}: tools: a list or null expected")
    return scenario


def salt(seed: str) -> str:
    """A line of fixed length that differs for each seed."""
    number = int.from_bytes(hashlib.sha256(seed.encode("utf-8")).digest()[:8], "big")
    return f"Run {number % 10**12:012d}."


def salted(messages: List[Dict[str, Any]], seed: Optional[str]) -> List[Dict[str, Any]]:
    """The messages with the salt at their very start; unchanged without a seed."""
    if seed is None:
        return messages
    line = salt(seed)
    first = messages[0]
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [dict(first, content=f"{line}\n{first['content']}"), *messages[1:]]
    return [{"role": "system", "content": line}, *messages]


def request_body(
    scenario: Dict[str, Any],
    model: str,
    max_tokens: int,
    seed: Optional[str],
    temperature: float = 0.0,
    ignore_eos: bool = True,
    extra_body: Optional[Dict[str, Any]] = None,
) -> bytes:
    """The JSON body of every request of the run."""
    extra = dict(extra_body or {})
    for key in _RESERVED:
        if key in extra:
            raise ScenarioError(f"extra body: {key!r} is set by the client itself")
    options = extra.pop("stream_options", {})
    if not isinstance(options, dict):
        raise ScenarioError("extra body: stream_options: an object expected")
    body: Dict[str, Any] = {
        "model": model,
        "messages": salted(scenario["messages"], seed),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stream": True,
        "stream_options": dict(options, include_usage=True),
    }
    if ignore_eos:
        body["ignore_eos"] = True
    if scenario.get("tools"):
        body["tools"] = scenario["tools"]
        if scenario.get("tool_choice") is not None:
            body["tool_choice"] = scenario["tool_choice"]
    if scenario.get("chat_template_kwargs"):
        body["chat_template_kwargs"] = scenario["chat_template_kwargs"]
    body.update(extra)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
