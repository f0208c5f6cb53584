"""Valid streams of a chat completion, drawn at random, and what is true of each.

In:  hypothesis draws. Out: `Spoken`: the reply's bytes on the wire, its events with their kinds and
token counts, and the place on the wire at which each event is complete. The truth is kept while the
bytes are made, never read out of them.
"""

from __future__ import annotations

import bisect
import gzip
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

BITS = [
    *"ab:{}[]\"'\\ \n\r\t汉字🙂é",
    *"\u2028\u2029\u0085\u000b\u000c\u001e\u00a0\ufeff\0",  # line ends to some, never to SSE
    *["a\u2028b\u2029c\u0085d", "data: [DONE]\n\n", "event: error\r\rdata: x", '{"error": 1}'],
]
# not st.text(): it would merge the bits with all other characters, and hardly ever draw them
TEXTS = st.lists(st.sampled_from(BITS) | st.characters(codec="utf-8"), min_size=1, max_size=6).map(
    "".join
)


@dataclass(frozen=True)
class Told:
    """One event: its data, and what a right client notes for it."""

    data: str
    kind: str
    count: int | None = None  # tokens, where the stream says so
    usage: dict[str, Any] | None = None
    finish: str | None = None


@dataclass(frozen=True)
class Spoken:
    wire: bytes
    told: list[Told]
    tokens: int  # in all
    first_delta: int | None
    head_end: int
    until_close: bool
    coded: bool
    body: bytes = field(repr=False)  # as coded
    body_ends: list[int] = field(repr=False)  # place on the wire of each body byte's end
    event_ends: list[int] = field(repr=False)  # place in the plain body

    def plain_length(self, wire_length: int) -> int:
        """Bytes of the plain body that so many bytes of the wire bring."""
        length = bisect.bisect_right(self.body_ends, wire_length)
        if not self.coded:
            return length
        return len(zlib.decompressobj(47).decompress(self.body[:length]))

    def seen(self, wire_length: int) -> list[Told]:
        count = bisect.bisect_right(self.event_ends, self.plain_length(wire_length))
        return self.told[:count]


DELTAS = st.one_of(
    st.builds(lambda text: ("content", {"content": text}), TEXTS),
    st.builds(lambda text: ("content", {"role": "assistant", "content": text}), TEXTS),
    st.builds(lambda text: ("reasoning", {"reasoning": text}), TEXTS),
    st.builds(lambda text: ("reasoning", {"content": None, "reasoning_content": text}), TEXTS),
    st.builds(
        lambda one, two: ("reasoning", {"reasoning": one, "reasoning_content": two}), TEXTS, TEXTS
    ),
    st.builds(lambda text: ("tool", {"tool_calls": [{"function": {"name": text}}]}), TEXTS),
    st.builds(
        lambda text: ("tool", {"tool_calls": [{"index": 1, "function": {"arguments": text}}]}),
        TEXTS,
    ),
    st.just(("empty", {"tool_calls": [{"index": 1, "function": {"arguments": ""}}]})),
    st.just(("empty", {})),
    st.just(("empty", {"content": ""})),
    st.just(("empty", {"content": None, "tool_calls": []})),
)
OUTPUT = ("content", "reasoning", "tool")


@st.composite
def conversations(draw: Any) -> tuple[list[Told], int, int | None]:
    """(events, tokens in all, tokens up to the first output-bearing one)."""
    way = draw(st.sampled_from(["none", "null", "each", "ids", "both"]))
    usage_in = draw(st.sampled_from(["event", "finish", "nowhere"]))
    ascii_only = draw(st.booleans())
    parts = draw(st.lists(DELTAS, max_size=7))
    counts = [draw(st.integers(kind in OUTPUT, 4)) for kind, _ in parts]
    if draw(st.booleans()):
        parts, counts = [("role", {"role": "assistant", "content": ""}), *parts], [0, *counts]
    if not parts or parts[-1][0] == "role" or draw(st.booleans()):
        parts, counts = [*parts, ("empty", {})], [*counts, 0]
    total, arrived, outputs, first = sum(counts), 0, 0, None
    first_told = False
    told: list[Told] = []
    for number, ((kind, delta), count) in enumerate(zip(parts, counts, strict=True)):
        last = number == len(parts) - 1
        finish = draw(st.sampled_from(["stop", "length", "tool_calls"])) if last else None
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk: dict[str, Any] = {"id": "c", "choices": [choice]}
        arrived += count
        known: int | None = None
        usage = _usage(arrived) if way in ("each", "both") else None
        if last and usage_in == "finish":
            usage = _usage(total)
        if way == "null":
            chunk["usage"] = choice["token_ids"] = choice["logprobs"] = None
        if usage is not None:
            chunk["usage"] = usage
        if way in ("ids", "both") and kind != "role":
            choice["token_ids"] = list(range(count))
            known = count
        elif way in ("each", "both"):
            known = count
        elif usage is not None and not outputs and way != "ids":
            known = total  # the only output-bearing event so far: all of them came with it
        outputs += kind in OUTPUT
        if kind in OUTPUT and outputs == 1:
            first_told = known is not None and arrived > 0
            first = arrived if first_told else 1
        text = json.dumps(chunk, ensure_ascii=ascii_only)
        told.append(Told(text, kind, known, usage, finish))
    if usage_in == "event":
        usage = _usage(total)
        told.append(Told(json.dumps({"choices": [], "usage": usage}), "usage", None, usage))
    if draw(st.booleans()):
        told.append(Told("[DONE]", "done"))
    if outputs and not first_told and any(one.usage for one in told) and total > 1.5 * outputs:
        first = None  # several tokens an event, and how many in the first one nobody says
    return told, total, first


