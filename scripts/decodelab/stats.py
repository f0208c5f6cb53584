"""The four tables of a study, row by row, and what each column means.

In: `records.Run` objects and the index's starts. Out: rows (dicts) in the order of COLUMNS, the one
data dictionary: every table that is written has exactly these columns. A value not known is None
and becomes an empty cell, never 0."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cargo import record
from decodelab import records, server_metrics, startlog, telemetry, telemetry_window


class Column(NamedTuple):
    unit: str
    meaning: str


FAILURES = tuple(name for name in record.OUTCOMES if name not in ("ok", "not_started"))
PERCENTILED = ("ttft_s", "e2e_s", "decode_tps", "decode_rate", "e2e_tps", "tpot_s", "itl_s")
ADJUSTED = (("ttft_s", 90), ("e2e_tps", 10), ("decode_tps", 10))
RATES = ("decode_tps", "decode_rate", "e2e_tps", "input_tps")
_UNITS = {**{name: f.unit for name, f in record.REQUEST_FIELDS.items()}, "itl_s": "s"}

# What the server itself counted between the two looks at /metrics, warm-up requests included; see
# `server_metrics` for its names of each engine era.
SERVER = {
    "queue_s": Column(
        "s", "mean time in the server's queue: its own histogram over the run, warm-up included"
    ),
    "server_ttft_s": Column(
        "s", "mean time to first token that the server saw, from its histogram"
    ),
    "server_itl_s": Column(
        "s",
        "mean time between outputs of a sequence that the server saw; V0: a multi-step burst "
        "is one output",
    ),
    "server_prompt_tokens": Column("tokens", "prompt tokens that the server counted"),
    "server_generation_tokens": Column("tokens", "output tokens that the server counted"),
    "server_preemptions": Column("preemptions", "sequences that lost their place in the KV cache"),
    "server_cache_queries": Column(
        "tokens", "looked up in the server's prefix cache (an early V1 counts blocks)"
    ),
    "server_cache_hits": Column("tokens", "of these, found (an early V1 counts blocks)"),
    "server_cache_hit": Column("share", "server_cache_hits / server_cache_queries"),
}

_IDENTITY = {
    "run": Column("", "name of the run, unique in the study"),
    "variant": Column("", "server variant"),
    "workload": Column("", "name of the workload in the config"),
    "start": Column("", "number of the fresh server start, from 1"),
    "start_id": Column("", "which real start; the unit of inference"),
    "source": Column("", "measured, simulated, reconstructed or imported"),
}


def _request_columns() -> dict[str, Column]:
    kept = [
        "ttft_s",
        "e2e_s",
        "decode_tps",
        "decode_rate",
        "e2e_tps",
        "tpot_s",
        "input_tps",
        "n_first_delta",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "reasoning_tokens",
        "n_events",
        "t_start_s",
        "t_first_s",
        "t_last_s",
        "t_end_s",
        "decode_end",
    ]
    return {
        **_IDENTITY,
        "index": Column(
            "", "0-based number of the request in its run; warm-up requests are not in this table"
        ),
        "concurrency": Column("requests", "closed-loop workers of the run"),
        "outcome": Column("", "one of: " + ", ".join(record.OUTCOMES)),
        "error": Column("", "kind, status and message of a failure"),
        **{name: Column(*record.REQUEST_FIELDS[name]) for name in kept},
    }


def _run_columns() -> dict[str, Column]:
    out = {
        **{k: _IDENTITY[k] for k in ("run", "variant", "workload")},
        "scenario": Column("", "prompt scenario"),
        "concurrency": Column("requests", "closed-loop workers"),
        "requests": Column("requests", "requests planned"),
        "max_tokens": Column("tokens", "max_tokens of each request"),
        **{k: _IDENTITY[k] for k in ("start", "start_id", "source")},
        "validity": Column("", "valid, suspect or invalid"),
        "reasons": Column("", "codes of what makes it suspect or invalid, joined by ;"),
        "n_attempted": Column("requests", "requests sent"),
        "n_ok": Column("requests", "of these, successes"),
        "n_not_started": Column("requests", "planned and never sent"),
        **{
            f"n_{name}": Column("requests", f"ended as {name}: {record.OUTCOMES[name]}")
            for name in FAILURES
        },
        "success_rate": Column("share", "n_ok / n_attempted"),
    }
    for name in PERCENTILED:
        for q in (10, 50, 90):
            what = (
                "gaps between output deltas of successes"
                if name == "itl_s"
                else f"{name} over successes"
            )
            out[f"{name}_p{q}"] = Column(_UNITS[name], f"P{q} of {what}, linear interpolation")
    for name, q in ADJUSTED:
        worst = "0" if name in RATES else "infinite"
        out[f"adj_{name}_p{q}"] = Column(
            _UNITS[name], f"P{q} of {name} with each failed request as {worst}"
        )
    out |= {
        "decode_rate_median": Column(
            "tok/s", "median of decode_rate over successes: what questions compare"
        ),
        "output_tps_total": Column("tok/s", "tokens of successes / wall_s"),
        "wall_s": Column("s", "last tE - first t0 over successes"),
        "prompt_tokens": Column("tokens", "sum over successes"),
        "cached_tokens": Column("tokens", "sum over successes"),
        "completion_tokens": Column("tokens", "sum over successes"),
        "reasoning_tokens": Column("tokens", "sum over successes"),
        "cache_hit": Column("share", "cached_tokens / prompt_tokens"),
        "goodput": Column(
            "share", "attempted requests whose own e2e_tps and ttft_s meet the targets"
        ),
        **SERVER,
        "multi_token_share": Column("share", "output deltas known to hold more than one token"),
        "smi_records": Column("calls", "calls of the SMI tool in the capture"),
        "smi_samples": Column("samples", "accelerator samples read from them"),
        "smi_samples_gpu": Column(
            "samples", "of the accelerator with the fewest readings of util_pct"
        ),
        "smi_samples_gpu_window": Column("samples", "the same inside the run's window"),
        "smi_rejected": Column("values", "values that cannot be true (sentinels), set to unknown"),
    }
    for name in telemetry_window.FIGURES:
        unit, meaning = telemetry.METRICS[name]
        out[f"{name}_mean_all"] = Column(
            unit, f"{meaning}: mean over all samples of all accelerators"
        )
        out[f"{name}_max_all"] = Column(unit, f"{meaning}: maximum over all samples")
        out[f"{name}_mean_window"] = Column(
            unit, f"{meaning}: time-weighted mean inside the run's window"
        )
        out[f"{name}_max_window"] = Column(unit, f"{meaning}: maximum inside the run's window")
    return out | {
        "power_cap_w": Column("W", "largest power limit seen"),
        "gpus": Column("accelerators", "accelerators seen in the capture"),
        "energy_j_window": Column("J", "energy of all accelerators inside the run's window"),
        "idle_share_window": Column(
            "share", "samples inside the run's window that read 0 % utilisation"
        ),
        "tokens_per_joule": Column("tok/J", "completion_tokens / energy_j_window"),
    }


COLUMNS: dict[str, dict[str, Column]] = {
    "requests": _request_columns(),
    "runs": _run_columns(),
    "telemetry": {
        "run": _IDENTITY["run"],
        "t_s": Column("s", "middle of the SMI call, from the first t0; empty: clocks unrelated"),
        "gpu": Column("", "index as printed; it may shift when a card is lost"),
        "uuid": Column("", "UUID, else the bus id: the accelerator's key"),
        **{name: Column(*telemetry.METRICS[name]) for name in telemetry.METRICS},
        "record": Column("", "0-based number of the SMI call in the capture"),
    },
    "starts": {
        **{k: _IDENTITY[k] for k in ("variant",)},
        "server": Column("", "digest of the server's configuration"),
        **{k: _IDENTITY[k] for k in ("start", "start_id")},
        "status": Column("", "ready, stopped, failed, died or not_possible"),
        "cause_class": Column("", "class of the cause of a failed start"),
        "root_cause": Column("", "the line of the log that names it"),
        "line": Column("", "its 1-based line number in the log"),
        "hint_en": Column("", "one action"),
        "hint_zh": Column("", "the same in Chinese"),
        "ready_s": Column("s", "from spawn to the first real token, else by the log's own stamps"),
        "backend": Column("", "attention backend that the log names"),
        "ignored": Column("", "variables and backends that the log says are ignored, joined by ;"),
        "version": Column("", "engine version that the log or /version names"),
        "setup": Column("", "script sourced on the host before the start, its sha256, what it sets"),
        "source": _IDENTITY["source"],
        "log": Column("", "published log file"),
    },
}  # fmt: skip

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
) -> Row:
    """`server`: what `server_metrics.deltas` made of the run's raw folder."""
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
        **_server_figures(run, server or {}),
    }
    for name in PERCENTILED:
        values = gaps(ok) if name == "itl_s" else known(ok, name)
        for q in (10, 50, 90):
            row[f"{name}_p{q}"] = record.percentile(values, q)
    for name, q in ADJUSTED:
        row[f"adj_{name}_p{q}"] = adjusted(run.requests, name, q)
    row["decode_rate_median"] = row["decode_rate_p50"]
    row["multi_token_share"] = multi_token_share(ok)
    row.update(_telemetry_figures(run))
    row["tokens_per_joule"] = ratio(summary["completion_tokens"], row.get("energy_j_window"))
    row["validity"], row["reasons"] = run.validity, ";".join(run.reasons)
    return row


