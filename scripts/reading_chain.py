"""The reading steps one after the other in one process: published runs -> tables -> verdicts ->
figures -> pages -> report.html.

In: a plan's file, a folder of results that holds the published runs, a folder for the report. Out:
what the workflow's rules write, at those places. Each step is the rule's own.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aggregate
import draw_figures
import judge
import write_html
import write_report
import write_summary

from decodelab.study import HTML_NAME, html_pages, report_name, summary_name


class StepFailed(Exception):
    """A step that ended with an error; the text is what it said."""


@dataclass(frozen=True)
class Chain:
    plan: Path
    results: Path
    report: Path
    languages: list[str]

    def all(self) -> None:
        self.tables()
        self.verdicts()
        self.figures()
        self.pages()
        self.summaries()
        self.html()

    def tables(self) -> None:
        runs, tables = self.results / "runs", self.results / "tables"
        do(aggregate.main, "--plan", self.plan, "--runs", runs, "--out", tables)

    def verdicts(self) -> None:
        do(judge.main, *self._given(), "--out", self._verdicts)

    def figures(self) -> None:
        do(draw_figures.main, *self._judged(), "--out", self._figures)

    def pages(self) -> None:
        for language in self.languages:
            page = self.report / report_name(language)
            drawn = ("--figures", self._figures)
            do(
                write_report.main,
                *self._judged(),
                *drawn,
                *("--language", language),
                *("--out", page),
            )

    def summaries(self) -> None:
        for language in self.languages:
            page = self.report / summary_name(language)
            do(write_summary.main, *self._judged(), "--language", language, "--out", page)

    def html(self) -> None:
        pages = html_pages(self.languages, self.report)
        do(write_html.main, *pages, "--figures", self._figures, "--out", self.report / HTML_NAME)

    @property
    def _verdicts(self) -> Path:
        return self.results / "verdicts.json"

    @property
    def _figures(self) -> Path:
        return self.report / "figures"

    def _given(self) -> tuple[object, ...]:
        return "--plan", self.plan, "--tables", self.results / "tables"

    def _judged(self) -> tuple[object, ...]:
        return *self._given(), "--verdicts", self._verdicts


def do(step: Callable[[list[str]], int], *words: object) -> None:
    """One step; what it says of its success is nobody's here, its error is StepFailed's."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = step([str(word) for word in words])
    if code:
        raise StepFailed(said.getvalue().strip())
