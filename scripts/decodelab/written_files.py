"""The files that a report consists of, and their checksums.

In: the folders of a study's results and of its report. Out: the names that the checkout has them
under (`results/<study>/tables/runs.csv`), so that two copies in unlike places compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from decodelab import figures, records
from decodelab.published import CAPTURES_INDEX, RUNS_INDEX
from decodelab.step_export import FOLDER as TRACES
from decodelab.step_export import SUFFIX as TRACE_SUFFIX
from decodelab.store import sha256_of
from decodelab.study import HTML_NAME, TABLES, report_name, summary_name

FIGURES = "figures"
INDEXES = (RUNS_INDEX, CAPTURES_INDEX)


@dataclass(frozen=True)
class Written:
    """Of one study: where its results and its report lie; the languages of its pages."""

    study: str
    results: Path
    report: Path
    languages: Sequence[str]

    @property
    def pages(self) -> list[str]:
        names = (report_name, summary_name)
        return [name(language) for name in names for language in self.languages]

    def path(self, name: str) -> Path:
        """Where a file lies that the checkout has under this name."""
        room, _, rest = name.partition(f"/{self.study}/")
        return {"results": self.results, "report": self.report}[room] / rest

    def in_results(self, *parts: str) -> str:
        return "/".join(("results", self.study, *parts))

    def in_report(self, *parts: str) -> str:
        return "/".join(("report", self.study, *parts))

    def tables(self) -> list[str]:
        names = [f"{name}.csv" for name in TABLES]
        return [self.in_results("tables", name) for name in (*names, "profiles.json")]

    def runs(self) -> list[str]:
        """The indexes of the published files, and what they list."""
        folder = self.path(self.in_results("runs"))
        indexes = [name for name in INDEXES if (folder / name).is_file()]
        listed = (
            records.load_index(folder) if indexes else {"runs": {}, "captures": {}, "starts": []}
        )
        entries = [*listed["runs"].values(), *listed["captures"].values(), *listed["starts"]]
        files = {one.get(key) for one in entries for key in ("file", "cross_check")} - {None}
        return [self.in_results("runs", name) for name in (*indexes, *sorted(files))]

    def traces(self) -> list[str]:
        folder = self.path(self.in_results(TRACES))
        files = sorted(file.name for file in folder.glob(f"*{TRACE_SUFFIX}"))
        return [self.in_results(TRACES, name) for name in files]

    def figures(self) -> list[str]:
        """The list of the figures, and the drawings and data that it names."""
        folder = self.path(self.in_report(FIGURES))
        if not (folder / figures.LIST).is_file():
            return []
        entries = figures.read_list(folder)
        files = [one[key] for one in entries for key in ("file", "plot") if key in one]
        return [self.in_report(FIGURES, name) for name in (figures.LIST, *files)]

    def texts(self) -> list[str]:
        """The pages, in all languages."""
        return [self.in_report(name) for name in self.pages]

    @property
    def html(self) -> str:
        return self.in_report(HTML_NAME)

    @property
    def verdicts(self) -> str:
        return self.in_results("verdicts.json")

    def all(self) -> list[str]:
        known = [*self.runs(), *self.tables(), *self.traces(), self.verdicts, *self.figures()]
        return [*known, *self.texts(), self.html]

    def sums(self) -> dict[str, str]:
        """Name -> hex sha256 of every file that is there."""
        return {name: sha256_of(self.path(name)) for name in self._existing(self.all())}

    def _existing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.path(name).is_file()]
