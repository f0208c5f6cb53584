"""The named files of a study, `results/<study>/runs/`: what people grep and what every reading step
starts from.

In:  the plan and the receipts (or the raw store). Out: decode_*.json (a run that was made a second
time through httpx has that as decode_*.cross_check.json beside it), ixsmi_*.json and server_*.log
as copies under the plan's names, and two indexes, decode_runs.json and ixsmi_capture.json (schema
decodelab.published/1), which say for each name where it came from, under which checksum, and for
each planned run without a file why there is none. The folder is a view: it is made again at will,
and a name that left the plan leaves the folder. The raw store keeps all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from decodelab import decisions, naming
from decodelab.store import Start, sha256_of, verify, write_json

SCHEMA = "decodelab.published/1"
RUNS_INDEX = "decode_runs.json"
CAPTURES_INDEX = "ixsmi_capture.json"


def publish_runs(
    plan: Mapping[str, Any],
    receipts: Mapping[str, Mapping[str, Any]],
    root: Path,
    folder: Path,
    states: Mapping[str, str] | None = None,
    *,
    checked: bool = True,
) -> dict[str, Any]:
    """Copy run records and server logs under their names and return the index (also written).
    `states` says of each launch whether it is chosen (see decisions); one without a receipt that is
    not chosen, or undecided, is missing for that reason.

    Raises StoreError for a raw folder that no longer holds what was measured; not so unless `checked`,
    for a reader that has told of it already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runs: dict[str, Any] = {}
    missing = []
    for run in plan["runs"]:
        receipt = receipts.get(run["launch"])
        entry = (receipt or {}).get("runs", {}).get(run["run"])
        if entry is None:
            missing.append(_missing(run, receipt, (states or {}).get(run["launch"])))
            continue
        source = root / entry["path"] / "run.json"
        target = folder / f"{run['name']}.json"
        if not source.is_file():  # the client never came to write a record; the reasons say why
            missing.append(
                {**_missing(run, receipt), "why": "invalid", "reasons": entry["reasons"]}
            )
            continue
        if checked:
            verify(source.parent)
        shutil.copyfile(source, target)
        runs[run["name"]] = {
            "file": target.name,
            "sha256": sha256_of(target),
            "raw": entry["path"],
            "start_id": entry["start_id"],
            "status": entry["status"],
            "reasons": entry["reasons"],
            "source": json.loads(target.read_text(encoding="utf-8")).get("source"),
            **_publish_cross_check(source.parent, target),
        }
    starts = _publish_starts(plan, receipts, root, folder)
    index = {"schema": SCHEMA, "runs": runs, "starts": starts, "missing": missing}
    keep = {entry["file"] for entry in (*runs.values(), *starts) if entry["file"]}
    keep |= {entry["cross_check"] for entry in runs.values() if "cross_check" in entry}
    _drop_strangers(folder, ("decode_*.json", "server_*.log"), {*keep, RUNS_INDEX})
    write_json(folder / RUNS_INDEX, index)
    return index


