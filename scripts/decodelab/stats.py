"""The tables of a study, row by row; those of telemetry are in `telemetry_rows`.

In: `records.Run` objects and the index's starts. Out: rows (dicts) with the columns of columns.py. A
value not known is None, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cargo import record
from decodelab import (
    declared,
    degradation,
    engine_told,
    evaluator_told,
    instrument,
    records,
    score,
    server_metrics,
    start_identity,
    startlog,
    stream_facts,
    telemetry,
    telemetry_rows,
)
from decodelab.columns import ADJUSTED, COLUMNS, FAILURES, PERCENTILED, RATES, SERVER
from decodelab.telemetry_gpus import Declared

Row = dict[str, Any]


def request_rows(run: records.Run) -> Iterator[Row]:
    for request in run.requests:
        yield {
            **_identity(run),
            **{
                name: request.get(name)
                for name in record.REQUEST_FIELDS
                if name in COLUMNS["requests"]
            },
            "concurrency": run.planned["concurrency"],
            "error": _error(request.get("error")),
        }


def run_row(
    run: records.Run,
    targets: Mapping[str, Mapping[str, Any]],
    server: Mapping[str, float | None] | None = None,
    accelerators: Declared | None = None,
) -> Row:
    """`server`: what `server_metrics.deltas` made of the run's raw folder; `accelerators`: those that
    the plan declares.
    """
    summary, ok = run.summary, run.ok
    row: Row = {
        **_identity(run),
        **{
            name: run.planned[name]
            for name in ("scenario", "concurrency", "requests", "max_tokens")
        },
        **{
            name: summary[name] for name in ("n_attempted", "n_ok", "n_not_started", "success_rate")
        },
        **{f"n_{name}": summary["outcomes"].get(name, 0) for name in FAILURES},
        **{name: summary[name] for name in ("wall_s", "output_tps_total")},
        **{
            name: summary[name]
            for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
        },
        "cache_hit": ratio(summary["cached_tokens"], summary["prompt_tokens"]),
        "goodput": goodput(run.requests, targets),
        **score.figures(run.requests, summary["wall_s"], evaluator_told.figures(run.record)),
        "told": evaluator_told.as_json(run.record),
        **instrument.declarations(run),
        **instrument.client(run),
        **instrument.second(run),
        **_server_figures(run, server or {}),
    }
    for name in PERCENTILED:
        values = instrument.gaps(ok) if name == "itl_s" else known(ok, name)
        for q in (10, 50, 90):
            row[f"{name}_p{q}"] = record.percentile(values, q)
    for name, q in ADJUSTED:
        row[f"adj_{name}_p{q}"] = adjusted(run.requests, name, q)
    row["decode_rate_median"] = row["decode_rate_p50"]
    row["multi_token_share"] = instrument.multi_token_share(ok)
    row.update(stream_facts.row(run))
    sampled, codes = telemetry_rows.run_figures(run, accelerators or Declared())
    row.update(sampled)
    _suspect(run, codes)
    row["validity"], row["reasons"] = run.validity, ";".join(run.reasons)
    return row


START_KEYS = ("variant", "server", "launch", "start", "start_id", "status")


def start_row(entry: Mapping[str, Any], log: str | None, source: str | None) -> Row:
    facts = entry.get("start_json") or {}
    cause = entry.get("cause") or facts.get("cause") or {}
    seen = startlog.read(log) if log is not None else startlog.Effective()
    told = engine_told.read(log, facts)
    version = facts.get("version")
    hint = cause.get("hint") or {}
    ready = telemetry.number(facts.get("ready_s"))
    return {
        **{name: entry.get(name) for name in START_KEYS},
        "cause_class": cause.get("class"),
        "root_cause": cause.get("root_cause"),
        "line": cause.get("line"),
        "hint_en": hint.get("en"),
        "hint_zh": hint.get("zh"),
        "t_begin_s": telemetry.number(facts.get("t_begin")),
        "ready_s": ready if ready is not None else seen.ready_s,
        "backend": seen.backend,
        "ignored": ";".join(told.ignored) or None,
        "effective": told.as_json(),
        "identity": start_identity.as_json(facts),
        "degraded": degradation.cell(degradation.degradations(log or "")),
        "version": seen.version
        or (version.get("version") if isinstance(version, Mapping) else None),
        "setup": _setup(facts.get("setup")),
        "source": entry.get("source")
        or facts.get("source")
        or (source if source in record.SOURCES else None),
        "log": entry.get("file"),
    }


def _setup(setup: Mapping[str, Any] | None) -> str | None:
    """The script and the names that it changes; their values are in start.json."""
    if not setup:
        return None
    names = [*(setup.get("set") or {}), *(f"-{name}" for name in setup.get("unset") or [])]
    return f"{setup['path']} (sha256 {str(setup['sha256'])[:12]}): {' '.join(names) or '-'}"


def ratio(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom


def known(requests: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [request[name] for request in requests if request.get(name) is not None]


def adjusted(requests: Sequence[Mapping[str, Any]], name: str, q: int) -> float | None:
    """The percentile with failures counted: 0 for a rate, infinite for a latency. None if a success
    lacks the value.
    """
    worst = 0.0 if name in RATES else math.inf
    values = []
    for request in requests:
        if request["outcome"] == "not_started":
            continue
        value = request.get(name) if request["outcome"] == "ok" else worst
        if value is None:
            return None
        values.append(value)
    return record.percentile(values, q)


def goodput(
    requests: Sequence[Mapping[str, Any]], targets: Mapping[str, Mapping[str, Any]]
) -> float | None:
    """Share of attempted requests that meet, each for itself, what the targets ask of e2e_tps and
    ttft_s.
    """
    limits = [
        (m.group(1), t)
        for key, t in targets.items()
        if (m := re.match(r"(e2e_tps|ttft_s)_p\d+$", key))
    ]
    attempted = [request for request in requests if request["outcome"] != "not_started"]
    if not limits or not attempted:
        return None
    good = 0
    for request in attempted:
        if request["outcome"] != "ok":
            continue
        if any(request.get(name) is None for name, _ in limits):
            return None
        good += all(meets(request[name], target) for name, target in limits)
    return good / len(attempted)


def meets(value: float, target: Mapping[str, Any]) -> bool:
    aim = float(target["value"])
    return {">=": value >= aim, "<=": value <= aim, ">": value > aim, "<": value < aim}[
        target["op"]
    ]


def _server_figures(run: records.Run, found: Mapping[str, float | None]) -> Row:
    sent = run.record["requests"]
    codes = server_metrics.disagreements(sent, run.planned["max_tokens"], found)
    cache, hits = run.record["run"].get("cache"), found.get("server_cache_hits")
    if declared.cache_counted_otherwise(cache, run.requests, hits):
        codes.append("cached_tokens_not_as_declared")
    _suspect(run, codes)
    return {
        **{name: found.get(name) for name in SERVER},
        "sent_prompt_tokens": server_metrics.sent(sent, "prompt_tokens"),
        "sent_completion_tokens": server_metrics.sent(sent, "completion_tokens"),
    }


def _suspect(run: records.Run, codes: Iterable[str]) -> None:
    """Reasons that come up while a row is made."""
    new = [code for code in codes if code not in run.reasons]
    run.reasons.extend(new)
    if new and run.validity == "valid":
        run.validity = "suspect"


def _identity(run: records.Run) -> Row:
    return {
        "run": run.planned["name"],
        "variant": run.planned["variant"],
        "workload": run.planned["workload"],
        "start": run.planned["start"],
        "start_id": run.entry.get("start_id"),
        "source": run.record.get("source"),
    }


def _error(error: Any) -> str | None:
    if not isinstance(error, Mapping):
        return None if error is None else str(error)
    parts = [error.get("kind"), error.get("status"), error.get("message")]
    return " ".join(" ".join(str(part).split()) for part in parts if part not in (None, "")) or None
