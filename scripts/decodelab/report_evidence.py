"""evidence.json: what every number of a report comes from, down to the raw files' checksums.

In: `Findings`, the raw files' checksums, those of the files that were written. Out: one document
(schema decodelab.evidence/1). What many numbers share stands once: `definitions` by column, `arms`,
`runs`, `starts`, `servers`, `raw` by folder; the entries name them. It holds no time of its writing:
the same plan and raw files make the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from decodelab import evidence_entries, numbers, words
from decodelab.columns import COLUMNS
from decodelab.evidence_entries import Entry
from decodelab.findings import Findings, Row
from decodelab.report_labels import metric_label

SCHEMA = "decodelab.evidence/1"


def document(
    findings: Findings,
    plan_file: PurePosixPath,
    raw: Mapping[str, Any],
    written: Mapping[str, str],
) -> dict[str, Any]:
    """`plan_file`: as the checkout has it, `<digest of the plan>-<digest of the reading code>.json`;
    `written`: file of tables, verdicts, figures and pages -> sha256."""
    plan, _, code = plan_file.stem.partition("-")
    arms = evidence_entries.arms(findings)
    entries = [
        *evidence_entries.of_arms(findings, arms),
        *evidence_entries.of_verdicts(findings),
        *evidence_entries.of_targets(findings),
        *evidence_entries.of_accelerators(findings),
        *evidence_entries.of_starts(findings),
    ]
    return {
        "schema": SCHEMA,
        "study": findings.plan["study"],
        "kind": findings.plan["kind"],
        "plan": {"file": plan_file.as_posix(), "digest": plan},
        "code": code,
        "definitions": _definitions(_metrics_of(entries)),
        "arms": arms,
        "runs": {name: _run(findings, name) for name in findings.runs},
        "starts": _starts(findings),
        "servers": _servers(findings),
        "raw": raw,
        "written": dict(sorted(written.items())),
        "entries": entries,
    }


def _metrics_of(entries: Iterable[Entry]) -> list[str]:
    found = [entry["metric"] for entry in entries]
    found += [guard["metric"] for entry in entries for guard in entry.get("guards") or []]
    return list(dict.fromkeys(name for name in found if name))


def _definitions(metrics: Iterable[str]) -> dict[str, Any]:
    """By column: its unit, its meaning in the data dictionary, its label and definition in the report."""
    catalogues = [words.load(language) for language in words.LANGUAGES]
    known = {name: column for table in COLUMNS.values() for name, column in table.items()}
    made = {}
    for metric in metrics:
        name = numbers.column(metric)
        base = f"definition.{numbers.split(metric)[1]}"
        has = all(base in one for one in catalogues)
        column = known.get(name)
        made[metric] = {
            "unit": column.unit if column else numbers.unit(metric),
            "column": column.meaning if column else None,
            "label": {one.language: str(metric_label(one, metric)) for one in catalogues},
            "definition": {"key": base, **{one.language: str(one.say(base)) for one in catalogues}}
            if has
            else None,
        }
    return made


def _run(findings: Findings, name: str) -> dict[str, Any]:
    """Its published files, the raw folder (of a replay the raw file), launch, start and counts."""
    row, index = findings.runs[name], findings.published or {}
    entry = (index.get("runs") or {}).get(name) or {}
    planned = findings.planned.get(name, {})
    capture = (index.get("captures") or {}).get(planned.get("capture"))
    return {
        **_file(entry),
        "capture": _file(capture) if capture else None,
        "cross_check": _cross_check(entry),
        "variant": row.get("variant"),
        "launch": planned.get("launch"),
        "start_id": row.get("start_id"),
        "source": row.get("source"),
        "validity": row.get("validity"),
        "reasons": row.get("reasons"),
        "n_attempted": _whole(row.get("n_attempted")),
        "n_ok": _whole(row.get("n_ok")),
    }


def _file(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: entry.get(key) for key in ("file", "sha256", "raw")}


def _cross_check(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    if "cross_check" not in entry:
        return None
    return {"file": entry["cross_check"], "sha256": entry.get("cross_check_sha256")}


def _starts(findings: Findings) -> dict[str, Any]:
    """Every real start, by its id: the server that it was of, its launch, its log, what became of it."""
    began = {row.get("start_id"): row.get("t_begin_s") for row in findings.starts}
    made: dict[str, Any] = {}
    for entry in (findings.published or {}).get("starts") or []:
        if entry.get("start_id") is None:
            continue
        one = made.setdefault(
            entry["start_id"],
            {
                "variants": [],
                "server": entry.get("server"),
                "launch": entry.get("launch"),
                "start": entry.get("start"),
                "status": entry.get("status"),
                "began_s": began.get(entry["start_id"]),
                "log": entry.get("file"),
                "raw": entry.get("raw"),
            },
        )
        if entry["variant"] not in one["variants"]:
            one["variants"].append(entry["variant"])
    return made


def _servers(findings: Findings) -> dict[str, Any]:
    """By digest: the command line, with {python} and {simulator} as the plan has them, and the
    environment (of secrets only the plan's names are known)."""
    kept = ("argv", "env", "model", "host", "attach", "build")
    servers: Mapping[str, Row] = findings.plan.get("servers") or {}
    return {name: {key: one.get(key) for key in kept} for name, one in servers.items()}


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
