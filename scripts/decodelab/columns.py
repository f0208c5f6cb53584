"""The data dictionary: every table that is written has exactly these columns, with unit and meaning.

In: the run record's fields, the SMI metrics; telemetry's figures are in `columns_telemetry`. Out:
COLUMNS, table by table in the order of the files.
A value not known is an empty cell, never 0.
"""

from __future__ import annotations

from cargo import record
from decodelab import columns_stream, columns_telemetry, telemetry
from decodelab.columns_telemetry import Column

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
    "queue_p50_s": Column("s", "P50 of the same, estimated from buckets"),
    "queue_p99_s": Column(
        "s",
        "P99 of the same, estimated from buckets; empty: it lies in the last, which has no bound",
    ),
    "server_ttft_s": Column(
        "s", "mean time to first token that the server saw, from its histogram"
    ),
    "server_itl_s": Column(
        "s",
        "mean time between outputs of a sequence that the server saw; V0: a multi-step burst "
        "is one output",
    ),
    "server_itl_p50_s": Column("s", "P50 of the same, estimated from buckets"),
    "server_itl_p99_s": Column("s", "P99 of the same, estimated from buckets, as queue_p99_s"),
    "server_prompt_tokens": Column("tokens", "prompt tokens that the server counted"),
    "server_generation_tokens": Column("tokens", "output tokens that the server counted"),
    "server_preemptions": Column("preemptions", "sequences that lost their place in the KV cache"),
    "server_cache_queries": Column(
        "tokens", "looked up in the server's prefix cache (an early V1 counts blocks)"
    ),
    "server_cache_hits": Column("tokens", "of these, found (an early V1 counts blocks)"),
    "server_cache_hit": Column("share", "server_cache_hits / server_cache_queries"),
}

# What the workload declared, as the client was told it; see `declared` for what is held to it.
DECLARED = {
    "rate": Column("requests/s", "asked rate of an open loop; empty: a closed loop"),
    "arrivals": Column("", "constant or poisson; empty: a closed loop"),
    "cache": Column("", "declared state of the prefix cache: as_is, cold or warm"),
    "prompt_asked_tokens": Column("tokens", "length that a synthetic prompt was asked for"),
    "prompt_sized_by": Column("", "tokenize: the server counted it; estimate: nobody did"),
    "prompt_problem": Column("", "what went wrong while it was sized"),
    "prompt_least_tokens": Column("tokens", "least prompt_tokens of a success"),
    "prompt_most_tokens": Column("tokens", "largest prompt_tokens of a success"),
}

# The contest's weighted score and its parts; see `score`. `cached` may be an evaluator's word (told).
SCORED = {
    "batch_wall_s": Column("s", "last end - first start over all requests sent, failures included"),
    "output_tps_wall": Column("tok/s", "completion tokens of successes / batch_wall_s"),
    "input_tps_wall": Column("tok/s", "uncached prompt tokens of successes / batch_wall_s"),
    "cache_tps_wall": Column("tok/s", "cached tokens of successes / batch_wall_s"),
    "cache_tps_warm": Column(
        "tok/s", "cached tokens / sum of ttft_s, over successes with cached tokens"
    ),
    "e2e_tps_mean": Column("tok/s", "mean of e2e_tps over successes"),
    "input_tps_mean": Column("tok/s", "mean of input_tps over successes"),
    "platform_score": Column(
        "points",
        "10.8 output + 1.8 uncached input + 0.36 cached tokens of successes a minute of batch_wall_s",
    ),
    **{
        f"weighted_{reading}{warm}": Column(
            "points", f"16.796 x {output} + 2.799 x {given} + 0.56 x cache_tps_{warm[1:] or 'wall'}"
        )
        for reading, output, given in (
            ("wall", "output_tps_wall", "input_tps_wall"),
            ("mean", "e2e_tps_mean", "input_tps_mean"),
            ("p10", "e2e_tps_p10", "input_tps_mean"),
        )
        for warm in ("", "_warm")
    },
}

