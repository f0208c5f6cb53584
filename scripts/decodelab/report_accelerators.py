"""What the accelerators did, in a report: each run over those that it used, and each accelerator.

In: `Findings` (gpus.csv, runs.csv) and the catalogue. Out: `Table`s; none where no run has samples.
Beside the figures of each line stands what they are worth and why; runs with the least trustworthy
figures come first. The last table says how all that was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodelab import markdown, numbers, report_sampler
from decodelab.findings import Findings, Row
from decodelab.markdown import Md
from decodelab.report_labels import metric_label
from decodelab.report_per_run import RUN, Column, figure, several, table
from decodelab.report_tables import Table
from decodelab.words import Words

MAX_ROWS = 80  # lines of one table; all of them are in gpus.csv


def text(findings: Findings, words: Words) -> Md:
    return words.say("accelerators.intro", file=_file(findings))


def tables(findings: Findings, words: Words) -> list[Table]:
    by_run = [findings.gpus.get(name, []) for name in findings.runs]
    runs = [row for rows in by_run if (row := _of_run(rows)) is not None]
    gpus = [row for rows in by_run for row in rows if row["scope"] == "gpu"]
    runs.sort(key=_trust)  # what is suspect must not be lost among many, nor be cut off
    levels, others = _doubt("validity", words, _LEVELS_OF), _doubt("doubts", words, _ENERGY_OF)
    note = words.say("accelerators.energy_note")
    found = [
        _capped(findings, "runs", runs, (*_by_run(words), *_LEVELS, levels), words),
        _capped(findings, "energy", runs, (*_ENERGY, others), words, [note]),
        _capped(findings, "gpus", gpus, (*_by_gpu(words), *_LEVELS, *_MORE, levels), words),
        report_sampler.table(findings, words),
    ]
    return [item for item in found if item is not None]


def _trust(row: Row) -> int:
    return _VALIDITIES.index(row["validity"]) if row["validity"] in _VALIDITIES else 0


def _file(findings: Findings) -> str:
    return f"results/{findings.plan['study']}/tables/gpus.csv"


def _of_run(rows: Sequence[Row]) -> Row | None:
    """The line of a run: of the accelerators in use, else of all."""
    by_scope = {row["scope"]: row for row in rows}
    return by_scope.get("in_use") or by_scope.get("all")


def _capped(
    findings: Findings,
    what: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    words: Words,
    notes: Sequence[Md] = (),
) -> Table | None:
    more = words.say("note.capped", n=MAX_ROWS, file=_file(findings))
    told = [*notes, more] if len(rows) > MAX_ROWS else notes
    return table(rows[:MAX_ROWS], columns, words.say(f"accelerators.{what}_title"), told, words)


def _by_run(words: Words) -> tuple[Column, ...]:
    return (
        RUN,
        Column("accelerators.scope", lambda row: numbers.count(row.get("gpus"))),
        Column("accelerators.by", _said(words, "accelerators.by_{}", "in_use_by"), "left"),
    )


def _by_gpu(words: Words) -> tuple[Column, ...]:
    return (
        RUN,
        Column("accelerators.gpu", lambda row: numbers.count(row.get("gpu"))),
        Column("accelerators.name", lambda row: row.get("name") or numbers.DASH, "left"),
        Column("accelerators.used", _said(words, "accelerators.{}_", "in_use"), "left"),
    )


def _phases(head: str, stem: str) -> Column:
    """A figure of both phases in one cell."""
    names = [f"{stem}_{phase}" for phase in _PHASES]
    return Column(head, lambda row: several(*(numbers.show(n, row.get(n)) for n in names)))


_PHASES = ("prefill", "decode")
_VALIDITIES = ("invalid", "suspect", "valid")
_LEVELS_OF = (
    "", "util_pct", "mem_used_mib", "mem_total_mib", "power_w", "power_cap_w", "temp_c"
)  # fmt: skip
_ENERGY_OF = (*_PHASES, "tokens_per_joule", "joules_per_token")
_LEVELS = (
    figure("accelerators.util", "util_pct_mean_all"),
    figure("accelerators.util_window", "util_pct_mean_window"),
    figure("accelerators.idle", "idle_share_window"),
    figure("accelerators.power", "power_w_mean_all"),
    figure("accelerators.power_window", "power_w_mean_window"),
    figure("metric.cap_share_window", "cap_share_window"),
    figure("metric.mem_headroom_mib_all", "mem_headroom_mib_all"),
    Column(
        "accelerators.samples",
        lambda row: several(
            numbers.count(row.get("smi_samples_gpu_window")),
            numbers.count(row.get("smi_samples_gpu")),
        ),
    ),
)


_MORE = (
    figure("metric.energy_j_window", "energy_j_window"),
    figure("accelerators.temp", "temp_c_max_all"),
)
_ENERGY = (
    RUN,
    figure("metric.energy_j_window", "energy_j_window"),
    figure("metric.tokens_per_joule", "tokens_per_joule"),
    figure("metric.joules_per_token", "joules_per_token"),
    _phases("accelerators.shares", "time_share"),
    _phases("accelerators.util_phases", "util_pct_mean"),
    _phases("accelerators.power_phases", "power_w_mean"),
    _phases("accelerators.energy_phases", "energy_j"),
)


def _said(words: Words, key: str, column: str) -> Callable[[Row], str]:
    """A word of the table in the report's language."""

    def say(row: Row) -> str:
        found = row.get(column)
        return words.say(key.format(found)) if found else numbers.DASH

    return say


def _doubt(head: str, words: Words, of: Sequence[str]) -> Column:
    """What the figures about these are worth, with every reason. Only the levels have a validity."""

    def told(row: Row) -> str:
        about: dict[str, list[str]] = {}
        for written in str(row.get("reasons") or "").split(";"):
            code, _, what = written.partition(":")
            if code and what in of:
                about.setdefault(code, []).append(what)
        parts = [words.say(f"state.{row['validity']}")] if head == "validity" else []
        parts += [_reason(code, names, row, words) for code, names in about.items()]
        return markdown.joined(parts, words.say("sentence.semicolon"))

    return Column(f"accelerators.{head}", told, "left")


def _reason(code: str, about: Sequence[str], row: Row, words: Words) -> Md:
    """A code that the catalogue does not know stays a code."""
    said = words.say(f"reason.{code}") if f"reason.{code}" in words else markdown.code(code)
    whats = [_what(name, words) for name in about if name]
    if code == "telemetry_rejected":
        whats = [_rejected(name, row, words) for name in about]
    what = markdown.joined(whats, words.say("sentence.comma"))
    return words.say("accelerators.about", text=said, what=what) if whats else said


def _what(about: str, words: Words) -> Md:
    phase = f"accelerators.{about}"
    return words.say(phase) if phase in words else metric_label(words, about)


def _rejected(metric: str, row: Row, words: Words) -> Md:
    """How many values of the metric, and why, as its reader words it."""
    written = [one.split(":", 2) for one in str(row.get("smi_rejected_why") or "").split(";")]
    found = [(one[1], one[2]) for one in written if len(one) == 3 and one[0] == metric]
    many = [Md(f"{count} × {markdown.code(why)}") for count, why in found]
    return markdown.joined([_what(metric, words), *many], " ")
