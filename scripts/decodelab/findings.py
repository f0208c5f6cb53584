"""What a report is written from: plan, tables, verdicts and the index of published files, as
read-only data.

In: plan.json, tables/{runs,requests,telemetry,gpus,starts}.csv, tables/itl.csv and profiles.json (if any),
verdicts.json, the indexes in runs/ and the answers in backends/ (may be absent). Out: one `Findings`. An empty cell is
None; nothing is computed here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import backend_probe, profiled_runs, step_export
from decodelab.backend_probe import Probe
from decodelab.step_table import Profile

Row = dict[str, Any]
Verdict = dict[str, Any]

PLAN_SCHEMA = "decodelab.plan/1"
PUBLISHED_SCHEMA = "decodelab.published/1"
VERDICTS_SCHEMA = "decodelab.verdicts/1"
_ARM = ("variant", "workload", "scenario", "concurrency", "requests", "max_tokens")
_TEXT = """
run variant workload scenario start_id source outcome error decode_end validity reasons uuid server
status cause_class root_cause launch hint_en hint_zh backend degraded version log
arrivals cache prompt_sized_by http client_digest stamp_source cross_http cross_problem
cross_validity cross_reasons prompt_problem
scope name in_use in_use_by gpus_in_use_by smi_validity smi_reasons
smi_validity_in_use smi_reasons_in_use smi_rejected_why burst_kind smi_tool smi_form smi_loop smi_problem told
"""
TEXT_COLUMNS = frozenset(_TEXT.split())  # the others hold numbers


class UnreadableInput(ValueError):
    """An input file that is not what its name says."""


@dataclass(frozen=True)
class Arm:
    """The runs of one workload against one variant: one run per start."""

    variant: str
    workload: str  # its name in the config
    scenario: str
    concurrency: int
    requests: int
    max_tokens: int
    names: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, str, int, int]:
        return self.workload, self.scenario, self.max_tokens, self.requests


@dataclass(frozen=True)
class Findings:
    plan: Mapping[str, Any]
    runs: Mapping[str, Row]
    requests: Mapping[str, list[Row]]
    telemetry: Mapping[str, list[Row]]
    gpus: Mapping[str, list[Row]]
    starts: list[Row]
    verdicts: list[Verdict]
    judged: Mapping[str, Any]  # the rest of verdicts.json
    published: Mapping[str, Any] | None
    planned: Mapping[str, Row] = field(default_factory=dict)  # the plan's runs by name
    probes: list[Probe] = field(default_factory=list)  # what the engines told of their backends
    profiles: Mapping[str, Profile] = field(default_factory=dict)  # by run
    given_profiles: Mapping[str, Profile] = field(
        default_factory=dict
    )  # files, by their name in the config
    gaps: Mapping[str, list[Row]] = field(default_factory=dict)  # rows of itl.csv by run
    traces: frozenset[str] = frozenset()  # runs that have one to open in Perfetto
    traces_at: str | None = (
        None  # their folder as the report sees it, where that is not its study's own place
    )

    @property
    def experiments(self) -> Mapping[str, Any]:
        experiments: Mapping[str, Any] = self.plan.get("experiments") or {}
        return experiments

    def variant(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (self.plan.get("variants") or {}).get(name, {})
        return found

    def is_cell(self, variant: str) -> bool:
        return bool(self.variant(variant).get("grid"))

    def arms(self, experiment: str) -> list[Arm]:
        """The experiment's runs, starts put together, in plan order."""
        groups: dict[tuple[Any, ...], list[str]] = {}
        for name in self.experiments[experiment].get("runs") or []:
            run = self.planned[name]
            key = tuple(run[name] for name in _ARM)
            groups.setdefault(key, []).append(name)
        return [
            Arm(**dict(zip(_ARM, key, strict=True)), names=tuple(names))
            for key, names in groups.items()
        ]

    def rows(self, arm: Arm) -> list[Row]:
        """The measured runs of an arm, one a start."""
        return [self.runs[name] for name in arm.names if name in self.runs]

    def variants_of(self, experiment: str) -> set[str]:
        """Every variant of an experiment, those included that have no run."""
        entry = self.experiments[experiment]
        return {
            *(entry.get("variants") or []),
            *(self.planned[run]["variant"] for run in entry.get("runs") or []),
        }

    def verdicts_of(self, experiment: str) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.get("experiment") == experiment]

    def question(self, verdict: Verdict) -> Mapping[str, Any]:
        """The plan's question that a verdict answers (one question may give a verdict for each
        point).
        """
        questions = self.experiments.get(verdict["experiment"], {}).get("questions") or []
        by_id: dict[str, Mapping[str, Any]] = {item["id"]: item for item in questions}
        return by_id.get(verdict.get("question") or verdict["id"], {})

    def anomalies_of(self, names: Iterable[str]) -> list[Mapping[str, Any]]:
        wanted = set(names)
        return [
            item
            for item in self.judged.get("anomalies") or []
            if wanted & set(item.get("runs") or [])
        ]

    def choice(self, experiment: str) -> Mapping[str, Any] | None:
        """What the verdicts made of its `when:`; None for an experiment without one."""
        found: Mapping[str, Any] | None = (self.judged.get("path") or {}).get(experiment)
        return found

    def held_back(self, experiment: str) -> str | None:
        """not_chosen or undecided; None for an experiment that is to be measured."""
        state = (self.choice(experiment) or {}).get("state")
        return str(state) if state in ("not_chosen", "undecided") else None

    def _waits(self, run: Row) -> str:
        """Why a run is not there that nobody has tried: pending if any experiment is to have it."""
        states = [self.held_back(name) for name in run.get("experiments") or []]
        if not states or None in states:
            return "pending"
        return "undecided" if "undecided" in states else "not_chosen"

    def missing(self) -> list[Row]:
        """Planned runs that have no row, with the reason where the index gives it."""
        why = {
            item["name"]: item.get("why") for item in (self.published or {}).get("missing") or []
        }
        why |= dict.fromkeys(self.without_record(), "invalid")
        refused = {row["variant"] for row in self.starts if row.get("status") == "not_possible"}
        absent = [run for name, run in self.planned.items() if name not in self.runs]
        return [
            {
                **run,
                "why": self._waits(run)
                if (told := why.get(run["name"])) == "pending"
                else told or ("not_possible" if run["variant"] in refused else self._waits(run)),
            }
            for run in absent
        ]

    def without_record(self) -> dict[str, Mapping[str, Any]]:
        """Index entries of planned runs that were tried and left no record, by run name: either
        runs without a file, or missing ones that the index calls invalid.
        """
        index = self.published or {}
        entries = {n: e for n, e in (index.get("runs") or {}).items() if not e.get("file")}
        for item in index.get("missing") or []:
            if item.get("why") == "invalid":
                entries.setdefault(item["name"], item)
        return {name: entry for name, entry in entries.items() if name in self.planned}

    def refused(self, variants: Iterable[str]) -> bool:
        """Whether each of these variants failed to start for a cause in its configuration."""
        states = {row["variant"] for row in self.starts if row.get("status") == "not_possible"}
        wanted = set(variants)
        return bool(wanted) and wanted <= states

    def failed_starts(self) -> list[Row]:
        """Starts that never became ready, or died; one a variant, start and cause."""
        return [row for row in self.starts if row.get("root_cause") or row.get("cause_class")]

    def sources(self, names: Iterable[str] | None = None) -> list[str]:
        """The sources of these runs (all: of the study), in a fixed order. A study in which no
        server became ready still has the source of its starts.
        """
        if names is None:
            rows = list(self.runs.values()) or self.starts
        else:
            rows = [self.runs[name] for name in names if name in self.runs]
        order = ("simulated", "reconstructed", "imported", "measured")
        found = {row.get("source") for row in rows}
        return [source for source in order if source in found]