# The load client as an instrument, by its own account.
CLIENT = {
    "http": Column("", "client that sent the requests: epoll or httpx"),
    "client_digest": Column("", "first 16 hex digits of sha256 over the client's own files"),
    "stamp_source": Column("", "kernel: each read has a kernel receive stamp; else user"),
    "cpu_share": Column("share", "of one processor core, that the client used"),
    "client_lag_p99_s": Column("s", "P99 of read time minus kernel receive time"),
    "loop_late_p99_s": Column("s", "P99 lateness of a tick of the client's own loop"),
    "loop_late_max_s": Column("s", "largest such lateness"),
    "coalesced_share": Column("share", "reads that ended more than one output delta"),
    "blurred_share": Column(
        "share", "output deltas that a late read merged with a later one, whose time they bear"
    ),
    "concurrency_mean": Column("requests", "mean number of requests open at once"),
    "concurrency_max": Column("requests", "largest number of requests open at once"),
    "schedule_late_p99_s": Column("s", "P99 of begun minus due; empty: a closed loop"),
    "schedule_late_max_s": Column("s", "largest such lateness; empty: a closed loop"),
    "rate_kept": Column(
        "requests/s", "at which counted requests really began; empty: a closed loop"
    ),
    "itl_counted_share": Column(
        "share", "gaps between output deltas whose later delta has a known token count"
    ),
    "itl_single_share": Column(
        "share", "of all gaps, those whose later delta is known to hold exactly one token"
    ),
}

# The run once more through another client, right after; empty where no such check was asked for.
SECOND = {
    "cross_http": Column("", "client of the cross-check"),
    "cross_n_attempted": Column("requests", "requests sent in the cross-check"),
    "cross_n_ok": Column("requests", "of these, successes"),
    **{f"cross_n_{name}": Column("requests", f"of these, ended as {name}") for name in FAILURES},
    "cross_completion_tokens": Column("tokens", "sum over its successes"),
    "cross_ttft_s_p50": Column("s", "P50 of ttft_s over its successes"),
    "cross_decode_rate_median": Column("tok/s", "median of decode_rate over its successes"),
    "cross_itl_s_p50": Column("s", "P50 of its gaps between output deltas"),
    "cross_validity": Column("", "valid, suspect or invalid: of the cross-check's own record"),
    "cross_reasons": Column("", "codes of what makes it suspect or invalid, joined by ;"),
    "cross_problem": Column("", "why the cross-check left no record"),
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
        "t_due_s",
        "late_s",
        "decode_end",
    ]
    return {
        **_IDENTITY,
        "index": Column(
            "", "0-based number of the request in its run; warm-up requests are not in this table"
        ),
        "concurrency": Column("requests", "most that may be open at once in the run"),
        "outcome": Column("", "one of: " + ", ".join(record.OUTCOMES)),
        "error": Column("", "kind, status and message of a failure"),
        **{name: Column(*record.REQUEST_FIELDS[name]) for name in kept},
    }


def _run_columns() -> dict[str, Column]:
    out = {
        **{k: _IDENTITY[k] for k in ("run", "variant", "workload")},
        "scenario": Column("", "prompt scenario"),
        "concurrency": Column(
            "requests", "closed-loop workers; in an open loop the most that may be open at once"
        ),
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
        **SCORED,
        "told": Column(
            "", "JSON: column -> figure that an evaluator states and the requests do not carry"
        ),
        **DECLARED,
        **CLIENT,
        "sent_prompt_tokens": Column(
            "tokens",
            "by the usage of every request sent, warm-up and failures included: what to hold "
            "server_prompt_tokens against",
        ),
        "sent_completion_tokens": Column("tokens", "the same of output tokens"),
        **SERVER,
        **SECOND,
        "multi_token_share": Column("share", "output deltas known to hold more than one token"),
        **columns_stream.STREAM,
        "smi_records": Column("calls", "calls of the SMI tool in the capture"),
        "smi_samples": Column("samples", "accelerator samples read from them"),
        "smi_samples_gpu": Column(
            "samples", "of the accelerator with the fewest readings of util_pct"
        ),
        "smi_samples_gpu_window": Column("samples", "the same inside the run's window"),
        **columns_telemetry.REJECTED,
        **columns_telemetry.SAMPLER,
    }
    return out | columns_telemetry.FIGURES | columns_telemetry.IN_USE | columns_telemetry.DOUBT


