"""The annexes of a report: definitions, validity, failed starts, where each figure comes from, what
is pending.

In: `Findings` and the catalogue. Out: `Table`s and `Bullet`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import markdown, numbers, report_beforehand
from decodelab.findings import Findings, Row, values
from decodelab.markdown import Md
from decodelab.report_labels import metric_label
from decodelab.report_tables import Table
from decodelab.report_verdicts import Bullet, names
from decodelab.words import Words

_METRICS = """
ttft_s e2e_s decode_tps decode_rate e2e_tps tpot_s itl_s input_tps output_tps_total success_rate
wall_s cache_hit goodput queue_s util_pct mem_used_mib power_w
energy_j_window cap_share_window idle_share_window mem_headroom_mib_window tokens_per_joule
joules_per_token time_share_prefill time_share_decode
"""
_DEFINED = _METRICS.split()
MAX_ERROR = 200  # characters of an error that are printed
_TERMS = ("effect", "floor", "n", "validity")


def definitions(words: Words) -> Table:
    head = [words.say(f"table.{key}") for key in ("metric", "column", "unit", "formula")]
    rows: list[list[str]] = [
        [
            metric_label(words, name),
            markdown.code(name),
            numbers.unit(name),
            words.say(f"definition.{name}"),
        ]
        for name in _DEFINED
    ]
    for term in _TERMS:
        key = f"table.{term}" if term != "n" else "table.n"
        rows.append([words.say(key), numbers.DASH, numbers.DASH, words.say(f"definition.{term}")])
    return Table(head, ["left", "left", "left", "left"], rows)


def validity(findings: Findings, words: Words) -> Table | None:
    """Runs that are not plainly valid, with every reason."""
    doubtful = _doubtful(findings)
    if not doubtful:
        return None
    head = [words.say(f"table.{key}") for key in ("run", "validity", "counts", "reasons")]
    rows = [
        [
            markdown.code(row["run"]),
            words.say(f"state.{row['validity']}"),
            f"{numbers.count(row.get('n_ok'))} / {numbers.count(row.get('n_attempted'))}",
            _why(findings, row, words),
        ]
        for row in doubtful
    ]
    kept = any(_may_be_tried_again(row) for row in doubtful)
    notes = [words.say("validity.kept")] if kept else []
    return Table(head, ["left", "left", "right", "left"], rows, notes=notes)


def _doubtful(findings: Findings) -> list[Row]:
    """Suspect and invalid runs, those included that ended before they left a record."""
    known = [row for row in findings.runs.values() if row.get("validity") in ("suspect", "invalid")]
    lost: list[Row] = [
        {"run": name, "validity": "invalid", "reasons": ";".join(entry.get("reasons") or [])}
        for name, entry in findings.without_record().items()
    ]
    return known + lost


def _why(findings: Findings, row: Row, words: Words) -> Md:
    """The reasons; of an invalid run also what its first failed request said, and the way on."""
    parts = [reasons(row.get("reasons") or "", words)]
    if row["validity"] == "invalid":
        errors = values(findings.requests.get(row["run"], []), "error")
        if errors:
            parts.append(
                words.say("validity.first_error", text=markdown.cut(str(errors[0]), MAX_ERROR))
            )
    if _may_be_tried_again(row):
        parts.append(_way_on(findings, row, words))
    return markdown.joined(parts, words.say("sentence.semicolon"))


def _way_on(findings: Findings, row: Row, words: Words) -> Md:
    """A retry measures what failed on the host; what was read as invalid afterwards is done there."""
    runs = (findings.published or {}).get("runs") or {}
    if (runs.get(row["run"]) or {}).get("status") == "done":
        return words.say("validity.other_seed", workload=row.get("workload"))
    return words.say("validity.retry", option=f"--config retry={row['run']}")


def _may_be_tried_again(row: Row) -> bool:
    """A run that was imported cannot be: its server is not this workflow's."""
    return row["validity"] == "invalid" and row.get("source") not in ("reconstructed", "imported")


def reasons(codes: str, words: Words) -> Md:
    """Reason codes in words; a code that the catalogue does not know stays a code."""
    known = [code for code in codes.split(";") if code]
    texts = [
        words.say(f"reason.{c}") if f"reason.{c}" in words else markdown.code(c) for c in known
    ]
    told = dict.fromkeys(texts)  # two codes may say the same
    return markdown.joined(told, words.say("sentence.semicolon")) if told else Md(numbers.DASH)


def validity_text(findings: Findings, words: Words) -> Md:
    doubtful = _doubtful(findings)
    if not findings.runs and not doubtful:
        return words.say("validity.none")
    if doubtful:
        return words.say_n("validity.rows", len(doubtful))
    return words.say_n("validity.all_valid", len(findings.runs))


