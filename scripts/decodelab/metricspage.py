"""The tables of docs/reference/metrics.md, made of the code, so that page and code cannot differ.

In: the data dictionary, the run record's fields, the vocabulary of questions, the report's English
catalogue. Out: Markdown: what a question may name, and every column of every table and field of a record
with its unit and meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cargo import record
from decodelab import report_labels, vocabulary, words
from decodelab.columns import COLUMNS
from decodelab.columns_telemetry import Column

BEGIN = "<!-- tables: made by scripts/make_metrics_page.py from the code -->"
END = "<!-- end of tables -->"
EACH = {
    "requests": "one row a request, warm-up requests left out",
    "runs": "one row a run",
    "telemetry": "one row an accelerator and SMI call",
    "gpus": "one row an accelerator of a run, and the totals of those in use and of all",
    "starts": "one row a real start of a server, also a failed one",
    "regions": "one row a run, phase, rank and region of the step profiler",
    "itl": "one row a quantile of a run's gaps between output deltas",
}
RECORD = {
    "run": "What was asked of the load client.",
    "client": "The load client as an instrument, by its own account.",
    "requests": "One entry a request, warm-up requests first.",
    "summary": "Over the run, warm-up left out; the tables work it out anew from the requests.",
}
Described = Column | record.Field
_LEVELS = {
    "request": "a request (judged by the median of each start)",
    "run": "a run",
    "telemetry": "the SMI samples of a run",
    "profile": "a region of decode steps",
}
_QUANTILES = ("p10", "p50", "p90")


def page(text: str) -> str:
    """The page with its tables made anew."""
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n\n{tables()}\n{END}{tail}"


def tables() -> str:
    parts = ["## What a question may name", *asked(), ""]
    for name, columns in COLUMNS.items():
        parts += [f"## {name}.csv", "", f"{EACH[name][0].upper()}{EACH[name][1:]}.", ""]
        parts += listed("column", columns.items())
    for name, fields in record.FIELDS.items():
        parts += [f"## run.json: {name}", "", f"{RECORD[name]}", ""]
        parts += listed("field", fields.items())
    return "\n".join(parts)


def listed(what: str, entries: Iterable[tuple[str, Described]]) -> list[str]:
    """A table of columns or fields, and an empty line."""
    rows = [row([f"`{name}`", entry.unit, entry.meaning]) for name, entry in entries]
    return [f"| {what} | unit | meaning |", "|---|---|---|", *rows, ""]


def asked() -> Iterator[str]:
    """Lines of the table of metrics that a question, target or guard may name."""
    yield ""
    yield "| metric | in a report | unit | better | one value | definition |"
    yield "|---|---|---|---|---|---|"
    for name, metric in vocabulary.METRICS.items():
        if base_of(name) is not None:
            continue
        label, definition = said(name)
        better = metric.direction or "the question says"
        yield row([f"`{name}`", label, metric.unit, better, _LEVELS[metric.level], definition])
    yield ""
    ones = [n for n, m in vocabulary.METRICS.items() if m.level == "request"]
    yield (
        f"{', '.join(f'`{n}`' for n in ones)} may also be named as {', '.join(f'`_{q}`' for q in _QUANTILES)} "
        "of a run, such as `ttft_s_p90`."
    )


def base_of(name: str) -> str | None:
    """The request metric that a percentile is of; None for any other name."""
    base, _, last = name.rpartition("_")
    return base if last in _QUANTILES and base in vocabulary.METRICS else None


def said(name: str) -> tuple[str, str]:
    """(name in a report, definition), by the report's own catalogue; what it has no definition of is
    defined in the tables below.
    """
    catalogue = words.load("en")
    base = name
    for suffix in ("_mean_all", "_max_all", "_mean_window", "_max_window"):
        base = base.removesuffix(suffix)
    key = next((f"definition.{n}" for n in (name, base) if f"definition.{n}" in catalogue), None)
    column = COLUMNS["runs"].get(name) or COLUMNS["regions"].get(_REGION.get(name, ""))
    definition = catalogue.plain(key) if key else column.meaning if column else ""
    return (report_labels.metric_label(catalogue, name), definition)


_REGION = {"region_share": "share", "region_ms": "ms_p50"}


def row(cells: list[str]) -> str:
    """One row; what would end a cell or be taken for HTML is escaped."""
    plain = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(_angles(cell) for cell in plain)} |"


def _angles(text: str) -> str:
    parts = text.split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))
