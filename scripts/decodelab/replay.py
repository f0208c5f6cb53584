"""Raw logs that exist already -> the published folder of a replay study, under the plan's names.

In:  a plan of kind "replay", its replay folder, and optionally a folder with the originals, which
win by name.
Out: decode_*.json, ixsmi_*.json, server_*.log and the two indexes (schema decodelab.published/1).
A planned name without a file is listed as missing; a file that cannot be read stops everything,
since leaving an original out silently would put a reconstruction in its place.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cargo import start_cause
from decodelab import evaluator_check, evaluator_rows, records
from decodelab.fieldmap import FieldMap
from decodelab.foreign_capture import align, read_capture_file
from decodelab.importing import read_run
from decodelab.published import CAPTURES_INDEX, RUNS_INDEX, SCHEMA
from decodelab.store import sha256_of, write_json

RAW_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")
LOG_SUFFIXES = (".log", ".reconstructed.log")
STATUS_OF_SIDE = {"config": "not_possible", "host": "failed", "none": "ready"}


def publish(
    plan: Mapping[str, Any], folders: Iterable[Path], out: Path, mapping: FieldMap, root: Path
) -> dict[str, Any]:
    """Write the published folder and return its indexes as one. Earlier `folders` win."""
    sources = [folder for folder in folders if folder is not None]
    out.mkdir(parents=True, exist_ok=True)
    starts = _publish_starts(plan, sources, out, root)
    refused = {start["variant"] for start in starts if start["status"] == "not_possible"}
    runs: dict[str, Any] = {}
    captures: dict[str, Any] = {}
    missing = []
    for run in plan["runs"]:
        raw = _raw_file(plan, run, sources)
        if raw is None:
            why = "not_possible" if run["variant"] in refused else "pending"
            missing.append({"name": run["name"], "variant": run["variant"], "why": why})
            continue
        record = read_run(raw, mapping).record
        checked = _check(run, record)
        runs[run["name"]] = {**_publish_run(run, record, raw, out, root), **checked}
        name = run.get("capture")
        raw = first_file(sources, name, RAW_SUFFIXES) if name else None
        if raw is not None:
            entry = _publish_capture(name, raw, record, out, mapping, root)
            captures[name] = {**entry, "run": run["name"]}
    entries = [*runs.values(), *captures.values(), *starts]
    _drop_strangers(out, {entry["file"] for entry in entries} | {RUNS_INDEX, CAPTURES_INDEX})
    write_json(
        out / RUNS_INDEX, {"schema": SCHEMA, "runs": runs, "starts": starts, "missing": missing}
    )
    write_json(out / CAPTURES_INDEX, {"schema": SCHEMA, "captures": captures})
    return {"runs": runs, "captures": captures, "starts": starts, "missing": missing}


def first_file(folders: Iterable[Path], name: str, suffixes: tuple[str, ...]) -> Path | None:
    candidates = (folder / f"{name}{suffix}" for folder in folders for suffix in suffixes)
    return next((path for path in candidates if path.is_file()), None)


def _raw_file(plan: Mapping[str, Any], run: Mapping[str, Any], sources: list[Path]) -> Path | None:
    """The file under the run's own name; else the evaluator's rows under its variant's name, which
    is a submission's, where that variant has one run.
    """
    named = first_file(sources, run["name"], RAW_SUFFIXES)
    alone = sum(other["variant"] == run["variant"] for other in plan["runs"]) == 1
    if named is not None or not alone:
        return named
    rows = first_file(sources, f"{run['variant']}_requests", (".tsv",))
    return rows if rows is not None and evaluator_rows.recognised(rows) else None


def _check(run: Mapping[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """Rows of the evaluator against its own account: the lines for the index, and the outcome for the
    record.
    """
    if "evaluator" not in record:
        return {}
    lines = evaluator_check.lines(records.make_run(run, {}, record))
    record["evaluator"]["disagrees"] = evaluator_check.disagrees(lines)
    return {"evaluator_check": lines}


def _publish_run(
    run: Mapping[str, Any], record: Mapping[str, Any], raw: Path, out: Path, root: Path
) -> dict[str, Any]:
    target = out / f"{run['name']}.json"
    _write(target, raw, record)
    return {
        **_origin(target, raw, root),
        # The runs of a variant's start number share one start, as the plan says; its id is lost.
        "start_id": f"replay-{run['variant']}-start{run['start']}",
        "status": "done",
        "reasons": [],
        "source": record["source"],
    }


def _publish_capture(
    name: str, raw: Path, run: Mapping[str, Any], out: Path, mapping: FieldMap, root: Path
) -> dict[str, Any]:
    capture, _ = read_capture_file(raw, mapping)
    align(capture, run)
    target = out / f"{name}.json"
    _write(target, raw, capture)
    return {**_origin(target, raw, root), "source": capture.get("source")}


def _write(target: Path, raw: Path, document: Mapping[str, Any]) -> None:
    """A file of our own format goes in byte by byte, another one as what was read from it."""
    if raw.suffix == ".json" and json.loads(raw.read_text(encoding="utf-8-sig")) == document:
        shutil.copyfile(raw, target)
    else:
        write_json(target, document)


def _origin(target: Path, raw: Path, root: Path) -> dict[str, Any]:
    return {
        "file": target.name,
        "sha256": sha256_of(target),
        "raw": relative(raw, root),
        "raw_sha256": sha256_of(raw),
    }


def relative(path: Path, root: Path) -> str:
    """Relative to the checkout where it lies inside, else as it is."""
    resolved = path.resolve()
    inside = resolved.is_relative_to(root.resolve())
    return resolved.relative_to(root.resolve()).as_posix() if inside else path.as_posix()


def _publish_starts(
    plan: Mapping[str, Any], sources: list[Path], out: Path, root: Path
) -> list[dict[str, Any]]:
    """Server logs of planned starts, with the cause of those that failed."""
    entries = []
    for start in plan["starts"]:
        raw = first_file(sources, start["log"].removesuffix(".log"), LOG_SUFFIXES)
        if raw is None:
            continue
        target = out / start["log"]
        shutil.copyfile(raw, target)
        cause = start_cause.explain(raw.read_text(encoding="utf-8", errors="replace"))
        status = STATUS_OF_SIDE[cause["side"]]
        if status == "not_possible" and not start_cause.is_final(cause):
            status = "failed"  # a guess
        start_id = f"replay-{start['variant']}-start{start['start']}"
        entries.append(
            {
                "variant": start["variant"],
                "server": start["server"],
                "start": start["start"],
                "start_id": start_id,
                **_origin(target, raw, root),
                "status": status,
                "cause": None if status == "ready" else cause,
                "source": "reconstructed" if ".reconstructed." in raw.name else "imported",
                "start_json": None,
            }
        )
    return entries


def _drop_strangers(out: Path, keep: set[str]) -> None:
    """The folder is a view of the plan: what left the plan leaves the folder."""
    for pattern in ("decode_*.json", "*smi_*.json", "server_*.log"):
        for file in out.glob(pattern):
            if file.name not in keep:
                file.unlink()
