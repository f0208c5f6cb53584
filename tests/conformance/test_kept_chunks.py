"""Whole chunks are kept as they came and searched for an end later: none is overlooked.

In:  streams whose last words are in a chunk of their own, while the connection stays open.
Out: the run ends long before the time limit between tokens, with the outcome that the words give.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from .driving import run_client
from .scripted_server import Hold, Send, Step, Wait, serving
from .speech import DONE, event, framed, plain_events, steps

LIMIT_S = 60  # between tokens: the run that waits for it has overlooked the end
SOON_S = 20
LOOK_S = 0.3  # for the first token: at this time a stream is decoded as far as it has come
BEFORE_LOOK = Wait(0.7 * LOOK_S)  # what comes then is decoded before it was searched
AFTER_LOOK = Wait(2 * LOOK_S)

BEGUN = steps(plain_events()[:4], close=b"", first_s=0.01, gap_s=0.0)
ANSWER = steps(plain_events()[:-1], close=b"", first_s=0.01, gap_s=0.0)
FAILURE = Send(framed(event(json.dumps({"error": {"message": "boom", "code": 500}}))))
LAST = event(DONE)
SCRIPTS: dict[str, tuple[list[Step], str]] = {
    "done": ([*ANSWER, Send(framed(LAST)), Hold()], "ok"),
    "done, before a look": ([*ANSWER, BEFORE_LOOK, Send(framed(LAST)), Hold()], "ok"),
    "done, cut, before a look": (
        [*ANSWER, Send(framed(LAST[:9])), BEFORE_LOOK, Send(framed(LAST[9:])), Hold()],
        "ok",
    ),
    "error": ([*BEGUN, FAILURE, Hold()], "stream_error"),
    "error, before a look": ([*BEGUN, BEFORE_LOOK, FAILURE, Hold()], "stream_error"),
}


def run(script: list[Step], first_s: float = LOOK_S) -> dict[str, Any]:
    with serving(script) as server:
        limits = (f"--timeout-first-token={first_s}", f"--timeout-between-tokens={LIMIT_S}")
        return run_client(server.port, *limits)


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_end_in_the_words_alone_is_found(name: str) -> None:
    script, outcome = SCRIPTS[name]
    found = run(script)
    assert found["requests"][0]["outcome"] == outcome, found["requests"][0]["error"]
    assert found["client"]["wall_s"] < SOON_S


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_error_reply_in_two_parts_is_read_whole(framing: str) -> None:
    """A reply that is an HTTP error has its own time to be read in; the word in it is no end."""
    body = json.dumps({"error": {"message": "out of memory, later"}}).encode()
    parts = body[:30], body[30:]
    head = b"HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\n"
    if framing == "length":
        head += b"content-length: %d\r\n\r\n" % len(body)
        sent = parts
    else:
        head += b"transfer-encoding: chunked\r\n\r\n"
        sent = framed(parts[0]), framed(parts[1]) + b"0\r\n\r\n"
    found = run([Send(head + sent[0]), AFTER_LOOK, Send(sent[1])], first_s=LIMIT_S)
    (request,) = found["requests"]
    assert request["outcome"] == "http_error"
    assert request["error"]["message"] == "out of memory, later"
