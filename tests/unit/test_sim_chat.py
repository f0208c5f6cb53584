"""Requests and replies of the simulated server: prompt length, ends, fields, events, errors."""

from __future__ import annotations

import json

import pytest

from sim import flags
from sim.chat import ApiError, Chat, render_prompt

ASK = [{"role": "user", "content": "hello"}]


def config(*argv: str):
    return flags.resolve(flags.parse(["--model", "m", "--max-model-len", "4096", *argv]), {})


def chat(body: dict, *argv: str) -> Chat:
    return Chat(json.dumps({"model": "m", "messages": ASK, **body}).encode(), config(*argv))


def stream(c: Chat, *bursts: int) -> list:
    """Events as parsed JSON ('[DONE]' as it is), the last burst ending the reply."""
    raw = [e for i, n in enumerate(bursts) for e in c.events(n, i == len(bursts) - 1)]
    assert all(e.startswith(b"data: ") and e.endswith(b"\n\n") for e in raw)
    return [e if e == "[DONE]" else json.loads(e) for e in (r[6:-2].decode() for r in raw)]


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


def test_usage_only_where_asked_and_running_on_every_chunk():
    options: dict = {"include_usage": True}
    body: dict = {"max_tokens": 3, "ignore_eos": True, "stream": True, "stream_options": options}
    events = stream(chat(body), 1, 1, 1)
    assert [e["usage"] for e in events[:-2]] == [None] * 4
    assert events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 3
    options["continuous_usage_stats"] = True
    events = stream(chat(body), 1, 1, 1)
    assert [e["usage"]["completion_tokens"] for e in events[:-1]] == [0, 1, 2, 3, 3]


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
    assert "</think>" in json.dumps(json.loads(chat(body).whole()))


def test_thinking_can_be_switched_off():
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    c = chat({"max_tokens": 5, "ignore_eos": True, **off}, "--reasoning-parser", "qwen3")
    message = json.loads(c.whole())["choices"][0]["message"]
    assert message["content"] and "reasoning_content" not in message
    assert c.usage()["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_stream_and_whole_reply_say_the_same():
    body = {"max_tokens": 530, "ignore_eos": True}
    for argv in ((), ("--reasoning-parser", "qwen3")):
        texts = {"content": "", "reasoning_content": ""}
        for d in deltas(stream(chat({**body, "stream": True}, *argv), 1, 529)):
            for k in texts:
                texts[k] += d.get(k, "")
        message = json.loads(chat(body, *argv).whole())["choices"][0]["message"]
        assert {k: message.get(k) or "" for k in texts} == texts


def test_bursts_are_one_event_a_token_unless_steps_are_not_streamed():
    body: dict = {"max_tokens": 9, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    events = stream(chat(body), 1, 4, 4)
    counts = [e["usage"]["completion_tokens"] for e in events[:-1]]
    assert counts == [0, *range(1, 10), 9]
    events = stream(chat(body, "--multi-step-stream-outputs", "false"), 1, 4, 4)
    assert [e["usage"]["completion_tokens"] for e in events[:-1]] == [0, 1, 5, 9, 9]


@pytest.mark.parametrize(
    ("body", "tokens", "reason"),
    [
        ({"max_tokens": 10}, 10, "length"),
        ({"max_tokens": 2000}, 673, "stop"),  # 512 thoughts, the marker, 160 of answer
        ({"max_tokens": 2000, "ignore_eos": True}, 2000, "length"),
        ({"max_tokens": 2000, "min_tokens": 1000}, 1000, "stop"),
        ({"max_completion_tokens": 7}, 7, "length"),
        ({}, 673, "stop"),
    ],
)
def test_ends(body: dict, tokens: int, reason: str):
    c = chat(body)
    assert (c.output_tokens, c.reason) == (tokens, reason)
    reply = json.loads(c.whole())
    assert reply["usage"]["completion_tokens"] == tokens
    assert reply["choices"][0]["finish_reason"] == reason


def test_tools_count_in_the_prompt_after_the_system_text():
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "description": "d" * 250}}
        for i in range(29)
    ]
    argv = ("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder")
    salted = [{"role": "system", "content": "salt"}, *ASK]
    bare, full = chat({"messages": salted}), chat({"messages": salted, "tools": tools}, *argv)
    schema_chars = sum(len(json.dumps(t)) for t in tools)
    assert full.prompt_tokens - bare.prompt_tokens == pytest.approx(schema_chars / 4, rel=0.02)
    assert full.prompt.startswith("<|im_start|>system\nsalt\n\n# Tools")
    assert "f28" in render_prompt({"messages": ASK, "tools": tools})
    none = chat({"messages": salted, "tools": tools, "tool_choice": "none"})  # no parser needed
    assert none.prompt_tokens == full.prompt_tokens


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1, got 0."),
        (
            {"max_tokens": 5000},
            400,
            "This model's maximum context length is 4096 tokens. However, you",
        ),
        ({"messages": [{"role": "user", "content": "x" * 20000}]}, 400, "maximum context length"),
        ({"temperature": -3}, 400, "temperature must be non-negative, got -3."),
        ({"messages": []}, 400, "'loc': ('body', 'messages')"),
        (
            {"stream_options": {"include_usage": True}},
            400,
            "Stream options can only be defined when",
        ),
        ({"tools": [{"type": "function"}]}, 400, '"auto" tool choice requires --enable-auto-tool'),
        ({"min_tokens": 9, "max_tokens": 3}, 400, "min_tokens must be less than or equal to"),
    ],
)
def test_errors_have_vllms_flat_body(body: dict, status: int, words: str):
    with pytest.raises(ApiError) as e:
        chat(body)
    assert e.value.status == e.value.body["code"] == status
    assert words in str(e.value.body["message"]) and e.value.body["object"] == "error"


def test_a_body_that_is_no_json_or_no_object():
    for raw in (b"{not json", b"[]", b"\xff\xfe\xfd"):
        with pytest.raises(ApiError) as e:
            Chat(raw, config())
        assert e.value.status == 400
