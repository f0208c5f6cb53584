"""Rows about replies that are odd: one of them must cost no more than its own request."""

from __future__ import annotations

import json
import pickle

from .case import FOUR, NONE, Case, Request, kinds_are
from .scripted_server import Send, Wait
from .scripts import reply, with_error
from .scripts_odd import (
    BOOM,
    DEEP,
    behind_done,
    comments_only,
    done_and_more_in_one_send,
    finishes,
    gzip_lacks_its_end,
    head,
    in_members,
    last_usage,
    lengths,
    no_stream,
    size_line,
    two_usages,
    usage_with,
)
from .speech import FIRST_S, HEAD, PROMPT, TOKENS, event, plain_events, steps


def writable(request: Request) -> bool:
    """By strict JSON, and through a pipe."""
    return pickle.loads(pickle.dumps(request)) == json.loads(json.dumps(request, allow_nan=False))


def cut_where_it_is_deep(request: Request) -> bool:
    return "[" * 19 + "null" in json.dumps(request["usage"]) and writable(request)


def more_is_none(request: Request) -> bool:
    return request["usage"]["more"] is None and writable(request)


BAD_HTTP = {"outcome": "connection", "error": ("bad_http", ""), **NONE}
REFUSED = {"outcome": "stream_error", "error": ("error", "boom"), "status": 507, **NONE}
NO_STREAM = {"outcome": "stream_error", "status": 200, **NONE}
TWO_CODINGS = HEAD.replace(b"chunked", b"gzip, chunked")
UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
UNKNOWN = {"completion_tokens": None, "decode_rate": None, "e2e_tps": None}

ODD: list[Case] = [
    # -- figures that no reader can hold
    Case("usage_with_nan", usage_with("NaN"), check=more_is_none),
    Case("usage_with_infinity", usage_with("-Infinity"), check=more_is_none),
    Case("usage_beyond_a_double", usage_with("1e999"), check=more_is_none),
    Case("usage_beyond_2_to_the_53", usage_with("9007199254740993"), check=more_is_none),
    Case("usage_nested_deeply", usage_with("[" * 300 + "]" * 300), check=cut_where_it_is_deep),
    Case(
        "tokens_of_400_digits",
        last_usage(f'{{"prompt_tokens": {PROMPT}, "completion_tokens": 1{"0" * 400}}}'),
        tokens=None,
        expect={**UNKNOWN, "prompt_tokens": PROMPT},
        check=writable,
    ),
    Case(
        "tokens_below_zero",
        last_usage('{"prompt_tokens": 4, "completion_tokens": -3}'),
        tokens=None,
        expect=UNKNOWN,
    ),
    Case(
        "error_code_of_400_digits",
        with_error(event(f'{{"error": {{"message": "boom", "code": 5{"0" * 400}}}}}')),
        "stream_error",
        **FOUR,
        error=("error", "boom"),
        status=200,
    ),
    Case(
        "event_nested_too_deeply",
        with_error(event(DEEP)),
        "stream_error",
        **FOUR,
        error=("not_json", "[[["),
    ),
    Case(
        "error_500_nested_too_deeply",
        reply("500 Oops", DEEP.encode(), "content-type: application/json"),
        "http_error",
        error=("http", "[[["),
        status=500,
        **NONE,
    ),
    Case(
        "json_reply_nested_too_deeply",
        no_stream("application/json", DEEP.encode()),
        error=("not_a_stream", "[[["),
        **NO_STREAM,
    ),
    # -- what came before must not be lost, what comes after must not count
    Case("usage_empty_at_last", two_usages({}), expect={"prompt_tokens": PROMPT}),
    Case("usage_without_counts_at_last", two_usages({"completion_tokens": None})),
    Case("abort_of_one_choice", finishes("abort", "length"), "aborted", error=("abort", "")),
    Case(
        "error_of_one_choice",
        finishes("error", "stop"),
        "stream_error",
        error=("finish_reason", ""),
    ),
    Case(
        "events_behind_done",
        behind_done(),
        expect={"finish_reason": "length"},
        check=lambda r: r["events"]["kind"][-1] == "done" and r["t_last_s"] < r["t_end_s"],
    ),
    Case("done_and_more_in_one_send", done_and_more_in_one_send()),
    # -- codings
    Case("gzip_of_two_members", in_members(2)),
    Case("gzip_of_a_member_for_each_event", in_members(TOKENS + 3), check=kinds_are("role")),
    Case(
        "gzip_lacks_its_end",
        gzip_lacks_its_end(),
        "truncated",
        tokens=None,
        error=("coding_cut", "17 events"),
    ),
    # -- replies that are no stream
    Case("error_as_plain_text", no_stream("text/plain"), **REFUSED),
    Case("error_as_problem_json", no_stream("application/problem+json"), **REFUSED),
    Case("error_without_a_type", no_stream(""), **REFUSED),
    Case("error_without_a_type_until_close", no_stream("", length=False), **REFUSED),
    Case("error_labelled_as_a_stream", no_stream("text/event-stream", BOOM + b"\n\n"), **REFUSED),
    Case(
        "plain_text_instead_of_a_stream",
        no_stream("text/plain", b"busy\n\n", length=False),
        error=("not_a_stream", "busy"),
        **NO_STREAM,
    ),
    Case(
        "comments_and_nothing_else",
        comments_only(),
        "truncated",
        error=("no_finish_reason", "0 events"),
        epoll_only=True,  # httpx: closed_early
        **NONE,
    ),
    # -- heads and chunk sizes that two readers could read differently
    Case("status_with_a_superscript", head(b"HTTP/1.1 20\xb2 OK\r\n"), **BAD_HTTP),
    Case("status_of_four_digits", head(b"HTTP/1.1 0200 OK\r\n"), **BAD_HTTP),
    Case("length_with_a_superscript", lengths("\u00b2"), **BAD_HTTP),
    Case("length_of_5000_digits", lengths("9" * 5000), **BAD_HTTP),
    Case("two_lengths", lengths("20", "4000"), **BAD_HTTP),
    Case("two_lengths_in_a_line", lengths("20, 4000"), **BAD_HTTP),
    Case(
        "transfer_coding_that_is_not_known",
        steps([(data, 0) for data, _ in plain_events()], head=TWO_CODINGS),
        **BAD_HTTP,
    ),
    Case("chunk_size_with_0x", size_line(b"0xSIZE"), **{**BAD_HTTP, **FOUR, "expect": {}}),
    Case("chunk_size_with_underscore", size_line(b"0_SIZE"), **{**BAD_HTTP, **FOUR, "expect": {}}),
    Case(
        "status_101",
        [Wait(FIRST_S), Send(UPGRADE)],
        "http_error",
        error=("http", ""),
        status=101,
        epoll_only=True,  # httpx: bad_http, as nobody asked for another protocol
        **NONE,
    ),
]
