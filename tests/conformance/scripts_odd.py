"""Scripts of rows about replies that are odd: figures no reader can hold, heads that can be read in
two ways, events where none may be.

In:  nothing. Out: functions that give a list of steps each.
"""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from .scripted_server import Send, Step, Wait
from .scripts import broken_after, reply, tail, texts
from .scripts_framing import GZIP_HEAD
from .speech import (
    DONE,
    FIRST_S,
    HEAD,
    LAST_CHUNK,
    ROLE,
    WORDS,
    chunk,
    event,
    framed,
    plain_events,
    steps,
    usage,
    usage_chunk,
)

DEEP = "[" * 20000
BOOM = json.dumps({"error": {"message": "boom", "code": 507}}).encode()


def last_usage(text: str) -> list[Step]:
    """A plain stream whose usage is this JSON text."""
    found = [*plain_events()[:-2], (event(f'{{"choices": [], "usage": {text}}}'), 0)]
    return steps([*found, (event(DONE), 0)])


def usage_with(more: str) -> list[Step]:
    """The usual counts, and this JSON text as one more value."""
    return last_usage(json.dumps(usage())[:-1] + f', "more": {more}}}')


def two_usages(second: dict[str, Any]) -> list[Step]:
    found = [*plain_events()[:-1], (event(json.dumps({"choices": [], "usage": second})), 0)]
    return steps([*found, (event(DONE), 0)])


def finishes(first: str, second: str) -> list[Step]:
    """n = 2: the second choice ends behind the first, and otherwise."""
    found = [(event(ROLE), 0), *texts(WORDS, finish=False)]
    found += [(event(chunk({}, first)), 0), (event(chunk({}, second, choice_index=1)), 0)]
    return steps([*found, *tail()])


def behind_done() -> list[Step]:
    """Output, a usage and an error that come when the stream has already said that it is over."""
    late = [
        event(chunk({"content": "late"}, "abort")),
        event(usage_chunk(99)),
        event(BOOM.decode()),
    ]
    script = [*steps(plain_events(), close=b""), Wait(0.02)]
    return [*script, *(Send(framed(data)) for data in late), Send(LAST_CHUNK)]


def done_and_more_in_one_send() -> list[Step]:
    late = event(DONE) + event(chunk({"content": "late"})) + event(BOOM.decode())
    return [*steps(plain_events()[:-1], close=b""), Send(framed(late) + LAST_CHUNK, 0, True)]


def in_members(count: int) -> list[Step]:
    """Gzip of several members, each with some of the events."""
    events, script = plain_events(), [Send(GZIP_HEAD), Wait(FIRST_S)]
    size = -(-len(events) // count)
    for at in range(0, len(events), size):
        part = events[at : at + size]
        data = framed(gzip.compress(b"".join(data for data, _ in part)))
        script.append(
            Send(data, sum(ends for _, ends in part), any(b"[DONE]" in data for data, _ in part))
        )
    return [*script, Send(LAST_CHUNK)]


def gzip_lacks_its_end() -> list[Step]:
    """Whole by HTTP; but the usage, [DONE] and the coding's own end are missing."""
    packer = zlib.compressobj(wbits=31)
    script: list[Step] = [Send(GZIP_HEAD), Wait(FIRST_S)]
    for data, ends in plain_events()[:-2]:
        script.append(Send(framed(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)), ends))
    return [*script, Send(LAST_CHUNK)]


def head(text: bytes) -> list[Step]:
    """A head, and behind it a plain stream that is not looked at."""
    body = b"".join(data for data, _ in plain_events())
    return [Wait(FIRST_S), Send(text + b"content-type: text/event-stream\r\n\r\n" + body)]


def lengths(*values: str) -> list[Step]:
    lines = b"".join(f"content-length: {value}\r\n".encode("latin-1") for value in values)
    return head(b"HTTP/1.1 200 OK\r\n" + lines)


def size_line(line: bytes) -> list[Step]:
    """Four tokens, then a chunk whose size is written like this."""
    data = event(chunk({"content": "x"}))
    return broken_after(
        4, Wait(0.02), Send(line.replace(b"SIZE", b"%x" % len(data)) + b"\r\n" + data)
    )


def no_stream(kind: str, body: bytes = BOOM, length: bool = True) -> list[Step]:
    return reply("200 OK", body, *([f"content-type: {kind}"] if kind else []), length=length)


def comments_only() -> list[Step]:
    return [Send(HEAD), Wait(FIRST_S), Send(framed(b": ping\n\n") + LAST_CHUNK)]