# Of the step profiler, a row a run, phase, rank and region; see `step_table`.
_REGIONS = {
    **{k: _IDENTITY[k] for k in ("run", "variant", "workload", "start_id")},
    "concurrency": Column("requests", "as in runs.csv"),
    "phase": Column("", "prefill, decode or mixed"),
    "rank": Column("", "of the worker, from 0; empty: the mean over all ranks"),
    "region": Column("", "part of a step; its time is exclusive; unattributed: the rest"),
    "calls_per_step": Column("calls", "median over steps"),
    "ms_p50": Column("ms", "P50 over steps"),
    "ms_p90": Column("ms", "P90 over steps"),
    "ms_mean": Column("ms", "mean over steps; of unattributed it may be negative"),
    "share": Column("share", "of the mean step; empty: an invalid profile, or one in mode sync"),
    "ceiling": Column("", "1 / (1 - share): how many times as fast a step, were the region free"),
    "wait_ms": Column("ms", "of a collective: mean wait for the slowest rank"),
    "transfer_ms": Column("ms", "of a collective: the rest"),
    "steps": Column("steps", "that the figures are from"),
    "valid": Column("", "1: the run's profile is valid; 0: profiles.json says why not"),
}

# Of the gaps between output deltas, a row a quantile; see `gap_table`.
_GAPS = {
    "run": _IDENTITY["run"],
    "n_gaps": Column("gaps", "of the run's successes; the same in every row of a run"),
    "share": Column("share", "of these gaps, those at or below itl_s (type 7); from 0 to 1"),
    "itl_s": Column("s", "the gap, as it came: a delta may hold several tokens"),
    "several_share": Column(
        "share",
        "of the gaps above the row before and up to here, those whose later delta is known to "
        "hold more than one token; empty: no count is known",
    ),
}

COLUMNS: dict[str, dict[str, Column]] = {
    "requests": _request_columns(),
    "runs": _run_columns(),
    "telemetry": {
        "run": _IDENTITY["run"],
        "t_s": Column("s", "middle of the SMI call, from the first t0; empty: clocks unrelated"),
        "gpu": Column("", "index as printed; it may shift when a card is lost"),
        "uuid": Column("", "the accelerator's key: UUID, else bus id, else index"),
        **{name: Column(*telemetry.METRICS[name]) for name in telemetry.METRICS},
        "record": Column("", "0-based number of the SMI call in the capture"),
    },
    "gpus": {
        **{k: _IDENTITY[k] for k in ("run", "variant", "start_id", "source")},
        **columns_telemetry.GPU,
    },
    "starts": {
        **{k: _IDENTITY[k] for k in ("variant",)},
        "server": Column("", "digest of the server's configuration"),
        "launch": Column("", "digest of the launch whose receipt names it; none in a replay"),
        **{k: _IDENTITY[k] for k in ("start", "start_id")},
        "status": Column("", "ready, stopped, failed, died or not_possible"),
        "cause_class": Column("", "class of the cause of a failed start"),
        "root_cause": Column("", "the line of the log that names it"),
        "line": Column("", "its 1-based line number in the log"),
        "hint_en": Column("", "one action"),
        "hint_zh": Column("", "the same in Chinese"),
        "t_begin_s": Column("s", "when the start began: seconds since 1970 by the host's clock"),
        "ready_s": Column("s", "from spawn to the first real token, else by the log's own stamps"),
        "backend": Column("", "attention backend that the log names"),
        "ignored": Column(
            "", "flags, variables and backends that the log says are ignored, joined by ;"
        ),
        "effective": Column(
            "", "JSON: option -> [value in effect, who told: arguments, engine config, log, …]"
        ),
        "identity": Column("", "JSON: who answered: packages, model config, devices, driver, host"),
        "degraded": Column("", "degradations in the log, name:lines:first line number, joined by ;"),
        "version": Column("", "engine version that the log or /version names"),
        "setup": Column("", "script sourced on the host before the start, its sha256, what it sets"),
        "source": _IDENTITY["source"],
        "log": Column("", "published log file"),
    },
    "regions": _REGIONS,
    "itl": _GAPS,
}  # fmt: skip
