"""A prompt of N tokens: deterministic words, few questions, the count hit or the miss said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cargo import endpoint, scenario
from cargo.sized_prompt import WORDS, TokenizeCounter, sized_messages, words
from tests.conformance.scripted_server import Send, Step, Wait, serving

Messages = list[dict[str, Any]]
KNOWN = frozenset(WORDS)


def rendered(messages: Messages) -> str:
    salted = scenario.salted(messages, scenario.salt("run"))
    turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in salted]
    return "".join(turns) + "<|im_start|>assistant\n"


def by_word(messages: Messages) -> int:
    """As the usual vocabularies do: one token a common word; 12 are the template's."""
    return 12 + sum(1 if word in KNOWN else 2 for word in messages[0]["content"].split())


def by_four(messages: Messages) -> int:
    """As the simulator does: four characters a token."""
    return -(-len(rendered(messages)) // 4)


def by_byte(messages: Messages) -> int:
    return len(rendered(messages).encode())


def by_two(messages: Messages) -> int:
    """Two tokens a word, whatever it is: odd counts cannot be hit."""
    return 12 + 2 * len(messages[0]["content"].split())


def three_words_a_token(messages: Messages) -> int:
    return 12 + len(messages[0]["content"].split()) // 3


def test_the_words_are_many_short_and_all_different() -> None:
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isalpha() and word.islower() and len(word) <= 6 for word in WORDS)


def test_the_text_is_the_seeds_alone() -> None:
    # golden: another Python or another release must draw the same words, or arms are not paired
    assert words("1", 6) == "egg cell quiet pool hair let"
    assert words("1", 40).startswith(words("1", 6) + " ")
    assert words("1", 40) != words("2", 40)
    assert sized_messages(500, "a", by_word) == sized_messages(500, "a", by_word)


TOKENIZERS = {
    by_word: 13,
    by_four: 30,
    by_byte: 110,
    three_words_a_token: 12,
}


@pytest.mark.parametrize("count", TOKENIZERS, ids=lambda found: found.__name__)
@settings(max_examples=60, deadline=None)
@given(tokens=st.integers(0, 300) | st.integers(0, 20000), seed=st.text(max_size=8))
def test_every_size_is_hit_exactly_in_few_calls(
    count: Callable[[Messages], int], tokens: int, seed: str
) -> None:
    tokens += TOKENIZERS[count]
    asked: list[Messages] = []

    def counted(messages: Messages) -> int:
        asked.append(messages)
        return count(messages)

    messages, sizing = sized_messages(tokens, seed, counted)
    assert count(messages) == tokens
    calls = len(asked)
    assert calls <= 12
    assert sizing == {
        "asked": tokens,
        "tokens": tokens,
        "by": "tokenize",
        "calls": calls,
        "problem": None,
    }
    assert [message["role"] for message in messages] == ["user"]
    # a start of the seed's own text, cut nowhere but at its end
    text = messages[0]["content"]
    assert words(seed, text.count(" ") + 1).startswith(text)


def test_a_million_tokens_are_asked_for_a_few_times() -> None:
    for count, most in ((by_word, 1), (by_four, 4), (by_byte, 9)):
        long = 0

        def counted(messages: Messages, count: Callable[[Messages], int] = count) -> int:
            nonlocal long
            long += len(messages[0]["content"]) > 500_000
            return count(messages)

        _, sizing = sized_messages(10**6, "big", counted)
        assert sizing["tokens"] == 10**6
        assert long <= most, count.__name__


@given(st.integers(2, 3000))
@settings(deadline=None)
def test_a_count_that_cannot_be_hit_gets_the_nearest_below(words_wanted: int) -> None:
    tokens = 12 + 2 * words_wanted + 1
    messages, sizing = sized_messages(tokens, "s", by_two)
    assert by_two(messages) == sizing["tokens"] == tokens - 1
    assert sizing["problem"] == f"no text found with {tokens} tokens: {tokens - 1} is the nearest"


def test_a_size_below_what_the_template_needs_gets_the_shortest_prompt() -> None:
    messages, sizing = sized_messages(5, "s", by_byte)
    assert len(messages[0]["content"]) == 1
    assert sizing["tokens"] == by_byte(messages) > 5
    assert f"need {sizing['tokens']} tokens" in sizing["problem"]
    # and where a few characters of the first word are enough, they are taken
    messages, sizing = sized_messages(sizing["tokens"] + 1, "s", by_byte)
    assert len(messages[0]["content"]) == 2
    assert sizing["problem"] is None


def test_without_a_count_one_token_a_word_is_assumed_and_said() -> None:
    messages, sizing = sized_messages(300, "s", lambda messages: None)
    assert len(messages[0]["content"].split()) == 300
    assert (sizing["by"], sizing["tokens"], sizing["calls"]) == ("estimate", None, 1)
    assert "no tokens at /tokenize" in sizing["problem"]


def test_a_count_that_fails_on_the_way_leaves_a_proportional_estimate() -> None:
    def small_only(messages: Messages) -> int | None:
        found = by_byte(messages)
        return found if found < 20_000 else None

    messages, sizing = sized_messages(100_000, "s", small_only)
    assert by_byte(messages) == pytest.approx(100_000, rel=0.03)
    assert (sizing["by"], sizing["tokens"]) == ("estimate", None)
    assert "failed at call 3" in sizing["problem"]


