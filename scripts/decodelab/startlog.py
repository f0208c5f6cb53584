"""What a server's log says of its start: attention backend, version, time to ready.

In: the text of a server log (vLLM, V0 or V1). Out: `Effective`; None where the log does not say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from cargo import start_cause
from decodelab.request_lines import telling_lines

_BACKENDS = (
    re.compile(r"Using (?:AttentionBackendEnum\.)?(\w+) attention backend\b"),
    re.compile(r"Using AttentionBackendEnum\.(\w+) backend"),
    re.compile(r"Using ([\w-]+(?: [\w-]+){0,3}) backend(?: on V1 engine)?\."),
)
# gloo, xgrammar and many others are backends too: a name is one of attention by these.
_OF_ATTENTION = re.compile(
    r"(?i)attn|attention|flash|xformers|ixformer|triton|sdpa|mla|flex|aiter|rocm|pallas|ipex|hpu"
)
_VERSION = re.compile(
    r"(?:vLLM API server version|LLM engine \(v|█\s+version )\s*(\d+\.\d+[\w.+]*)"
)
_CLOCK = re.compile(r"\b(\d\d-\d\d) (\d\d:\d\d:\d\d)\b")
# A line that tells one of the three has one of these words: a log may hold a million requests.
_HINTS = ("backend", "version", "llm engine", "startup complete", "running on")


@dataclass
class Effective:
    backend: str | None = None
    version: str | None = None
    ready_s: float | None = None  # from the first line to "startup complete", by the log's stamps


def read(text: str) -> Effective:
    """Everything at once, from one pass over the lines."""
    found = Effective()
    first: datetime | None = None
    latest = ""
    for raw in text.split("\n"):
        if _CLOCK.search(raw):
            first, latest = first or _stamp(raw), raw
        for line in telling_lines(raw, _HINTS):
            _take(found, line.text)
            if start_cause.is_ready(line.text) and found.ready_s is None:
                found.ready_s = _between(first, _stamp(latest))
    return found


def _between(first: datetime | None, last: datetime | None) -> float | None:
    return (last - first).total_seconds() if first and last and last >= first else None


def _take(found: Effective, line: str) -> None:
    if found.backend is None and "MoE" not in line:
        for pattern in _BACKENDS:
            match = pattern.search(line)
            if match and _OF_ATTENTION.search(match.group(0)):
                found.backend = match.group(1)
                break
    if found.version is None:
        match = _VERSION.search(line)
        found.version = match.group(1).rstrip(".") if match else None


def _stamp(line: str) -> datetime | None:
    """The line's own time; the log has no year, so one leap year serves for differences."""
    match = _CLOCK.search(line)
    if match is None:
        return None
    try:
        return datetime.strptime(f"2000-{match.group(1)} {match.group(2)}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
