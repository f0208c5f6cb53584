"""A log that is longer than anybody needs: its dull lines emptied, its line numbers kept.

In: the text of a log, or its file. Out: the text with its beginning and its end whole; of what lies
between, the lines that may tell of an error or a stage, and for every other line its end alone. A
flood hides a cause from a tail and a restart loop from a head: neither is lost here.
"""

# ruff: noqa: E501  (the words are read as a table)

from __future__ import annotations

import os
from typing import BinaryIO, Dict, List

from cargo.start_rules import HINTS

PART = 1 << 19  # characters: beginning and end that stay whole
MAX_READ = 64 << 20  # bytes of a file that are looked at: its two halves
_MAX_LINE = 8000  # bytes on either side of a word; a longer line is a dump
_MAX_KEPT = 5000  # lines in between; the first of a flood of errors say what there is to say
_BELOW = 3  # lines after a kept one: an exception may be told on the next
# What errors and stages are known by, beside the words of the rules (small letters, ASCII).
_TELLING = (
    "exception", "interrupt", "exit", "traceback", "file \"", "fatal", "segmentation", "signal", "sigterm", "sigint", "command",
    "api server", "startup complete", "uvicorn running", "shutting down", "detected platform", "triton", "namespace", "default args",
    "architecture", "llm engine", "worker ready", "init_device", "startup]", "init message", "starting to load", "loading weights took",
    "loading model", "profiling", "bytecode", "torch.compile", "compiling a graph", " blocks: ", "kv cache", "concurrency for",
    "capturing", "init engine", "routes are", "server process", "application startup", "outofresources", "isenabled",
)  # fmt: skip
_SAID = tuple(word.encode("ascii") for word in _TELLING + HINTS)


def read(path: str) -> str:
    """The log in this file, condensed; "" where there is none."""
    try:
        with open(path, "rb") as f:
            data = _halves(f, os.fstat(f.fileno()).st_size)
    except OSError:
        return ""
    return condensed(data.decode("utf-8", "replace"))


def _halves(f: BinaryIO, size: int) -> bytes:
    """All of a file, or both its ends with as many line ends between them as there were."""
    if size <= MAX_READ:
        return f.read()
    half, between = MAX_READ // 2, size - MAX_READ // 2 * 2
    head, missed = f.read(half), 0
    while between > 0:
        piece = f.read(min(between, 1 << 20))
        if not piece:
            break
        between -= len(piece)
        missed += piece.count(b"\n")
    return head + b"\n" * missed + f.read()


def condensed(text: str) -> str:
    """The same text, or a shorter one with as many lines."""
    if len(text) <= 2 * PART:
        return text
    # one byte a character; a progress bar ends its lines with "\r"
    flat = text.encode("ascii", "replace").lower().replace(b"\r", b"\n")
    first = _line_end(flat, PART)
    last = max(first, _line_start(flat, len(text) - PART))
    return text[:first] + _telling(text[first:last], flat[first:last]) + text[last:]


def _telling(text: str, flat: bytes) -> str:
    """Lines that may tell something; of the others their ends."""
    spans = _spans(flat)
    out: List[str] = []
    at = 0
    for start in sorted(spans)[:_MAX_KEPT]:
        if start > at:
            out.append(_ends(text, at, start))
        out.append(text[max(at, start) : spans[start]])
        at = max(at, spans[start])
    out.append(_ends(text, at, len(text)))
    return "".join(out)


def _ends(text: str, start: int, end: int) -> str:
    """What separates lines in a part whose words are dropped."""
    return "\n" * text.count("\n", start, end) or ("\r" if end > start else "")


def _spans(flat: bytes) -> Dict[int, int]:
    """Start -> end of the lines with a telling word, and a few below."""
    spans: Dict[int, int] = {}
    for word in _SAID:
        found, kept = flat.find(word), 0
        while found >= 0 and kept < _MAX_KEPT:
            start, end = _line_start(flat, found), _line_end(flat, found)
            if start not in spans:
                spans[start] = _below(flat, end)
                kept += 1
            found = flat.find(word, end)
    return spans


def _below(flat: bytes, end: int) -> int:
    for _ in range(_BELOW):
        end = _line_end(flat, end)
    return end


def _line_start(flat: bytes, at: int) -> int:
    least = max(0, at - _MAX_LINE)
    return max(flat.rfind(b"\n", least, at) + 1, least)


def _line_end(flat: bytes, at: int) -> int:
    most = min(len(flat), at + _MAX_LINE)
    found = flat.find(b"\n", at, most)
    return found + 1 if found >= 0 else most
