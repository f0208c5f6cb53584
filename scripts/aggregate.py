"""Published runs -> tables.

In: the plan and results/<study>/runs. Out: requests.csv, runs.csv, telemetry.csv, gpus.csv,
starts.csv, regions.csv, itl.csv and profiles.json; beside the tables' folder traces/ for Perfetto.

    python scripts/aggregate.py --plan PLAN --runs results/STUDY/runs --out results/STUDY/tables
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from decodelab import (
    degradation,
    gap_table,
    given_profiles,
    profiled_runs,
    records,
    server_metrics,
    stats,
    step_export,
    telemetry_gpus,
    telemetry_rows,
)
from decodelab.columns import COLUMNS
from decodelab.profiled_runs import ProfiledRuns
from decodelab.store import write_json


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the published runs")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    parser.add_argument(
        "--root", type=Path, default=Path(), help="what the index's raw paths are relative to"
    )
    args = parser.parse_args(argv)
    try:
        make(json.loads(args.plan.read_text(encoding="utf-8")), args.runs, args.root, args.out)
    except (
        OSError,
        ValueError,
    ) as error:  # unreadable records and captures are ValueErrors that name their file
        print(f"aggregate: {error}", file=sys.stderr)
        return 1
    return 0


def make(plan: Mapping[str, Any], folder: Path, root: Path, out: Path) -> None:
    """Every table and every profile of the published runs in `folder`, written into `out`; with them the profiles
    of files that the config names, and in the folder beside `out` the timelines as traces."""
    profiled = ProfiledRuns(plan)
    tables = build(plan, folder, root, profiled)
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        write(out / f"{name}.csv", list(COLUMNS[name]), rows)
    own, given = profiled.profiles, given_profiles.read(plan, root)
    write_json(out / profiled_runs.FILE, profiled_runs.document(own, given))
    step_export.write_all(own, out.parent / step_export.FOLDER)


def build(
    plan: Mapping[str, Any], folder: Path, root: Path, profiled: ProfiledRuns | None = None
) -> dict[str, list[stats.Row]]:
    """All rows of all tables; `profiled` collects the profiles."""
    profiled = profiled or ProfiledRuns(plan)
    index = records.load_index(folder)
    source = plan.get("source")
    starts = [
        stats.start_row(entry, _log(folder, entry, root), source) for entry in index["starts"]
    ]
    facts = {entry.get("start_id"): entry.get("start_json") for entry in index["starts"]}
    tables: dict[str, list[stats.Row]] = {name: [] for name in COLUMNS}
    for run in records.load_runs(plan, folder, index):
        degradation.spoil(run, plan, starts)
        raw = run.entry.get("raw")
        server = server_metrics.deltas(root / raw) if raw else None
        declared = telemetry_gpus.declared(plan, run.planned, facts.get(run.entry.get("start_id")))
        tables["requests"].extend(stats.request_rows(run))
        row = stats.run_row(run, plan.get("targets") or {}, server, declared)
        tables["runs"].append(row)
        profiled.add(run, row, root / raw if raw else None, facts.get(run.entry.get("start_id")))
        tables["telemetry"].extend(telemetry_rows.sample_rows(run))
        tables["itl"].extend(gap_table.rows(run))
        tables["gpus"].extend(telemetry_rows.gpu_rows(run, declared))
    tables["starts"].extend(starts)
    tables["regions"].extend(profiled.rows())
    return tables


def _log(folder: Path, entry: Mapping[str, Any], root: Path) -> str | None:
    """The start's own log: the published name has that of the newest start under it."""
    raw = root / str(entry.get("raw") or "-")
    path = raw / "server.log" if raw.is_dir() else folder / str(entry.get("file") or "-")
    if not path.is_file():
        return None
    data = path.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode(
        "utf-8", errors="replace"
    )


def write(path: Path, columns: list[str], rows: Iterable[stats.Row]) -> None:
    """One table, whole or not at all: a temporary name, then a rename."""
    waiting = path.with_name(f".{path.name}.{os.getpid()}")
    with waiting.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n", extrasaction="raise")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: cell(row.get(name)) for name in columns})
    waiting.replace(path)


def cell(value: Any) -> Any:
    """A value as written: floats with all their digits, the unknown as an empty cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return value


if __name__ == "__main__":
    sys.exit(main())
