"""The written tables of a study, read back as typed rows for the judge.

In: the folder with requests.csv, runs.csv, starts.csv and profiles.json. Out: `Tables`; an empty cell is None,
whole-number columns are int."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import profiled_runs
from decodelab.columns import COLUMNS
from decodelab.step_table import Profile

TEXT = frozenset({
    "run", "variant", "workload", "scenario", "launch", "start_id", "source", "validity", "reasons",
    "outcome", "error", "decode_end", "uuid", "server", "status", "cause_class", "root_cause",
    "hint_en", "hint_zh", "backend", "ignored", "effective", "identity", "degraded", "version", "setup", "log",
    "arrivals", "cache", "prompt_sized_by", "http", "client_digest", "stamp_source", "cross_http",
    "cross_problem", "cross_validity", "cross_reasons", "prompt_problem",
    "scope", "name", "in_use", "in_use_by", "gpus_in_use_by", "smi_validity", "smi_reasons",
    "smi_validity_in_use", "smi_reasons_in_use", "smi_rejected_why",
    "burst_kind", "smi_tool", "smi_form", "smi_loop", "smi_problem", "told", "phase", "region",
})  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True)
class Tables:
    runs: dict[str, Row]  # by run name
    requests: dict[str, list[Row]]  # by run name
    starts: list[Row]
    absent: dict[str, Row] = field(default_factory=dict)  # planned runs without a row, by name: why
    profiles: dict[str, Profile] = field(default_factory=dict)  # of the step profiler, by run name
    given: dict[str, Profile] = field(default_factory=dict)  # files, by their name in the config

    def only(self, runs: Collection[str], launches: Collection[str]) -> Tables:
        """The rows of these runs, and of the starts of these launches (of a replay, which has no
        launches: all starts).
        """
        return Tables(
            {name: row for name, row in self.runs.items() if name in runs},
            {name: rows for name, rows in self.requests.items() if name in runs},
            [s for s in self.starts if s.get("launch") in launches or not s.get("launch")],
            {name: row for name, row in self.absent.items() if name in runs},
            {name: found for name, found in self.profiles.items() if name in runs},
            self.given,
        )


def load(folder: Path) -> Tables:
    """The tables of `folder`, and from the index of published runs beside it why a run is not there."""
    runs = {row["run"]: row for row in read(folder / "runs.csv", "runs")}
    requests: dict[str, list[Row]] = {}
    for row in read(folder / "requests.csv", "requests"):
        requests.setdefault(row["run"], []).append(row)
    starts = read(folder / "starts.csv", "starts")
    profiles, given = profiled_runs.load(folder / profiled_runs.FILE)
    return Tables(runs, requests, starts, _absent(folder), profiles, given)


def _absent(folder: Path) -> dict[str, Row]:
    try:
        text = (folder.parent / "runs" / "decode_runs.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {entry["name"]: entry for entry in json.loads(text).get("missing") or []}


def read(path: Path, table: str) -> list[Row]:
    """One table; a file without the table's columns is refused by name."""
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle, strict=True)
        lost = [name for name in COLUMNS[table] if name not in (reader.fieldnames or [])]
        if lost:
            raise ValueError(f"{path}: no {table} table: columns missing: {', '.join(lost)}")
        return [{name: typed(name, text) for name, text in row.items()} for row in reader]


def typed(name: str, text: str | None) -> Any:
    if text is None or text == "":
        return None
    if name in TEXT:
        return text
    value = float(text)
    return (
        int(value) if value.is_integer() and "." not in text and "e" not in text.lower() else value
    )
