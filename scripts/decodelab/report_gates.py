"""Runs against targets: target, measured, met or not, by how much, and what that rests on.

In: `Findings` (the gates of verdicts.json). Out: one `Table`, a row a run and target; None where
there is nothing to hold against a target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import markdown, numbers
from decodelab import report_attribution as attribution
from decodelab import report_score as score
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_labels import metric_label, rate_of
from decodelab.report_tables import FEW, Table
from decodelab.words import Words

TOLD = "‡"
_HEADS = ("metric", "aim", "measured", "with_failures", "n_requests", "result", "by")
Gate = Mapping[str, Any]


def tables(findings: Findings, words: Words) -> list[Table]:
    """The gates, what percentiles rest on, the score, and the evaluator's own account."""
    gates = _gates(findings, words)
    more = [*attribution.tables(findings, words), *score.tables(findings, words)]
    return [*([gates] if gates else []), *more]


def _gates(findings: Findings, words: Words) -> Table | None:
    gates: list[Gate] = findings.judged.get("gates") or []
    if not gates:
        return None
    order = list(dict.fromkeys(gate["run"] for gate in gates))
    gates = sorted(gates, key=lambda gate: order.index(gate["run"]))
    heads = [words.say(f"gates.{name}") for name in _HEADS]
    head = [words.say("table.run"), *heads, words.say("table.validity")]
    align = ["left", "left", "right", "right", "right", "right", "left", "right", "left"]
    return Table(
        head, align, [_row(gate, words) for gate in gates], notes=_notes(findings, gates, words)
    )


def _row(gate: Gate, words: Words) -> list[str]:
    metric, value = gate["metric"], gate.get("value")
    few = gate.get("interval_possible") is False and value is not None
    marks = (FEW if few else "") + (TOLD if gate.get("told") else "")
    return [
        markdown.code(gate["run"]),
        metric_label(words, metric),
        numbers.target(metric, gate.get("target"), gate.get("op")),
        f"{numbers.show(metric, value, against=[gate.get('target')])}{' ' if marks else ''}{marks}",
        numbers.INFINITE
        if gate.get("adjusted_infinite")
        else numbers.show(metric, gate.get("adjusted"), against=[gate.get("target")]),
        numbers.count(gate.get("n")),
        words.say(f"gates.{_state(gate)}"),
        _by(gate, words),
        words.say(f"state.{gate['validity']}") if gate.get("validity") else numbers.DASH,
    ]


def _state(gate: Gate) -> str:
    if gate.get("value") is None:
        return "unknown"
    return "open" if gate.get("met") is None else "met" if gate["met"] else "missed"


def _by(gate: Gate, words: Words) -> str:
    """The distance from the target; where it is missed, also the change that would meet it."""
    margin, needed = numbers.effect(gate.get("margin"), against=[0.0]), gate.get("needed")
    if gate.get("met") is not False or needed is None:
        return margin
    change = needed if str(gate.get("op")).startswith(">") else -needed
    return words.say("gates.needs", margin=margin, change=numbers.effect(change, against=[0.0]))


def _notes(findings: Findings, gates: list[Gate], words: Words) -> list[Md]:
    held = {gate["run"] for gate in gates}
    left = [name for name in findings.runs if name not in held]
    notes = [words.say_n("targets.lowest", len(left))] if left else []
    if any(rate_of(findings, run) for run in held):
        notes.append(words.say("targets.open"))
    if any(gate.get("adjusted") is not None or gate.get("adjusted_infinite") for gate in gates):
        notes.append(words.say("gates.failures_note"))
    few = [g for g in gates if g.get("interval_possible") is False and g.get("value") is not None]
    if few:
        notes.append(words.say("gates.few", mark=FEW))
    if any(gate.get("told") for gate in gates):
        notes.append(words.say("gates.told", mark=TOLD))
    if any(_state(gate) == "open" for gate in gates):
        notes.append(words.say("gates.open_note"))
    return notes
