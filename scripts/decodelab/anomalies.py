"""What is worth a sentence, found by rule: codes of `vocabulary.ANOMALIES`.

In: the plan (flags) and the tables. Out: one dict per finding, with its runs, values and a sentence
in Chinese and English. Invalid runs are not looked at.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from decodelab.tables import Row, Tables

RATE_FALL = 0.10  # a per-request rate lower by more than this at an equal running batch
CONCURRENCY_GAIN = 0.05  # a best total rate no higher than this over one stream is no gain
FIRST_TTFT = 2.0  # the first request's TTFT over the median of the others
QUEUE_TTFT = 3.0  # TTFT P90 beyond max-num-seqs over TTFT P90 within it
QUEUE_SHARE = 0.25  # of TTFT P90 that the server's own mean queue time makes up
IDLE_UTIL = 50.0  # % mean utilisation under load
IDLE_SHARE = 0.30  # of samples at 0 %
IDLE_SAMPLES = 10  # of each GPU: fewer are moments, not a level
MULTI_TOKEN = 0.10  # of output deltas
Found = dict[str, Any]

# code -> (Chinese, English); places are the finding's values, with `name`: its variant or run.
TEXTS: dict[str, tuple[str, str]] = {
    "rate_falls_at_equal_batch": (
        "{name}：并发 {low}→{high} 时同时运行的序列都不超过 {max_num_seqs}，"
        "单请求速率却从 {before:.2f} 降到 {after:.2f} tok/s（{change:+.0%}）："
        "排队的请求拖慢了运行中的请求。",
        "{name}: from concurrency {low} to {high} no more than {max_num_seqs} sequences run at "
        "once, yet the rate of a request falls from {before:.2f} to {after:.2f} tok/s "
        "({change:+.0%}): waiting requests slow the running ones down.",
    ),
    "no_gain_from_concurrency": (
        "{name}：聚合速率不随并发上升（{series_zh} tok/s），没有 batch 增益。",
        "{name}: the total rate does not rise with concurrency ({series_en} tok/s): no gain from "
        "batching.",
    ),
    "queueing_beyond_max_num_seqs": (
        "{name}：并发 {concurrency} 超过 --max-num-seqs {max_num_seqs}，后到的请求排队，"
        "TTFT P90 为 {ttft_s_p90:.2f}s。",
        "{name}: concurrency {concurrency} exceeds --max-num-seqs {max_num_seqs}; later requests "
        "queue, and TTFT P90 is {ttft_s_p90:.2f}s.",
    ),
    "first_request_dominates_ttft": (
        "{name}：首个请求 TTFT {first:.2f}s，其余中位数 {others:.2f}s，P90 由首个请求决定。",
        "{name}: the first request's TTFT is {first:.2f}s, the median of the others {others:.2f}s: "
        "P90 is the first request's.",
    ),
    "gpus_idle": (
        "{name}：负载下平均 GPU-Util 只有 {util_pct:.1f}%（最高 {peak}%，每卡采样 n = {n}），"
        "GPU 没有被持续打满。",
        "{name}: mean GPU-Util under load is only {util_pct:.1f} % (peak {peak} %, n = {n} samples "
        "of each GPU): the GPUs are not kept busy.",
    ),
    "several_tokens_per_event": (
        "{name}：{share:.0%} 的流事件一次带多个 token，decode_tps 会偏高，比较时用 decode_rate。",
        "{name}: {share:.0%} of the stream events carry several tokens; decode_tps reads high, "
        "compare decode_rate.",
    ),
}


def find(plan: Mapping[str, Any], tables: Tables) -> list[Found]:
    """All findings: of each curve, then of each run."""
    usable = [row for row in tables.runs.values() if row["validity"] != "invalid"]
    curves: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in usable:
        if row.get("rate"):
            continue  # an open loop: its concurrency is a cap, which the load may never reach
        curve = curves.setdefault((row["variant"], row["workload"]), {})
        curve.setdefault(row["concurrency"], []).append(row)
    out: list[Found] = []
    for (variant, _workload), curve in curves.items():
        limit = max_num_seqs(plan, variant)
        ordered = dict(sorted(curve.items()))
        for rule in (_rate_falls, _no_gain, _queueing):
            out.extend({**found, "variant": variant} for found in rule(variant, ordered, limit))
    for row in usable:
        attached = (plan.get("variants") or {}).get(row["variant"], {}).get("attach")
        for single in _OF_ANY_RUN if attached else (*_OF_ANY_RUN, _idle):
            out.extend({**found, "variant": row["variant"]} for found in single(row, tables))
    return out


def max_num_seqs(plan: Mapping[str, Any], variant: str) -> int | None:
    flags = (plan.get("variants") or {}).get(variant, {}).get("flags") or {}
    value = str(flags.get("--max-num-seqs"))
    return int(value) if value.isascii() and value.isdigit() else None


def _finding(code: str, name: str, rows: Sequence[Row], values: Found, **words: Any) -> Found:
    zh, en = (text.format(name=name, **values, **words) for text in TEXTS[code])
    return {
        "code": code,
        "runs": [row["run"] for row in rows],
        "values": values,
        "zh": zh,
        "en": en,
    }


def _middle(rows: Sequence[Row], read: Callable[[Row], Any]) -> float | None:
    values = [value for row in rows if (value := read(row)) is not None]
    return statistics.fmean(values) if values else None


def _rate(row: Row) -> Any:
    return (
        row["decode_rate_median"]
        if row["decode_rate_median"] is not None
        else row["decode_tps_p50"]
    )


def _total(row: Row) -> Any:
    return row["output_tps_total"]


def _ttft(row: Row) -> Any:
    return row["ttft_s_p90"]


def _rate_falls(variant: str, curve: Mapping[int, list[Row]], limit: int | None) -> Iterator[Found]:
    """More clients, no more sequences running at once, and yet each one is slower."""
    if limit is None:
        return
    full = [level for level in curve if level >= limit]
    for low, high in itertools.pairwise(full):
        before, after = _middle(curve[low], _rate), _middle(curve[high], _rate)
        if before and after is not None and after < before * (1 - RATE_FALL):
            values: Found = {"low": low, "high": high, "max_num_seqs": limit}
            values |= {"before": before, "after": after, "change": after / before - 1}
            rows = [*curve[low], *curve[high]]
            yield _finding("rate_falls_at_equal_batch", variant, rows, values)


def _no_gain(variant: str, curve: Mapping[int, list[Row]], limit: int | None) -> Iterator[Found]:
    totals = {level: _middle(rows, _total) for level, rows in curve.items()}
    known = {level: value for level, value in totals.items() if value is not None}
    if len(known) < 2 or limit == 1:
        return
    first = min(known)
    best = max(value for level, value in known.items() if level != first)
    if known[first] <= 0 or best > known[first] * (1 + CONCURRENCY_GAIN):
        return
    yield _finding(
        "no_gain_from_concurrency",
        variant,
        [row for level in known for row in curve[level]],
        {"totals": {str(level): value for level, value in known.items()}},
        series_zh="、".join(f"并发 {level} 为 {value:.2f}" for level, value in known.items()),
        series_en=", ".join(
            f"{value:.2f} at concurrency {level}" for level, value in known.items()
        ),
    )


def _queueing(variant: str, curve: Mapping[int, list[Row]], limit: int | None) -> Iterator[Found]:
    if limit is None:
        return
    within = [_middle(rows, _ttft) for level, rows in curve.items() if level <= limit]
    usual = max((value for value in within if value is not None), default=None)
    for level, rows in curve.items():
        ttft, queue = _middle(rows, _ttft), _middle(rows, lambda row: row["queue_s"])
        if level <= limit or ttft is None:
            continue
        slower = usual is not None and ttft > QUEUE_TTFT * usual
        if slower or (queue is not None and queue > QUEUE_SHARE * ttft):
            values: Found = {"concurrency": level, "max_num_seqs": limit}
            values |= {"ttft_s_p90": ttft, "queue_s": queue, "usual": usual}
            yield _finding("queueing_beyond_max_num_seqs", variant, rows, values)


def _first_request(row: Row, tables: Tables) -> Iterator[Found]:
    """One stream only: with more, the others' waiting is not the first one's doing."""
    mine = tables.requests.get(row["run"], [])
    requests = [r for r in mine if r["outcome"] == "ok" and r["ttft_s"] is not None]
    requests.sort(key=lambda r: r["index"])
    if row["concurrency"] != 1 or len(requests) < 3 or requests[0]["index"] != 0:
        return
    times = [r["ttft_s"] for r in requests]
    first, others = times[0], statistics.median(times[1:])
    if others > 0 and first > FIRST_TTFT * others and first == max(times):
        values = {"first": first, "others": others, "ttft_s_p90": row["ttft_s_p90"]}
        yield _finding("first_request_dominates_ttft", row["run"], [row], values)


def _idle(row: Row, tables: Tables) -> Iterator[Found]:
    """Of a closed loop only: an open one leaves the accelerators idle by its own rate."""
    if row.get("rate"):
        return
    inside, share = row["util_pct_mean_window"], row["idle_share_window"]
    util = inside if inside is not None else row["util_pct_mean_all"]
    if util is None or not (util < IDLE_UTIL or (share is not None and share >= IDLE_SHARE)):
        return
    samples = row["smi_samples_gpu_window"]
    samples = row["smi_samples_gpu"] if samples is None else samples
    if (samples or 0) < IDLE_SAMPLES:
        return
    top = row["util_pct_max_all"]
    values = {"util_pct": util, "util_pct_max": top, "idle_share": share, "n": samples}
    values |= {"power_w": row["power_w_mean_all"]}
    peak = "-" if top is None else f"{top:.0f}"
    yield _finding("gpus_idle", row["run"], [row], values, peak=peak)


def _several_tokens(row: Row, tables: Tables) -> Iterator[Found]:
    share = row["multi_token_share"]
    if share is not None and share >= MULTI_TOKEN:
        yield _finding("several_tokens_per_event", row["run"], [row], {"share": share})


# _idle is not among them: the GPUs of an attached server are not known to be the sampled ones.
_OF_ANY_RUN = (_first_request, _several_tokens)
