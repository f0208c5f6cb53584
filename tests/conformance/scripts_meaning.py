"""Scripts of rows about what events mean: tokens in an event, keys of a delta, shapes of a chunk.

In:  nothing. Out: functions that give a list of steps each.
"""

from __future__ import annotations

import json
from typing import Any

from .scripted_server import Step
from .scripts import tail, tool_call
from .speech import DONE, ROLE, TOKENS, WORDS, chunk, event, plain_events, steps, usage, usage_chunk

NULL_KEYS = dict.fromkeys(
    ("content", "reasoning", "reasoning_content", "refusal", "audio", "function_call", "tool_calls")
)
WHITE = [" ", "\n", "\t", "\r\n", "\u00a0", "\u2003", "\u200b", "\ufeff"] * 2


def has_text(value: Any) -> bool:
    """Whether text stands in a delta anywhere but in its role."""
    if isinstance(value, dict):
        return any(has_text(inner) for key, inner in value.items() if key != "role")
    if isinstance(value, list):
        return any(map(has_text, value))
    return isinstance(value, str) and bool(value)


def with_pings() -> list[tuple[bytes, int]]:
    """A plain stream with an empty event behind every event."""
    return [pair for one in plain_events() for pair in (one, (b"data:\n\n", 0))]


def empty_finish(whole: bool) -> list[tuple[bytes, int]]:
    """`finish_reason` is "" in every chunk but, where the stream is whole, in the last."""
    found = [(event(chunk({"content": word}, "")), 1) for word in WORDS]
    if not whole:
        return found
    last = (chunk({}, "length"), usage_chunk(), DONE)
    return [*found, *((event(text), 0) for text in last)]


def deltas(
    each: list[dict[str, Any]], tokens: int = TOKENS, ascii_only: bool = False
) -> list[Step]:
    """A stream of these deltas, then a finish event, usage and [DONE]."""
    found = [(event(ROLE), 0)]
    for delta in each:
        text = chunk(delta)
        text = json.dumps(json.loads(text)) if ascii_only else text
        found.append((event(text), int(has_text(delta))))
    last = [(event(chunk({}, "length")), 0), (event(usage_chunk(tokens)), 0), (event(DONE), 0)]
    return steps([*found, *last])


def bursts(sizes: list[int], usage: bool = False, ids: bool = False) -> list[Step]:
    """Events of several tokens each, whose number the stream tells in one way or in both."""
    found = [_burst({"role": "assistant", "content": ""}, 0, 0, usage, False)]
    sent = 0
    for size in sizes:
        sent += size
        found.append(_burst({"content": "x" * size}, size, sent, usage, ids))
    return steps([*found, *tail()])


def _burst(
    delta: dict[str, Any], size: int, sent: int, with_usage: bool, with_ids: bool
) -> tuple[bytes, int]:
    more: dict[str, Any] = {"usage": usage(sent)} if with_usage else {}
    if with_ids:
        more["choice_token_ids"] = list(range(size))
    return event(chunk(delta, "length" if sent == TOKENS else None, **more)), int(size > 0)


def swallowed() -> list[Step]:
    """Running usage; a first token without text in an empty delta, so the first text is a fourth."""
    found = [_burst({"role": "assistant", "content": ""}, 0, 0, True, False)]
    found.append((event(chunk({"content": ""}, usage=usage(1))), 0))
    found += [
        _burst({"content": "x"}, size, sent, True, False)
        for size, sent in ((3, 4), (2, 6), (10, 16))
    ]
    return steps([*found, *tail()])


def as_vllm_032(ids: bool = False) -> list[Step]:
    """Keys that are null, reasoning under its new name, details in usage; with token ids two of the
    tokens have no text and so an event of their own."""
    role = chunk({"role": "assistant", "content": ""}, choice_logprobs=None)
    more: dict[str, Any] = {"prompt_token_ids": [5, 7, 9] if ids else None, "prompt_text": None}
    found = [(event(json.dumps({**json.loads(role), **more})), 0)]
    for number, word in enumerate(WORDS):
        silent = ids and number in (4, 9)
        last = number == TOKENS - 1
        keys = {"choice_logprobs": None, "choice_token_ids": [number] if ids else None}
        if last:
            keys["choice_stop_reason"] = None
        delta = {} if silent else {"reasoning": word}
        found.append((event(chunk(delta, "length" if last else None, **keys)), int(not silent)))
    counts = {
        "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": TOKENS},
    }
    return steps([*found, (event(usage_chunk(**counts)), 0), (event(DONE), 0)])


def two_tool_calls() -> dict[str, Any]:
    calls = [tool_call(number, arguments="{")["tool_calls"][0] for number in (0, 1)]
    return {"tool_calls": calls}


def logprobs(silent: int = 0) -> list[Step]:
    """Log probabilities beside each text, minus infinity among them; the first tokens may be silent."""
    found = [(event(ROLE), 0)]
    for number, word in enumerate(WORDS):
        odds = {"content": [{"token": word, "logprob": -float("inf"), "top_logprobs": []}]}
        delta = {"content": "" if number < silent else word}
        finish = "length" if number == TOKENS - 1 else None
        text = event(chunk(delta, finish, choice_logprobs=odds))
        found.append((text, int(number >= silent)))
    return steps([*found, *tail()])


def two_choices(together: bool = False) -> list[Step]:
    """n = 2: usage counts the tokens of both."""

    def choice(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "finish_reason": finish}

    def told(*choices: dict[str, Any]) -> bytes:
        return event(json.dumps({"id": "c1", "choices": choices}))

    role = {"role": "assistant", "content": ""}
    if together:
        found = [(told(choice(0, role), choice(1, role)), 0)]
        for number, word in enumerate(WORDS[:8]):
            end = "length" if number == 7 else None
            text = {"content": word}
            found.append((told(choice(0, text, end), choice(1, text, end)), 1))
        return steps([*found, *tail()])
    found = [(told(choice(index, role)), 0) for index in (0, 1)]
    for number, word in enumerate(WORDS):
        end = "length" if number >= TOKENS - 2 else None
        found.append((told(choice(number % 2, {"content": word}, end)), 1))
    return steps([*found, *tail()])


def other_shapes() -> list[Step]:
    """JSON that is no chunk of this API is not output, and no error either."""
    odd = ["1", "[]", "null", '"text"', "{}", '{"choices": null}', '{"error": null, "choices": []}']
    return steps([*((event(text), 0) for text in odd), *plain_events()])


def broken_byte() -> list[Step]:
    """A byte that is no UTF-8 inside a text: the event is still an event."""
    return steps([(data.replace(b" w", b"\xff\xc3w"), ends) for data, ends in plain_events()])
