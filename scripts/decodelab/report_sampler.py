"""How the accelerators were sampled, in a report: the tool, the form of its output, the interval that
was held beside the one that was wanted, what a call takes, and why there is no sample.

In: `Findings` (runs.csv) and the catalogue. Out: one small `Table`; runs that were sampled alike share
a line. None where no run has a capture.
"""

from __future__ import annotations

from collections.abc import Sequence

from decodelab import markdown, numbers
from decodelab.findings import Findings, Row
from decodelab.markdown import Md
from decodelab.report_tables import Table
from decodelab.words import Words

MAX_NAMES = 3
MAX_PROBLEM = 200  # characters
_HEADS = {
    "table.run": "left",
    "accelerators.tool": "left",
    "accelerators.form": "left",
    "accelerators.interval": "right",
    "accelerators.cost": "right",
    "accelerators.problem": "left",
}


def table(findings: Findings, words: Words) -> Table | None:
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in findings.runs.values():
        if any(row.get(name) is not None for name in ("smi_tool", "smi_records")):
            groups.setdefault(_alike(row), []).append(row)
    if not any(row.get("smi_tool") for rows in groups.values() for row in rows):
        return None
    cells = [_line(rows, words) for rows in groups.values()]
    shown = [n for n in range(len(_HEADS)) if any(row[n] != numbers.DASH for row in cells)]
    heads = list(_HEADS)
    return Table(
        [words.say(heads[n]) for n in shown],
        [_HEADS[heads[n]] for n in shown],
        [[row[n] for n in shown] for row in cells],
        title=words.say("accelerators.sampled_title"),
        notes=[words.say("accelerators.sampled_note")],
    )


def _alike(row: Row) -> tuple[object, ...]:
    """What runs share that stand in one line: each start measures cost and interval anew."""
    told = [row.get(name) for name in ("smi_tool", "smi_form", "smi_loop", "smi_problem")]
    return (*told, row.get("smi_wanted_interval_s"), _slower(row))


def _slower(row: Row) -> bool | None:
    held, wanted = row.get("smi_interval_s"), row.get("smi_wanted_interval_s")
    return None if held is None or wanted is None else held > wanted


def _line(rows: Sequence[Row], words: Words) -> list[str]:
    first = rows[0]
    held = numbers.show_range("smi_interval_s", [row.get("smi_interval_s") for row in rows])
    wanted = numbers.show("smi_wanted_interval_s", first.get("smi_wanted_interval_s"))
    intervals = f"{held} / {wanted}" if {held, wanted} != {numbers.DASH} else numbers.DASH
    problem = str(first.get("smi_problem") or numbers.DASH)
    if len(problem) > MAX_PROBLEM:
        problem = problem[:MAX_PROBLEM] + numbers.ELLIPSIS
    return [
        _names([str(row["run"]) for row in rows], words),
        markdown.code(first["smi_tool"]) if first.get("smi_tool") else numbers.DASH,
        _form(first, words),
        words.say("accelerators.slower", text=intervals) if _slower(first) else intervals,
        numbers.show_range("smi_cost_s", [row.get("smi_cost_s") for row in rows]),
        markdown.inline(problem),
    ]


def _names(runs: Sequence[str], words: Words) -> Md:
    told = markdown.joined(map(markdown.code, runs[:MAX_NAMES]), words.say("sentence.comma"))
    left = len(runs) - MAX_NAMES
    return Md(f"{told} {numbers.ELLIPSIS} (+{left})") if left > 0 else told


def _form(row: Row, words: Words) -> str:
    form = row.get("smi_form")
    if not form:
        return numbers.DASH
    said = markdown.code(form)
    return words.say("accelerators.own_loop", form=said) if row.get("smi_loop") == "yes" else said
