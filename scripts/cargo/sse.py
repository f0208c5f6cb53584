"""Server-sent events, framed from raw bytes as the WHATWG specification says.

In:  pieces of a body, cut anywhere (inside a UTF-8 character, inside `data:`, between CR and LF).
Out: whole events, each as soon as its blank line is there.

Lines end with LF, CRLF or CR and with nothing else: U+2028, U+2029 and U+0085 are ordinary text.
An event that the end of the stream cuts short is dropped, as the specification wants.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple

_LINE_END = re.compile(b"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    name: str  # value of the `event:` field, "" where there was none
    data: bytes  # the `data:` lines, joined by LF


class EventSplitter:
    """Feed it bytes, get whole events back."""

    def __init__(self) -> None:
        self.comments = 0
        self._parts: List[bytes] = []  # the line that has no end yet
        self._data: List[bytes] = []
        self._name = b""
        self._skip_lf = False  # the last piece ended in CR: a leading LF belongs to it
        self._first_line = True

    def feed(self, piece: bytes) -> List[Event]:
        if self._skip_lf and piece:
            self._skip_lf = False
            if piece.startswith(b"\n"):
                piece = piece[1:]
        if b"\n" not in piece and b"\r" not in piece:
            if piece:
                self._parts.append(piece)
            return []
        lines = _LINE_END.split(piece) if b"\r" in piece else piece.split(b"\n")
        self._skip_lf = piece.endswith(b"\r")
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
        rest = lines.pop()
        self._parts = [rest] if rest else []
        events: List[Event] = []
        for line in lines:
            self._take_line(line, events)
        return events

    def _take_line(self, line: bytes, events: List[Event]) -> None:
        if self._first_line:
            self._first_line = False
            if line.startswith(_BOM):
                line = line[len(_BOM) :]
        if not line:
            if self._data:
                name = self._name.decode("utf-8", "replace")
                events.append(Event(name, b"\n".join(self._data)))
            self._data = []
            self._name = b""
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif not field:
            self.comments += 1