def telemetry_rows(run: records.Run) -> Iterator[Row]:
    if run.capture is None:
        return
    origin = _origin(run)
    for sample in run.capture.samples:
        reading = sample.reading
        yield {
            "run": run.planned["name"],
            "t_s": None if origin is None or sample.t is None else sample.t - origin,
            "gpu": reading.gpu,
            "uuid": reading.uuid or reading.bus,
            **reading.values,
            "record": sample.record,
        }


def start_row(entry: Mapping[str, Any], log: str | None, source: str | None) -> Row:
    facts = entry.get("start_json") or {}
    cause = entry.get("cause") or facts.get("cause") or {}
    seen = startlog.read(log) if log is not None else startlog.Effective()
    version = facts.get("version")
    hint = cause.get("hint") or {}
    ready = telemetry.number(facts.get("ready_s"))
    return {
        **{name: entry.get(name) for name in ("variant", "server", "start", "start_id", "status")},
        "cause_class": cause.get("class"),
        "root_cause": cause.get("root_cause"),
        "line": cause.get("line"),
        "hint_en": hint.get("en"),
        "hint_zh": hint.get("zh"),
        "ready_s": ready if ready is not None else seen.ready_s,
        "backend": seen.backend,
        "ignored": ";".join(seen.ignored) or None,
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


def gaps(requests: Iterable[Mapping[str, Any]]) -> list[float]:
    """Gaps between output-bearing deltas, all requests together, as they came."""
    return [
        gap for r in requests if r.get("events") for gap, _tokens in record.output_gaps(r["events"])
    ]


def multi_token_share(requests: Iterable[Mapping[str, Any]]) -> float | None:
    """Of the output deltas whose token count is known, those that hold more than one."""
    counts = [
        n
        for r in requests
        if r.get("events")
        for _gap, n in record.output_gaps(r["events"])
        if n is not None
    ]
    return sum(n > 1 for n in counts) / len(counts) if counts else None


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
    codes = server_metrics.disagreements(run.record["requests"], run.planned["max_tokens"], found)
    _suspect(run, codes)
    return {name: found.get(name) for name in SERVER}


def _suspect(run: records.Run, codes: Iterable[str]) -> None:
    """Reasons that come up while a row is made."""
    new = [code for code in codes if code not in run.reasons]
    run.reasons.extend(new)
    if new and run.validity == "valid":
        run.validity = "suspect"


def _telemetry_figures(run: records.Run) -> Row:
    if run.capture is None:
        return {}
    capture = run.capture
    found = telemetry_window.figures(
        capture.samples, len(capture.records), records.window(run), capture.interval_s
    )
    _suspect(run, found.reasons)
    values = {**found.values, **_samples_of_a_gpu(capture, records.window(run))}
    if "reconstructed" in (run.record.get("source"), capture.header.get("source")):
        # When a reconstructed sample was taken within its run is the reconstruction's free choice.
        values = {k: None if k.endswith("_window") else v for k, v in values.items()}
    return {**values, "smi_rejected": len(capture.rejected)}


def _samples_of_a_gpu(
    capture: telemetry.Capture, window: tuple[float, float] | None
) -> dict[str, float | int | None]:
    """How many readings stand behind a mean utilisation: those of the accelerator with fewest."""
    everywhere: dict[str, int] = {}
    inside: dict[str, int] = {}
    for sample in capture.samples:
        key, known = sample.reading.key, sample.reading.values["util_pct"] is not None
        within = window is not None and sample.t is not None and window[0] <= sample.t <= window[1]
        everywhere[key] = everywhere.get(key, 0) + known
        inside[key] = inside.get(key, 0) + (known and within)
    return {
        "smi_samples_gpu": min(everywhere.values(), default=None),
        "smi_samples_gpu_window": None if window is None else min(inside.values(), default=None),
    }


def _origin(run: records.Run) -> float | None:
    """The run's first t0 on the capture's clock; for a relative capture, its own zero."""
    zero = records.zero_of(run)
    starts = [r["t_start_s"] for r in run.requests if r["t_start_s"] is not None]
    if zero is None:
        return None
    return (
        zero + min(starts)
        if starts
        else (zero if not run.capture or not run.capture.monotonic else None)
    )


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
