"""The annex on silent degradation: what a server's log says went otherwise, beside the runs it made.

In: `Findings` and the catalogue. Out: `Table`s; none where no log tells of any.
"""

from __future__ import annotations

from decodelab import degradation, markdown, numbers
from decodelab.degradation import Rule
from decodelab.findings import Findings, Row
from decodelab.markdown import Md
from decodelab.report_tables import Table
from decodelab.words import Words

MOST_RUNS = 4
_ORDER = ("fault", "accepted", "wanted", "told")


def tables(findings: Findings, words: Words) -> list[Table]:
    """One row a degradation and outcome; starts alike share it."""
    found: dict[tuple[str, str], list[tuple[Row, Rule, int, int]]] = {}
    accepts = findings.plan.get("accepts") or ()
    for start in findings.starts:
        variant = findings.variant(start["variant"])
        for rule, count, line in degradation.read_cell(start.get("degraded")):
            outcome = degradation.standing(rule, variant, accepts)
            found.setdefault((rule.name, outcome), []).append((start, rule, count, line))
    if not found:
        return []
    order = sorted(found, key=lambda key: _ORDER.index(key[1]))
    head = [
        words.say(f"table.{key}")
        for key in ("degradation", "log_lines", "first_line", "outcome", "run")
    ]
    rows = [
        [*_what(found[key], key[1], words), _runs(findings, found[key], words)] for key in order
    ]
    faults = any(outcome == "fault" for _name, outcome in found)
    notes = [words.say("degradation.fault_note")] if faults else []
    align = ["left", "right", "left", "left", "left"]
    return [Table(head, align, rows, words.say("degradation.title"), notes=notes)]


def _what(starts: list[tuple[Row, Rule, int, int]], outcome: str, words: Words) -> list[str]:
    first, rule, _count, line = starts[0]
    text = words.pick({"zh": rule.zh, "en": rule.en})
    return [
        markdown.joined([Md(text), markdown.code(rule.name)], " "),
        numbers.count(sum(count for _start, _rule, count, _line in starts)),
        markdown.code(f"{first.get('log') or numbers.DASH}:{line}"),
        words.say(f"degradation.{outcome}"),
    ]


def _runs(findings: Findings, starts: list[tuple[Row, Rule, int, int]], words: Words) -> Md:
    ids = {(start["variant"], start["start_id"]) for start, _rule, _count, _line in starts}
    runs = [name for name, row in findings.runs.items() if (row["variant"], row["start_id"]) in ids]
    names = [markdown.code(name) for name in runs or sorted(variant for variant, _id in ids)]
    text = markdown.joined(names[:MOST_RUNS], words.say("sentence.comma"))
    left = len(names) - MOST_RUNS
    return Md(f"{text} {numbers.ELLIPSIS} (+{left})") if left > 0 else text
