"""Any valid stream, cut anywhere, reads the same; any part of it that lacks its end is no success.

Through the real path: wire.Response, Exchange, StreamDecoder, judge and request_record.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spoken_streams import OUTPUT, Spoken, Told, framings, replies

from cargo import wire
from cargo.exchange import BROKEN, EOF, WHOLE, Exchange, Read, RunClock, request_record
from cargo.sse import Event, EventSplitter

TICK_NS = 1000  # a read a microsecond: times are kept to a tenth of one
CUTS = st.lists(st.integers(0, 10**6), max_size=40) | st.just([-1])
SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]
MANY = settings(max_examples=150, deadline=None, suppress_health_check=SLOW_TO_DRAW)
SOME = settings(MANY, max_examples=50)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """In reads at these places, none of them empty; [-1]: byte by byte."""
    places = range(len(data)) if cuts == [-1] else [at % (len(data) + 1) for at in cuts]
    edges = sorted({0, len(data), *places})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def play(
    reads: list[bytes], tokens: int, reset: bool = False, eager: bool = False
) -> dict[str, Any]:
    """The reads of one connection that then closes, as the epoll client takes them.

    `eager`: decoded after each read, as at a deadline; else once, after the end.
    """
    exchange, response = Exchange(0, False), wire.Response()
    exchange.begun_ns = exchange.connected_ns = exchange.sent_ns = 0
    now = 0
    for data in reads:
        now += TICK_NS
        exchange.reads.append(Read(now, None, response.feed(data)))
        if exchange.status is None and response.status is not None and response.status >= 200:
            exchange.status, exchange.headers = response.status, response.headers
        if eager:
            exchange.decoder.catch_up()
        if response.whole:
            exchange.end(WHOLE, now)
            return request_record(exchange, RunClock(0, None), tokens)
    if reset:
        exchange.end(BROKEN, now + TICK_NS, "reset", "connection reset by peer")
        return request_record(exchange, RunClock(0, None), tokens)
    decoder = exchange.decoder
    decoder.catch_up()
    whole = response.feed_end() and decoder.meaning.finish_reason is not None
    exchange.end(WHOLE if whole or decoder.finished else EOF, now + TICK_NS)
    return request_record(exchange, RunClock(0, None), tokens)


def last_usage(told: list[Told]) -> dict[str, Any] | None:
    return next((one.usage for one in reversed(told) if one.usage is not None), None)


def check_events(found: dict[str, Any], told: list[Told]) -> None:
    """Kinds, token counts and usage of the events that are there."""
    events = found["events"] or {"kind": [], "tokens": []}
    assert events["kind"] == [one.kind for one in told]
    assert events["tokens"] == [one.count for one in told]
    assert found["n_events"] == sum(one.kind in OUTPUT for one in told)
    assert found["usage"] == last_usage(told)
    assert found["finish_reason"] == next((one.finish for one in told if one.finish), None)


def times_of(spoken: Spoken, reads: list[bytes]) -> list[float]:
    """When each event must be stamped: with the read that brings its last byte."""
    found, length, number = [], 0, 0
    for end in spoken.event_ends:
        while length < spoken.body_ends[end - 1]:
            length += len(reads[number])
            number += 1
        found.append(number / 10**6)
    return found


@MANY
@given(replies(), CUTS, st.booleans())
def test_any_cut_of_a_whole_stream_reads_the_same(
    spoken: Spoken, cuts: list[int], eager: bool
) -> None:
    reads = cut(spoken.wire, cuts)
    found = play(reads, spoken.tokens, eager=eager)
    assert (found["outcome"], found["error"]) == ("ok", None)
    check_events(found, spoken.told)
    usage = last_usage(spoken.told)
    assert found["completion_tokens"] == (usage and usage["completion_tokens"])
    assert found["cached_tokens"] == (None if usage is None else 0)
    assert found["n_first_delta"] == spoken.first_delta
    times = found["events"]["t_s"]
    if spoken.coded:
        assert times == sorted(times)
    else:
        assert times == times_of(spoken, reads)
    output = [t for t, one in zip(times, spoken.told, strict=True) if one.kind in OUTPUT]
    assert (found["t_first_s"], found["t_last_s"]) == (
        (output[0], output[-1]) if output else (None, None)
    )


@MANY
@given(replies(), st.integers(0, 10**6), CUTS, st.booleans())
def test_a_part_of_a_stream_is_a_success_only_behind_its_end_mark(
    spoken: Spoken, length: int, cuts: list[int], reset: bool
) -> None:
    """`ok` behind a whole [DONE] event; or where only the close tells a body's end, and the
    connection closed in order behind a whole event with the finish reason (a coded body has an end
    of its own, and must have come to it). Nothing else is."""
    part = spoken.wire[: length % len(spoken.wire)]
    seen = spoken.seen(len(part))
    finished = any(one.finish for one in seen)
    found = play(cut(part, cuts), spoken.tokens, reset)
    check_events(found, seen)
    ended = finished and spoken.until_close and not reset
    if any(one.kind == "done" for one in seen) or (ended and not spoken.coded):
        assert (found["outcome"], found["error"]) == ("ok", None)
    elif ended:
        assert (found["outcome"], found["error"]["kind"]) == ("truncated", "coding_cut")
    elif reset:
        assert (found["outcome"], found["error"]["kind"]) == ("connection", "reset")
    elif len(part) < spoken.head_end:
        assert (found["outcome"], found["error"]["kind"]) == ("connection", "closed_before_reply")
    else:
        assert (found["outcome"], found["error"]["kind"]) == ("truncated", "closed_early")


@SOME
@given(replies(), st.integers(1, 9))
def test_fewer_tokens_than_forced_are_never_a_success_where_usage_came(
    spoken: Spoken, more: int
) -> None:
    found = play([spoken.wire], spoken.tokens + more)
    assert found["outcome"] == ("short" if last_usage(spoken.told) else "ok")


ERRORS = st.sampled_from(
    [
        ('{"error": {"message": "m", "code": 500}}', "error"),
        ('{"error": "m"}', "error"),
        ('{"object": "error", "message": "m", "code": 400}', "object_error"),
        ('{"choices": [', "not_json"),
    ]
)


@SOME
@given(st.data())
def test_an_error_event_is_an_error_wherever_it_stands_and_whatever_follows(data: Any) -> None:
    """Only behind [DONE] nothing counts any more."""
    spoken = data.draw(replies())
    text, kind = data.draw(ERRORS)
    at = data.draw(st.integers(0, len(spoken.told)))
    told = [*spoken.told[:at], Told(text, "error"), *spoken.told[at:]]
    body, ends = data.draw(framings(told))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    whole = head % len(body) + body
    length = len(whole) - len(body) + data.draw(st.integers(ends[at], len(body)))
    found = play(cut(whole[:length], data.draw(CUTS)), spoken.tokens, data.draw(st.booleans()))
    if any(one.kind == "done" for one in told[:at]):
        assert (found["outcome"], found["error"]) == ("ok", None)
        check_events(found, told[:at])
    else:
        assert (found["outcome"], found["error"]["kind"]) == ("stream_error", kind)


# -- the splitter against the specification, over any bytes --------------------------------------


def by_specification(data: bytes) -> list[Event]:
    """The WHATWG algorithm over the whole text at once."""
    found: list[Event] = []
    lines = re.split(b"\r\n|\n|\r", data.removeprefix(b"\xef\xbb\xbf"))
    name, values = b"", []
    for line in lines[:-1]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if values:
                found.append(Event(name.decode("utf-8", "replace"), b"\n".join(values)))
            name, values = b"", []
        elif field == b"data":
            values.append(value)
        elif field == b"event":
            name = value
    return found


BITS = ["\n", "\r", "\r\n", ":", " ", "data", "data:", "data:  x", "event:", "\ufeff"]
BITS += ["data:x汉\u2028\u0085\0y"]
PARTS = st.lists(st.sampled_from([*(bit.encode() for bit in BITS), b"\xff"]), max_size=40)


@settings(max_examples=400, deadline=None)
@given(PARTS, CUTS)
def test_any_bytes_in_any_pieces_are_split_by_the_specification(
    parts: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(parts)
    splitter = EventSplitter()
    found = [event for piece in cut(data, cuts) for event in splitter.feed(piece)]
    assert found == by_specification(data)


LINES = [
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 20\xb2 OK",
    b"HTTP/1.1 101 Up",
    b"HTTP/1.0 0200",
    b"HTTP/1.1",
]
LINES += [b"content-length: " + text for text in (b"5", b"\xb2", b"7, 8", b"5,5", b"9" * 5000, b"")]
LINES += [b"transfer-encoding: " + text for text in (b"chunked", b"Chunked, gzip", b"identity")]
LINES += [b"5", b"0x5", b"0_5", b"\xb2", b"0", b"fffffffffffffffff", b"5;a", b"abcde", b"", b""]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(LINES) | st.binary(max_size=9), max_size=9), CUTS)
def test_any_bytes_are_a_response_or_a_wire_error(lines: list[bytes], cuts: list[int]) -> None:
    data = b"HTTP/1.1 " * (len(lines) % 2) + b"\r\n".join(lines)
    response = wire.Response()
    with contextlib.suppress(wire.WireError):
        for piece in cut(data, cuts):
            response.feed(piece)
        response.feed_end()


@SOME
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), CUTS, st.integers(0, 3))
def test_any_members_of_a_gzip_body_read_as_one(
    members: list[bytes], cuts: list[int], padding: int
) -> None:
    data = b"".join(map(gzip.compress, members)) + b"\0" * padding
    inflater = wire.Inflater("gzip")
    found = b""
    ends = set(itertools.accumulate(len(gzip.compress(member)) for member in members))
    length = 0
    for piece in cut(data, cuts):
        found += inflater.decompress(piece)
        length += len(piece)
        assert inflater.whole == (length in ends or length > max(ends))
    assert found == b"".join(members)


@SOME
@given(replies(), CUTS, st.binary(max_size=30))
def test_any_cut_of_a_reply_has_the_same_body_and_the_same_end(
    spoken: Spoken, cuts: list[int], behind: bytes
) -> None:
    """Bytes behind a body with an end of its own are not part of it."""
    response, body, length = wire.Response(), b"", 0
    data = spoken.wire + (b"" if spoken.until_close else behind)
    for piece in cut(data, cuts):
        body += response.feed(piece)
        length += len(piece)
        assert response.whole == (length >= len(spoken.wire) and not spoken.until_close)
    assert body == spoken.body
    assert response.feed_end()
