"""Rows about streams that end otherwise than they should: cut, reset, silent, without a server."""

from __future__ import annotations

from .case import FAST, FOUR, NONE, Case
from .scripted_server import Hold, Reset, Send, StopListening, Wait
from .scripts import broken_after, endless, head_with, in_unknown_coding, reply, until_close
from .scripts_framing import GZIP_HEAD, compressed
from .scripts_meaning import empty_finish
from .speech import (
    DONE,
    FIRST_S,
    HEAD,
    LAST_CHUNK,
    ROLE,
    TOKENS,
    event,
    framed,
    plain_events,
    steps,
)

ENDS: list[Case] = [
    Case(
        "tcp_abort",
        broken_after(4, Reset()),
        "connection",
        **FOUR,
        error=("reset", ""),
        epoll_only=True,  # httpx does not tell a reset from other read errors
    ),
    Case(
        "body_ends_without_finish_reason",
        broken_after(4, Send(LAST_CHUNK)),
        "truncated",
        **FOUR,
        error=("no_finish_reason", "5 events"),
        epoll_only=True,  # httpx: closed_early
    ),
    Case(
        "ends_and_every_finish_reason_was_empty",
        steps(empty_finish(whole=False)),
        "truncated",
        tokens=None,
        error=("no_finish_reason", "16 events"),
        epoll_only=True,  # httpx: closed_early
    ),
    Case(
        "done_without_finish_reason",
        broken_after(4, Send(framed(event(DONE)) + LAST_CHUNK)),
        "truncated",
        **FOUR,
        error=("no_finish_reason", ""),
    ),
    Case(
        "closed_in_mid_body",
        broken_after(4),
        "truncated",
        **FOUR,
        error=("closed_early", "5 events"),
    ),
    Case(
        "closed_before_the_last_chunk",
        steps(plain_events()[:-2], close=b""),
        "truncated",
        tokens=None,
        error=("closed_early", ""),
    ),
    Case(
        "content_length_cut_short",
        steps(plain_events()[:6], head=head_with("content-length: 9999"), close=b"", chunked=False),
        "truncated",
        tokens=None,
        events=5,
        error=("closed_early", ""),
    ),
    Case(
        "not_http",
        [Wait(FIRST_S), Send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")],
        "connection",
        error=("bad_http", ""),
        **NONE,
    ),
    Case(
        "closed_before_any_reply",
        [Wait(FIRST_S)],
        "connection",
        error=("closed_before_reply", ""),
        **NONE,
    ),
    Case(
        "unknown_content_coding",
        in_unknown_coding(),
        "client",
        error=("unreadable", "br"),
        **NONE,
    ),
    Case(
        "silence_before_the_head",
        [Hold()],
        "timeout",
        error=("first_token", "0.2 s"),
        options=FAST,
        **NONE,
    ),
    Case(
        "role_then_silence",
        [Send(HEAD), Send(framed(event(ROLE))), Hold()],
        "timeout",
        error=("first_token", "0.2 s"),
        options=FAST,
        **NONE,
    ),
    Case(
        "output_then_pings_only",
        [
            *broken_after(4),
            *[step for _ in range(40) for step in (Wait(0.02), Send(framed(b": ping\n\n")))],
            Hold(),
        ],
        "timeout",
        **FOUR,
        error=("between_tokens", "0.2 s"),
        options=FAST,
    ),
    Case(
        "endless",
        endless(),
        "timeout",
        tokens=None,
        events=-1,
        error=("total", "0.3 s"),
        options=("--timeout-total", "0.3"),
    ),
    Case(
        "server_dies_mid_stream",
        [*broken_after(4), StopListening()],
        "server_gone",
        **FOUR,
        error=("server_gone", "nothing listens"),
    ),
    Case(
        "server_dies_with_reset",
        [*broken_after(4), StopListening(), Reset()],
        "server_gone",
        **FOUR,
        error=("server_gone", "nothing listens"),
    ),
    Case(
        "empty_reply",
        [Send(HEAD), Wait(FIRST_S), Send(LAST_CHUNK)],
        "truncated",
        error=("no_finish_reason", "0 events"),
        epoll_only=True,  # httpx: closed_early
        **NONE,
    ),
    Case(
        "page_instead_of_a_stream",
        reply("200 OK", b"<html>busy</html>", "content-type: text/html"),
        "truncated",
        error=("no_finish_reason", "0 events"),
        epoll_only=True,  # httpx: closed_early
        **NONE,
    ),
    Case(
        "head_only_then_closed",
        [Send(HEAD), Wait(FIRST_S)],
        "truncated",
        error=("closed_early", "0 events"),
        **NONE,
    ),
    Case(
        "half_a_head_then_closed",
        [Wait(FIRST_S), Send(HEAD[:30])],
        "connection",
        error=("closed_before_reply", ""),
        **NONE,
    ),
    Case(
        "interim_head_then_closed",
        [Wait(FIRST_S), Send(b"HTTP/1.1 100 Continue\r\n\r\n")],
        "connection",
        error=("closed_before_reply", ""),
        **NONE,
    ),
    Case(
        "half_a_head_then_silence",
        [Send(HEAD[:30]), Hold()],
        "timeout",
        error=("first_token", "0.2 s"),
        options=FAST,
        **NONE,
    ),
    Case(
        "interim_head_then_silence",
        [Send(b"HTTP/1.1 100 Continue\r\n\r\n"), Hold()],
        "timeout",
        error=("first_token", "0.2 s"),
        options=FAST,
        **NONE,
    ),
    Case(
        "reset_before_the_head",
        [Wait(FIRST_S), Reset()],
        "connection",
        error=("reset", ""),
        epoll_only=True,  # httpx does not tell a reset from other read errors
        **NONE,
    ),
    Case(
        "server_dies_before_the_head",
        [Wait(FIRST_S), StopListening()],
        "server_gone",
        error=("server_gone", "nothing listens"),
        **NONE,
    ),
    Case(
        "closed_inside_the_finish_event",
        [*steps(plain_events()[:-3], close=b""), Send(framed(plain_events()[-3][0][:-1]))],
        "truncated",
        tokens=None,
        events=TOKENS - 1,
        error=("closed_early", "16 events"),
    ),
    Case(
        "closed_inside_done",
        steps([*plain_events()[:-1], (b"data: [DONE]\n", 0)], close=b""),
        "truncated",
        error=("closed_early", "18 events"),
    ),
    Case(
        "reset_behind_the_finish",
        [*steps(plain_events()[:-1], close=b""), Wait(0.05), Reset()],
        "connection",
        error=("reset", ""),
        epoll_only=True,
    ),
    Case("reset_behind_done", [*steps(plain_events(), close=b""), Wait(0.02), Reset()]),
    Case(
        "until_close_without_finish",
        until_close(plain_events()[:5]),
        "truncated",
        error=("closed_early", "5 events"),
        **FOUR,
    ),
    Case(
        "closed_inside_a_chunk",
        [*broken_after(4), Send(framed(plain_events()[5][0])[:20])],
        "truncated",
        error=("closed_early", "5 events"),
        **FOUR,
    ),
    Case(
        "no_chunk_where_one_must_be",
        [*broken_after(4), Send(b"zz\r\n"), Hold()],
        "connection",
        error=("bad_http", ""),
        **FOUR,
    ),
    Case(
        "gzip_cut_short",
        compressed("gzip", events=5),
        "truncated",
        error=("closed_early", "5 events"),
        **FOUR,
    ),
    Case(
        "gzip_that_is_none",
        steps([(data, 0) for data, _ in plain_events()], head=GZIP_HEAD),
        "client",
        error=("unreadable", ""),
        **NONE,
    ),
]