def _usage(tokens: int) -> dict[str, Any]:
    details = {"prompt_tokens_details": {"cached_tokens": 0}}
    counts = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    return {**counts, **details}


@st.composite
def framings(draw: Any, told: list[Told]) -> tuple[bytes, list[int]]:
    """The events as server-sent events: (body, place at which each is complete)."""
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    space = draw(st.sampled_from([b" ", b""]))
    between = st.sampled_from([[], [b""], [b": ping"], [b":", b""], [b"retry: 5"], [b"data-x: y"]])
    within = st.sampled_from([[], [b"id: 7"], [b"event: message"], [b": inside"], [b"id", b"\xff"]])
    body = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    ends: list[int] = []
    for one in told:
        data = one.data.encode()
        cut = draw(st.booleans()) and data.startswith(b"{")
        lines = [b"data:" + space + part for part in ([data[:1], data[1:]] if cut else [data])]
        lines = [*draw(between), *draw(within), *lines, *draw(within)]
        body += end.join(lines) + end + end
        # a CR ends the line already, whatever follows it
        ends.append(len(body) - (1 if end == b"\r\n" else 0))
    tail = draw(between)
    return body + b"".join(line + end for line in tail), ends


@st.composite
def replies(draw: Any) -> Spoken:
    """A whole HTTP reply that carries a whole stream."""
    told, total, first = draw(conversations())
    plain, event_ends = draw(framings(told))
    coding = draw(st.sampled_from(["", "identity", "gzip", "deflate", "gzip flushed"]))
    body = _coded(plain, coding, event_ends)
    headers = ["content-type: text/event-stream; charset=utf-8", "X-Other: a: b"]
    if coding:
        headers.append(f"Content-Encoding: {coding.split()[0]}")
    how = draw(st.sampled_from(["chunked", "chunked", "length", "until close"]))
    version = "1.1" if how == "chunked" else draw(st.sampled_from(["1.0", "1.1"]))
    if how == "chunked":
        headers.append(
            draw(st.sampled_from(["Transfer-Encoding: chunked", "transfer-ENCODING:Chunked"]))
        )
    elif how == "length":
        headers.append(f"Content-Length: {len(body)}")
    line_end = draw(st.sampled_from(["\r\n", "\n"]))
    interim = draw(st.sampled_from(["", "", "HTTP/1.1 100 Continue\r\n\r\n"]))
    head = interim + line_end.join([f"HTTP/{version} 200 OK", *headers, "", ""])
    wire, ends = head.encode(), []
    for part in draw(_chunks(body)) if how == "chunked" else [(b"", body, b"")]:
        before, data, after = part
        wire += before
        ends += range(len(wire) + 1, len(wire) + len(data) + 1)
        wire += data + after
    if how == "chunked":
        trailers = draw(st.sampled_from([b"", b"x-sum: 1\r\n", b"a: 1\r\nb: 2\r\n"]))
        wire += draw(st.sampled_from([b"0", b"000", b"0;a=b"])) + b"\r\n" + trailers + b"\r\n"
    return Spoken(
        wire,
        told,
        total,
        first,
        len(head),
        how == "until close",
        coding not in ("", "identity"),
        body,
        ends,
        event_ends,
    )


def _coded(plain: bytes, coding: str, event_ends: list[int]) -> bytes:
    if coding == "gzip":
        return gzip.compress(plain)
    if coding == "deflate":
        return zlib.compress(plain)
    if coding != "gzip flushed":
        return plain
    packer, out, begin = zlib.compressobj(wbits=31), b"", 0
    for end in event_ends:  # as a server does that sends each event at once
        out += packer.compress(plain[begin:end]) + packer.flush(zlib.Z_SYNC_FLUSH)
        begin = end
    return out + packer.compress(plain[begin:]) + packer.flush()


@st.composite
def _chunks(draw: Any, body: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """The body in HTTP chunks of any size, their size lines in any spelling."""
    largest = draw(st.sampled_from([1, 7, 60, 10**6]))
    found, at = [], 0
    while at < len(body):
        size = min(draw(st.integers(1, largest)) if largest > 1 else 1, len(body) - at)
        if largest == 10**6:
            size = len(body) - at
        line = draw(st.sampled_from([f"{size:x}", f"{size:X}", f"{size:04x}", f"{size:x};a=b"]))
        found.append((f"{line}\r\n".encode(), body[at : at + size], b"\r\n"))
        at += size
    return found
