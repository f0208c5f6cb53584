"""One experiment's section of a report: setup, files, tables, figures, verdicts and what they mean.

In: `Findings`, figures.json and the catalogue. Out: a `Section` of finished text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodelab import (
    markdown,
    numbers,
    report_annex,
    report_backends,
    report_beforehand,
    report_environment,
    report_noise,
    report_path,
    report_profile,
    report_ranking,
    report_stream,
    report_verdict_table,
    report_verdicts,
    report_workload,
)
from decodelab import report_sentences as sentences
from decodelab.findings import Arm, Findings, Row
from decodelab.markdown import Md
from decodelab.report_labels import capture_tool, variant_label
from decodelab.report_tables import Table, metric_tables
from decodelab.report_verdicts import Bullet
from decodelab.words import Words

MAX_FILES = 8  # result files named in a section; the annex names all
MAX_ANOMALIES = 3  # of one sort
MAX_REQUESTS = 8  # requests of one run that are told one by one


@dataclass
class Figure:
    file: str
    alt: str
    caption: str


@dataclass
class Section:
    """One experiment."""

    heading: Md
    purpose: Md | None
    source: Md
    setup: list[Bullet]
    files: list[Bullet]
    backends: list[Table]
    tables: list[Table]
    ranking: list[Bullet]  # of a grid: what may be said of the best
    requests: list[tuple[Md, list[Bullet]]]
    profiles: list[report_profile.Block]  # of a decode step
    figures: list[Figure]
    verdicts: list[Bullet]
    verdict_table: Table | None
    stream: list[Bullet]
    noise: list[Bullet]  # A/A comparisons and drift checks
    anomalies: list[Bullet]
    failed: list[Bullet]
    beforehand: list[Bullet]  # not started, since known to be refused
    explanation: Md


def headings(findings: Findings, words: Words) -> dict[str, Md]:
    """Numbers for the study's own experiments, letters for those that are named by one."""
    headings, number = {}, 0
    for name, experiment in findings.experiments.items():
        text = sentences.title(findings, name, words)
        if re.fullmatch(r"[A-Z]", name) and not experiment.get("section"):
            headings[name] = _lettered(findings, name, text, words)
        else:
            number = experiment.get("section") or number + 1
            headings[name] = words.say("heading.numbered", number=str(number), title=text)
    return headings


def _lettered(findings: Findings, name: str, text: Md, words: Words) -> Md:
    if not words.pick(findings.experiments[name].get("title")):
        return words.say("heading.letter", letter=name)
    told = re.search(rf"(?:实验|[Ee]xperiment)\s*{name}\b", text)
    return text if told else words.say("heading.lettered", letter=name, title=text)


def section(
    findings: Findings,
    name: str,
    heading: Md,
    figures: Sequence[Mapping[str, Any]],
    folder: str,
    words: Words,
) -> Section:
    experiment = findings.experiments[name]
    runs = experiment.get("runs") or []
    purpose = words.pick(experiment.get("purpose"))
    verdicts = findings.verdicts_of(name)
    many = len(verdicts) > report_verdict_table.MANY
    return Section(
        heading=heading,
        purpose=markdown.prose(purpose) if purpose else None,
        source=words.say("setup.source", sources=sources(findings, runs, words)),
        setup=_setup(findings, name, words),
        files=_files(findings, name, words),
        backends=report_backends.tables(findings, name, words),
        tables=[
            *metric_tables(findings, name, words),
            *report_ranking.tables(findings, name, words),
        ],
        ranking=report_ranking.bullets(findings, name, words),
        requests=_requests(findings, name, words),
        profiles=report_profile.blocks(findings, name, words),
        figures=figures_of(figures, name, folder, words),
        verdicts=[] if many else report_verdicts.verdict_bullets(findings, verdicts, words),
        verdict_table=(report_verdict_table.table(findings, verdicts, words) if many else None),
        stream=report_stream.bullets(findings, name, words),
        noise=[Bullet(line) for line in report_noise.checks(findings, name, words)],
        anomalies=sentences.anomalies(findings, runs, words, MAX_ANOMALIES),
        failed=report_annex.failed_starts(findings, words, findings.variants_of(name)),
        beforehand=report_beforehand.bullets(findings, words, findings.variants_of(name)),
        explanation=report_path.explanation(findings, name, words)
        or sentences.explanation(findings, name, words),
    )


def _setup(findings: Findings, name: str, words: Words) -> list[Bullet]:
    """The workloads of an experiment, and what sets its variants apart."""
    arms = findings.arms(name)
    if not arms:
        alone = sorted(findings.variants_of(name))
        return [
            Bullet(report_environment.variant_line(findings, variant, words)) for variant in alone
        ]
    groups: dict[tuple[Any, ...], list[Arm]] = {}
    for arm in arms:
        groups.setdefault((*arm.kind, findings.variant(arm.variant).get("grid")), []).append(arm)
    bullets = [Bullet(_workload(findings, group, words)) for group in groups.values()]
    plain = list(dict.fromkeys(arm.variant for arm in arms if not findings.is_cell(arm.variant)))
    if len(plain) > 1:
        lines = [report_environment.variant_line(findings, variant, words) for variant in plain]
        told = [
            line for variant, line in zip(plain, lines, strict=True) if _is_told(findings, variant)
        ]
        bullets += [Bullet(line) for line in told]
    return bullets


