"""A run's record as a file: what was asked, how the client kept up, and every request.

In:  the arguments of a run that has ended, its state, and what it left (`Made`).
Out: the record (`assemble`), and the file, whole or not at all (`write_whole`).
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional

from cargo import printable, record, scenario
from cargo.endpoint import UsageError
from cargo.load import RunState

_AS_GIVEN = (
    "base_url", "concurrency", "requests", "rate", "arrivals", "arrivals_seed", "max_tokens", "min_tokens", "seed",
    "warmup", "cache", "http", "temperature", "ignore_eos", "continuous_usage_stats",
    "return_token_ids", "extra_body", "label", "processes",
)  # fmt: skip


class Made(NamedTuple):
    """What a run leaves: request records (warm-up first), and how the client kept up."""

    entries: List[Dict[str, Any]]
    client: Dict[str, Any]


def assemble(
    arguments: argparse.Namespace,
    model: Optional[str],
    state: RunState,
    made: Made,
    version: Dict[str, Any],
) -> Dict[str, Any]:
    """The run record of a run that has ended; `version`: of the client."""
    client = {**version, "python": platform.python_version(), **made.client}
    client["autogroup"] = _autogroup()
    wall = datetime.datetime.fromtimestamp(state.zero_wall_s, datetime.timezone.utc)
    asked = arguments.loaded
    return {
        "schema": record.SCHEMA,
        "source": arguments.source,
        "provenance": None,
        "run": {
            "scenario": asked["name"],
            "model": model,
            **{name: getattr(arguments, name) for name in _AS_GIVEN},
            "chat_template_kwargs": asked.get("chat_template_kwargs") or {},
            "prompt_sha256": scenario.digest(asked) if asked.get("messages") else None,
            "prompt_sizing": arguments.sizing,
        },
        "client": client,
        "clock": {
            "t0_monotonic_s": state.zero_ns / 1e9,
            "t0_wall": wall.isoformat(timespec="microseconds"),
        },
        "requests": made.entries,
        "summary": record.summarise(made.entries),
    }


def _autogroup() -> Optional[str]:
    try:
        with open("/proc/self/autogroup", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return None


def check_place(path: str) -> None:
    """Raises UsageError where the record could not be written: before anything is sent."""
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"--out: no folder {folder}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"--out {path}: it exists and is no file")
    try:
        handle, temporary = tempfile.mkstemp(prefix=name + ".", suffix=".tmp", dir=folder)
        os.close(handle)
        os.unlink(temporary)
    except OSError as problem:
        raise UsageError(f"--out {path}: {problem.strerror}") from None


def write_whole(path: str, found: Dict[str, Any]) -> None:
    """The file appears with all of its content or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(
        prefix=os.path.basename(path) + ".", suffix=".tmp", dir=folder
    )
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(printable.dumps(found, allow_nan=False, separators=(",", ":")) + b"\n")
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
