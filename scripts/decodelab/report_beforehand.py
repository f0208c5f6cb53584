"""Combinations that were not started, since it was known that their engine refuses them.

In: `Findings` (starts.csv, the index of the published runs) and the catalogue. Out: `Bullet`s, one a
refusal. There was no start and no log, so none is told of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import markdown, numbers
from decodelab.findings import Findings, Row
from decodelab.report_verdicts import Bullet, names
from decodelab.words import Words


def is_known(findings: Findings, row: Row) -> bool:
    """Whether a row of starts.csv stands for a start that was never made."""
    return not row.get("start_id") and row["variant"] in _sources(findings)


def bullets(findings: Findings, words: Words, variants: set[str] | None = None) -> list[Bullet]:
    sources = _sources(findings)
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for row in findings.failed_starts():
        if is_known(findings, row) and (variants is None or row["variant"] in variants):
            key = (row.get("root_cause") or numbers.DASH, sources[row["variant"]])
            groups.setdefault(key, {})[row["variant"]] = None
    return [_bullet(list(group), *key, words) for key, group in groups.items()]


def _bullet(variants: list[str], cause: str, source: str, words: Words) -> Bullet:
    line = words.say("beforehand.line", variants=names(variants, words), cause=cause, source=source)
    retry = markdown.code(f"--config retry={variants[0]}")
    return Bullet(line, [words.say("beforehand.hint", retry=retry)])


def _sources(findings: Findings) -> Mapping[str, str]:
    """Variant -> where the refusal that it is known by stands."""
    absent: list[Mapping[str, Any]] = (findings.published or {}).get("missing") or []
    known = {item["variant"]: item["known_from"] for item in absent if item.get("known_from")}
    return {
        variant: told.get("source") or numbers.DASH
        for variant, told in known.items()
        if told.get("kind") == "constraint"
    }
