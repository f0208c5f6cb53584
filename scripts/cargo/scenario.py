"""Scenario and salt: what a run asks for.

In:  a scenario (`short`, `tool`, or a JSON file) and a seed.
Out: its messages with the salt; a digest of its content.

The salt is a line of fixed length derived from the seed. It opens the first message as a system
message, which chat templates render before the tools, so it lies in the first block of the prompt:
two runs with different seeds share no prefix. It is digits only, so that tokenizers which take
digits one by one or three by three see the same number of tokens for every seed.
"""

from __future__ import annotations

import hashlib
import json
import pkgutil
from typing import Any, Dict, List

SHIPPED = ("short", "tool")  # files of scenarios/
_KEYS = ("name", "messages", "prompt_tokens", "tools", "tool_choice", "chat_template_kwargs")
_NO_SALT = "Run."


class ScenarioError(ValueError):
    """The scenario or the extra body cannot be used; the message says why."""


def strict_json(text: str) -> Any:
    """JSON that can be sent: no NaN, no Infinity, nothing that is no UTF-8. Raises ValueError."""
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("nested too deep") from None
    return found


def load(name: str) -> Dict[str, Any]:
    """A shipped scenario by its name, or a JSON file by its path."""
    try:
        if name in SHIPPED:  # through the loader: the client may lie in a zip
            text = pkgutil.get_data("cargo", f"scenarios/{name}.json") or b""
        else:
            with open(name, "rb") as handle:
                text = handle.read()
        found = strict_json(text.decode("utf-8"))
    except OSError as problem:
        known = ", ".join(SHIPPED)
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
    if "prompt_tokens" in scenario:
        _check_size(scenario, where)
    else:
        _check_messages(scenario, where)
    tools = scenario.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise ScenarioError(f"scenario {where!r}: tools: a list or null expected")
    return scenario


def _check_messages(scenario: Dict[str, Any], where: str) -> None:
    messages = scenario.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ScenarioError(f"scenario {where!r}: messages: a list with a message expected")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or "role" not in message:
            raise ScenarioError(f"scenario {where!r}: messages[{number}]: an object with a role")


def _check_size(scenario: Dict[str, Any], where: str) -> None:
    tokens = scenario["prompt_tokens"]
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise ScenarioError(f"scenario {where!r}: prompt_tokens: a number from 1 expected")
    if scenario.get("messages") is not None:
        raise ScenarioError(f"scenario {where!r}: messages and prompt_tokens exclude each other")


def salt(seed: str) -> str:
    """A line of fixed length that differs for each seed."""
    number = int.from_bytes(hashlib.sha256(seed.encode("utf-8")).digest()[:8], "big")
    return f"Run {number % 10**12:012d}."


def salted(messages: List[Dict[str, Any]], line: str) -> List[Dict[str, Any]]:
    """The messages with this line at their very start."""
    first = messages[0]
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [dict(first, content=f"{line}\n{first['content']}"), *messages[1:]]
    return [{"role": "system", "content": line}, *messages]


def digest(scenario: Dict[str, Any]) -> str:
    """Of everything that is asked but the salt: equal for arms that were asked the same."""
    asked = {name: scenario.get(name) for name in ("tools", "tool_choice", "chat_template_kwargs")}
    asked["messages"] = salted(scenario["messages"], _NO_SALT)
    text = json.dumps(asked, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