def test_a_count_that_cuts_off_or_ignores_the_text_is_not_followed_forever() -> None:
    def cut_off(messages: Messages) -> int:
        return min(by_word(messages), 4096)

    for count, said in (
        (cut_off, "counts 1037 tokens at 1025 of the words and 4096 at 99988"),
        (lambda messages: 50, "counts 50 tokens at 1 of the words and 50 at 1025"),
    ):
        messages, sizing = sized_messages(100_000, "s", count)
        assert 90_000 < len(messages[0]["content"].split()) < 110_000
        assert sizing["by"] == "estimate"
        assert said in sizing["problem"] and "it cuts off" in sizing["problem"]
        assert "failed" not in sizing["problem"], "it answered"


def test_a_constant_count_close_below_the_wanted_one_is_no_count() -> None:
    _, sizing = sized_messages(60, "s", lambda messages: 50)
    assert (sizing["by"], sizing["tokens"]) == ("estimate", None)
    assert "does not count the text" in sizing["problem"]


# -- the counter over HTTP ----------------------------------------------------------------------

Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


@contextmanager
def tokenizer(answer: Answer) -> Iterator[tuple[str, list[tuple[str, dict[str, Any], Any]]]]:
    """A server that answers POSTs so: its URL, and (path, body, headers) of each request."""
    seen: list[tuple[str, dict[str, Any], Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body, self.headers))
            status, text = answer(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def counted(number: int) -> tuple[int, bytes]:
    return 200, json.dumps({"count": number, "max_model_len": 9, "tokens": []}).encode()


ASK: Messages = [{"role": "user", "content": "汉"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer k"}


def counter(url: str, *more: Any) -> TokenizeCounter:
    return TokenizeCounter(endpoint.resolve(url, "epoll"), HEADERS, "m", *more)


@pytest.mark.parametrize(
    ("suffix", "path"), [("", "/tokenize"), ("/v1", "/tokenize"), ("/gate/v1/", "/gate/tokenize")]
)
def test_the_question_is_the_chat_form_at_the_servers_root(suffix: str, path: str) -> None:
    with tokenizer(lambda body: counted(7 + len(body.get("tools", "")))) as (url, seen):
        count = counter(url + suffix, TOOLS, {"enable_thinking": False})
        assert count(ASK) == 8
        assert count.problem is None
    assert seen[0][0] == path
    assert seen[0][1] == {
        "model": "m",
        "messages": ASK,
        "add_generation_prompt": True,
        "tools": TOOLS,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert seen[0][2]["Authorization"] == "Bearer k"


def test_keys_with_nothing_in_them_are_not_sent() -> None:
    with tokenizer(lambda body: counted(7)) as (url, seen):
        assert counter(url, [], {})(ASK) == 7
    assert len(seen) == 1
    assert set(seen[0][1]) == {"model", "messages", "add_generation_prompt"}


def test_a_version_that_ignores_the_tools_is_found_out_once() -> None:
    with tokenizer(lambda body: counted(7)) as (url, seen):
        count = counter(url, TOOLS)
        assert [count(ASK), count(ASK)] == [7, 7]
    assert ["tools" in body for _, body, _ in seen] == [True, False, True]
    assert count.problem == "POST /tokenize counts the same without tools: not in the count"


@pytest.mark.parametrize("known", [(), ("chat_template_kwargs",)])
def test_a_version_that_refuses_keys_is_asked_without_them(known: tuple[str, ...]) -> None:
    plain = {"model", "messages", "add_generation_prompt", *known}

    def answer(body: dict[str, Any]) -> tuple[int, bytes]:
        return counted(7) if set(body) <= plain else (400, b'{"object": "error"}')

    with tokenizer(answer) as (url, seen):
        count = counter(url, TOOLS, {"enable_thinking": True})
        assert [count(ASK), count(ASK)] == [7, 7]
    assert len(seen) == (3 if known else 4), "what was refused once is not asked again"
    left_out = "tools" if known else "tools and chat_template_kwargs"
    assert count.problem == f"POST /tokenize takes no {left_out}: not in the count"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, b'{"detail": "Not Found"}'),
        (405, b""),
        (501, b""),
        (500, b"x"),
        (200, b"<html>"),
        (200, b"\xff"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"count": "7"}'),
        (200, b'{"count": true}'),
        (200, b'{"count": -1}'),
        (200, b'{"count": null}'),
        (200, b'{"count": 0}'),
        (200, b'{"count": 1%s}' % (b"0" * 400)),
        (200, b'{"count": 1%s}' % (b"0" * 9000)),
        (200, b'{"count": 1e400}'),
        (200, b"[" * 20_000),
        (200, b'{"count": 7, "tokens": %s}' % (b"[" * 900 + b"]" * 900)),
    ],
)
def test_what_is_no_count_is_none(status: int, text: bytes) -> None:
    with tokenizer(lambda body: (status, text)) as (url, seen):
        count = counter(url)
        assert count(ASK) is None
    assert len(seen) == 1
    assert count.problem and count.problem.startswith("POST /tokenize: ")


def test_a_count_that_drips_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps no caller: the limit is that of the whole call."""
    monkeypatch.setattr("cargo.sized_prompt._TIMEOUT_S", 0.5)
    drip: list[Step] = [Send(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n")]
    drip += [Send(b" "), Wait(0.05)] * 100
    with serving(drip) as server:
        count = counter(f"http://127.0.0.1:{server.port}")
        assert count(ASK) is None
    assert count.problem == "POST /tokenize: no full answer within 0.5 s"


def test_a_server_that_is_not_there_counts_nothing() -> None:
    with tokenizer(lambda body: counted(7)) as (url, _):
        pass
    count = counter(url)
    assert count(ASK) is None
    assert count.problem == "POST /tokenize: [Errno 111] Connection refused"
