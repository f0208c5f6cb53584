"""Requests and replies of the simulated server: prompt length, ends, fields, events, errors."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from cargo import scenario
from cargo.deltas import Meaning
from cargo.sse import EventSplitter
from sim import startup
from sim.chat import Chat, render_prompt, tokenized
from sim.engine import BLOCK

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
    assert "completion_tokens_details" not in plain.usage(plain.sent)
    ds = deltas(stream(parsed, *[1] * 600))[1:]
    kinds = [next(iter(d)) for d in ds]
    assert kinds == ["reasoning_content"] * 512 + ["content"] * 87  # </think> gives no event
    assert parsed.usage(parsed.sent)["completion_tokens_details"] == {"reasoning_tokens": 512}
    assert parsed.usage(parsed.sent)["completion_tokens"] == 600
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
        ({"min_tokens": 700}, 700, "stop"),
        ({"min_tokens": 700, "max_tokens": 800}, 700, "stop"),
        ({"min_tokens": 800, "max_tokens": 800}, 800, "stop"),
        ({"min_tokens": 10}, 673, "stop"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, 160, "stop"),
        ({"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 9}, 9, "length"),
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
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens must be less than or equal to max_tok"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(body: dict, words: str):
    with pytest.raises((ValueError, LookupError, TypeError), match=words):
        chat(body)


def meaning(events: list) -> Meaning:
    """What the load client reads in these events."""
    found, splitter = Meaning(), EventSplitter()
    for event in splitter.feed(b"".join(events)):
        found.take(event)
    return found


@pytest.mark.parametrize("name", ["enable_thinking", "thinking"])
def test_thinking_can_be_turned_off_and_on(name: str):
    body = {"max_tokens": 600, "ignore_eos": True, "stream": True}
    for argv in ((), ("--reasoning-parser", "qwen3")):
        default = chat(body, *argv)
        off, on = (chat({**body, "chat_template_kwargs": {name: v}}, *argv) for v in (False, True))
        assert on.prompt_tokens == default.prompt_tokens < off.prompt_tokens
        texts = [json.dumps(deltas(stream(c, *[1] * 600))) for c in (off, on, default)]
        assert texts[1] == texts[2]
        assert ("reasoning_content" in texts[1]) == bool(argv)
        assert "reasoning_content" not in texts[0] and "</think>" not in texts[0]
        assert off.usage(600).get("completion_tokens_details") == (
            {"reasoning_tokens": 0} if argv else None
        )


STREAM = {"max_tokens": 520, "ignore_eos": True, "stream": True}


@pytest.mark.parametrize("bursts", [[1] * 520, [1] * 3 + [4] * 129 + [1]])
@pytest.mark.parametrize("argv", [(), ("--multi-step-stream-outputs", "false")])
@pytest.mark.parametrize("way", ["usage", "ids", "both"])
def test_every_events_tokens_are_told_where_asked(bursts: list, argv: tuple, way: str):
    """</think>, the 513th token, is no text: the next event's usage holds it, or its own ids do."""
    body: dict = {**STREAM, "stream_options": {"include_usage": True}}
    if way != "ids":
        body["stream_options"]["continuous_usage_stats"] = True
    if way != "usage":
        body["return_token_ids"] = True
    c = chat(body, "--reasoning-parser", "qwen3", *argv)
    raw = [event for n in bursts for event in c.events(n)]
    found = meaning(raw)
    counts = [n for n in found.tokens if n]
    events = bursts if argv else [1] * 520
    if way == "usage" and len(events) == 520:
        events = [1] * 512 + [2] + [1] * 6
    assert counts == events
    assert found.n_first_delta == 1
    chunks = [json.loads(event[6:]) for event in raw[:-1]]
    if way != "ids":
        assert all("usage" in chunk for chunk in chunks)
        assert chunks[0]["usage"]["completion_tokens"] == 0
    if way != "usage":
        assert len(chunks[0]["prompt_token_ids"]) == c.prompt_tokens
        assert all("token_ids" in chunk["choices"][0] for chunk in chunks[1:-1])


def test_nothing_of_that_comes_unasked():
    for options in ({}, {"continuous_usage_stats": True}, {"include_usage": True}):
        c = chat({**STREAM, "stream_options": options})
        text = b"".join(event for _ in range(520) for event in c.events(1))
        assert b"token_ids" not in text
        assert text.count(b'"usage"') == bool(options.get("include_usage"))