def failed_starts(
    findings: Findings, words: Words, variants: set[str] | None = None
) -> list[Bullet]:
    """Starts that failed for one cause in one way share an entry: a grid fails in many cells at
    once.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in findings.failed_starts():
        if report_beforehand.is_known(findings, row):
            continue
        if variants is None or row["variant"] in variants:
            key = (row.get("status"), row.get("cause_class"), row.get("root_cause"))
            groups.setdefault(key, []).append(row)
    return [_failed(findings, rows, words) for rows in groups.values()]


def _failed(findings: Findings, rows: list[Row], words: Words) -> Bullet:
    first = rows[0]
    source = start_source(first, published_start(findings, first))
    failed = [markdown.code(row["variant"] + _which_start(row)) for row in rows]
    line = words.say(
        "failed.line",
        variants=markdown.joined(failed, words.say("sentence.comma")),
        status=first.get("status") or numbers.DASH,
        cause=first.get("cause_class") or numbers.DASH,
    )
    under = []
    if first.get("root_cause"):
        under.append(words.say("failed.root_cause", text=first["root_cause"]))
    if first.get("log"):
        key = "where" if first.get("line") else "log"
        label, number = words.say(f"source.{source}"), numbers.count(first.get("line"))
        under.append(words.say(f"failed.{key}", log=first["log"], line=number, source=label))
    hint = words.pick({name: first.get(f"hint_{name}") or "" for name in ("zh", "en")})
    if hint:
        under.append(words.say("failed.hint", hint=hint))
    return Bullet(line, under)


def _which_start(row: Row) -> str:
    return f" (start {numbers.count(row['start'])})" if (row.get("start") or 1) != 1 else ""


def provenance_text(findings: Findings, words: Words) -> Md:
    if not findings.runs:
        return words.say("provenance.none")
    if not findings.published:
        return words.say("provenance.note_no_index")
    index = f"results/{findings.plan['study']}/runs/decode_runs.json"
    return words.say("provenance.note", index=index)


def provenance(findings: Findings, words: Words) -> Table | None:
    """One line a run: named file, checksum, the start that made it, its source, its counts."""
    if not findings.runs:
        return None
    head = [words.say(f"table.{key}") for key in ("file", "digest", "start", "source", "counts")]
    rows = []
    for name, row in findings.runs.items():
        entry = published_run(findings, name)
        source = row.get("source") or entry.get("source") or "unknown"
        rows.append(
            [
                markdown.code(entry.get("file") or f"{name}.json"),
                _digest(entry),
                markdown.code(row.get("start_id") or entry.get("start_id") or numbers.DASH),
                words.say(f"source.{source}"),
                f"{numbers.count(row.get('n_ok'))} / {numbers.count(row.get('n_attempted'))}",
            ]
        )
        for other in (published_capture(findings, name), _cross_check(entry)):
            if other:
                beside = [markdown.code(other["file"]), _digest(other), ""]
                rows.append([*beside, words.say(f"source.{source}"), ""])
    return Table(head, ["left", "left", "left", "left", "right"], rows)


def _digest(entry: Mapping[str, Any]) -> Md:
    return markdown.code(entry["sha256"][:16]) if entry.get("sha256") else Md(numbers.DASH)


def published_run(findings: Findings, name: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = ((findings.published or {}).get("runs") or {}).get(name) or {}
    return entry


def published_capture(findings: Findings, name: str) -> Mapping[str, Any]:
    capture = findings.planned.get(name, {}).get("capture")
    entry: Mapping[str, Any] = ((findings.published or {}).get("captures") or {}).get(capture) or {}
    return entry


def _cross_check(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The file of the run's second measurement, as the index has it beside the run's own."""
    name = entry.get("cross_check")
    return {"file": name, "sha256": entry.get("cross_check_sha256")} if name else {}


def published_start(findings: Findings, row: Row) -> Mapping[str, Any]:
    known = (findings.published or {}).get("starts") or []
    mine = [
        entry
        for entry in known
        if (entry["variant"], entry["start_id"]) == (row["variant"], row["start_id"])
    ]
    return mine[0] if mine else {}


def start_source(row: Row, entry: Mapping[str, Any]) -> str:
    source = entry.get("source") or row.get("source")
    return source if source in ("simulated", "measured", "reconstructed", "imported") else "unknown"


def pending(findings: Findings, words: Words) -> Table | None:
    absent = findings.missing()
    if not absent:
        return None
    head = [words.say(f"table.{key}") for key in ("run", "variant", "why")]
    rows: list[list[str]] = [
        [
            markdown.code(run["name"]),
            markdown.code(run["variant"]),
            words.say(f"missing.{run['why']}"),
        ]
        for run in absent
    ]
    return Table(head, ["left", "left", "left"], rows)


def pending_names(findings: Findings, why: str, words: Words, limit: int = 6) -> Md | None:
    """The runs that miss for one reason, shortened where there are many."""
    found = [run["name"] for run in findings.missing() if run["why"] == why]
    if not found:
        return None
    text = names(found[:limit], words)
    return Md(f"{text} {numbers.ELLIPSIS} (+{len(found) - limit})") if len(found) > limit else text
