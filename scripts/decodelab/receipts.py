"""What the raw store holds of a planned launch: its receipt.

In:  one entry of plan["launches"] and the Store. Out: a receipt (dict, schema
decodelab.receipt/1), status "done" (every run has a whole result), "not_possible" (the server
cannot start as configured: a result) or "pending". The report is made from receipts alone, so it
never depends on which workflow call measured what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decodelab import beforehand, races
from decodelab.store import Attempt, Start, Store

SCHEMA = "decodelab.receipt/1"
AGAIN = (
    "Hint: call snakemake again; a receipt is made again from the raw store, and what lies there is\n"
    "not measured again."
)


def receipt(launch: Mapping[str, Any], store: Store, root: Path) -> dict[str, Any]:
    """The launch's receipt as of now. Paths in it are relative to `root`, the checkout."""
    server, start = str(launch["server"]), int(launch["start"])
    runs = {run: store.select(server, start, run) for run in launch["runs"]}
    out = races.left_out(launch, store)
    gone = {run for screen in out for run in screen["runs"]}
    missing = [run for run, attempt in runs.items() if attempt is None and run not in gone]
    whole = not missing and (bool(runs) or store.came_up(server, start))
    refusal = None if whole else store.not_possible(server, start)
    known = None if whole or refusal else beforehand.refusal(launch, store)
    status = "done" if whole else "not_possible" if refusal or known else "pending"
    starts = {s.start_id: s for s in store.starts(server, start)}
    if refusal is not None:
        starts[refusal.start_id] = refusal
    return {
        "schema": SCHEMA,
        "launch": launch["digest"],
        "server": server,
        "start": start,
        "status": status,
        "cause": refusal.facts.get("cause") if refusal else known["cause"] if known else None,
        **_known_from(refusal, known, store.start_root(server, start), root),
        "missing": missing,
        **({"screened_out": out} if out else {}),
        "starts": {key: _start_entry(s, root) for key, s in starts.items()},
        "runs": {run: _run_entry(a, root) for run, a in runs.items() if a is not None},
    }


def current(launch: Mapping[str, Any], store: Store, folder: Path) -> str:
    """The file name, without `.json`, of the launch's receipt in `folder`: the newest one, or if that
    screens out what the present members of the race no longer do, the next, which is missing.

    A name of its own, since a missing file is the only reason to make a receipt.
    """
    digest = str(launch["digest"])
    if not launch.get("screens"):
        return digest
    number, newest = 1, folder / f"{digest}.json"
    while (following := folder / f"{digest}.{number + 1}.json").is_file():
        number, newest = number + 1, following
    told = (read(newest) or {}).get("screened_out") or []
    if not races.still_out(told, launch, store):
        number += 1
    return digest if number == 1 else f"{digest}.{number}"


def _known_from(
    refusal: Start | None, known: Mapping[str, Any] | None, own: Path, root: Path
) -> dict[str, Any]:
    """Where a launch that was not started is known to be impossible from; nothing for a real refusal of
    its own.
    """
    if known is not None:
        return {"known_from": known["known_from"]}
    if refusal is None or refusal.path.parent == own:
        return {}
    log, cause = refusal.path / "server.log", refusal.facts.get("cause") or {}
    earlier = {"kind": "start", "start_id": refusal.start_id, "line": cause.get("line")}
    return {"known_from": {**earlier, "log": _relative(log, root)}}


def read(file: Path) -> dict[str, Any] | None:
    """The receipt that the file holds; None for a file that is missing, damaged or something else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(found, dict) and found.get("schema") == SCHEMA
    return found if whole else None


def is_pending(launch: Mapping[str, Any], store: Store, *, retry: bool = False) -> bool:
    """Whether the launch has anything to measure. With `retry`, failures count as not measured."""
    server, start = str(launch["server"]), int(launch["start"])
    if not retry and store.not_possible(server, start) is not None:
        return False
    if not launch["runs"] and store.came_up(server, start):
        return False
    if launch["runs"] and not pending_runs(launch, store, retry=retry):
        return False
    return retry or beforehand.refusal(launch, store) is None


def pending_runs(launch: Mapping[str, Any], store: Store, *, retry: bool = False) -> list[str]:
    """The run digests without a whole result (with `retry`: without a good one), in plan order; a run
    that its launch is out of the race for is not wanted.
    """
    server, start = str(launch["server"]), int(launch["start"])
    pending = []
    gone = {run for screen in races.left_out(launch, store) for run in screen["runs"]}
    for run in launch["runs"]:
        if run in gone:
            continue
        attempt = store.select(server, start, run)
        if attempt is None or (retry and attempt.status != "done"):
            pending.append(run)
    return pending


def _start_entry(start: Start, root: Path) -> dict[str, Any]:
    return {"path": _relative(start.path, root), "status": start.facts.get("status")}


def _run_entry(attempt: Attempt, root: Path) -> dict[str, Any]:
    return {
        "path": _relative(attempt.path, root),
        "status": attempt.status,
        "reasons": list(attempt.reasons),
        "start_id": attempt.start_id,
    }


def _relative(path: Path, root: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()