def test_tokenize_counts_what_usage_reports():
    tools = [{"type": "function", "function": {"name": "f", "description": "汉" * 99}}]
    system = {"role": "system", "content": "Run 1."}
    for messages in (ASK, [system, *ASK]):
        for more in (
            {},
            {"tools": tools},
            {"chat_template_kwargs": {"enable_thinking": False}},
            {"tools": tools, "chat_template_kwargs": {"thinking": False}},
        ):
            body = {"messages": messages, **more}
            asked = {"model": "m", "add_generation_prompt": True, **body}
            answer = tokenized(json.dumps(asked).encode(), config())
            assert answer["count"] == whole(chat(body))["usage"]["prompt_tokens"]
            assert len(answer["tokens"]) == answer["count"]
            assert answer["max_model_len"] == 4096
    assert tokenized(b'{"prompt": "123456789"}', config())["count"] == 3
    with pytest.raises(ValueError, match="does not exist"):
        tokenized(b'{"model": "other", "messages": []}', config())


def test_another_salt_shares_no_block_of_the_prompt():
    tools = scenario.load("tool")["tools"]
    asked = [{"role": "user", "content": "word " * 4000}]

    def prefixes(seed: str, more: dict) -> list:
        messages = scenario.salted(asked, scenario.salt(seed))
        return Chat(
            json.dumps({"model": "m", "max_tokens": 1, "messages": messages, **more}).encode(),
            SimpleNamespace(**{**vars(config()), "max_model_len": 10**6}),
        ).prefixes

    for more in ({}, {"tools": tools}):
        one, other = prefixes("1", more), prefixes("2", more)
        assert len(one) == len(other) > 5000 // BLOCK
        assert one == prefixes("1", more)
        assert not set(one) & set(other)


TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}},
    }
]
QUIET = {"chat_template_kwargs": {"enable_thinking": False}, "tools": TOOLS, "stream": True}


def test_an_answer_with_tools_closes_with_a_call():
    parser = ("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder")
    events = stream(chat(QUIET, *parser), *[1] * 160)
    pieces = [d["tool_calls"][0]["function"] for d in deltas(events) if "tool_calls" in d]
    assert "".join(p.get("name", "") for p in pieces) == "weather"
    assert json.loads("".join(p.get("arguments", "") for p in pieces)) == {"city": "Shanghai"}
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    plain = stream(chat(QUIET), *[1] * 160)
    text = "".join(d.get("content", "") for d in deltas(plain))
    assert "<tool_call>\n<function=weather>" in text and text.endswith("</tool_call>")
    assert plain[-2]["choices"][0]["finish_reason"] == "stop"
    without = stream(chat({**QUIET, "tool_choice": "none"}, *parser), *[1] * 160)
    assert "<tool_call>" not in json.dumps(without)


def faulty(faults: tuple, body: dict, *argv: str) -> Chat:
    c = config("--num-scheduler-steps", "4", *argv)
    c.faults = faults
    return Chat(json.dumps({"model": "m", "messages": ASK, "stream": True, **body}).encode(), c)


def test_overshoot_hands_out_what_a_step_made_behind_the_stop():
    thinking = {"chat_template_kwargs": {"enable_thinking": False}}
    c = faulty(("overshoot",), thinking)
    assert (c.ends_at, c.output_tokens) == (160, 161)  # one, then forty steps of four
    events = stream(c, 1, *[4] * 40)
    reasons = [e["choices"][0]["finish_reason"] for e in events if e != "[DONE]"]
    assert reasons[-2:] == ["stop", None]
    forced = faulty(("overshoot",), {**thinking, "ignore_eos": True, "max_tokens": 162})
    assert forced.output_tokens == 162  # what was asked for is kept


def test_a_leak_is_a_mark_that_shares_its_event():
    argv = ("--reasoning-parser", "qwen3", "--multi-step-stream-outputs", "false")
    leaked = json.dumps(deltas(stream(faulty(("leak",), {}, *argv), 1, *[4] * 168)))
    assert "</think>" in leaked
    assert "</think>" not in json.dumps(deltas(stream(faulty((), {}, *argv), 1, *[4] * 168)))
    alone = faulty(("leak",), {}, "--reasoning-parser", "qwen3")
    assert "</think>" not in json.dumps(deltas(stream(alone, 1, *[4] * 168)))
