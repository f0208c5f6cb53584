"""Scripts of rows about the wire: chunks, heads, codings.

In:  nothing. Out: functions that give a list of steps each, and heads.
"""

from __future__ import annotations

import zlib

from .scripted_server import Send, Step, Wait
from .scripts import head_with, whole_body
from .speech import FIRST_S, GAP_S, HEAD, LAST_CHUNK, TOKENS, framed, plain_events, steps

GZIP_HEAD = head_with("content-encoding: gzip", "transfer-encoding: chunked")
KEEP_ALIVE = head_with(
    "connection: keep-alive", "keep-alive: timeout=5", "transfer-encoding: chunked"
)
CHUNKED_AND_LENGTH = head_with("transfer-encoding: chunked", "content-length: 40")
NO_TYPE = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"


def compressed(coding: str, events: int | None = None) -> list[Step]:
    """Each event flushed through the coding and sent at once; cut short after so many events."""
    head = head_with(f"content-encoding: {coding}", "transfer-encoding: chunked")
    packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    script: list[Step] = [Send(head), Wait(FIRST_S)]
    for data, ends in plain_events()[:events]:
        packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
        script += [Send(framed(packed), ends, b"[DONE]" in data), Wait(GAP_S)]
    return script if events else [*script, Send(framed(packer.flush()) + LAST_CHUNK)]


def chunks_of_one_byte() -> list[Step]:
    """Every byte of the body a chunk of its own, an event a send."""
    script: list[Step] = [Send(HEAD), Wait(FIRST_S)]
    for data, ends in plain_events():
        chunks = b"".join(framed(bytes([byte])) for byte in data)
        script += [Send(chunks, ends, b"[DONE]" in data), Wait(GAP_S)]
    return [*script, Send(LAST_CHUNK)]


def halves() -> list[Step]:
    """Every event over two chunks and two sends; its time is the second's."""
    script: list[Step] = [Send(HEAD), Wait(FIRST_S)]
    for data, ends in plain_events():
        middle = len(data) // 2
        script += [Send(framed(data[:middle])), Wait(GAP_S)]
        script += [Send(framed(data[middle:]), ends, b"[DONE]" in data)]
    return [*script, Send(LAST_CHUNK)]


def odd_sizes() -> list[Step]:
    """Size lines in capitals, with zeros before them, with extensions."""
    script: list[Step] = [Send(HEAD), Wait(FIRST_S)]
    for number, (data, ends) in enumerate(plain_events()):
        size = (f"{len(data):X}", f"{len(data):06x}", f'{len(data):x};a="b c"')[number % 3]
        chunk = f"{size}\r\n".encode() + data + b"\r\n"
        script += [Send(chunk, ends, b"[DONE]" in data), Wait(GAP_S)]
    return [*script, Send(LAST_CHUNK)]


def with_length(status: str, *headers: str) -> list[Step]:
    head = head_with(f"content-length: {len(whole_body())}", *headers, status=status)
    return steps(plain_events(), head=head, close=b"", chunked=False)


def all_at_once() -> list[Step]:
    """Head, stream and end in one send."""
    data = HEAD + framed(whole_body()) + LAST_CHUNK
    return [Wait(FIRST_S), Send(data, TOKENS, True)]