def load(plan: Path, tables: Path, verdicts: Path, published: Path | None = None) -> Findings:
    """`published` is the folder of the named files; without its indexes a report has no digests."""
    plan_data = _json(plan, PLAN_SCHEMA)
    judged = _json(verdicts, VERDICTS_SCHEMA)
    profiles, given = _profiles(tables / profiled_runs.FILE)
    return Findings(
        plan=plan_data,
        runs={row["run"]: row for row in _table(tables / "runs.csv")},
        requests=_by_run(_table(tables / "requests.csv")),
        telemetry=_by_run(_table(tables / "telemetry.csv")),
        gpus=_by_run(_table(tables / "gpus.csv")),
        starts=_table(tables / "starts.csv"),
        verdicts=list(judged.get("verdicts") or []),
        judged=judged,
        published=_indexes(published) if published else None,
        planned={run["name"]: run for run in plan_data.get("runs") or []},
        probes=backend_probe.load(published.parent / backend_probe.FOLDER) if published else [],
        gaps=_by_run(_table(itl)) if (itl := tables / "itl.csv").is_file() else {},
        profiles=profiles,
        given_profiles=given,
        traces=frozenset(
            file.name.removesuffix(step_export.SUFFIX)
            for file in (tables.parent / step_export.FOLDER).glob(f"*{step_export.SUFFIX}")
        ),
    )


def _profiles(path: Path) -> tuple[Mapping[str, Profile], Mapping[str, Profile]]:
    try:
        return profiled_runs.load(path)
    except ValueError as error:
        raise UnreadableInput(str(error)) from error


def _json(path: Path, schema: str | None) -> Any:
    with path.open(encoding="utf-8") as handle:
        data = json.load(handle)
    if schema and data.get("schema") != schema:
        raise UnreadableInput(f"{path}: schema is {data.get('schema')!r}, wanted {schema!r}")
    return data


def _indexes(folder: Path) -> Mapping[str, Any] | None:
    """What stands under which name: runs, starts and missing of one file, captures of the other."""
    merged: dict[str, Any] = {}
    for name in ("ixsmi_capture.json", "decode_runs.json"):
        if (folder / name).is_file():
            merged.update(_json(folder / name, PUBLISHED_SCHEMA))
    return merged or None


def _table(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle, strict=True)
        return [{name: _value(name, text) for name, text in row.items()} for row in reader]


def _value(name: str, text: str | None) -> Any:
    if text is None or text == "":
        return None
    if name in TEXT_COLUMNS:
        return text
    try:
        return float(text)
    except ValueError:
        return text


def _by_run(rows: list[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["run"], []).append(row)
    return groups


def values(
    rows: Iterable[Row], column: str, where: Callable[[Row], bool] | None = None
) -> list[Any]:
    """The known values of a column."""
    chosen = rows if where is None else filter(where, rows)
    return [row[column] for row in chosen if row.get(column) is not None]
