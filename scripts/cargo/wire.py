"""HTTP/1.1 on the wire: the bytes of a request, and the framing of a response.

In:  raw bytes as they come from the socket, cut anywhere.
Out: the body's bytes without the framing, and the exact moment at which the body is whole.

Content-Length, chunked (extensions, trailers) and until-close bodies; interim 1xx heads are
skipped. `Response.feed` runs while the load lasts, for each read that is not one whole ordinary chunk: it
only counts and slices. A content coding is undone later, by `content_decoder`.

What two readers could read differently (two lengths, `0x` before a size) is refused, so that both
transports say the same of it. Whatever the bytes are, nothing but WireError is raised.
"""

from __future__ import annotations

import re
import zlib
from typing import Dict, List, Optional, Tuple

_HEAD_LIMIT = 256 * 1024
_LINE_LIMIT = 16 * 1024
SIZE_LINE = 8  # bytes within which the size line of an ordinary chunk ends
# Size lines of ordinary chunks, and their sizes: looked up, as that is fastest.
ORDINARY = {b"%x" % size: size for size in range(1, 1 << 13)}
# int() takes more than the protocol does: 0x27f, 1_0, +5, and digits of other scripts
_SIZE = re.compile(rb"[0-9a-fA-F]{1,20}")
_LENGTH_TEXT = re.compile("[0-9]{1,20}")
_STATUS = re.compile("[1-9][0-9]{2}")

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

    @property
    def between_chunks(self) -> bool:
        """The next byte begins a chunk's size line; so it does behind each whole chunk."""
        return self._state == _CHUNK_SIZE and not self._held

    def feed(self, data: bytes) -> bytes:
        """Body bytes in this piece."""
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
        digits = line.partition(b";")[0].strip(b" \t")
        if not _SIZE.fullmatch(digits):
            raise WireError(f"not a chunk size: {line[:40]!r}")
        length = int(digits, 16)
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
            status, headers = _read_head(data[at:end])
            at = behind
            if status >= 200 or status == 101:  # 101: nothing of HTTP comes after it
                break
        self.status, self.headers = status, headers
        self._choose_body()
        return at

    def _choose_body(self) -> None:
        length = _content_length(self.headers)
        coding = self.headers.get("transfer-encoding", "").lower()
        if coding not in ("", "identity", "chunked"):
            raise WireError(f"transfer coding {coding[:40]!r} is not supported")
        if self.status in (101, 204, 304):
            self._finish()
        elif coding == "chunked":
            self._state = _CHUNK_SIZE
        elif length is None:
            self._state = _UNTIL_CLOSE
        else:
            self._left = length
            self._state = _LENGTH
            if not length:
                self._finish()


def _read_head(head: bytes) -> Tuple[int, Dict[str, str]]:
    """(status, headers); the values of a header that comes twice are joined."""
    lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not _STATUS.fullmatch(words[1]):
        raise WireError(f"not an HTTP/1.x status line: {lines[0][:80]!r}")
    headers: Dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            name, value = name.strip().lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return int(words[1]), headers


def _content_length(headers: Dict[str, str]) -> Optional[int]:
    if "content-length" not in headers:
        return None
    found = {text.strip() for text in headers["content-length"].split(",")}
    text = found.pop()
    if found or not _LENGTH_TEXT.fullmatch(text):
        raise WireError(f"not a content length: {headers['content-length'][:80]!r}")
    return int(text)


class Inflater:
    """Undoes gzip (of several members as well) or deflate, piece by piece."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self.whole = True  # nothing has come yet, or it has come to its own end
        self._member = zlib.decompressobj(47)  # 32 + 15: the header says whether gzip or zlib

    def decompress(self, data: bytes) -> bytes:
        found: List[bytes] = []
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding
                if not data:
                    break
                self._member = zlib.decompressobj(31)  # only gzip goes on after its end
            found.append(self._member.decompress(data))
            data = self._member.unused_data
            self.whole = self._member.eof
        return b"".join(found)


def _find_head_end(data: bytes, at: int) -> Tuple[int, int]:
    """(end of the head, index behind its blank line); (-1, -1) when it is not there yet."""
    strict = data.find(b"\r\n\r\n", at)
    bare = data.find(b"\n\n", at)
    if strict >= 0 and (bare < 0 or strict < bare):
        return strict, strict + 4
    return (bare, bare + 2) if bare >= 0 else (-1, -1)


def content_decoder(coding: str) -> Optional[Inflater]:
    """What undoes this Content-Encoding; None where nothing is to be undone."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return Inflater(coding)
    raise WireError(f"content coding {coding!r} is not supported")
