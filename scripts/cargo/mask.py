"""Keeping secret values out of everything that is written: logs, events, records, messages.

In:  the values. Out: text, JSON values and files in which each of them is stars.
A value is also found as JSON, as Python, as a URL and as base64 would spell it, and so is each line
of it. What is shorter than 8 characters, a line too, is not found: it would hide ordinary text.
Records keep their numbers: only strings in them are looked at. Logs are overwritten in place, star
by character, so that it works on a full disk and line offsets hold.
"""

from __future__ import annotations

import base64
import json
import os
import re
from typing import Any, Iterable, List, Set

from cargo import printable

STARS = "***"
MIN_LENGTH = 8  # a shorter one cannot be told from ordinary text
BLOCK_BYTES = 1 << 20
_URL_PASSWORD = re.compile(r"(://[^\s/:@]*):[^\s/]+@")


def url_passwords(text: str) -> str:
    """Text in which nobody's `://user:password@` can be read, whether it was named a secret or not."""
    return _URL_PASSWORD.sub(r"\1:%s@" % STARS, text)


class Mask:
    def __init__(self, values: Iterable[str] = ()) -> None:
        forms: Set[str] = set()
        for value in values:
            for part in [value, *value.splitlines()]:  # text is often cut into lines
                if len(part.strip()) >= MIN_LENGTH:
                    forms |= _spellings(part.strip()) | _in_base64(part) | _in_base64(part.strip())
        self.forms: List[str] = sorted(forms, key=len, reverse=True)
        self._bytes = [_data(form) for form in self.forms]

    def __bool__(self) -> bool:
        return bool(self.forms)

    def text(self, text: str) -> str:
        for form in self.forms:
            text = text.replace(form, STARS)
        return self._edges(text) if self.forms else text

    def _edges(self, text: str) -> str:
        """A message that was cut may begin or end with a piece of a value."""
        for form in self.forms:
            for size in range(min(len(form) - 1, len(text)), MIN_LENGTH - 1, -1):
                if text.endswith(form[:size]):
                    text = text[:-size] + STARS
                if text.startswith(form[-size:]):
                    text = STARS + text[size:]
        return text

    def deep(self, value: Any) -> Any:
        """A JSON value with every string masked."""
        if not self.forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.deep(key): self.deep(inside) for key, inside in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.deep(inside) for inside in value]
        return value

    # ------------------------------------------------------------------ files
    def folder(self, folder: str) -> None:
        """Every regular file directly in the folder."""
        for name in sorted(os.listdir(folder)) if self.forms else []:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                self.file(path)

    def file(self, path: str) -> None:
        if path.endswith((".json", ".jsonl")):
            with open(path, "rb") as f:
                content = f.read()
            if not any(form in content for form in self._bytes):
                return
            masked = self._json_bytes(content, lines=path.endswith(".jsonl"))
            if masked is not None:
                _replace(path, masked)
                return
        self._stars_in_place(path)

    def _json_bytes(self, content: bytes, lines: bool) -> "bytes | None":
        parts = content.splitlines(keepends=True) if lines else [content]
        try:
            made = [printable.dumps(self.deep(json.loads(part))) + b"\n" for part in parts]
        except ValueError:
            return None
        return b"".join(made)

    def _stars_in_place(self, path: str) -> None:
        longest = max(len(form) for form in self._bytes)
        fd = os.open(path, os.O_RDWR)
        try:
            start = 0
            while True:
                block = bytearray(os.pread(fd, BLOCK_BYTES + longest, start))
                for form in self._bytes:
                    at = block.find(form)
                    while at >= 0:
                        stars = b"*" * len(form)
                        block[at : at + len(form)] = stars
                        os.pwrite(fd, stars, start + at)
                        at = block.find(form, at)
                if len(block) < BLOCK_BYTES + longest:
                    return
                start += BLOCK_BYTES
        finally:
            os.close(fd)


def _spellings(value: str) -> Set[str]:
    from urllib.parse import quote, quote_plus  # slow to import, and mostly there are no secrets

    data = _data(value)
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        ascii(value)[1:-1],
        repr(data)[2:-1],
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
    }


def _in_base64(value: str) -> Set[str]:
    """Without padding; and as far as it stays the same when a newline or more text follows."""
    data = _data(value)
    whole_groups = data[: len(data) // 3 * 3]
    spelled = [
        encode(part).decode("ascii").rstrip("=")
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
        for part in (data, whole_groups)
    ]
    return set(spelled)


def _data(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _replace(path: str, content: bytes) -> None:
    part = "%s.%d.part" % (path, os.getpid())
    try:
        with open(part, "wb") as f:
            f.write(content)
        os.replace(part, path)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise
