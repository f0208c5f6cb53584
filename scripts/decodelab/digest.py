"""Content addresses: what a server, a run and a launch *are*, in 16 hex digits.

In: plain data. Out: the first 16 hex digits of sha256 over its canonical JSON.
Names, labels, order of keys, comments, checkout paths and anything probed never enter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from decodelab.vocabulary import DIGEST_RECIPE


def canonical(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, UTF-8 as it is, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def of(kind: str, value: Any) -> str:
    """Digest of a value of one kind; two kinds never share one."""
    text = canonical({"recipe": DIGEST_RECIPE, "kind": kind, "value": value})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def server(identity: dict[str, Any]) -> str:
    return of("server", identity)


def engine(
    host: str | None, command: list[str] | None, build: str | None, attach: str | None
) -> str:
    """What must have one fingerprint: one engine's code on one host under one label."""
    return of("engine", {"host": host, "command": command, "build": build, "attach": attach})


def run(content: dict[str, Any]) -> str:
    return of("run", content)


def launch(
    server_digest: str, start: int, runs: Iterable[str], screens: Sequence[Mapping[str, Any]] = ()
) -> str:
    """`screens` change what has to be measured; a launch without any has the digest it always had."""
    content: dict[str, Any] = {"server": server_digest, "start": start, "runs": sorted(set(runs))}
    if screens:
        content["screens"] = [{**s, "then": sorted(s["then"])} for s in screens]
    return of("launch", content)


def plan(document: dict[str, Any]) -> str:
    return of("plan", document)
