"""JSON documents in a tool's output: after warnings, several in a row, cut or mixed with other lines.

In: text. Out: the documents with every number as it was written (text), and the lines around them. A
key that comes twice in one object belongs to two documents that were mixed: it is None. A document
that was cut is no document."""

from __future__ import annotations

import json
from typing import Any


def documents(text: str) -> tuple[list[Any], list[str]]:
    """Whole documents that begin at the start of a line, and what else was there, line by line."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_once, parse_int=str, parse_float=str, parse_constant=str
    )
    found: list[Any] = []
    messages: list[str] = []
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].rstrip("\r")
        if line.startswith(("{", "[")):
            try:
                document, end = decoder.raw_decode(text, at)
                found.append(document)
                line = ""
            except (ValueError, RecursionError):
                line = f"no whole JSON document: {line}"
        if line.strip():
            messages.append(line[:200])
        at = end + 1 if text[end : end + 1] in ("\n", "") else end
    return found, messages


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        out[key] = None if key in out else value
    return out


def text_of(value: Any) -> str:
    """A value as a cell; what is no word and no number is empty."""
    return value if isinstance(value, str) else ""
