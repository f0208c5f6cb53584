"""The words of a script: chat completion chunks, SSE framing, and HTTP around them.

In:  deltas and framing choices. Out: steps for the scripted server.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from .scripted_server import Send, Step, Wait

TOKENS = 16
PROMPT = 40
FIRST_S = 0.03
GAP_S = 0.002
WORDS = [f" w{number:02d}" for number in range(TOKENS)]
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def usage(tokens: int = TOKENS, **more: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": PROMPT, "completion_tokens": tokens, "total_tokens": PROMPT + tokens}
    return {**counts, **more}


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> str:
    """One chat.completion.chunk as JSON; `more` are keys of the chunk, `choice_*` of its choice."""
    choice = {"index": 0, "delta": delta if delta is not None else {}, "finish_reason": finish}
    for key in [key for key in more if key.startswith("choice_")]:
        choice[key[len("choice_") :]] = more.pop(key)
    body = {"id": "c1", "object": "chat.completion.chunk", "choices": [choice], **more}
    return json.dumps(body, ensure_ascii=False)


def usage_chunk(tokens: int = TOKENS, **more: Any) -> str:
    return json.dumps({"id": "c1", "choices": [], "usage": usage(tokens, **more)})


def event(data: str, end: str = "\n", space: str = " ", name: str = "") -> bytes:
    lines = [f"event: {name}"] if name else []
    lines.append(f"data:{space}{data}")
    return (end.join(lines) + end + end).encode()


def framed(data: bytes) -> bytes:
    """As one HTTP chunk."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


ROLE = chunk({"role": "assistant", "content": ""})
DONE = "[DONE]"


def plain_events(
    words: list[str] | None = None, key: str = "content", finish: str = "length", **style: str
) -> list[tuple[bytes, int]]:
    """A whole plain stream as (event, output events in it)."""
    words = WORDS if words is None else words
    found = [(event(ROLE, **style), 0)]
    for number, word in enumerate(words):
        last = number == len(words) - 1
        found.append((event(chunk({key: word}, finish if last else None), **style), 1))
    found.append((event(usage_chunk(), **style), 0))
    found.append((event(DONE, **style), 0))
    return found


def steps(
    events: list[tuple[bytes, int]],
    head: bytes = HEAD,
    close: bytes = LAST_CHUNK,
    chunked: bool = True,
    first_s: float = FIRST_S,
    gap_s: float = GAP_S,
) -> list[Step]:
    """A script: the head, then each event in a send of its own, then the end of the body.

    `[DONE]` ends the stream where there is one, else the last send does.
    """
    found: list[Step] = [Send(head), Wait(first_s)]
    for data, ends in events:
        found.append(Send(framed(data) if chunked else data, ends, b"[DONE]" in data))
        if ends:
            found.append(Wait(gap_s))
    ended = any(isinstance(step, Send) and step.end for step in found)
    if close:
        found.append(Send(close, 0, not ended))
    return found


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes cut at these places."""
    edges = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if b > a]
