"""The report as content: every section's finished text, for a template that only lays it out.

In: `Findings`, figures.json, the catalogue of one language. Out: the Markdown text. The template
holds no arithmetic and no judgement; whatever it prints that is not Markdown already is escaped on
the way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2

from decodelab import (
    markdown,
    numbers,
    report_accelerators,
    report_annex,
    report_beforehand,
    report_degradation,
    report_effective,
    report_environment,
    report_experiment,
    report_gates,
    report_guidance,
    report_instrument,
    report_path,
    report_profile,
    report_step,
    report_summary,
)
from decodelab import words as words_module
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_experiment import Section
from decodelab.report_tables import Table
from decodelab.report_verdicts import Bullet
from decodelab.words import Words

TEMPLATE = "report.md.j2"


@dataclass
class Content:
    title: Md
    date: str
    about: Md
    banner: list[Md]
    summary: list[Md]
    facts: list[Bullet]
    variants: list[Bullet]
    seen: list[Bullet]
    raw: Md
    sections: list[Section]
    step: list[Bullet]  # what the profiles say that a decode step goes to
    profiles: list[report_profile.Block]  # given by the config, of no experiment's variant
    bottleneck: list[Bullet]
    excluded: list[Bullet]
    next: list[Bullet]
    taken: list[Bullet]
    recommended: Md | None
    path: list[Bullet]
    undecided: list[Bullet]
    actions: list[Bullet]
    fact: Md | None
    definitions: Table
    target_figures: list[report_experiment.Figure]
    targets: list[Table]
    validity_text: Md
    validity: Table | None
    failed: list[Bullet]
    beforehand: list[Bullet]  # not started, since known to be refused
    provenance_text: Md
    provenance: Table | None
    pending: Table | None
    instrument: list[Table]
    accelerators: list[Table]
    accelerators_text: Md
    effective: list[Table]
    extra: dict[str, Any] = field(default_factory=dict)


def write(
    findings: Findings, figures: Sequence[Mapping[str, Any]], folder: str, words: Words
) -> str:
    """The whole report; `folder` is where the figures lie, seen from the report's own place."""
    content = compose(findings, figures, folder, words)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(words_module.CATALOGUES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,  # macros and Md pass, plain text meets _escaped first
        finalize=_escaped,
    )
    environment.filters["cells"] = markdown.cells
    environment.filters["rules"] = _rules
    text = environment.get_template(TEMPLATE).render(
        report=content, say=words.say, missing=numbers.DASH
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _escaped(value: object) -> object:
    return value if hasattr(value, "__html__") else markdown.escape(str(value))


def _rules(align: Sequence[str]) -> Md:
    return Md("|".join("---:" if side == "right" else "---" for side in align))


def compose(
    findings: Findings, figures: Sequence[Mapping[str, Any]], folder: str, words: Words
) -> Content:
    ranked, excluded = report_guidance.bottleneck(findings, words)
    return Content(
        title=_title(findings, words),
        date=_date(findings),
        about=_about(findings, words),
        banner=_banner(findings, words),
        summary=report_summary.lines(findings, words) or [words.say("summary.none")],
        facts=report_environment.facts(findings, words),
        variants=report_environment.variants(findings, words),
        seen=report_environment.seen(findings, words),
        raw=words.say("environment.study", path=f"results/{findings.plan['study']}/runs/"),
        sections=[
            report_experiment.section(findings, name, heading, figures, folder, words)
            for name, heading in report_experiment.headings(findings, words).items()
        ],
        step=report_step.bullets(findings, words),
        profiles=report_profile.blocks(findings, None, words),
        bottleneck=ranked,
        excluded=excluded,
        next=report_guidance.next_steps(findings, words),
        taken=report_path.taken(findings, words),
        recommended=report_path.recommended(findings, words),
        path=report_guidance.path(findings, words),
        undecided=report_guidance.undecided(findings, words),
        actions=report_guidance.actions(findings, words),
        fact=report_guidance.fact(findings, words),
        definitions=report_annex.definitions(words),
        target_figures=report_experiment.figures_of(figures, None, folder, words),
        targets=report_gates.tables(findings, words),
        validity_text=report_annex.validity_text(findings, words),
        validity=report_annex.validity(findings, words),
        failed=report_annex.failed_starts(findings, words),
        beforehand=report_beforehand.bullets(findings, words),
        provenance_text=_provenance_text(findings, words),
        provenance=report_annex.provenance(findings, words),
        pending=report_annex.pending(findings, words),
        instrument=report_instrument.tables(findings, words),
        accelerators=report_accelerators.tables(findings, words),
        accelerators_text=report_accelerators.text(findings, words),
        effective=[
            *report_effective.tables(findings, words),
            *report_degradation.tables(findings, words),
        ],
    )


# head ---------------------------------------------------------------------------------------------


def _title(findings: Findings, words: Words) -> Md:
    text = words.pick(findings.plan.get("title"))
    return (
        markdown.prose(text)
        if text and text != findings.plan["study"]
        else words.say("report.title")
    )


def _date(findings: Findings) -> str:
    """The days on which the servers were started; of a replay the day that its study carries."""
    days = sorted(
        {day for row in findings.runs.values() for day in _days(row.get("start_id") or "")}
    )
    named = _days(str(findings.plan.get("date") or findings.plan["study"]))
    days = named or days
    if not days:
        return numbers.DASH
    return days[0] if days[0] == days[-1] else f"{days[0]} {numbers.ELLIPSIS} {days[-1]}"


def _days(text: str) -> list[str]:
    match = re.match(r"(\d{4})-?(\d{2})-?(\d{2})(?=T|-|$|\D)", text)
    return ["-".join(match.groups())] if match else []


def _about(findings: Findings, words: Words) -> Md:
    host = findings.plan.get("host")
    return words.say(
        "report.about",
        study=markdown.code(findings.plan["study"]),
        host=markdown.code(host) if host else words.say("report.no_host"),
        sources=report_experiment.sources(findings, None, words),
    )


def _banner(findings: Findings, words: Words) -> list[Md]:
    sources = findings.sources()
    lines = [words.say(f"banner.{source}") for source in sources] or [words.say("banner.none")]
    if sources and not findings.runs:
        lines.append(words.say("banner.starts_only"))
    if len(sources) > 1:
        lines.append(words.say("banner.mixed"))
    urls = report_environment.attached(findings)
    lines += [words.say("banner.attached", url=url) for url in urls]
    waiting = [run for run in findings.missing() if run["why"] in ("pending", "invalid")]
    if waiting:
        lines.append(words.say_n("banner.partial", len(waiting)))
    return lines


def _provenance_text(findings: Findings, words: Words) -> Md:
    if not findings.runs:
        return words.say("provenance.none")
    if not findings.published:
        return words.say("provenance.note_no_index")
    index = f"results/{findings.plan['study']}/runs/decode_runs.json"
    return words.say("provenance.note", index=index)
