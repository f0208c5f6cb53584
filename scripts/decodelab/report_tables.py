"""The tables of a report: which rows and columns an experiment's runs are shown in.

In: `Findings` and the catalogue. Out: `Table`s of finished text: one run as metric | value, several
arms side by side, a curve over concurrency. A grid is in `report_ranking`. A value that is not known is a dash, and
a note says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from decodelab import markdown, numbers
from decodelab.findings import Arm, Findings, Row, values
from decodelab.markdown import Md
from decodelab.report_labels import (
    capture_tool,
    load_of,
    metric_label,
    variant_label,
)
from decodelab.words import Words

MAX_COLUMNS = 4  # arms side by side; more are written one a row
FEW = "†"
Key = tuple[Md, str, Callable[[Arm], str]]  # head, alignment, cell of a leading column

_COUNTS = ("n_attempted", "n_ok", "n_not_started")
_CORE = (
    "ttft_s_p90",
    "decode_tps_p10",
    "decode_tps_p50",
    "output_tps_total",
    "e2e_tps_p10",
    "decode_rate_p50",
)
_FAILURES_COUNTED = ("adj_ttft_s_p90", "adj_e2e_tps_p10", "adj_decode_tps_p10")
_REST = ("wall_s", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_TELEMETRY = (
    "smi_records",
    "smi_samples",
    "util_pct_mean_all",
    "util_pct_max_all",
    "mem_used_mib_mean_all",
    "mem_used_mib_max_all",
    "power_w_mean_all",
    "power_w_max_all",
    "util_pct_mean_window",
    "power_w_mean_window",
)
_CURVE = (
    "success_rate",
    "ttft_s_p90",
    "decode_tps_p10",
    "e2e_tps_p10",
    "decode_rate_p50",
    "output_tps_total",
)
_TO_LAST_DELTA = ("decode_tps", "decode_rate")  # rates that want the time of the last delta
_SAMPLED = ("util_pct", "mem_used_mib", "power_w", "smi_records", "smi_samples")


@dataclass
class Table:
    head: Sequence[str]
    align: Sequence[str]  # "left" or "right", one a column
    rows: Sequence[Sequence[str]]
    title: Md | None = None
    notes: list[Md] = field(default_factory=list)


def metric_tables(findings: Findings, experiment: str, words: Words) -> list[Table]:
    """All tables of one experiment, in the order in which they are read."""
    arms = findings.arms(experiment)
    if not any(findings.rows(arm) for arm in arms):
        return []  # the list of files says why
    plain = [arm for arm in arms if not findings.is_cell(arm.variant)]
    writer = _Writer(findings, experiment, words)
    tables = []
    if len({arm.concurrency for arm in plain}) > 1 or len(plain) > MAX_COLUMNS:
        tables.append(writer.curve(plain))
        tables += writer.telemetry(plain)
    elif plain:
        tables.append(writer.side_by_side(plain))
    return tables


class _Writer:
    def __init__(self, findings: Findings, experiment: str, words: Words) -> None:
        self.findings = findings
        self.words = words
        self.experiment = experiment
        self.mixed = len(findings.sources(findings.experiments[experiment].get("runs") or [])) > 1
        self.missing = {run["name"]: run["why"] for run in findings.missing()}
        self.reasons: list[str] = []
        self.few: dict[int, set[str]] = {}  # n -> the percentiles that it is too few for
        self.to_stream_end = False

    # one run, or a few arms side by side ----------------------------------------------------------

    def side_by_side(self, arms: Sequence[Arm]) -> Table:
        single = len(arms) == 1
        value = self.words.say("table.value")
        head = [self.words.say("table.metric")] + [
            value if single else self._arm_label(arm, arms) for arm in arms
        ]
        rows = [self._values(column, arms, with_unit=single) for column in self._columns(arms)]
        rows[1:1] = [self._starts_and_counts(arms)]
        return self._finish(head, ["left"] + ["right"] * len(arms), rows)

    def _columns(self, arms: Sequence[Arm]) -> list[str]:
        measured = [row for arm in arms for row in self.findings.rows(arm)]
        columns = ["success_rate", *_CORE]
        if any(row.get("n_ok") != row.get("n_attempted") for row in measured):
            columns += [name for name in _FAILURES_COUNTED if any(name in row for row in measured)]
        columns += _REST
        if values(measured, "smi_records"):
            columns += _TELEMETRY
        return columns

    def _values(self, column: str, arms: Sequence[Arm], with_unit: bool) -> list[str]:
        shown = [self._show(column, arm, bare=not with_unit) for arm in arms]
        return [self._label("row", column, arms, with_unit=not with_unit), *shown]

    def _starts_and_counts(self, arms: Sequence[Arm]) -> list[str]:
        """How many requests and starts stand behind every figure of the column."""
        texts = []
        for arm in arms:
            rows = self.findings.rows(arm)
            counts = " / ".join(
                numbers.show_range(name, [row.get(name) for row in rows]) for name in _COUNTS
            )
            texts.append(f"{counts} · {len(rows)}" if rows else numbers.DASH)
        return [self.words.say("row.counts"), *texts]

    # over concurrency -----------------------------------------------------------------------------

    def curve(self, arms: Sequence[Arm]) -> Table:
        keys = self._keys(arms)
        head = [label for label, _, _ in keys]
        head += [self._label("column", name, arms, with_unit=True) for name in _CURVE]
        align = [side for _, side, _ in keys] + ["right"] * len(_CURVE)
        rows = []
        for arm in arms:
            shown = [self._show(name, arm, bare=True) for name in _CURVE]
            rows.append(self._key_cells(keys, arm) + shown)
        return self._finish(head, align, rows)

    def _key_cells(self, keys: Sequence[Key], arm: Arm) -> list[str]:
        """The leading cells of an arm's row; its doubt stands in the first."""
        first, *others = [text(arm) for _, _, text in keys]
        return [self._marked(markdown.inline(first), arm), *others]

    def _keys(self, arms: Sequence[Arm]) -> list[Key]:
        """The leading columns: only those that tell the rows apart."""
        keys: list[Key] = []
        if len({arm.variant for arm in arms}) > 1:
            keys.append((self.words.say("table.variant"), "left", self._named))
        if len({arm.workload for arm in arms}) > 1:
            keys.append(
                (self.words.say("table.scenario"), "left", lambda arm: markdown.code(arm.workload))
            )
        keys.append(
            (
                self.words.say("table.concurrency"),
                "right",
                lambda arm: load_of(self.findings, arm, self.words),
            )
        )
        keys.append((self.words.say("table.requests"), "right", lambda arm: str(arm.requests)))
        if any(len(arm.names) > 1 for arm in arms):
            keys.append(
                (
                    self.words.say("table.starts"),
                    "right",
                    lambda arm: str(len(self.findings.rows(arm))),
                )
            )
        return keys

    def telemetry(self, arms: Sequence[Arm]) -> list[Table]:
        """SMI figures of the curve's runs, where there are any."""
        sampled = [arm for arm in arms if values(self.findings.rows(arm), "smi_records")]
        if not sampled:
            return []
        keys = self._keys(sampled)
        head = [label for label, _, _ in keys] + [
            self._label("row", name, sampled, True) for name in _TELEMETRY
        ]
        rows = [
            self._key_cells(keys, arm) + [self._show(name, arm, bare=True) for name in _TELEMETRY]
            for arm in sampled
        ]
        table = self._finish(
            head, [side for _, side, _ in keys] + ["right"] * len(_TELEMETRY), rows
        )
        table.title = self.words.say("table.telemetry")
        return [table]

    # the grid -------------------------------------------------------------------------------------

    # cells ----------------------------------------------------------------------------------------

    def _usable(self, arm: Arm) -> list[Row]:
        return [row for row in self.findings.rows(arm) if row.get("validity") != "invalid"]

    def _show(self, column: str, arm: Arm, bare: bool) -> str:
        rows = self.findings.rows(arm) if column == "success_rate" else self._usable(arm)
        bare = bare and numbers.unit_moves(column)
        shown = numbers.show_range(column, [row.get(column) for row in rows], bare=bare)
        if shown == numbers.DASH:
            self._note(self._why(column, arm, rows))
        for row in rows:
            self._count_few(column, row)
        if numbers.split(column)[1] in _TO_LAST_DELTA:
            self.to_stream_end |= any(self._ends_with_stream(row["run"]) for row in rows)
        return shown

    def _ends_with_stream(self, run: str) -> bool:
        return any(
            row.get("decode_end") == "stream_end" for row in self.findings.requests.get(run, [])
        )

    def _count_few(self, column: str, row: Row) -> None:
        n, which = row.get("n_ok"), numbers.split(column)[2]
        if (
            n
            and which in ("p10", "p50", "p90")
            and not numbers.enough_for_percentile(int(n), which)
        ):
            self.few.setdefault(int(n), set()).add(which)

    def _too_few(self) -> str:
        """`3 (P10, P50, P90), 20 (P10, P90)`: each n with the percentiles that it cannot bound."""
        return ", ".join(
            f"{n} ({', '.join(sorted(self.few[n])).upper()})" for n in sorted(self.few)
        )

    def _note(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _why(self, column: str, arm: Arm, usable: Sequence[Row]) -> str:
        """Why a value is not there: the key of the note."""
        if not self.findings.rows(arm):
            return self._why_absent(arm)
        if not usable:
            return "invalid_run"
        if not any(row.get("n_ok") for row in usable):
            return "no_success"
        if numbers.split(column)[1] in _SAMPLED:
            sampled = any(row.get("smi_records") for row in usable)
            return "no_window" if sampled and column.endswith("_window") else "no_capture"
        if {row.get("source") for row in usable} & {"reconstructed", "imported"}:
            return "not_in_raw"
        return "not_recorded"

    def _why_absent(self, arm: Arm) -> str:
        return next((self.missing[name] for name in arm.names if name in self.missing), "pending")

    def _arm_label(self, arm: Arm, arms: Sequence[Arm]) -> Md:
        parts: list[str] = []
        if len({other.variant for other in arms}) > 1:
            parts.append(self._named(arm))
        if len({other.kind for other in arms}) > 1:
            parts.append(markdown.code(arm.workload))
        return self._marked(markdown.joined(parts, " · "), arm)

    def _named(self, arm: Arm) -> Md:
        return variant_label(self.findings, arm.variant, self.words)

    def _marked(self, label: Md, arm: Arm) -> Md:
        """Doubt and, in a comparison of unlike sources, the source stand in the column's head."""
        rows = self.findings.rows(arm)
        marks = (
            [self.words.say("state.suspect")]
            if any(row.get("validity") == "suspect" for row in rows)
            else []
        )
        if self.mixed:
            marks += [self.words.say(f"source.{name}") for name in self.findings.sources(arm.names)]
        return markdown.joined([label, *marks], " · ")

    def _label(self, place: str, column: str, arms: Sequence[Arm], with_unit: bool) -> Md:
        tool = capture_tool(self.findings, arms)
        key = f"{place}.{column}"
        label = (
            self.words.say(key, tool=tool)
            if key in self.words
            else metric_label(self.words, column)
        )
        which = numbers.split(column)[2]
        counts = [int(row["n_ok"]) for arm in arms for row in self._usable(arm) if row.get("n_ok")]
        few = which in ("p10", "p50", "p90") and any(
            not numbers.enough_for_percentile(n, which) for n in counts
        )
        if with_unit and numbers.unit_moves(column):
            label = self.words.say("table.with_unit", label=label, unit=numbers.unit(column))
        return Md(f"{label} {FEW}") if few else label

    def _finish(self, head: Sequence[str], align: list[str], rows: list[list[str]]) -> Table:
        notes = [self.words.say("note.few", mark=FEW, n=self._too_few())] if self.few else []
        if any(len(arm.names) > 1 for arm in self.findings.arms(self.experiment)):
            notes.append(self.words.say("note.range"))
        if self.to_stream_end:
            notes.append(self.words.say("note.stream_end"))
        notes += [
            self.words.say("note.missing", reason=self.words.say(f"missing.{key}"))
            for key in self.reasons
        ]
        self.reasons, self.few, self.to_stream_end = [], {}, False
        return Table(list(head), align, rows, notes=notes)
