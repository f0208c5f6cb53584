"""What a server's log says is in effect: backend, version, arguments, time to ready, degradation.

In: the text of a server log (vLLM, V0 or V1). Out: `Effective`; None where the log does not say.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cargo import start_cause
from cargo.log_lines import logical_lines
from decodelab.degradation import degradations

_BACKENDS = (
    re.compile(r"Using (?:AttentionBackendEnum\.)?(\w+) attention backend\b"),
    re.compile(r"Using AttentionBackendEnum\.(\w+) backend"),
    re.compile(
        r"Using (?!\S+ (?:Unquantized|\w+ )?MoE)([\w-]+(?: Attention)?) backend(?: on V1 engine)?\."
    ),
)
_VERSION = re.compile(
    r"(?:vLLM API server version|LLM engine \(v|█\s+version )\s*(\d+\.\d+[\w.+]*)"
)
_NON_DEFAULT = re.compile(r"non-default args: (\{.*\})\s*$")
_NAMESPACE = re.compile(r"\bargs: Namespace\((.*)\)\s*$")
_IGNORED = (
    re.compile(r"Unknown vLLM environment variable detected: (\w+)"),
    re.compile(r"Cannot use AttentionBackendEnum\.(\w+) backend"),
)
_CLOCK = re.compile(r"\b(\d\d-\d\d) (\d\d:\d\d:\d\d)\b")


@dataclass
class Effective:
    backend: str | None = None
    version: str | None = None
    arguments: dict[str, Any] = field(
        default_factory=dict
    )  # names with _, as the engine prints them
    arguments_from: str | None = (
        None  # "non-default args" | "Namespace" (every argument, defaults too)
    )
    ignored: list[str] = field(default_factory=list)  # variables and backends it says it ignores
    ready_s: float | None = (
        None  # first to "startup complete" line, whole seconds, from the log's own stamps
    )
    degraded: list[dict[str, Any]] = field(default_factory=list)  # see `degradations`


def read(text: str) -> Effective:
    """Everything at once, from one pass over the cleaned lines."""
    found = Effective(degraded=degradations(text))
    first: datetime | None = None
    latest: datetime | None = None
    for raw in text.split("\n"):
        clock = _stamp(raw)
        first, latest = first or clock, clock or latest
        line = logical_lines(raw)
        for piece in line:
            _take(found, piece.text)
            if start_cause.is_ready(piece.text) and found.ready_s is None and first and latest:
                found.ready_s = (latest - first).total_seconds() if latest >= first else None
    return found


def _take(found: Effective, line: str) -> None:
    for pattern in _IGNORED:
        match = pattern.search(line)
        if match and match.group(1) not in found.ignored:
            found.ignored.append(match.group(1))
    if found.backend is None and "MoE" not in line:
        for pattern in _BACKENDS:
            match = pattern.search(line)
            if match:
                found.backend = match.group(1)
                break
    if found.version is None:
        match = _VERSION.search(line)
        found.version = match.group(1).rstrip(".") if match else None
    if not found.arguments:
        _arguments(found, line)


def _arguments(found: Effective, line: str) -> None:
    match = _NON_DEFAULT.search(line)
    if match:
        found.arguments, found.arguments_from = _literal(match.group(1)), "non-default args"
        return
    match = _NAMESPACE.search(line)
    if match:
        found.arguments, found.arguments_from = _keywords(match.group(1)), "Namespace"


def _literal(text: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}


def _keywords(text: str) -> dict[str, Any]:
    """`a=1, b='x'`: keywords of a printed Namespace; what is no literal is kept as text."""
    try:
        tree = ast.parse(f"f({text})", mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    out: dict[str, Any] = {}
    for keyword in tree.keywords if isinstance(tree, ast.Call) else []:
        if keyword.arg is None:
            continue
        try:
            out[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            out[keyword.arg] = ast.unparse(keyword.value)
    return out


def _stamp(line: str) -> datetime | None:
    """The line's own time; the log has no year, so one leap year serves for differences."""
    match = _CLOCK.search(line)
    if match is None:
        return None
    try:
        return datetime.strptime(f"2000-{match.group(1)} {match.group(2)}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
