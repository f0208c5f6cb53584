"""HTTP/1.1 on the wire: the bytes of a request, and the framing of a response.

In:  raw bytes as they come from the socket, cut anywhere.
Out: the body's bytes without the framing, and the exact moment at which the body is whole.

Content-Length, chunked (extensions, trailers) and until-close bodies; interim 1xx heads are
skipped. `Response.feed` runs on the client's hot path, once for each read: it only counts and
slices. A content coding is undone later, by `content_decoder`.
"""

from __future__ import annotations

import zlib
from typing import Any, Dict, List, Optional, Tuple

_HEAD_LIMIT = 256 * 1024
_LINE_LIMIT = 16 * 1024
_SIZE_LINE = 12  # bytes within which the size line of an ordinary chunk ends

_HEAD, _LENGTH, _CHUNK_SIZE, _CHUNK_DATA, _TRAILER, _UNTIL_CLOSE, _WHOLE = range(7)


class WireError(Exception):
    """The bytes are no HTTP/1.x response."""


def request_bytes(
    method: str, host: str, path: str, headers: Dict[str, str], body: bytes = b""
) -> bytes:
    """A whole request. One request a connection: no race with a server's keep-alive timeout."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


class Response:
    """One response, fed piece by piece."""

    def __init__(self) -> None:
        self.status: Optional[int] = None
        self.headers: Dict[str, str] = {}
        self.whole = False  # the body is complete
        self._state = _HEAD
        self._held = b""  # bytes of an unfinished head, size line or trailer line
        self._left = 0  # body bytes still to come (with a chunk: its CRLF included)

    def feed(self, data: bytes) -> bytes:
        """Body bytes in this piece."""
        if self._state == _CHUNK_SIZE and not self._held:
            body = _one_chunk(data)
            if body:
                return body
        if self._held:
            data = self._held + data
            self._held = b""
        if self._state == _HEAD:
            at = self._take_head(data)
            if at is None:
                return b""
            data = data[at:]
        if self._state == _UNTIL_CLOSE:
            return data
        if self._state == _LENGTH:
            body = data[: self._left]
            self._left -= len(body)
            if not self._left:
                self._finish()
            return body
        return self._feed_chunks(data)

    def feed_end(self) -> bool:
        """The peer closed: True when that is a proper end of this response."""
        if self._state == _UNTIL_CLOSE:
            self._finish()
        return self.whole

    def _finish(self) -> None:
        self._state = _WHOLE
        self.whole = True

    def _feed_chunks(self, data: bytes) -> bytes:
        body: List[bytes] = []
        at, size = 0, len(data)
        while at < size and self._state != _WHOLE:
            if self._state == _CHUNK_DATA:
                # the last two of _left are the CRLF after the chunk: not body
                until = at + self._left
                if until - 2 > at:
                    body.append(data[at : until - 2])
                taken = min(until, size) - at
                self._left -= taken
                at += taken
                if not self._left:
                    self._state = _CHUNK_SIZE
                continue
            end = data.find(b"\n", at)
            if end < 0:
                if size - at > _LINE_LIMIT:
                    raise WireError("a chunk's size line does not end")
                self._held = data[at:]
                break
            self._take_line(data[at:end].rstrip(b"\r"))
            at = end + 1
        return body[0] if len(body) == 1 else b"".join(body)

    def _take_line(self, line: bytes) -> None:
        """A chunk's size line, or a line of the trailer."""
        if self._state == _TRAILER:
            if not line:
                self._finish()
            return
        digits = line.partition(b";")[0].strip()
        try:
            if not digits or digits[:1] in b"+-":
                raise ValueError
            length = int(digits, 16)
        except ValueError:
            raise WireError(f"not a chunk size: {line[:40]!r}") from None
        if length:
            self._left = length + 2
            self._state = _CHUNK_DATA
        else:
            self._state = _TRAILER

    def _take_head(self, data: bytes) -> Optional[int]:
        """Read heads until the final one; the index behind it, or None when more must come."""
        at = 0
        while True:
            end, behind = _find_head_end(data, at)
            if end < 0:
                if len(data) - at > _HEAD_LIMIT:
                    raise WireError("the response's head does not end")
                if at == 0 and len(data) >= 5 and not data.startswith(b"HTTP/"):
                    raise WireError(f"not an HTTP response: {data[:40]!r}")
                self._held = data[at:]
                return None
            self._read_head(data[at:end])
            at = behind
            if self.status is not None and (self.status >= 200 or self.status == 101):
                break
        self._choose_body()
        return at

    def _read_head(self, head: bytes) -> None:
        lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise WireError(f"not an HTTP/1.x status line: {lines[0][:80]!r}")
        self.status = int(words[1])
        self.headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                self.headers[name.strip().lower()] = value.strip()

    def _choose_body(self) -> None:
        if self.status in (101, 204, 304):
            self._finish()
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._state = _CHUNK_SIZE
        elif "content-length" in self.headers:
            text = self.headers["content-length"].partition(",")[0].strip()
            if not text.isdigit():
                raise WireError(f"not a content length: {text[:40]!r}")
            self._left = int(text)
            self._state = _LENGTH
            if not self._left:
                self._finish()
        else:
            self._state = _UNTIL_CLOSE


def _one_chunk(data: bytes) -> bytes:
    """The content of exactly one whole ordinary chunk, as an event of a stream usually comes; else b""."""
    end = data.find(b"\r\n", 0, _SIZE_LINE)
    digits = data[:end]
    if end <= 0 or not digits.isalnum():
        return b""
    try:
        length = int(digits, 16)
    except ValueError:
        return b""
    return data[end + 2 : -2] if length and end + length + 4 == len(data) else b""


def _find_head_end(data: bytes, at: int) -> Tuple[int, int]:
    """(end of the head, index behind its blank line); (-1, -1) when it is not there yet."""
    strict = data.find(b"\r\n\r\n", at)
    bare = data.find(b"\n\n", at)
    if strict >= 0 and (bare < 0 or strict < bare):
        return strict, strict + 4
    return (bare, bare + 2) if bare >= 0 else (-1, -1)


def content_decoder(coding: str) -> Optional[Any]:
    """An object with `decompress` for this Content-Encoding; None where nothing is to be undone."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(47)  # 32 + 15: the header says whether gzip or zlib
    raise WireError(f"content coding {coding!r} is not supported")
