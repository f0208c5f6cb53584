"""Which figures a study gets, and their list.

In: `Findings` and the catalogues. Out: SVG files in one folder and figures.json: id, kind, file,
experiment, alt text and caption in every language, and the file of its interactive form where the
kind has one. A figure whose data is missing is not drawn; a figure of an earlier call is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from decodelab import (
    figure_cached,
    figure_curve,
    figure_effects,
    figure_font,
    figure_gaps,
    figure_gates,
    figure_grid,
    figure_pareto,
    figure_step_stack,
    figure_step_timeline,
    figure_style,
    figure_timeline,
    plots,
    step_groups,
    words,
)
from decodelab.findings import Findings, Row
from decodelab.report_labels import metric_label
from decodelab.words import Words

SCHEMA = "decodelab.figures/1"
LIST = "figures.json"
MAX_TIMELINES = 3  # of one experiment

Texts = Mapping[str, Callable[[Words], str] | str]


def draw_all(findings: Findings, folder: Path, suffix: str = "svg") -> list[dict[str, Any]]:
    """Draw everything that the data allows and write the list; returns the list."""
    folder.mkdir(parents=True, exist_ok=True)
    catalogues = [words.load(language) for language in words.LANGUAGES]
    entries = []
    for entry, figure, texts in wanted(findings):
        entry["file"] = f"{entry['id']}.{suffix}"
        stands = _renamed(figure_font.stand_in(figure))
        figure_style.save(figure, folder / entry["file"])
        for kind, more in (("alt", None), ("caption", stands)):
            entry[kind] = {
                word.language: _said(word, entry["kind"], kind, texts)
                + (more(word) if more else "")
                for word in catalogues
            }
        plot = plots.write(findings, entry, folder)
        if plot:
            entry["plot"] = plot
        entries.append(entry)
    _drop_stale(
        folder, {entry[kind] for entry in entries for kind in ("file", "plot") if kind in entry}
    )
    document = {"schema": SCHEMA, "figures": entries}
    (folder / LIST).write_text(
        json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    return entries


def _said(word: Words, kind: str, which: str, texts: Texts) -> str:
    values = {name: text if isinstance(text, str) else text(word) for name, text in texts.items()}
    return word.plain(f"figure.{kind}.{which}", **values)


def wanted(findings: Findings) -> Iterator[tuple[dict[str, Any], Figure, Texts]]:
    """Each figure once, that of the whole study first; a run that two experiments share is drawn in the
    first.
    """
    gates = figure_gates.draw(findings)
    if gates is not None:
        held = ", ".join(figure_gates.variants(findings))
        yield _entry("gates", None, "targets"), gates, {"variants": held}
    drawn: set[str] = set()
    for experiment in findings.experiments:
        for entry, draw, texts in _of_experiment(findings, experiment):
            if entry["id"] in drawn:
                continue
            figure = draw()
            if figure is not None:
                drawn.add(entry["id"])
                yield entry, figure, texts


def _of_experiment(
    findings: Findings, experiment: str
) -> Iterator[tuple[dict[str, Any], Callable[[], Figure | None], Texts]]:
    curve = figure_curve.lines(findings, experiment)
    if curve:
        variants = ", ".join(dict.fromkeys(line.variant for line in curve))
        entry = _entry("curve", experiment, experiment)
        yield (
            entry,
            lambda: figure_curve.draw(findings, experiment),
            {"experiment": experiment, "variants": variants},
        )
    if figure_effects.points(findings, experiment):
        yield (
            _entry("effects", experiment, experiment),
            _drawer(figure_effects.draw, findings, experiment),
            figure_effects.texts(findings, experiment),
        )
    gaps = [line for panel in figure_gaps.panels(findings, experiment) for line in panel.lines]
    if gaps:
        yield (
            _entry("itl", experiment, experiment),
            _drawer(figure_gaps.draw, findings, experiment),
            {
                "experiment": experiment,
                "variants": ", ".join(dict.fromkeys(line.variant for line in gaps)),
            },
        )
    if figure_cached.panels(findings, experiment):
        yield (
            _entry("cached", experiment, experiment),
            _drawer(figure_cached.draw, findings, experiment),
            {"experiment": experiment},
        )
    for run in _timelines(findings, experiment):
        yield (
            _entry("timeline", experiment, run),
            _drawer(figure_timeline.draw_requests, findings, run),
            {"run": run},
        )
    for run in _sampled(findings, experiment):
        yield (
            _entry("telemetry", experiment, run),
            _drawer(figure_timeline.draw_telemetry, findings, run),
            {"run": run},
        )
    yield from _of_steps(findings, experiment)
    if any(findings.is_cell(arm.variant) for arm in findings.arms(experiment)):
        metric = figure_grid.metric_of(findings, experiment)
        texts: Texts = {
            "experiment": experiment,
            "metric": lambda word: str(metric_label(word, metric)),
        }
        yield (
            _entry("grid", experiment, experiment),
            _drawer(figure_grid.draw, findings, experiment),
            texts,
        )
        yield (
            _entry("pareto", experiment, experiment),
            _drawer(figure_pareto.draw, findings, experiment),
            {"experiment": experiment},
        )


def _of_steps(
    findings: Findings, experiment: str
) -> Iterator[tuple[dict[str, Any], Callable[[], Figure | None], Texts]]:
    """Of the profiles that state shares: no figure of a region comes from another."""
    groups = [g for g in step_groups.of_experiment(findings, experiment) if g.states_shares]
    if not groups:
        return
    bars = figure_step_stack.bars(findings, experiment, "decode")
    texts: Texts = {
        "experiment": experiment,
        "variants": ", ".join(dict.fromkeys(bar.label for bar in bars if bar.ms)),
        "renamed": _renamed(figure_step_stack.renamed(findings, experiment)),
    }
    yield (
        _entry("step_stack", experiment, experiment),
        _drawer(figure_step_stack.draw, findings, experiment),
        texts,
    )
    told = [n for g in groups if g.arm for n, one in g.usable.items() if one.timeline]
    first = {findings.planned[run]["variant"]: run for run in reversed(told)}
    for run in [run for run in told if run in first.values()][:MAX_TIMELINES]:
        timeline = findings.profiles[run].timeline
        yield (
            _entry("step_timeline", experiment, run),
            _drawer(figure_step_timeline.draw, findings, run),
            {
                "run": run,
                "steps": str(len(figure_step_timeline.steps(timeline))),
                "renamed": _renamed(figure_step_timeline.renamed(timeline)),
            },
        )


def _renamed(stands: dict[str, str]) -> Callable[[Words], str]:
    """What a caption adds where the figure's font cannot write a name."""
    names = figure_font.said(stands)
    return lambda word: " " + word.plain("figure.renamed", names=names) if names else ""


