"""The report as content: every section's finished text, for a template that only lays it out.

In: `Findings`, figures.json, the catalogue of one language. Out: the Markdown text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodelab import (
    report_accelerators,
    report_annex,
    report_beforehand,
    report_degradation,
    report_effective,
    report_environment,
    report_experiment,
    report_gates,
    report_guidance,
    report_head,
    report_instrument,
    report_negative,
    report_path,
    report_profile,
    report_render,
    report_step,
    report_summary,
)
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
    negative: list[report_negative.Group]  # what was tried and did not help


def write(
    findings: Findings, figures: Sequence[Mapping[str, Any]], folder: str, words: Words
) -> str:
    """The whole report; `folder` is where the figures lie, seen from the report's own place."""
    return report_render.page(TEMPLATE, compose(findings, figures, folder, words), words)


def compose(
    findings: Findings, figures: Sequence[Mapping[str, Any]], folder: str, words: Words
) -> Content:
    ranked, excluded = report_guidance.bottleneck(findings, words)
    return Content(
        title=report_head.title(findings, words),
        date=report_head.date(findings),
        about=report_head.about(findings, words),
        banner=report_head.banner(findings, words),
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
        provenance_text=report_annex.provenance_text(findings, words),
        provenance=report_annex.provenance(findings, words),
        pending=report_annex.pending(findings, words),
        instrument=report_instrument.tables(findings, words),
        accelerators=report_accelerators.tables(findings, words),
        accelerators_text=report_accelerators.text(findings, words),
        effective=[
            *report_effective.tables(findings, words),
            *report_degradation.tables(findings, words),
        ],
        negative=report_negative.groups(findings, words),
    )
