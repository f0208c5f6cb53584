"""What a reply's texts show, from the events of its stream: tags, calls, and what comes behind an end."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cargo import record
from cargo.deltas import Meaning
from cargo.sse import EventSplitter


def facts(*chunks: dict[str, Any]) -> dict[str, Any]:
    meaning = Meaning()
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    for event in EventSplitter().feed(body):
        meaning.take(event)
    found = meaning.texts.facts()
    assert found is not None
    return found


def chunk(finish: str | None = None, total: int | None = None, **delta: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return out if total is None else {**out, "usage": {"completion_tokens": total}}


def call(**function: str) -> dict[str, Any]:
    return chunk(tool_calls=[{"index": 0, "function": function}])


def test_plain_text_leaves_nothing_but_zeros() -> None:
    assert facts(chunk(content="a < b"), chunk("stop", content="")) == {
        "tags": {},
        "tool_calls": 0,
        "tool_calls_broken": 0,
        "after_finish": 0,
        "tokens_at_finish": None,
        "after_stop": None,
    }
    assert Meaning().texts.facts() is None


@given(st.integers(0, 30), st.sampled_from(record.THINK_TAGS + record.TOOL_TAGS))
def test_a_tag_is_found_wherever_the_text_is_cut(at: int, tag: str) -> None:
    text = f"one {tag} two"
    cut = min(at, len(text))
    tags = facts(chunk(content=text[:cut]), chunk(content=text[cut:]))["tags"]
    inside = 4 < cut < 4 + len(tag)
    assert tags == {tag: {"content": 1, "reasoning": 0, "tool": 0, "split": int(inside)}}


def test_a_tag_counts_in_the_field_where_it_stands() -> None:
    tags = facts(
        chunk(reasoning_content="x</think>", reasoning="x</think>"), call(arguments="<think>")
    )
    assert tags["tags"]["</think>"] == {"content": 0, "reasoning": 1, "tool": 0, "split": 0}
    assert tags["tags"]["<think>"]["tool"] == 1


def test_a_call_is_whole_with_a_name_and_an_object() -> None:
    whole = facts(call(name="f"), call(arguments='{"a"'), call(arguments=": 1}"))
    assert (whole["tool_calls"], whole["tool_calls_broken"]) == (1, 0)
    for none in ([call(name="f")], [call(name="f"), call(arguments="")]):
        assert facts(*none)["tool_calls_broken"] == 0, "a function without parameters"
    for broken in (
        [call(name="f"), call(arguments='{"a": 1}</s')],
        [call(name="f"), call(arguments="{")],
        [call(arguments="{}")],
        [call(name="f", arguments="[1]")],
    ):
        assert facts(*broken)["tool_calls_broken"] == facts(*broken)["tool_calls"]


def test_what_comes_behind_the_finish() -> None:
    late = facts(
        chunk(content="a", total=1), chunk("stop", 2, content="b"), chunk(None, 3, content="c")
    )
    assert (late["after_finish"], late["tokens_at_finish"]) == (1, 2)
    none = facts(chunk(content="a", total=1), chunk("stop", 2, content="b"), chunk(None, 2))
    assert (none["after_finish"], none["tokens_at_finish"]) == (0, 2)


def test_what_stands_behind_the_stop_string_that_the_server_names() -> None:
    def ended(text: str, stop: Any) -> Any:
        last = chunk("stop", content="")
        last["choices"][0]["stop_reason"] = stop
        return facts(chunk(content=text), last)["after_stop"]

    assert ended("one END", "END") == 0 and ended("one END two", "END") == 4
    assert ended("one", "END") == 0  # the server cut it off
    assert ended("one END two", None) is None and ended("one", 151645) is None


def test_a_server_may_send_anything() -> None:
    odd: list[Any] = [
        {"choices": [{"delta": {"content": 5, "tool_calls": {"a": 1}}}]},
        {
            "choices": [
                {"delta": {"tool_calls": [None, {"function": 1}, {"index": [], "function": {}}]}}
            ]
        },
        {"choices": [{"delta": "text", "finish_reason": 7}]},
    ]
    assert facts(*odd)["tags"] == {}