def _drawer(
    draw: Callable[[Findings, str], Figure | None], findings: Findings, run: str
) -> Callable[[], Figure | None]:
    return lambda: draw(findings, run)


def _entry(kind: str, experiment: str | None, subject: str) -> dict[str, Any]:
    return {
        "id": re.sub(r"[^A-Za-z0-9._-]", "_", f"{kind}_{subject}"),
        "kind": kind,
        "experiment": experiment,
        "subject": subject,
    }


def _asks(findings: Findings, experiment: str, kind: str) -> bool:
    questions = findings.experiments[experiment].get("questions") or []
    return any(question.get("kind") == kind for question in questions)


def _timelines(findings: Findings, experiment: str) -> list[str]:
    """A scaling question: each variant's run of the highest concurrency. A level question: its
    sampled runs.
    """
    if _asks(findings, experiment, "level"):
        return _sampled(findings, experiment)
    if not _asks(findings, experiment, "scaling"):
        return []
    highest: dict[str, Row] = {}
    for row in _rows(findings, experiment):
        best = highest.get(row["variant"])
        if best is None or (row.get("concurrency") or 0) > (best.get("concurrency") or 0):
            highest[row["variant"]] = row
    return [row["run"] for row in highest.values()][:MAX_TIMELINES]


def _sampled(findings: Findings, experiment: str) -> list[str]:
    """Runs whose telemetry a question is about."""
    if not _asks(findings, experiment, "level"):
        return []
    return [
        row["run"] for row in _rows(findings, experiment) if findings.telemetry.get(row["run"])
    ][:MAX_TIMELINES]


def _rows(findings: Findings, experiment: str) -> list[Row]:
    names = findings.experiments[experiment].get("runs") or []
    rows = [findings.runs[name] for name in names if name in findings.runs]
    return [
        row for row in rows if (row.get("start") or 1) == 1 and not findings.is_cell(row["variant"])
    ]


def _drop_stale(folder: Path, keep: set[str]) -> None:
    """Only figures and their plots, only in this folder."""
    for pattern in ("*.svg", "*.png", "*.json"):
        for file in folder.glob(pattern):
            if file.name not in {*keep, LIST}:
                file.unlink()


def read_list(folder: Path) -> list[dict[str, Any]]:
    document = json.loads((folder / LIST).read_text(encoding="utf-8"))
    entries: list[dict[str, Any]] = document["figures"]
    return entries
