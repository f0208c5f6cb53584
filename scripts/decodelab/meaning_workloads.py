"""Meaning of workloads: requests that can be sent. In: a Check. Out: mistakes added to it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from decodelab import flags, meaning_load, mistakes, variants, workloads

if TYPE_CHECKING:
    from decodelab.meaning import Check

# Fields of the request that have a key of their own, or none; the rest of extra_body passes.
_OWNED = {
    "model": "set server.model, or the flag --served-model-name",
    "messages": "set `prompt` of the workload",
    "stream": "the client always streams; it times every token",
    "max_tokens": "set `max_tokens` of the workload",
    "max_completion_tokens": "set `max_tokens` of the workload",
    "ignore_eos": "set `ignore_eos` of the workload",
    "tools": "set `tools` of the workload",
    "tool_choice": "set `tool_choice` of the workload",
    "chat_template_kwargs": "set `chat_template_kwargs` of the workload",
    "min_tokens": "set `min_tokens` of the workload",
    "return_token_ids": "set `return_token_ids` of the workload",
    "continuous_usage_stats": "set `continuous_usage_stats` of the workload",
}
# A run counts one answer a request.
_SEVERAL = ("n", "best_of")
_STREAM_OPTIONS = {
    "include_usage": "the client always asks for it; it counts the tokens",
    "continuous_usage_stats": "set `continuous_usage_stats` of the workload",
}
# No tokenizer puts more characters of a JSON schema into a token.
_CHARACTERS_A_TOKEN = 10
# As vLLM reads --max-model-len: 32k is 32000, 32K is 32768.
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def check(todo: Check) -> None:
    for name, entry in (todo.config.get("workloads") or {}).items():
        _workload(todo, name, entry)
        _extra_body(todo, name, entry)
        _under_way(todo, name, entry)
    meaning_load.check(todo)
    if todo.whole:
        pairs = _pairs(todo)
        _room(todo, pairs)
        if not todo.config.get("replay"):
            meaning_load.check_pairs(todo, pairs)


def _workload(todo: Check, name: str, entry: dict[str, Any]) -> None:
    path = ("workloads", name)
    prompt, tools = entry.get("prompt"), entry.get("tools")
    content: Any = {}
    read: Any = {}
    if not isinstance(prompt, dict):  # of a made-up one, the shape is all
        hint = mistakes.did_you_mean(prompt, workloads.SHIPPED)
        allowed = "short, tool, a file of the checkout, or {tokens: N}"
        content = _content(todo, (*path, "prompt"), prompt, allowed, hint, workloads.read_prompt)
    if tools is not None:
        allowed = "a number from 1 to 29, or a file"
        read = _content(todo, (*path, "tools"), tools, allowed, None, workloads.read_tools)
        if isinstance(prompt, dict) and read is not None:
            _tools_in_prompt(todo, name, prompt.get("tokens"), read["tools"])
    if todo.whole and content is not None and read is not None:
        _tool_choice(todo, name, entry.get("tool_choice"), content, read.get("tools"))


def _tool_choice(todo: Check, name: str, said: Any, content: dict[str, Any], tools: Any) -> None:
    """Without tools no choice of them is sent, and the run would be another one in nothing but its
    digest.
    """
    choice = said or content.get("tool_choice")
    if choice is None or tools or content.get("tools"):
        return
    todo.add(
        ("workloads", name, "tool_choice" if said else "prompt"),
        f'tool_choice "{choice}", but no tools',
        "tool_choice beside tools: those of `tools`, or of the prompt's file",
        "write tools: N, or leave tool_choice out",
    )


def _tools_in_prompt(todo: Check, name: str, tokens: int | None, tools: list[Any]) -> None:
    """A made-up prompt is sized with its tools, which may be longer than all of it should be."""
    characters = len(json.dumps(tools, ensure_ascii=False))
    least = characters // _CHARACTERS_A_TOKEN
    if tokens is not None and tokens < least:
        todo.add(
            ("workloads", name, "prompt", "tokens"),
            f"{tokens}, but its tools alone are {characters} characters",
            f"a number well above {least}: the length is that of the whole prompt, tools included",
            "ask for more tokens, or send fewer tools",
        )


def _content(
    todo: Check, path: mistakes.Path, given: Any, allowed: str, hint: str | None, read: Any
) -> Any:
    """What was read; None and a mistake where nothing can be."""
    try:
        return read(given, todo.root)
    except OSError as error:
        todo.add(
            path,
            f"{mistakes.shown(given)}: {(error.strerror or str(error)).lower()}",
            allowed,
            hint,
        )
    except (ValueError, KeyError) as error:
        todo.add(path, mistakes.shown(given), f"{allowed} ({mistakes.cut(str(error), 100)})", hint)
    return None


def _extra_body(todo: Check, name: str, entry: dict[str, Any]) -> None:
    path: mistakes.Path = ("workloads", name, "extra_body")
    extra = entry.get("extra_body") or {}
    for key in extra:
        allowed = "any field but " + ", ".join((*_OWNED, *_SEVERAL))
        if key in _OWNED:
            todo.add((*path, key), f"{key}, which the client sets itself", allowed, _OWNED[key])
        if key in _SEVERAL:
            found = f"{key}, which asks for several answers in one request"
            todo.add((*path, key), found, allowed, "one request is one answer: raise `requests`")
    options = extra.get("stream_options", {})
    path = (*path, "stream_options")
    if not isinstance(options, dict):
        todo.add(path, mistakes.shown(options), "a mapping")
        return
    for key in options:
        if key in _STREAM_OPTIONS:
            found = f"{key}, which the client sets itself"
            todo.add((*path, key), found, "any other option of the stream", _STREAM_OPTIONS[key])


def _under_way(todo: Check, name: str, entry: dict[str, Any]) -> None:
    """A run named c8 of which only two requests can ever be under way would mislead."""
    requests, given = entry.get("requests"), entry.get("concurrency")
    if requests is None:
        return
    path: mistakes.Path = ("workloads", name, "concurrency")
    points = list(enumerate(given)) if isinstance(given, list) else [(None, given)]
    for n, concurrency in points:
        if concurrency is not None and concurrency > requests:
            todo.add(
                path if n is None else (*path, n),
                f"{concurrency}, but the run has {requests} request{'s' if requests > 1 else ''}",
                f"a number up to `requests`, here {requests}: no more can be under way at once",
                f"set requests to {concurrency} or more, or lower the concurrency",
            )


# room for the answer


def _room(todo: Check, pairs: list[tuple[variants.Variant, str]]) -> None:
    """An answer that is as long as the server's whole context leaves no token for the prompt, one
    that is shorter none too many for a prompt of a known length.
    """
    told = set()
    for variant, load in pairs:
        entry, length = todo.config["workloads"][load], model_length(variant)
        wanted, prompt = entry["max_tokens"], entry["prompt"]
        if load in told or length is None:
            continue
        asked = prompt["tokens"] if isinstance(prompt, dict) else 1
        if wanted >= length:
            told.add(load)
            todo.add(
                ("workloads", load, "max_tokens"),
                f'{wanted}, but --max-model-len of "{variant.name}" is {length}',
                f"a number below {length}, which the prompt and the answer share",
            )
        elif asked + wanted > length:
            told.add(load)
            found = f'{asked} and an answer of {wanted}, but --max-model-len of "{variant.name}" is {length}'
            allowed = f"at most {length - wanted} beside max_tokens: {wanted}"
            todo.add(("workloads", load, "prompt", "tokens"), found, allowed)


def _pairs(todo: Check) -> list[tuple[variants.Variant, str]]:
    """Every variant with each of its workloads; names that do not exist are told elsewhere."""
    resolved, grids = variants.resolve(todo.config), variants.grids(todo.config)
    return [
        (resolved[name], load)
        for entry in todo.config["experiments"].values()
        for given, loads in entry["runs"].items()
        for name in grids.get(given, [given])
        for load in loads
        if name in resolved and load in todo.config["workloads"]
    ]


def model_length(variant: variants.Variant) -> int | None:
    """The variant's --max-model-len in tokens; None where it is not said or left to the engine."""
    given = flags.named(variant.flags, variant.engine).get("--max-model-len")
    read = re.fullmatch(r"(\d+)([kmgKMG]?)", str(given))
    return int(read[1]) * _UNITS[read[2]] if read else None
