"""The targets of a study on its first workload, over all variants that ran it: what the summaries tell.

In: `Findings` (the gates of verdicts.json) and the catalogue. Out: one line, and the facts that a table
of targets is made of. Each run on its own stands in the annex (`report_gates`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import markdown, numbers
from decodelab.findings import Findings, Row
from decodelab.markdown import Md
from decodelab.report_labels import metric_label, rate_of
from decodelab.report_verdicts import names
from decodelab.words import Words

NAMED = 6  # variants named in one line

Gate = Mapping[str, Any]


def lines(findings: Findings, words: Words) -> list[Md]:
    """The targets on the study's first workload, over all variants that ran it."""
    grouped = by_metric(findings)
    if not grouped:
        return []
    gates = [gate for some in grouped.values() for gate in some]
    told = [_gate(findings, metric, some, words) for metric, some in grouped.items()]
    text = markdown.joined(
        [*told, *_elsewhere(findings, gates, words)], words.say("sentence.semicolon")
    )
    return [words.say("summary.gates", workload=load(findings, gates, words), text=text)]


def by_metric(findings: Findings) -> dict[str, list[Gate]]:
    """The usable gates of the study's first workload, metric by metric."""
    workload = next((run["workload"] for run in findings.planned.values()), None)
    found: dict[str, list[Gate]] = {}
    for gate in findings.judged.get("gates") or []:
        if _counts(gate, workload):
            found.setdefault(gate["metric"], []).append(gate)
    return found


def _elsewhere(findings: Findings, gates: Sequence[Gate], words: Words) -> list[Md]:
    """Whose runs of this load are in neither range nor count: targets are read at a variant's lowest
    concurrency.
    """
    here = {findings.planned[gate["run"]]["variant"] for gate in gates}
    workload = findings.planned[gates[0]["run"]]["workload"]
    rows = [
        row
        for row in findings.runs.values()
        if row.get("workload") == workload and row.get("validity") != "invalid"
    ]
    others = dict.fromkeys(row["variant"] for row in rows if row["variant"] not in here)
    told = names(others, words, NAMED)
    return [words.say("summary.elsewhere", variants=told)] if others else []


def _counts(gate: Gate, workload: str | None) -> bool:
    unusable = gate.get("validity") == "invalid" and gate.get("met") is None
    if gate.get("value") is None or unusable:
        return False
    return gate.get("workload") in (None, workload)


def load(findings: Findings, gates: Sequence[Gate], words: Words) -> Md:
    """The load that the gates were read at; two workloads may share a scenario, none its name."""
    run = findings.planned[gates[0]["run"]]
    rate = rate_of(findings, run["name"])
    return words.say(
        "summary.workload" if rate is None else "summary.workload_open",
        load=run["workload"],
        concurrency=str(run["concurrency"]),
        rate=numbers.plain("rate", rate),
        tokens=words.say(f"summary.tokens.{_forced(findings, run)}", n=str(run["max_tokens"])),
    )


def _forced(findings: Findings, run: Mapping[str, Any]) -> str:
    """Whether every reply has so many tokens, or may end before."""
    point = (findings.plan.get("points") or {}).get(run.get("run") or "") or {}
    return "at_most" if point.get("ignore_eos") is False else "each"


def state_of(gates: Sequence[Gate]) -> tuple[str, int, int]:
    """met, missed, mixed or open; how many met it, of how many that could be held against it."""
    met = [bool(gate["met"]) for gate in gates if gate.get("met") is not None]
    state = "open" if not met else "met" if all(met) else "mixed" if any(met) else "missed"
    return state, sum(met), len(met)


def measured(metric: str, gates: Sequence[Gate]) -> str:
    """Least and greatest of the runs, never printed on the target's other side."""
    values = [gate["value"] for gate in gates]
    return numbers.show_range(metric, values, coarse=True, against=[gates[0].get("target")])


def aim(metric: str, gates: Sequence[Gate]) -> str:
    return numbers.target(metric, gates[0].get("target"), gates[0].get("op"))


def told(metric: str, gates: Sequence[Gate], words: Words) -> Md:
    """One target in a clause: measured, met or not."""
    state, met, n = state_of(gates)
    return words.say(
        f"summary.gate.{state}",
        metric=metric_label(words, metric),
        value=measured(metric, gates),
        target=aim(metric, gates),
        met=str(met),
        n=str(n),
    )


def _gate(findings: Findings, metric: str, gates: Sequence[Gate], words: Words) -> Md:
    by_others = [words.say("gates.told_short")] if any(gate.get("told") for gate in gates) else []
    beside = _decode_beside(findings, metric, gates, words)
    return markdown.joined(
        [told(metric, gates, words), *by_others, *beside], words.say("sentence.clause")
    )


def _decode_beside(
    findings: Findings, metric: str, gates: Sequence[Gate], words: Words
) -> list[Md]:
    """Beside the official rate the decode-only one of the same runs, which reads higher."""
    if numbers.column(metric) != "e2e_tps_p10":
        return []
    rows: list[Row] = [
        findings.runs[gate["run"]] for gate in gates if gate.get("run") in findings.runs
    ]
    shown = numbers.show_range(
        "decode_tps_p10", [row.get("decode_tps_p10") for row in rows], coarse=True
    )
    if shown == numbers.DASH:
        return []
    return [
        words.say(
            "summary.decode_beside", metric=metric_label(words, "decode_tps_p10"), value=shown
        )
    ]