def publish_captures(
    plan: Mapping[str, Any],
    receipts: Mapping[str, Mapping[str, Any]],
    root: Path,
    folder: Path,
    states: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write each run's SMI capture as one JSON document under its name and return the index (also written)."""
    folder.mkdir(parents=True, exist_ok=True)
    captures = {}
    for run in plan["runs"]:
        entry = receipts.get(run["launch"], {}).get("runs", {}).get(run["run"])
        source = root / entry["path"] / "capture.jsonl" if entry else None
        if not run.get("capture") or source is None or not source.is_file():
            continue
        target = folder / f"{run['capture']}.json"
        write_json(target, _capture_document(source))
        captures[run["capture"]] = {
            "file": target.name,
            "sha256": sha256_of(target),
            "raw": entry["path"],
            "raw_sha256": sha256_of(source),
            "run": run["name"],
        }
    index = {"schema": SCHEMA, "captures": captures}
    keep = {entry["file"] for entry in captures.values()}
    _drop_strangers(folder, ("ixsmi_*.json",), {*keep, CAPTURES_INDEX})
    write_json(folder / CAPTURES_INDEX, index)
    return index


def _missing(
    run: Mapping[str, Any], receipt: Mapping[str, Any] | None, state: str | None = None
) -> dict[str, Any]:
    entry = {"name": run["name"], "variant": run["variant"]}
    for screen in (receipt or {}).get("screened_out") or []:
        if run["run"] in screen["runs"]:
            names = ("experiment", "metric", "value", "best", "within")
            return {**entry, "why": "screened_out", **{name: screen[name] for name in names}}
    if receipt is None and state in (decisions.NOT_CHOSEN, decisions.UNDECIDED):
        return {**entry, "why": state}
    if receipt is None or receipt["status"] != "not_possible":
        return {**entry, "why": "pending"}
    known = receipt.get("known_from")
    return {**entry, "why": "not_possible", **({"known_from": known} if known else {})}


def _publish_cross_check(attempt: Path, run: Path) -> dict[str, str]:
    """The second opinion on a run, where the study asked for one: a run record, or why there is none."""
    source = attempt / "cross_check.json"
    if not source.is_file():
        return {}
    target = run.with_suffix(".cross_check.json")
    shutil.copyfile(source, target)
    return {"cross_check": target.name, "cross_check_sha256": sha256_of(target)}


def _publish_starts(
    plan: Mapping[str, Any], receipts: Mapping[str, Mapping[str, Any]], root: Path, folder: Path
) -> list[dict[str, Any]]:
    """One entry per real start, under each variant name that it serves; the newest start's log gets the plain name."""
    pairs = dict.fromkeys((run["variant"], run["launch"], run["start"]) for run in plan["runs"])
    entries = []
    for variant, launch, number in pairs:
        receipt = receipts.get(launch)
        known = (receipt or {}).get("known_from") or {}
        if receipt and known.get("kind") == "constraint":
            entries.append(_not_started(variant, number, receipt))
        for start_id, known in (receipt or {}).get("starts", {}).items():
            source = root / known["path"]
            facts = json.loads((source / "start.json").read_text(encoding="utf-8"))
            refused = Start(source, start_id, facts).not_possible
            name = naming.server_log(variant, number)
            if (source / "server.log").is_file():
                shutil.copyfile(source / "server.log", folder / name)
            entries.append(
                {
                    "variant": variant,
                    "server": receipt["server"] if receipt else None,
                    "launch": launch,
                    "start": number,
                    "start_id": start_id,
                    "file": name,
                    "raw": known["path"],
                    "status": "not_possible" if refused else facts["status"],
                    "cause": facts.get("cause"),
                    "start_json": facts,
                }
            )
    return entries


def _not_started(variant: str, number: int, receipt: Mapping[str, Any]) -> dict[str, Any]:
    """A start that was never made, since its outcome was known: no log, no file."""
    return {
        "variant": variant,
        "server": receipt["server"],
        "start": number,
        "start_id": None,
        "file": None,
        "raw": None,
        "status": "not_possible",
        "cause": receipt["cause"],
        "start_json": None,
    }


def _capture_document(source: Path) -> dict[str, Any]:
    """A capture.jsonl (header line, then one line a call) as one document; a torn last line is left out and said so."""
    header: dict[str, Any] = {}
    records = []
    torn = 0
    with source.open(
        encoding="utf-8", newline="\n"
    ) as lines:  # raw text may hold other ends of line
        for number, line in enumerate(lines):
            try:
                value = json.loads(line)
            except ValueError:
                torn += 1
                continue
            if number == 0:
                header = value
            else:
                records.append(value)
    return {**header, "torn_lines": torn, "records": records}


def _drop_strangers(folder: Path, patterns: Iterable[str], keep: set[str]) -> None:
    for pattern in patterns:
        for file in folder.glob(pattern):
            if file.name not in keep:
                file.unlink()