def _is_told(findings: Findings, variant: str) -> bool:
    return report_environment.parent_of(findings, variant) is not None


def _workload(findings: Findings, arms: Sequence[Arm], words: Words) -> Md:
    first = arms[0]
    named = list(dict.fromkeys(arm.variant for arm in arms))
    if findings.is_cell(first.variant):
        grid = findings.variant(first.variant)["grid"]
        variants = words.say("setup.cells", grid=grid, n=str(len(named)))
    else:
        labels = [variant_label(findings, variant, words) for variant in named]
        variants = markdown.joined(labels, words.say("sentence.comma"))
    starts = {len(arm.names) for arm in arms}
    sampled = any(findings.planned[name].get("capture") for arm in arms for name in arm.names)
    return words.say(
        "setup.workload",
        load=first.workload,
        scenario=first.scenario,
        sampled=words.say("setup.sampled", tool=capture_tool(findings, arms)) if sampled else "",
        declared=report_workload.asked(findings, first, words),
        concurrency="/".join(str(c) for c in dict.fromkeys(arm.concurrency for arm in arms)),
        requests=str(first.requests),
        max_tokens=f"max_tokens={first.max_tokens}",
        variants=variants,
        starts=numbers.show_range("n_starts", sorted(float(count) for count in starts)),
    )


def _files(findings: Findings, experiment: str, words: Words) -> list[Bullet]:
    why = {run["name"]: run["why"] for run in findings.missing()}
    runs = findings.experiments[experiment].get("runs") or []
    lines = []
    for run in runs:
        entry = report_annex.published_run(findings, run)
        if run in why:
            absent = words.say(f"missing.{why[run]}")
            lines.append(
                words.say("setup.file_absent", file=entry.get("file") or f"{run}.json", why=absent)
            )
            continue
        source = findings.runs[run].get("source") or "unknown"
        lines.append(_file(entry.get("file") or f"{run}.json", source, entry, words))
        capture = report_annex.published_capture(findings, run)
        if capture:
            lines.append(_file(capture["file"], source, capture, words))
    if not runs:
        lines += _logs(findings, experiment, words)
    more = len(lines) - MAX_FILES
    if more > 1:
        lines = [*lines[:MAX_FILES], words.say("setup.more_files", n=str(more))]
    return [Bullet(line) for line in lines]


def _file(name: str, source: str, entry: Mapping[str, Any], words: Words) -> Md:
    key = "setup.file" if entry.get("raw") else "setup.file_only"
    return words.say(
        key, file=name, source=words.say(f"source.{source}"), raw=entry.get("raw") or ""
    )


def _logs(findings: Findings, experiment: str, words: Words) -> list[Md]:
    """The server logs of an experiment that is about starting only."""
    rows = [
        row
        for row in findings.starts
        if row["variant"] in findings.variants_of(experiment) and row.get("log")
    ]
    entries = [(row, report_annex.published_start(findings, row)) for row in rows]
    return [
        _file(row["log"], report_annex.start_source(row, entry), entry, words)
        for row, entry in entries
    ]


def _requests(findings: Findings, name: str, words: Words) -> list[tuple[Md, list[Bullet]]]:
    """Requests told one by one where the first waited longer than the rest and the prefix cache
    says why.
    """
    told = []
    runs = findings.experiments[name].get("runs") or []
    unlike = {
        run
        for item in findings.anomalies_of(runs)
        if item["code"] == "first_request_dominates_ttft"
        for run in item["runs"]
    }
    for run in (run for run in runs if run in unlike):
        rows = sorted(findings.requests.get(run, []), key=lambda row: row.get("index") or 0)
        cached = {row["cached_tokens"] for row in rows if row.get("cached_tokens") is not None}
        if len(cached) > 1 and len(rows) <= MAX_REQUESTS:
            label = words.say("label.requests", run=markdown.code(run))
            told.append((label, [Bullet(line) for line in _request_lines(rows, words)]))
    return told


def _request_lines(rows: Sequence[Row], words: Words) -> list[Md]:
    groups: dict[float | None, list[tuple[int, Row]]] = {}
    for place, row in enumerate(rows, start=1):
        groups.setdefault(row.get("cached_tokens"), []).append((place, row))
    lines = []
    for cached, members in groups.items():
        alone = len(members) == 1
        ttft = numbers.show_range(
            "ttft_s", [row.get("ttft_s") for _, row in members], coarse=not alone
        )
        lines.append(
            words.say(
                "setup.request" if alone else "setup.request_about",
                which="/".join(str(place) for place, _ in members),
                ttft=markdown.code(ttft),
                cached=markdown.code(numbers.count(cached)),
            )
        )
    return lines


def figures_of(
    figures: Sequence[Mapping[str, Any]], experiment: str | None, folder: str, words: Words
) -> list[Figure]:
    """Of an experiment, or of the whole study (None)."""
    mine = [figure for figure in figures if figure.get("experiment") == experiment]
    return [
        Figure(
            f"{folder}/{figure['file']}",
            words.pick(figure["alt"]) or "",
            words.pick(figure["caption"]) or "",
        )
        for figure in mine
    ]


def sources(findings: Findings, names: Sequence[str] | None, words: Words) -> Md:
    labels = [words.say(f"source.{source}") for source in findings.sources(names)]
    return markdown.joined(labels, words.say("sentence.comma")) if labels else Md(numbers.DASH)
