"""SSE framing, HTTP framing and the meaning of events: any cut, any prefix."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cargo import deltas, record, wire
from cargo.exchange import BROKEN, EOF, WHOLE, Exchange, Read, RunClock, request_record
from cargo.sse import Event, EventSplitter

ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more}, ensure_ascii=False).encode()


USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
DATA = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning": "想一想\u2028"}),
    chunk({"content": " a: b\u0085"}),
    chunk({"content": "data: [DONE]\n\nevent: error"}),
    chunk({"content": " 好🙂"}, "length"),
    json.dumps({"choices": [], "usage": USAGE}).encode(),
    b"[DONE]",
]


def body(end: bytes = b"\n", space: bytes = b" ") -> bytes:
    """A stream with comments, pings and other fields between its events."""
    lines = [b": hello", b""]
    for number, data in enumerate(DATA):
        lines += [b"id: %d" % number, b"data:" + space + data, b""]
        if number % 2:
            lines += [b":", b""]
    return end.join(lines) + end


def in_chunks(data: bytes, size: int) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[edges[n] : edges[n + 1]] for n in range(len(edges) - 1)]


def split(pieces: list[bytes]) -> list[Event]:
    splitter = EventSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)]


def play(pieces: list[bytes], broken: bool = False) -> dict[str, Any]:
    """The pieces as reads of one connection that is closed after them."""
    exchange = Exchange(0, False)
    exchange.begun_ns = exchange.connected_ns = exchange.sent_ns = 0
    response = wire.Response()
    for number, piece in enumerate(pieces):
        exchange.reads.append(Read(number + 1, None, response.feed(piece)))
        exchange.status, exchange.headers = response.status, response.headers
    how = WHOLE if response.feed_end() else (BROKEN if broken else EOF)
    exchange.end(how, len(pieces) + 1)
    return request_record(exchange, RunClock(0, None), 4)


CUTS = st.lists(st.integers(0, 10**6), max_size=60)


@given(CUTS, st.sampled_from(sorted(ENDS)), st.sampled_from([b" ", b""]))
def test_any_cut_gives_the_same_events(cuts: list[int], end: str, space: bytes) -> None:
    data = body(ENDS[end], space)
    assert [event.data for event in split(cut(data, cuts))] == DATA


@pytest.mark.parametrize("end", sorted(ENDS))
def test_byte_by_byte_and_at_once(end: str) -> None:
    data = body(ENDS[end])
    assert [e.data for e in split([data[n : n + 1] for n in range(len(data))])] == DATA
    assert [e.data for e in split([data])] == DATA


@given(st.integers(0, 10**6), st.sampled_from(sorted(ENDS)))
def test_a_prefix_gives_a_prefix_of_the_events(length: int, end: str) -> None:
    data = body(ENDS[end])
    found = [event.data for event in split([data[: length % len(data)]])]
    assert found == DATA[: len(found)]


@given(CUTS, st.integers(1, 400), st.sampled_from(sorted(ENDS)))
def test_any_cut_of_the_connection_gives_the_same_request(
    cuts: list[int], size: int, end: str
) -> None:
    found = play(cut(in_chunks(body(ENDS[end]), size), cuts))
    assert (found["outcome"], found["error"]) == ("ok", None)
    assert (found["completion_tokens"], found["n_events"]) == (4, 4)
    kinds = ["role", "reasoning", "content", "content", "content", "usage", "done"]
    assert found["events"]["kind"] == kinds
    times = found["events"]["t_s"]
    assert times == sorted(times)


@settings(max_examples=300)
@given(st.integers(0, 10**6), CUTS, st.integers(1, 400))
def test_any_proper_prefix_is_truncated(length: int, cuts: list[int], size: int) -> None:
    """Until the stream's own end mark is there, a closed connection is never a success."""
    whole = in_chunks(body(), size)
    mark = body().rindex(b"[DONE]\n\n") + len(b"[DONE]\n\n")
    # the last byte on the wire of the event that ends the stream
    behind = len(in_chunks(body()[:mark], size)) - len(b"0\r\n\r\n") - 2
    head = whole.index(b"\r\n\r\n") + 4
    prefix = whole[: head + length % (behind - head)]
    found = play(cut(prefix, cuts))
    assert found["outcome"] == "truncated"
    assert play(cut(prefix, cuts), broken=True)["outcome"] == "connection"


