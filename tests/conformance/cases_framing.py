"""Rows about how a whole stream is put on the wire: server-sent events, HTTP, codings, cuts."""

from __future__ import annotations

from .case import Case
from .scripted_server import Hold, Send, Wait
from .scripts import (
    big_event,
    byte_by_byte,
    coalesced,
    cut_text,
    done_early,
    head_with,
    in_gzip,
    multi_line_data,
    pings,
    separators,
    slow_head,
    until_close,
    whole_body,
    with_bom,
    without,
)
from .scripts_framing import (
    CHUNKED_AND_LENGTH,
    EARLY_HINTS,
    KEEP_ALIVE,
    NO_TYPE,
    all_at_once,
    chunks_of_one_byte,
    compressed,
    halves,
    odd_sizes,
    with_length,
)
from .scripts_meaning import deltas
from .speech import FIRST_S, HEAD, LAST_CHUNK, TOKENS, plain_events, steps

FRAMING: list[Case] = [
    Case("data_without_space", steps(plain_events(space=""))),
    Case("crlf", steps(plain_events(end="\r\n"))),
    Case("cr", steps(plain_events(end="\r"))),
    Case("cut_in_utf8_character", cut_text("汉字", lambda data: data.index("汉".encode()) + 1)),
    Case("cut_in_data_field", cut_text("x", lambda data: 5)),
    Case("cut_before_space_in_text", cut_text("a b", lambda data: data.index(b"a b") + 1)),
    Case("cut_between_the_last_newlines", cut_text("x", lambda data: len(data) - 1)),
    Case("unicode_line_separators", separators()),
    Case("comments", pings()),
    Case("no_done", steps(without(b"[DONE]"))),
    Case(
        "no_done_until_close", steps(without(b"[DONE]"), head=head_with(), close=b"", chunked=False)
    ),
    Case("gzip", in_gzip()),
    Case("chunked_trailers", steps(plain_events(), close=b"0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n")),
    Case(
        "chunk_extensions",
        [
            Send(HEAD),
            Wait(FIRST_S),
            Send(f"{len(whole_body()):x};a=b\r\n".encode() + whole_body() + b"\r\n", TOKENS, True),
            Send(LAST_CHUNK),
        ],
    ),
    Case("slow_headers", slow_head()),
    Case("interim_100", [Send(b"HTTP/1.1 100 Continue\r\n\r\n"), *steps(plain_events())]),
    Case("one_byte_reads", byte_by_byte(), tokens=TOKENS, events=3),
    Case("two_megabyte_event", big_event()),
    Case("everything_in_one_read", coalesced(), expect={"decode_tps": None}),
    Case("byte_order_mark", with_bom()),
    Case("multi_line_data", multi_line_data()),
    Case("http_1_0_close", until_close(plain_events(), "HTTP/1.0 200 OK")),
    Case(
        "content_length",
        steps(
            plain_events(),
            head=head_with(f"content-length: {len(whole_body())}"),
            close=b"",
            chunked=False,
        ),
    ),
    Case("done_then_a_late_end", done_early()),
    Case("done_then_silence", [*steps(plain_events(), close=b""), Hold()]),
    Case("gzip_flushed_with_each_event", compressed("gzip")),
    Case("deflate_flushed_with_each_event", compressed("deflate")),
    Case("chunks_of_one_byte", chunks_of_one_byte()),
    Case("an_event_over_two_chunks", halves()),
    Case("chunk_sizes_in_capitals_and_zeros", odd_sizes()),
    Case("bytes_behind_the_last_chunk", steps(plain_events(), close=LAST_CHUNK + HEAD)),
    Case(
        "kept_alive_and_held_open",
        [*steps(plain_events(), head=KEEP_ALIVE), Hold()],
        check=lambda r: r["e2e_s"] < 5,
    ),
    Case("kept_alive_and_closed_at_once", steps(plain_events(), head=KEEP_ALIVE)),
    Case(
        "http_1_0_kept_alive",
        [*with_length("HTTP/1.0 200 OK", "connection: keep-alive"), Hold()],
        check=lambda r: r["e2e_s"] < 5,
    ),
    Case("chunked_and_a_length", steps(plain_events(), head=CHUNKED_AND_LENGTH)),
    Case("head_with_line_feeds_only", steps(plain_events(), head=HEAD.replace(b"\r", b""))),
    Case("head_in_capitals", steps(plain_events(), head=HEAD.upper())),
    Case("no_content_type", steps(plain_events(), head=NO_TYPE)),
    Case("two_interim_heads", [Send(EARLY_HINTS * 2), *steps(plain_events())]),
    Case("head_and_stream_in_one_send", all_at_once(), expect={"decode_tps": None}),
    Case("named_events", steps([(b"event: message\n" + d, n) for d, n in plain_events()])),
    Case("other_fields", steps([(b"id: 1\nretry: 9\nx\n" + d, n) for d, n in plain_events()])),
    Case("comment_behind_done", steps([*plain_events(), (b": bye\n\n", 0)])),
    Case("two_megabyte_comment", steps([(b": " + b"x" * (2 << 20) + b"\n\n", 0), *plain_events()])),
    Case("byte_order_mark_inside_text", deltas([{"content": "\ufeffa"}] * TOKENS)),
    Case("text_that_looks_like_framing", deltas([{"content": "x\n\ndata: [DONE]\n\n"}] * TOKENS)),
]
