"""Section one of a report: at most ten lines, each a verdict with its number.

In: `Findings` and the catalogue. Out: Markdown lines. What does not fit is counted in the last
line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import markdown, numbers, report_step
from decodelab.findings import Findings, Row, Verdict
from decodelab.markdown import Md
from decodelab.report_labels import metric_label, rate_of
from decodelab.report_sentences import (
    anomalies,
    asks_nothing,
    deciding,
    made,
    overall,
    suspect,
    title,
)
from decodelab.report_verdicts import answer, names, state, word
from decodelab.vocabulary import VERDICTS
from decodelab.words import Words

LINES = 10
# What is kept when there are too many lines: the smaller, the sooner.
HEAD, DECIDED, OPEN, ANOMALY = range(4)

Gate = Mapping[str, Any]


def lines(findings: Findings, words: Words) -> list[Md]:
    ranked = [(HEAD, line) for line in (*_headline(findings, words), *_gates(findings, words))]
    for experiment in findings.experiments:
        ranked += _experiment(findings, experiment, words)
    ranked += [(DECIDED, line) for line in report_step.summary(findings, words)]
    ranked += [(ANOMALY, item.text) for item in anomalies(findings, None, words, shown=1)]
    for why in ("not_chosen", "undecided"):
        held_back = [name for name in findings.experiments if findings.held_back(name) == why]
        if held_back:
            told = names(held_back, words)
            ranked.append((HEAD, words.say(f"summary.{why}", experiments=told)))
    unjudged = [
        name
        for name in findings.experiments
        if overall(findings, name) is None and not findings.held_back(name)
    ]
    silent = [name for name in unjudged if asks_nothing(findings, name)]
    unjudged = [name for name in unjudged if name not in silent]
    if silent:
        ranked.append((HEAD, _asks_nothing(findings, silent, words)))
    if unjudged:
        ranked.append((HEAD, words.say("summary.pending", experiments=names(unjudged, words))))
    return _capped(ranked, words)


def _asks_nothing(findings: Findings, experiments: Sequence[str], words: Words) -> Md:
    """Those that are there for their data alone, each with whether all of it was made."""
    told = [
        words.say("summary.silent", experiment=name, made=made(findings, name, words))
        for name in experiments
    ]
    semicolon = words.say("sentence.semicolon")
    return words.say("summary.asks_nothing", experiments=markdown.joined(told, semicolon))


def _capped(ranked: Sequence[tuple[int, Md]], words: Words) -> list[Md]:
    if len(ranked) <= LINES:
        return [line for _, line in ranked]
    by_weight = sorted(range(len(ranked)), key=lambda index: (ranked[index][0], index))
    kept = sorted(by_weight[: LINES - 1])
    left = numbers.count(len(ranked) - len(kept))
    return [ranked[index][1] for index in kept] + [words.say("summary.more", n=left)]


def _headline(findings: Findings, words: Words) -> list[Md]:
    """What the evidence points at, and what it excludes."""
    entries = findings.judged.get("bottleneck") or []
    ranked = [item for item in entries if not item.get("excluded")]
    excluded = [item for item in entries if item.get("excluded")]
    parts = []
    if ranked:
        first = min(ranked, key=lambda item: item["rank"])
        by = first.get("by") or "prior"
        parts.append(words.say(f"summary.bottleneck.{by}", title=suspect(first, words)))
    if excluded:
        titles = markdown.joined(
            [suspect(item, words) for item in excluded], words.say("sentence.comma")
        )
        parts.append(words.say("summary.excluded", titles=titles))
    return [markdown.joined(parts, words.say("sentence.space"))] if parts else []


def _experiment(findings: Findings, experiment: str, words: Words) -> list[tuple[int, Md]]:
    speaker = deciding(findings, experiment)
    name = title(findings, experiment, words)
    if speaker is not None:
        said = answer(findings, speaker, words, coarse=speaker["kind"] != "scaling")
        said = markdown.joined(
            [said, *_best_cell(findings, speaker, words)], words.say("sentence.and")
        )
        said = _tallied(findings, experiment, said, words)
        told = word(state(findings, speaker), words)
        text = words.say("summary.experiment", title=name, word=told, answer=said)
        return [(OPEN if speaker["verdict"] in ("inconclusive", "invalid") else DECIDED, text)]
    verdict = overall(findings, experiment)
    if verdict is None:
        return []
    variants = findings.variants_of(experiment)
    causes = [
        row["root_cause"]
        for row in findings.failed_starts()
        if row["variant"] in variants and row["root_cause"]
    ]
    said = (
        words.say("summary.refused", cause=causes[0])
        if causes
        else words.say(f"explain.any.{verdict}")
    )
    return [
        (DECIDED, words.say("summary.start", title=name, word=word(verdict, words), answer=said))
    ]


def _best_cell(findings: Findings, speaker: Verdict, words: Words) -> list[Md]:
    """Of a grid: among how many combinations this one is the best, and how sure its place is."""
    cell = speaker.get("candidate") or ""
    if not findings.is_cell(cell) or speaker.get("effect") is None:
        return []
    question, grid = speaker.get("question"), findings.variant(cell)["grid"]
    rivals = [
        v
        for v in findings.verdicts_of(speaker["experiment"])
        if v.get("question") == question
        and v.get("effect") is not None
        and findings.variant(v.get("candidate") or "").get("grid") == grid
    ]
    if len(rivals) < 2 or any(v["effect"] > speaker["effect"] for v in rivals):
        return []
    starts = [float(v["n_launches"][-1]) for v in rivals if v.get("n_launches")]
    return [
        words.say(
            "summary.best_cell",
            n=str(len({v["candidate"] for v in rivals})),
            starts=numbers.show_range("n_starts", starts),
            floor=numbers.size(speaker.get("floor")),
        )
    ]


def _tallied(findings: Findings, experiment: str, said: Md, words: Words) -> Md:
    """The answer, and where one verdict does not tell all, how many there are of each."""
    verdicts = findings.verdicts_of(experiment)
    if len(verdicts) < 2:
        return said
    found = Counter(state(findings, verdict) for verdict in verdicts)
    counts = [
        words.say("summary.tally.count", n=str(found[name]), word=word(name, words))
        for name in (*VERDICTS, "unmeasured")
        if found[name]
    ]
    questions = len({v.get("question") or v["id"] for v in verdicts})
    shape = "questions" if questions == len(verdicts) else "points" if questions == 1 else "both"
    return words.say(
        f"summary.tally.{shape}",
        answer=said,
        questions=str(questions),
        points=str(len(verdicts)),
        counts=markdown.joined(counts, words.say("sentence.clause")),
    )


# the targets --------------------------------------------------------------------------------------


def _gates(findings: Findings, words: Words) -> list[Md]:
    """The targets on the study's first workload, over all variants that ran it."""
    workload = next((run["workload"] for run in findings.planned.values()), None)
    gates = [gate for gate in findings.judged.get("gates") or [] if _counts(gate, workload)]
    told = [
        _gate(findings, metric, [gate for gate in gates if gate["metric"] == metric], words)
        for metric in dict.fromkeys(gate["metric"] for gate in gates)
    ]
    if not told:
        return []
    text = markdown.joined(
        [*told, *_elsewhere(findings, workload, gates, words)], words.say("sentence.semicolon")
    )
    return [words.say("summary.gates", workload=_workload(findings, gates, words), text=text)]