def test_a_prefix_of_the_head_is_no_reply() -> None:
    found = play([in_chunks(body(), 50)[:30]])
    assert found["outcome"] == "connection"
    assert found["error"]["kind"] == "closed_before_reply"


def test_the_end_mark_without_the_last_http_chunk_is_a_whole_stream() -> None:
    whole = in_chunks(body(), 10**6)
    assert play([whole[: -len(b"0\r\n\r\n")]])["outcome"] == "ok"


@pytest.mark.parametrize("end", sorted(ENDS))
def test_every_pair_of_cuts_keeps_names_and_lines_together(end: str) -> None:
    """A line end cut in two must not read as a blank line, which would end the event."""
    lines = [b"event: error", b"data: one", b"data: two", b"", b"data: three", b"", b""]
    data = ENDS[end].join(lines)
    whole = [Event("error", b"one\ntwo"), Event("", b"three")]
    for one in range(len(data) + 1):
        for two in range(one, len(data) + 1):
            assert split(cut(data, [one, two])) == whole, (one, two)


@pytest.mark.parametrize("end", sorted(ENDS))
def test_every_single_cut_of_the_connection_gives_the_same_request(end: str) -> None:
    data = in_chunks(body(ENDS[end]), 37)
    found = [play(cut(data, [at])) for at in range(1, len(data))]
    assert {(one["outcome"], one["completion_tokens"], one["n_events"]) for one in found} == {
        ("ok", 4, 4)
    }


def test_fields_by_the_specification() -> None:
    text = b"\xef\xbb\xbfevent: x\ndata:  two spaces\ndata\nretry: 5\nunknown: y\n\ndata: next\n\n"
    assert split([text]) == [Event("x", b" two spaces\n"), Event("", b"next")]
    assert split([b"event: lonely\n\ndata: a\n\n"]) == [Event("", b"a")]
    assert split([b"data: never ended\n"]) == []
    splitter = EventSplitter()
    splitter.feed(b": one\n:two\n\n")
    assert splitter.comments == 2


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"content": "a"}, "content"),
        ({"content": ""}, "empty"),
        ({"content": None, "reasoning": "a"}, "reasoning"),
        ({"reasoning_content": "a"}, "reasoning"),
        ({"role": "assistant"}, "role"),
        ({"role": "assistant", "content": "a"}, "content"),
        ({"tool_calls": [{"index": 0, "function": {"name": "f"}}]}, "tool"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, "tool"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, "empty"),
        ({"tool_calls": []}, "empty"),
        ({}, "empty"),
    ],
)
def test_kind_of_a_delta(delta: dict[str, Any], kind: str) -> None:
    meaning = deltas.Meaning()
    assert meaning.take(Event("", chunk(delta))) == kind
    assert meaning.n_output == (kind in ("content", "reasoning", "tool"))


@pytest.mark.parametrize("value", [None, False, {}, ""])
def test_an_empty_error_key_is_no_error(value: Any) -> None:
    meaning = deltas.Meaning()
    assert meaning.take(Event("", chunk({"content": "a"}, error=value))) == "content"
    assert meaning.error is None


def test_the_first_error_stands() -> None:
    meaning = deltas.Meaning()
    meaning.take(Event("", b'{"error": {"message": "first", "code": 500}}'))
    meaning.take(Event("error", b"second"))
    assert meaning.error == deltas.StreamError("error", 500, "first")


def test_usage_in_the_finish_event_does_not_count_that_event() -> None:
    """Only a usage on every output event so far says what one event holds."""
    meaning = deltas.Meaning()
    meaning.take(Event("", chunk({"content": "a"})))
    meaning.take(Event("", chunk({"content": "b"}, "length", usage=USAGE)))
    assert meaning.tokens == [None, None]
    assert meaning.n_first_delta == 1


