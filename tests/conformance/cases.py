"""The table: each stream that a server may speak, and what a right client reads in it.

In:  nothing. Out: CASES, one `Case` a row: script, outcome, token count, output events, and what
else must be so. The true times are not here: the scripted server notes them when it speaks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .scripted_server import Hold, Reset, Send, Step, StopListening, Wait
from .scripts import (
    FLAT,
    NESTED,
    big_event,
    both_reasoning_keys,
    broken_after,
    byte_by_byte,
    coalesced,
    continuous,
    cut_text,
    details,
    done_early,
    error_reply,
    four_a_chunk,
    head_with,
    in_gzip,
    in_unknown_coding,
    late_usage,
    mixed_reasoning,
    multi_line_data,
    no_tokens_forced,
    null_usage,
    pings,
    reply,
    role_early,
    separators,
    slow_head,
    texts,
    token_ids,
    tool_calls,
    until_close,
    usage_in_finish,
    whole_body,
    with_error,
    without,
)
from .speech import (
    DONE,
    FIRST_S,
    HEAD,
    LAST_CHUNK,
    PROMPT,
    ROLE,
    TOKENS,
    event,
    framed,
    plain_events,
    steps,
    usage,
)

Request = dict[str, Any]


@dataclass(frozen=True)
class Case:
    name: str
    script: list[Step]
    outcome: str = "ok"
    tokens: int | None = TOKENS
    events: int = TOKENS
    error: tuple[str, str] = ("", "")  # kind, and a part of the message
    status: int | None = None
    expect: dict[str, Any] = field(default_factory=dict)  # further fields of the request
    check: Callable[[Request], bool] | None = None
    options: tuple[str, ...] = ()  # further arguments of the client
    epoll_only: bool = False


def usage_came_late(request: Request) -> bool:
    """The end of the stream is late, the last output is not."""
    return request["t_end_s"] - request["t_last_s"] > 0.14


def gaps_covered(request: Request) -> bool:
    """Every token is accounted for by the events themselves."""
    return sum(count or 0 for count in request["events"]["tokens"]) == TOKENS


FAST = ("--timeout-first-token", "0.2", "--timeout-between-tokens", "0.2")
NO_TIME = {"t_first_s": None, "ttft_s": None, "decode_rate": None, "completion_tokens": None}
NONE: dict[str, Any] = {"tokens": None, "events": 0, "expect": NO_TIME}

CASES: list[Case] = [
    Case("plain", steps(plain_events()), expect={"prompt_tokens": PROMPT, "n_first_delta": 1}),
    Case("role_only_chunk_early", role_early(), check=lambda r: r["ttft_s"] > 0.19),
    Case("four_tokens_a_chunk", four_a_chunk(), events=4, expect={"n_first_delta": 1}),
    Case("reasoning_content", mixed_reasoning("reasoning_content")),
    Case("reasoning", mixed_reasoning("reasoning")),
    Case("reasoning_under_both_keys", both_reasoning_keys()),
    Case("tool_calls_only", tool_calls(), expect={"finish_reason": "tool_calls"}),
    Case("data_without_space", steps(plain_events(space=""))),
    Case("crlf", steps(plain_events(end="\r\n"))),
    Case("cr", steps(plain_events(end="\r"))),
    Case("cut_in_utf8_character", cut_text("汉字", lambda data: data.index("汉".encode()) + 1)),
    Case("cut_in_data_field", cut_text("x", lambda data: 5)),
    Case("cut_before_space_in_text", cut_text("a b", lambda data: data.index(b"a b") + 1)),
    Case("cut_between_the_last_newlines", cut_text("x", lambda data: len(data) - 1)),
    Case("unicode_line_separators", separators()),
    Case(
        "error_first",
        with_error(event(NESTED), after=0),
        "stream_error",
        error=("error", "engine died"),
        status=500,
        **NONE,
    ),
    Case(
        "error_mid_stream",
        with_error(event(NESTED)),
        "stream_error",
        tokens=None,
        events=4,
        error=("error", "engine died"),
        status=500,
    ),
    Case(
        "error_as_text",
        with_error(event(json.dumps({"error": "out of memory"}))),
        "stream_error",
        tokens=None,
        events=4,
        error=("error", "out of memory"),
        status=200,
    ),
    Case(
        "object_error_mid_stream",
        with_error(event(FLAT)),
        "stream_error",
        tokens=None,
        events=4,
        error=("object_error", "engine died"),
        status=500,
    ),
    Case(
        "event_error_mid_stream",
        with_error(event(json.dumps({"message": "engine died"}), name="error")),
        "stream_error",
        tokens=None,
        events=4,
        error=("error_event", "engine died"),
    ),
    Case(
        "event_error_with_plain_text",
        with_error(event("engine died", name="error")),
        "stream_error",
        tokens=None,
        events=4,
        error=("error_event", "engine died"),
    ),
    Case(
        "error_then_silence",
        with_error(event(NESTED), hold=True),
        "stream_error",
        tokens=None,
        events=4,
        error=("error", "engine died"),
    ),
    Case(
        "tcp_abort",
        broken_after(4, Reset()),
        "connection",
        tokens=None,
        events=4,
        error=("reset", ""),
        epoll_only=True,  # httpx does not tell a reset from other read errors
    ),
    Case(
        "body_ends_without_finish_reason",
        broken_after(4, Send(LAST_CHUNK)),
        "truncated",
        tokens=None,
        events=4,
        error=("no_finish_reason", "5 events"),
        epoll_only=True,  # httpx: closed_early
    ),
    Case(
        "done_without_finish_reason",
        broken_after(4, Send(framed(event(DONE)) + LAST_CHUNK)),
        "truncated",
        tokens=None,
        events=4,
        error=("no_finish_reason", ""),
    ),
    Case(
        "closed_in_mid_body",
        broken_after(4),
        "truncated",
        tokens=None,
        events=4,
        error=("closed_early", "5 events"),
    ),
    Case(
        "closed_before_the_last_chunk",
        steps(plain_events()[:-2], close=b""),
        "truncated",
        tokens=None,
        error=("closed_early", ""),
    ),
    Case("no_usage", steps(without(b"usage")), tokens=None, expect={"decode_rate": None}),
    Case("usage_only_in_finish_chunk", usage_in_finish()),
    Case(
        "usage_late",
        late_usage(),
        check=lambda r: r["e2e_s"] - r["t_last_s"] + r["t_start_s"] > 0.15,
    ),
    Case("usage_null", null_usage()),
    Case("usage_continuous", continuous(), check=gaps_covered),
    Case("usage_continuous_and_no_final", continuous(final_usage=False), check=gaps_covered),
    Case(
        "usage_continuous_four_a_chunk",
        four_a_chunk(usage=lambda number: usage(4 * number + 4)),
        events=4,
        expect={"n_first_delta": 4},
        check=gaps_covered,
    ),
    Case(
        "token_ids",
        token_ids(),
        events=TOKENS - 2,
        expect={"n_first_delta": 3},
        check=gaps_covered,
    ),
    Case("usage_details", details(), expect={"cached_tokens": 32, "reasoning_tokens": 5}),
    Case("comments", pings()),
    Case("no_done", steps(without(b"[DONE]"))),
    Case(
        "no_done_until_close", steps(without(b"[DONE]"), head=head_with(), close=b"", chunked=False)
    ),
    Case(
        "finish_abort",
        steps(plain_events(finish="abort")),
        "aborted",
        error=("abort", ""),
    ),
    Case(
        "finish_error",
        steps(plain_events(finish="error")),
        "stream_error",
        error=("finish_reason", ""),
    ),
    Case(
        "fewer_tokens_than_forced",
        steps(no_tokens_forced(9)),
        "short",
        tokens=9,
        events=9,
        error=("short", "9 tokens where 16"),
    ),
    Case(
        "fewer_tokens_allowed",
        steps(no_tokens_forced(9)),
        tokens=9,
        events=9,
        options=("--no-ignore-eos",),
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
    Case(
        "byte_order_mark", [Send(HEAD), Send(framed(b"\xef\xbb\xbf")), *steps(plain_events())[1:]]
    ),
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
    Case(
        "content_length_cut_short",
        steps(plain_events()[:6], head=head_with("content-length: 9999"), close=b"", chunked=False),
        "truncated",
        tokens=None,
        events=5,
        error=("closed_early", ""),
    ),
    Case(
        "error_400_nested",
        error_reply("400 Bad Request", json.loads(NESTED)),
        "http_error",
        error=("http", "engine died"),
        status=400,
        **NONE,
    ),
    Case(
        "error_503_flat",
        error_reply("503 Service Unavailable", json.loads(FLAT)),
        "http_error",
        error=("http", "engine died"),
        status=503,
        **NONE,
    ),
    Case(
        "error_404_detail",
        error_reply("404 Not Found", {"detail": "Not Found"}),
        "http_error",
        error=("http", "Not Found"),
        status=404,
        **NONE,
    ),
    Case(
        "error_500_text_until_close",
        reply("500 Internal Server Error", b"Internal Server Error", length=False),
        "http_error",
        error=("http", "Internal Server Error"),
        status=500,
        **NONE,
    ),
    Case(
        "error_429_retry_after",
        error_reply("429 Too Many Requests", json.loads(NESTED), "retry-after: 7"),
        "http_error",
        error=("http", "retry-after: 7"),
        status=429,
        **NONE,
    ),
    Case(
        "redirect",
        reply("307 Temporary Redirect", b"", "location: http://127.0.0.1:1/v1/chat/completions"),
        "http_error",
        error=("http", "location: http://127.0.0.1:1/"),
        status=307,
        **NONE,
    ),
    Case(
        "json_reply_no_stream",
        error_reply("200 OK", {"object": "chat.completion", "choices": []}),
        "stream_error",
        error=("not_a_stream", "no event stream"),
        status=200,
        **NONE,
    ),
    Case(
        "json_reply_with_error",
        error_reply("200 OK", json.loads(FLAT)),
        "stream_error",
        error=("object_error", "engine died"),
        status=500,
        **NONE,
    ),
    Case(
        "not_json",
        with_error(event('{"choices": [')),
        "stream_error",
        tokens=None,
        events=4,
        error=("not_json", '{"choices": ['),
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
    Case("done_then_a_late_end", done_early()),
    Case("done_then_silence", [*steps(plain_events(), close=b""), Hold()]),
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
        tokens=None,
        events=4,
        error=("between_tokens", "0.2 s"),
        options=FAST,
    ),
    Case(
        "endless",
        [
            *broken_after(4),
            *[s for d in texts(["x"] * 80, False) for s in (Send(framed(d[0])), Wait(0.01))],
        ],
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
        tokens=None,
        events=4,
        error=("server_gone", "nothing listens"),
    ),
    Case(
        "server_dies_with_reset",
        [*broken_after(4), StopListening(), Reset()],
        "server_gone",
        tokens=None,
        events=4,
        error=("server_gone", "nothing listens"),
    ),
]
