"""Scripts of the table's rows: what the server puts on the wire, and when.

In:  nothing. Out: functions that give a list of steps each.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

from .scripted_server import Hold, Send, Step, Wait
from .speech import (
    DONE,
    FIRST_S,
    HEAD,
    LAST_CHUNK,
    ROLE,
    TOKENS,
    WORDS,
    chunk,
    event,
    framed,
    pieces,
    plain_events,
    steps,
    usage,
    usage_chunk,
)


def tail(usage_seen: bool = True) -> list[tuple[bytes, int]]:
    return [*([(event(usage_chunk()), 0)] if usage_seen else []), (event(DONE), 0)]


def texts(words: list[str], finish: bool = True, **more: Any) -> list[tuple[bytes, int]]:
    found = []
    for number, word in enumerate(words):
        last = finish and number == len(words) - 1
        found.append((event(chunk({"content": word}, "length" if last else None, **more)), 1))
    return found


def role_early() -> list[Step]:
    script: list[Step] = [Send(HEAD), Wait(0.005), Send(framed(event(ROLE))), Wait(0.19)]
    return script + steps(plain_events()[1:])[2:]


def four_a_chunk(**more: Any) -> list[Step]:
    groups = ["".join(WORDS[at : at + 4]) for at in range(0, TOKENS, 4)]
    found = [(event(ROLE), 0)]
    for number, group in enumerate(groups):
        finish = "length" if number == 3 else None
        extra = {key: value(number) for key, value in more.items()}
        found.append((event(chunk({"content": group}, finish, **extra)), 1))
    return steps(found + tail())


def mixed_reasoning(key: str) -> list[Step]:
    found = [(event(ROLE), 0)]
    found += [(event(chunk({key: word})), 1) for word in WORDS[:8]]
    return steps(found + texts(WORDS[8:]) + tail())


def both_reasoning_keys() -> list[Step]:
    found = [(event(ROLE), 0)]
    found += [(event(chunk({"reasoning": w, "reasoning_content": w})), 1) for w in WORDS[:8]]
    return steps(found + texts(WORDS[8:]) + tail())


def tool_call(number: int = 0, **function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": number, "function": function}]}


def tool_calls() -> list[Step]:
    found = [(event(ROLE), 0), (event(chunk(tool_call(name="read_file"))), 1)]
    found += [(event(chunk(tool_call(arguments=word))), 1) for word in WORDS[1:]]
    found.append((event(chunk({}, "tool_calls")), 0))
    return steps(found + tail())


def cut_text(text: str, cut: Callable[[bytes], int], chunked: bool = True) -> list[Step]:
    """Fifteen plain words, then one event cut into two sends with a pause between."""
    script = steps([(event(ROLE), 0), *texts(WORDS[:15], finish=False)], close=b"")
    data = event(chunk({"content": text}, "length"))
    one, two = pieces(data, [cut(data)])
    script += [Send(framed(one)), Wait(0.02), Send(framed(two), 1)]
    return script + steps(tail())[2:]


def with_error(data: bytes, after: int = 4, hold: bool = False) -> list[Step]:
    found = [(event(ROLE), 0), *texts(WORDS[:after], finish=False)] if after else []
    script = steps([*found, (data, 0)], close=b"")
    return script + ([Hold()] if hold else steps([(event(DONE), 0)])[2:])


NESTED = json.dumps(
    {"error": {"message": "engine died", "type": "InternalServerError", "code": 500}}
)
FLAT = json.dumps({"object": "error", "message": "engine died", "code": 500})


def broken_after(count: int, *last: Step) -> list[Step]:
    return [*steps([(event(ROLE), 0), *texts(WORDS[:count], finish=False)], close=b""), *last]


def reply(status: str, body: bytes, *headers: str, length: bool = True) -> list[Step]:
    lines = [f"HTTP/1.1 {status}", *headers]
    if length:
        lines.append(f"content-length: {len(body)}")
    return [Wait(FIRST_S), Send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)]


def error_reply(status: str, body: Any, *headers: str) -> list[Step]:
    return reply(status, json.dumps(body).encode(), "content-type: application/json", *headers)


def whole_body(events: list[tuple[bytes, int]] | None = None) -> bytes:
    return b"".join(data for data, _ in (events or plain_events()))


def head_with(*headers: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    lines = [status, "content-type: text/event-stream", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def in_gzip() -> list[Step]:
    head = head_with("content-encoding: gzip", "transfer-encoding: chunked")
    body = framed(gzip.compress(whole_body()))
    return [Send(head), Wait(FIRST_S), Send(body, TOKENS, True), Send(LAST_CHUNK)]


def in_unknown_coding() -> list[Step]:
    head = head_with("content-encoding: br", "transfer-encoding: chunked")
    return steps([(data, 0) for data, _ in plain_events()], head=head)


def until_close(events: list[tuple[bytes, int]], status: str = "HTTP/1.1 200 OK") -> list[Step]:
    return steps(events, head=head_with(status=status), close=b"", chunked=False)


def with_bom() -> list[Step]:
    return [Send(HEAD), Send(framed(b"\xef\xbb\xbf")), *steps(plain_events())[1:]]


def endless() -> list[Step]:
    script = broken_after(4)
    for data, _ in texts(["x"] * 80, finish=False):
        script += [Send(framed(data)), Wait(0.01)]
    return script


def done_early() -> list[Step]:
    """[DONE] ends the stream, however long the server takes to end the body."""
    return [*steps(plain_events(), close=b""), Wait(0.12), Send(LAST_CHUNK)]


def byte_by_byte() -> list[Step]:
    """A short stream, head and chunk framing included, one byte a send."""
    words = WORDS[:3]
    events = [(event(ROLE), 0), *texts(words), *tail()]
    script: list[Step] = [Send(HEAD[n : n + 1]) for n in range(len(HEAD))]
    for data, ends in events:
        wire = framed(data)
        for n in range(len(wire)):
            # the event is whole with its last LF; the CRLF that follows is framing
            last = n == len(wire) - 3
            script.append(Send(wire[n : n + 1], ends if last else 0, last and b"[DONE]" in data))
    return [*script, *[Send(LAST_CHUNK[n : n + 1]) for n in range(len(LAST_CHUNK))]]


def big_event() -> list[Step]:
    words = [*WORDS[:15], "x" * (2 << 20)]
    return steps(plain_events(words))


def continuous(final_usage: bool = True) -> list[Step]:
    found = [(event(chunk({"role": "assistant", "content": ""}, usage=usage(0))), 0)]
    for number, word in enumerate(WORDS):
        finish = "length" if number == TOKENS - 1 else None
        found.append((event(chunk({"content": word}, finish, usage=usage(number + 1))), 1))
    return steps(found + (tail() if final_usage else [(event(DONE), 0)]))


def token_ids() -> list[Step]:
    """A token without text comes first (an empty delta), then events of two and of one."""
    found = [(event(ROLE), 0), (event(chunk({"content": ""}, choice_token_ids=[7])), 0)]
    found.append((event(chunk({"content": "ab"}, choice_token_ids=[8, 9])), 1))
    for number in range(TOKENS - 3):
        finish = "length" if number == TOKENS - 4 else None
        found.append((event(chunk({"content": "c"}, finish, choice_token_ids=[number])), 1))
    return steps(found + tail())


def coalesced() -> list[Step]:
    """Everything in one send."""
    return [Send(HEAD), Wait(FIRST_S), Send(framed(whole_body()) + LAST_CHUNK, TOKENS, True)]


def pings() -> list[Step]:
    found: list[tuple[bytes, int]] = [(b": ping - now\n\n", 0)]
    for data, ends in plain_events():
        found += [(data, ends), (b": ping - now\r\n\r\n", 0)]
    return steps(found)


def without(part: bytes, events: list[tuple[bytes, int]] | None = None) -> list[tuple[bytes, int]]:
    return [pair for pair in (events or plain_events()) if part not in pair[0]]


def null_usage(final: bool = True) -> list[Step]:
    found = [(event(chunk({"role": "assistant", "content": ""}, usage=None)), 0)]
    return steps(found + texts(WORDS, usage=None) + tail(usage_seen=final))


def late_usage(done: bool = True) -> list[Step]:
    before = plain_events()[:-2]
    return [*steps(before, close=b""), Wait(0.15), *steps(tail()[: None if done else 1])[2:]]


def usage_in_finish(again: bool = False) -> list[Step]:
    found = [(event(ROLE), 0), *texts(WORDS, finish=False)]
    found += [(event(chunk({}, "length", usage=usage())), 0)]
    return steps(found + tail(usage_seen=again))


def details() -> list[Step]:
    more: dict[str, Any] = {
        "prompt_tokens_details": {"cached_tokens": 32},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    found = [*plain_events()[:-2], (event(usage_chunk(**more)), 0), (event(DONE), 0)]
    return steps(found)


def slow_head() -> list[Step]:
    one, two, three = pieces(HEAD, [20, 50])
    script: list[Step] = [Send(one), Wait(0.02), Send(two), Wait(0.02), Send(three)]
    return script + steps(plain_events())[1:]


def separators() -> list[Step]:
    words = [f"a\u2028b\u2029c\u0085d{number}" for number in range(TOKENS)]
    return steps(plain_events(words))


def multi_line_data() -> list[Step]:
    """The JSON of each event spread over two data lines, with id and retry fields around."""
    found = []
    for data, ends in plain_events():
        text = data[len(b"data: ") : -2]
        if text != b"[DONE]":
            text = text.replace(b', "object"', b'\ndata: , "object"').replace(
                b', "usage"', b'\ndata: , "usage"'
            )
        found.append((b"id: 7\nretry: 100\ndata: " + text + b"\n\n", ends))
    return steps(found)


def no_tokens_forced(count: int) -> list[tuple[bytes, int]]:
    found = [(event(ROLE), 0), *texts(WORDS[:count])]
    return [*found, (event(usage_chunk(count)), 0), (event(DONE), 0)]