@pytest.mark.parametrize(
    ("body_text", "message"),
    [
        ('{"error": {"message": "m", "code": 400}}', "m"),
        ('{"object": "error", "message": "m"}', "m"),
        ('{"detail": "m"}', "m"),
        ('{"detail": [{"loc": ["body"]}]}', '[{"loc": ["body"]}]'),
        ('{"error": "m"}', "m"),
        ("m", "m"),
        ("", ""),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_message_of_an_http_error(body_text: str, message: str) -> None:
    assert deltas.error_message(body_text.encode()) == message


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 20000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60000,
        b"HTTP/1.1 20\xb2 OK\r\n\r\n",
        b"HTTP/1.1 0200 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4, 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0_5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 21 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.Response().feed(data)


def test_interim_heads_are_skipped_and_bodies_without_content_end_at_once() -> None:
    response = wire.Response()
    found = response.feed(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"
    )
    assert (response.status, found, response.whole) == (200, b"ab", True)
    for status in (b"101 Switching Protocols", b"204 No Content"):
        response = wire.Response()
        response.feed(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert response.status is None
        response.feed(b"HTTP/1.1 " + status + b"\r\n\r\n")
        assert (response.status, response.whole) == (int(status[:3]), True)


@pytest.mark.parametrize("size", [b"0x5", b"0X5", b"0_5", b"+5", b" \xb25"])
def test_a_chunk_in_a_read_of_its_own_has_its_size_in_hex_digits_too(size: bytes) -> None:
    """As an event of a stream usually comes: such a read goes another way."""
    response = wire.Response()
    response.feed(in_chunks(b"", 1)[: -len(b"0\r\n\r\n")])
    assert response.feed(b"5\r\nabcde\r\n") == b"abcde"
    assert response.feed(b"0005\r\nabcde\r\n") == b"abcde"
    with pytest.raises(wire.WireError):
        response.feed(size + b"\r\nabcde\r\n")


def test_a_length_that_is_said_twice_and_equal_is_one_length() -> None:
    response = wire.Response()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\ncontent-length: 2\r\n\r\n"
    assert (response.feed(head + b"abc"), response.whole) == (b"ab", True)


@pytest.mark.parametrize("depth", [3, 15, 300, 900, 20000])
def test_however_deep_a_usage_is_it_costs_no_more_than_its_request(depth: int) -> None:
    text = b'{"choices": [], "usage": {"completion_tokens": 4, "x": %s}}'
    deep = text % (b"[" * depth + b"]" * depth)
    found = play([in_chunks(body().replace(DATA[-2], deep), 10**6)])
    assert found["outcome"] in ("ok", "stream_error")
    assert found["outcome"] == ("ok" if depth <= 300 else found["outcome"])
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("where", ["error", "detail", "x"])
@pytest.mark.parametrize("depth", [300, 900, 20000])
def test_however_deep_an_error_is_it_has_a_message(where: str, depth: int) -> None:
    deep = f'{{"{where}": {"[" * depth + "]" * depth}}}'
    assert deltas.error_message(deep.encode())
    meaning = deltas.Meaning()
    meaning.take(Event("error", deep.encode()))
    assert meaning.error is not None
    assert meaning.error.message


def test_what_nobody_thought_of_costs_no_more_than_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("unthought of")

    monkeypatch.setattr("cargo.exchange.judge", fail)
    found = play([in_chunks(body(), 50)])
    assert (found["outcome"], found["error"]["kind"]) == ("client", "unreadable")
    assert "unthought of" in found["error"]["message"]
    assert set(found) == set(record.REQUEST_FIELDS)
    assert (found["t_start_s"], found["ttft_s"]) == (0.0, None)


@pytest.mark.parametrize(
    ("tokens", "first"), [(None, 1), (1, 1), (2, 1), (3, 1), (4, None), (400, None)]
)
def test_the_first_delta_holds_one_token_unless_the_events_hold_several(
    tokens: int | None, first: int | None
) -> None:
    meaning = deltas.Meaning()
    assert meaning.first_delta(tokens) is None
    meaning.take(Event("", chunk({"content": "a"})))
    meaning.take(Event("", chunk({"content": "b"}, "length")))
    assert meaning.first_delta(tokens) == first


def test_a_running_usage_that_goes_back_tells_no_count() -> None:
    meaning = deltas.Meaning()
    for total in (5, 3, 6):
        usage = {**USAGE, "completion_tokens": total}
        meaning.take(Event("", chunk({"content": "a"}, usage=usage)))
    assert meaning.tokens == [5, None, 1]
