"""The annex on what the starts were: options asked for against those in effect, and who answered.

In: `Findings` and the catalogue. Out: `Table`s; none where no start tells anything of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from decodelab import effective, markdown, numbers, start_identity
from decodelab.effective import Option
from decodelab.findings import Findings, Row
from decodelab.markdown import Md
from decodelab.report_tables import Table
from decodelab.words import Words

MOST_VARIANTS = 4
# Of the packages and places, those that make tokens.
_PACKAGES = ("vllm", "torch", "transformers", "triton", "xformers", "flash-attn", "ixformer")
_PLACES = ("vllm", "torch", "xformers", "flash_attn", "vllm_flash_attn", "ixformer")


def tables(findings: Findings, words: Words) -> list[Table]:
    found = [_options(findings, words), _identity(findings, words)]
    return [table for table in found if table is not None]


def _options(findings: Findings, words: Words) -> Table | None:
    """One row an option and outcome, what did not take effect first; variants alike share it."""
    rows = [row for row in findings.starts if row.get("effective") or row.get("ignored")]
    owners: dict[Option, list[str]] = {}
    for row in rows:
        for option in effective.options(findings.variant(row["variant"]), row):
            owners.setdefault(option, []).append(row["variant"])
    if not owners:
        return None
    order = sorted(owners, key=lambda option: effective.VERDICTS.index(option.verdict))
    head = [
        words.say(f"table.{key}")
        for key in ("option", "requested", "in_effect", "told_by", "outcome", "variant")
    ]
    lines = [
        [
            markdown.code(option.name),
            markdown.code(option.requested),
            markdown.code(option.effective or numbers.DASH),
            option.source or numbers.DASH,
            words.say(f"effective.{option.verdict}"),
            _few(owners[option], words),
        ]
        for option in order
    ]
    wrong = [o for o in order if o.verdict in (effective.DIFFERS, effective.IGNORED)]
    note = words.say("effective.some" if wrong else "effective.all")
    return Table(head, ["left"] * len(head), lines, words.say("effective.title"), notes=[note])


def _identity(findings: Findings, words: Words) -> Table | None:
    """One row a fact and value."""
    owners: dict[tuple[str, str], list[str]] = {}
    for row in findings.starts:
        for key, value in _shown(row).items():
            owners.setdefault((key, value), []).append(row["variant"])
    if not owners:
        return None
    head = [words.say(f"table.{key}") for key in ("fact", "value", "variant")]
    lines = [
        [markdown.code(key), markdown.code(value), _few(variants, words)]
        for (key, value), variants in sorted(owners.items())
    ]
    return Table(head, ["left"] * len(head), lines, words.say("effective.identity"))


def _shown(row: Row) -> Mapping[str, str]:
    if not row.get("identity"):
        return {}
    chosen = {"packages": _PACKAGES, "found": _PLACES, "loaded": _PLACES}
    facts = start_identity.of_row(row)
    return {
        key: value
        for key, value in facts.items()
        if key.partition(".")[2] in chosen.get(key.partition(".")[0], (key.partition(".")[2],))
    }


def _few(variants: list[str], words: Words) -> Md:
    names = [markdown.code(name) for name in dict.fromkeys(variants)]
    text = markdown.joined(names[:MOST_VARIANTS], words.say("sentence.comma"))
    left = len(names) - MOST_VARIANTS
    return Md(f"{text} {numbers.ELLIPSIS} (+{left})") if left > 0 else text
