"""The events of a Chrome trace file, one after another, however large the file is.

In: JSON text (gzip or not, whatever its name), an object with `traceEvents` or a plain array of events. Out: each
event as a dict; what else the object says in `head`; in `damage` why the reading ended before the file's end, if it
did. A profiler that was killed leaves half a file: what is whole in it is read.

Python's own scanner does the work, element by element. It takes NaN and control characters within texts, which
profilers write, and no more than the text of one event is held.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK = 1 << 18  # bytes
LONGEST = 1 << 25  # characters of one value; what does not end within them is damaged
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")  # elements; more than one comma is forgiven
_GZIP = b"\x1f\x8b"


class NotATrace(ValueError):
    """The file is no Chrome trace at all."""


class _Ended(Exception):
    """The text ended, or is damaged, here; the message says which."""


class TraceFile:
    """Iterate once: `head` and `damage` are whole afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self.damage: str | None = None
        self.events = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        text = _Text(self.path)
        try:
            yield from self._walk(text)
        except _Ended as end:
            self.damage = str(end)
        self.damage = text.trouble or self.damage

    def _walk(self, text: _Text) -> Iterator[dict[str, Any]]:
        first = text.peek()
        if first == "[":
            yield from self._array(text)
            return
        if first != "{":
            raise NotATrace('neither an object with "traceEvents" nor an array of events')
        text.take()
        found = False
        while text.peek(_BETWEEN) != "}":
            key = text.value()
            if not isinstance(key, str) or text.peek() != ":":
                raise _Ended(f"damaged at character {text.place}")
            text.take()
            if text.peek() == "[" and key == "traceEvents":
                found = True
                yield from self._array(text)
            else:
                self.head[key] = text.value()
        if not found:
            raise NotATrace('an object without an array "traceEvents"')

    def _array(self, text: _Text) -> Iterator[dict[str, Any]]:
        text.take()
        while text.peek(_BETWEEN) != "]":
            event = text.value()
            self.events += 1
            if isinstance(event, dict):
                yield event
        text.take()


class _Text:
    """A window on the text: values are taken from its front, more is read at its end."""

    def __init__(self, path: Path) -> None:
        self.trouble: str | None = None
        self._chunks = self._decoded(path)
        self._window = ""
        self._at = 0
        self._gone = 0
        self._scan = json.JSONDecoder(strict=False).raw_decode

    @property
    def place(self) -> int:
        return self._gone + self._at

    def peek(self, skipped: re.Pattern[str] = _SPACE) -> str:
        """The next character that is no space."""
        while True:
            self._at = skipped.match(self._window, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._window):
                return self._window[self._at]
            if not self._more():
                raise _Ended(f"cut off at character {self.place}")

    def take(self) -> None:
        self._at += 1

    def value(self) -> Any:
        """What begins at the character that `peek` told."""
        while True:
            try:
                value, end = self._scan(self._window, self._at)
                # a number, true or null at the end may go on; raw_decode itself takes "12" of "123"
                if end < len(self._window) or isinstance(value, str | dict | list):
                    self._at = end
                    return value
            except (ValueError, RecursionError):
                pass
            if len(self._window) - self._at > LONGEST:
                raise _Ended(f"damaged at character {self.place}")
            if not self._more():
                raise _Ended(f"cut off or damaged at character {self.place}")

    def _more(self) -> bool:
        """As much again as is waiting, so that a long value is not scanned too often."""
        wanted = len(self._window) - self._at
        parts = [self._window[self._at :]]
        self._gone += self._at
        self._at = 0
        got = 0
        for part in self._chunks:
            parts.append(part)
            got += len(part)
            if got > wanted:
                break
        self._window = "".join(parts)
        return got > 0

    def _decoded(self, path: Path) -> Iterator[str]:
        decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        for chunk in self._unpacked(path):
            if text := decode(chunk):
                yield text

    def _unpacked(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            chunk = file.read(CHUNK)
            if not chunk.startswith(_GZIP):
                while chunk:
                    yield chunk
                    chunk = file.read(CHUNK)
                return
            unpack = zlib.decompressobj(wbits=31)
            try:
                while chunk:
                    yield unpack.decompress(chunk)
                    if unpack.eof:  # another member may follow
                        chunk = unpack.unused_data or file.read(CHUNK)
                        unpack = zlib.decompressobj(wbits=31) if chunk else unpack
                    else:
                        chunk = file.read(CHUNK)
            except zlib.error as error:
                self.trouble = f"damaged gzip: {error}"
            if not unpack.eof and not self.trouble:
                self.trouble = "cut off: the gzip stream does not end"
