"""Requests and replies of the simulated server: prompt length, ends, fields, events, errors."""

from __future__ import annotations

import json

import pytest

from sim import startup
from sim.chat import Chat, render_prompt

ASK = [{"role": "user", "content": "hello"}]


def config(*argv: str):
    return startup.parse(["--model", "m", "--max-model-len", "4096", *argv])


def chat(body: dict, *argv: str) -> Chat:
    return Chat(json.dumps({"model": "m", "messages": ASK, **body}).encode(), config(*argv))


def stream(c: Chat, *bursts: int) -> list:
    """Events as parsed JSON ('[DONE]' as it is), the last burst ending the reply."""
    raw = [e for n in bursts for e in c.events(n)]
    assert all(e.startswith(b"data: ") and e.endswith(b"\n\n") for e in raw)
    return [e if e == "[DONE]" else json.loads(e) for e in (r[6:-2].decode() for r in raw)]


def whole(c: Chat) -> dict:
    """The reply that is not streamed, after the engine made all its tokens."""
    c.events(c.output_tokens)
    return json.loads(c.whole())


def deltas(events: list) -> list:
    return [e["choices"][0]["delta"] for e in events if e != "[DONE]" and e["choices"]]


def test_stream_shape():
    c = chat({"max_tokens": 4, "ignore_eos": True, "stream": True})
    events = stream(c, 1, 1, 1, 1)
    assert deltas(events)[0] == {"role": "assistant", "content": ""}
    assert [list(d) for d in deltas(events)[1:]] == [["content"]] * 4
    assert events[-1] == "[DONE]" and len(events) == 6
    ends = [e["choices"][0]["finish_reason"] for e in events[:-1]]
    assert ends == [None] * 4 + ["length"]
    assert not any("usage" in e for e in events[:-1])
    assert {e["object"] for e in events[:-1]} == {"chat.completion.chunk"}


def test_usage_only_where_asked_and_at_the_end():
    options: dict = {"include_usage": True}
    body: dict = {"max_tokens": 3, "ignore_eos": True, "stream": True, "stream_options": options}
    events = stream(chat(body), 1, 1, 1)
    assert not any(e.get("usage") for e in events[:-2])
    assert events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 3
    options["include_usage"] = False
    assert not any(e.get("usage") for e in stream(chat(body), 1, 1, 1)[:-1])


def test_reasoning_goes_to_its_field_only_with_the_parser():
    body = {"max_tokens": 600, "ignore_eos": True, "stream": True}
    plain, parsed = chat(body), chat(body, "--reasoning-parser", "qwen3")
    assert {k for d in deltas(stream(plain, *[1] * 600))[1:] for k in d} == {"content"}
    assert "completion_tokens_details" not in plain.usage()
    ds = deltas(stream(parsed, *[1] * 600))[1:]
    kinds = [next(iter(d)) for d in ds]
    assert kinds == ["reasoning_content"] * 512 + ["content"] * 87  # </think> gives no event
    assert parsed.usage()["completion_tokens_details"] == {"reasoning_tokens": 512}
    assert parsed.usage()["completion_tokens"] == 600
    assert "</think>" in json.dumps(whole(chat(body)))


def test_stream_and_whole_reply_say_the_same():
    body = {"max_tokens": 530, "ignore_eos": True}
    for argv in ((), ("--reasoning-parser", "qwen3")):
        texts = {"content": "", "reasoning_content": ""}
        for d in deltas(stream(chat({**body, "stream": True}, *argv), 1, 529)):
            for k in texts:
                texts[k] += d.get(k, "")
        message = whole(chat(body, *argv))["choices"][0]["message"]
        assert {k: message.get(k) or "" for k in texts} == texts


def test_bursts_are_one_event_a_token():
    events = stream(chat({"max_tokens": 9, "ignore_eos": True, "stream": True}), 1, 4, 4)
    assert len(deltas(events)) == 1 + 9


@pytest.mark.parametrize(
    ("body", "tokens", "reason"),
    [
        ({"max_tokens": 10}, 10, "length"),
        ({"max_tokens": 2000}, 673, "stop"),  # 512 thoughts, the marker, 160 of answer
        ({"max_tokens": 2000, "ignore_eos": True}, 2000, "length"),
        ({"max_tokens": 673}, 673, "stop"),
        ({"max_tokens": None}, 673, "stop"),
        ({}, 673, "stop"),
    ],
)
def test_ends(body: dict, tokens: int, reason: str):
    c = chat(body)
    assert (c.output_tokens, c.reason) == (tokens, reason)
    reply = whole(c)
    assert reply["usage"]["completion_tokens"] == tokens
    assert reply["choices"][0]["finish_reason"] == reason


def test_tools_count_in_the_prompt_after_the_system_text():
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "description": "d" * 250}}
        for i in range(29)
    ]
    salted = [{"role": "system", "content": "salt"}, *ASK]
    bare, full = chat({"messages": salted}), chat({"messages": salted, "tools": tools})
    schema_chars = sum(len(json.dumps(t)) for t in tools)
    assert full.prompt_tokens - bare.prompt_tokens == pytest.approx(schema_chars / 4, rel=0.02)
    assert render_prompt(salted, tools).startswith("<|im_start|>system\nsalt\n\n# Tools")
    assert "f28" in render_prompt(ASK, tools)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "other"}, "The model `other` does not exist."),
        ({"max_tokens": 0}, "requested are 14"),
        ({"max_tokens": 5000}, "maximum context length is 4096 tokens, requested are 5014"),
        ({"messages": [{"role": "user", "content": "x" * 20000}]}, "maximum context length"),
        ({"messages": None}, "not iterable"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"max_tokens": "many"}, "not supported between"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(body: dict, words: str):
    with pytest.raises((ValueError, LookupError, TypeError), match=words):
        chat(body)