def _elsewhere(
    findings: Findings, workload: str | None, gates: Sequence[Gate], words: Words
) -> list[Md]:
    """Whose runs of this load are in neither range nor count: targets are read at a variant's lowest
    concurrency.
    """
    here = {findings.planned[gate["run"]]["variant"] for gate in gates}
    rows = [
        row
        for row in findings.runs.values()
        if row.get("workload") == workload and row.get("validity") != "invalid"
    ]
    others = dict.fromkeys(row["variant"] for row in rows if row["variant"] not in here)
    return [words.say("summary.elsewhere", variants=names(others, words))] if others else []


def _counts(gate: Gate, workload: str | None) -> bool:
    unusable = gate.get("validity") == "invalid" and gate.get("met") is None
    if gate.get("value") is None or unusable:
        return False
    return gate.get("workload") in (None, workload)


def _workload(findings: Findings, gates: Sequence[Gate], words: Words) -> Md:
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


def _gate(findings: Findings, metric: str, gates: Sequence[Gate], words: Words) -> Md:
    met = [bool(gate["met"]) for gate in gates if gate.get("met") is not None]
    state = "open" if not met else "met" if all(met) else "mixed" if any(met) else "missed"
    text = words.say(
        f"summary.gate.{state}",
        metric=metric_label(words, metric),
        value=numbers.show_range(metric, [gate["value"] for gate in gates], coarse=True),
        target=numbers.target(metric, gates[0].get("target"), gates[0].get("op")),
        met=str(sum(met)),
        n=str(len(met)),
    )
    told = [words.say("gates.told_short")] if any(gate.get("told") for gate in gates) else []
    return markdown.joined(
        [text, *told, *_decode_beside(findings, metric, gates, words)], words.say("sentence.clause")
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
