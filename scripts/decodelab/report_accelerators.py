"""What the accelerators did, in a report: each run over those that it used, and each accelerator.

In: `Findings` (gpus.csv) and the catalogue. Out: `Table`s; none where no run has samples. Beside the
figures of each line stands what they are worth and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodelab import markdown, numbers
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
    levels, phases = _doubt("validity", words, _LEVELS_OF), _doubt("phases", words, _PHASES)
    note = words.say("accelerators.energy_note")
    found = [
        _capped(findings, "runs", runs, (*_by_run(words), *_LEVELS, levels), words),
        _capped(findings, "energy", runs, (*_ENERGY, phases), words, [note]),
        _capped(findings, "gpus", gpus, (*_by_gpu(words), *_LEVELS, *_MORE, levels), words),
    ]
    return [item for item in found if item is not None]


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
_LEVELS_OF = ("", "util_pct", "mem_used_mib", "power_w")
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
        written = [code.partition(":") for code in str(row.get("reasons") or "").split(";")]
        parts = [words.say(f"state.{row['validity']}")] if head == "validity" else []
        parts += [_reason(code, about, words) for code, _, about in written if about in of and code]
        return markdown.joined(dict.fromkeys(parts), words.say("sentence.semicolon"))

    return Column(f"accelerators.{head}", told, "left")


def _reason(code: str, about: str, words: Words) -> Md:
    """A code that the catalogue does not know stays a code."""
    said = words.say(f"reason.{code}") if f"reason.{code}" in words else markdown.code(code)
    if not about:
        return said
    phase = f"accelerators.{about}"
    what = words.say(phase) if phase in words else metric_label(words, about)
    return words.say("accelerators.about", text=said, what=what)
