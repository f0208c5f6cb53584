"""What is worth a sentence, found by rule: codes of `vocabulary.ANOMALIES`.

In: the plan (flags) and the tables. Out: one dict per finding, with its runs, values and a sentence
in Chinese and English. Invalid runs are not looked at.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cargo import record
from decodelab import numbers
from decodelab.tables import Row, Tables

# Field noise is 0.3 % within a start, 1-4 % across starts, drift 2-4 %; TTFT varies by 30 %. Thresholds
# stand above what those make of equal runs.
RATE_FALL = 0.10  # a per-request rate lower by more than this at an equal running batch
CONCURRENCY_GAIN = (
    0.05  # a best total rate no higher than this over the first: what drift alone makes
)
FIRST_TTFT = 2.0  # the first request's TTFT over the median of the others
FIRST_P90 = (
    1.5  # TTFT P90 with the first request over P90 without it: of many requests one decides nothing
)
FIRST_LEAST = 3  # requests: of two neither is the usual one
QUEUE_TTFT = (
    3.0  # TTFT P90 beyond max-num-seqs over TTFT P90 within it: twice is one prefill waited for
)
QUEUE_SHARE = 0.25  # of TTFT P90 that the server's own mean queue time makes up
IDLE_UTIL = 50.0  # % mean utilisation under load: more time without a kernel than with one
IDLE_SHARE = (
    0.30  # of samples at 0 %: a tool that samples moments shows few of those in busy decode
)
IDLE_SAMPLES = 10  # of each GPU: fewer are moments, not a level
MULTI_TOKEN = 0.10  # of output deltas: an API server that lags now and then merges a few per cent
TOKENS_PER_EVENT = 1.5  # over a run without counts: tokens without text of their own merge fewer
Found = dict[str, Any]

# code -> (Chinese, English); places are the finding's values, with `name`: its variant or run.
TEXTS: dict[str, tuple[str, str]] = {
    "rate_falls_at_equal_batch": (
        "{name}：并发 {low}→{high} 时同时运行的序列都不超过 {max_num_seqs}，"
        "单请求速率却从 {before:.2f} 降到 {after:.2f} tok/s（{change}）："
        "排队的请求拖慢了运行中的请求。",
        "{name}: from concurrency {low} to {high} no more than {max_num_seqs} sequences run at "
        "once, yet the rate of a request falls from {before:.2f} to {after:.2f} tok/s "
        "({change}): waiting requests slow the running ones down.",
    ),
    "no_gain_from_concurrency": (
        "{name}：聚合速率不随并发上升（{series_zh} tok/s），没有 batch 增益。",
        "{name}: the total rate does not rise with concurrency ({series_en} tok/s): no gain from "
        "batching.",
    ),
    "queueing_beyond_max_num_seqs": (
        "{name}：并发 {concurrency} 超过 --max-num-seqs {max_num_seqs}，后到的请求排队，"
        "TTFT P90 为 {ttft_s_p90:.2f}s{beside_zh}。",
        "{name}: concurrency {concurrency} exceeds --max-num-seqs {max_num_seqs}; later requests "
        "queue, and TTFT P90 is {ttft_s_p90:.2f}s{beside_en}.",
    ),
    "first_request_dominates_ttft": (
        "{name}：首个请求 TTFT {first:.2f}s，其余中位数 {others:.2f}s，"
        "P90 {ttft_s_p90:.2f}s 由首个请求决定（不含它为 {p90_without:.2f}s）。",
        "{name}: the first request's TTFT is {first:.2f}s, the median of the others {others:.2f}s: "
        "P90, {ttft_s_p90:.2f}s, is the first request's ({p90_without:.2f}s without it).",
    ),
    "gpus_idle": (
        "{name}：负载下平均 GPU-Util {only_zh}{util_pct:.1f}%（最高 {peak}%，{idle_zh}每卡采样 n = {n}），"
        "GPU 没有被持续打满。",
        "{name}: mean GPU-Util under load is {only_en}{util_pct:.1f} % (peak {peak} %, {idle_en}n = {n} "
        "samples of each GPU): the GPUs are not kept busy.",
    ),
    "several_tokens_per_event": (
        "{name}：{how_zh}，decode_tps 会偏高，比较时用 decode_rate。",
        "{name}: {how_en}; decode_tps reads high, compare decode_rate.",
    ),
}


def find(plan: Mapping[str, Any], tables: Tables) -> list[Found]:
    """All findings: of each curve, then of each run."""
    usable = [row for row in tables.runs.values() if row["validity"] != "invalid"]
    out: list[Found] = []
    for (variant, _workload), curve in _curves(usable).items():
        limit = _limit(plan, curve, tables)
        for rule in (_rate_falls, _no_gain, _queueing):
            out.extend({**found, "variant": variant} for found in rule(variant, curve, limit))
    for row in usable:
        for single in _OF_ANY_RUN if _attached(plan, row) else (*_OF_ANY_RUN, _idle):
            out.extend({**found, "variant": row["variant"]} for found in single(row, tables))
    return out


def _curves(rows: Sequence[Row]) -> dict[tuple[str, str], dict[int, list[Row]]]:
    """Runs of each variant and workload by rising concurrency. None of an open loop: its concurrency
    is a cap, which the load may never reach.
    """
    curves: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: int(row["concurrency"])):
        if not row.get("rate"):
            curve = curves.setdefault((row["variant"], row["workload"]), {})
            curve.setdefault(row["concurrency"], []).append(row)
    return curves


def _attached(plan: Mapping[str, Any], row: Row) -> bool:
    return bool((plan.get("variants") or {}).get(row["variant"], {}).get("attach"))


def looked(plan: Mapping[str, Any], tables: Tables) -> dict[str, frozenset[str]]:
    """Of each anomaly the variants in which its rule had all that it looks at, so that finding none
    says that there is none.
    """
    out: dict[str, set[str]] = {code: set() for code in TEXTS}
    usable = [row for row in tables.runs.values() if row["validity"] == "valid"]
    for (variant, _workload), curve in _curves(usable).items():
        limit = _limit(plan, curve, tables)
        rated = [level for level, rows in curve.items() if _middle(rows, _rate) is not None]
        if limit is not None and len([level for level in rated if level >= limit]) > 1:
            out["rate_falls_at_equal_batch"].add(variant)
        totals = [level for level, rows in curve.items() if _middle(rows, _total) is not None]
        if len(totals) > 1 and not _only_waiting(totals, limit):
            out["no_gain_from_concurrency"].add(variant)
        if limit is not None and max(curve) > limit and min(curve) <= limit:
            out["queueing_beyond_max_num_seqs"].add(variant)
    for row in usable:
        if row["concurrency"] == 1 and (row["n_ok"] or 0) >= FIRST_LEAST:
            out["first_request_dominates_ttft"].add(row["variant"])
        if not row.get("rate") and not _attached(plan, row) and _sampled(row) is not None:
            out["gpus_idle"].add(row["variant"])
        if row["multi_token_share"] is not None:
            out["several_tokens_per_event"].add(row["variant"])
    return {code: frozenset(variants) for code, variants in out.items()}


def max_num_seqs(plan: Mapping[str, Any], row: Row, starts: Iterable[Row]) -> int | None:
    """How many sequences the run's server takes at once: as it took effect, else as planned. None where
    that is not told, and of several engines, each with a queue of its own.
    """
    flags = (plan.get("variants") or {}).get(row["variant"], {}).get("canonical") or {}
    if str(flags.get("--data-parallel-size", 1)) != "1":
        return None
    started = next((s for s in starts if s["start_id"] == row["start_id"]), None)
    effective = json.loads((started or {}).get("effective") or "{}").get("max_num_seqs")
    told = effective[0] if isinstance(effective, list) and effective else None
    return _count(told) or _count(flags.get("--max-num-seqs"))


def _count(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else None


def _limit(
    plan: Mapping[str, Any], curve: Mapping[int, Sequence[Row]], tables: Tables
) -> int | None:
    """Of a curve; None where its servers differ in it."""
    limits = {max_num_seqs(plan, row, tables.starts) for rows in curve.values() for row in rows}
    return limits.pop() if len(limits) == 1 else None


def _only_waiting(levels: Sequence[int], limit: int | None) -> bool:
    """Beyond max-num-seqs more clients only wait: no gain is as it should be."""
    return limit is not None and min(levels) >= limit


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
    """More clients, no more sequences running at once, and yet each one is slower: than at the level
    before, or little by little since the first one.
    """
    if limit is None:
        return
    full = {level: _middle(rows, _rate) for level, rows in curve.items() if level >= limit}
    rates = {level: rate for level, rate in full.items() if rate is not None}
    first = next(iter(rates), 0)
    for last, high in itertools.pairwise(rates):
        after = rates[high]
        low = next((n for n in (last, first) if after < rates[n] * (1 - RATE_FALL)), None)
        if low is None:
            continue
        first = high
        values: Found = {"low": low, "high": high, "max_num_seqs": limit}
        change = numbers.effect(after / rates[low] - 1, digits=0)
        values |= {"before": rates[low], "after": after, "change": change}
        rows = [*curve[low], *curve[high]]
        yield _finding("rate_falls_at_equal_batch", variant, rows, values)


def _no_gain(variant: str, curve: Mapping[int, list[Row]], limit: int | None) -> Iterator[Found]:
    totals = {level: _middle(rows, _total) for level, rows in curve.items()}
    known = {level: value for level, value in totals.items() if value is not None}
    if len(known) < 2 or _only_waiting(list(known), limit):
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
            yield _finding(
                "queueing_beyond_max_num_seqs", variant, rows, values, **_beside(usual, queue)
            )


def _beside(usual: float | None, queue: float | None) -> dict[str, str]:
    """What TTFT P90 is to be held against, as far as it is known."""
    zh, en = [], []
    if usual is not None:
        zh.append(f"不超过时为 {usual:.2f}s")
        en.append(f"within it {usual:.2f}s")
    if queue is not None:
        zh.append(f"服务端平均排队 {queue:.2f}s")
        en.append(f"mean time in the server's queue {queue:.2f}s")
    return {
        "beside_zh": f"（{'，'.join(zh)}）" if zh else "",
        "beside_en": f" ({', '.join(en)})" if en else "",
    }


def _first_request(row: Row, tables: Tables) -> Iterator[Found]:
    """One stream only: with more, the others' waiting is not the first one's doing."""
    mine = tables.requests.get(row["run"], [])
    requests = [r for r in mine if r["outcome"] == "ok" and r["ttft_s"] is not None]
    requests.sort(key=lambda r: r["index"])
    if row["concurrency"] != 1 or len(requests) < FIRST_LEAST or requests[0]["index"] != 0:
        return
    times = [r["ttft_s"] for r in requests]
    first, others = times[0], statistics.median(times[1:])
    p90, without = (record.percentile(some, 90) or 0.0 for some in (times, times[1:]))
    decides = first == max(times) and p90 > FIRST_P90 * without
    if others > 0 and first > FIRST_TTFT * others and decides:
        values = {"first": first, "others": others, "ttft_s_p90": p90, "p90_without": without}
        yield _finding("first_request_dominates_ttft", row["run"], [row], values)


def _idle(row: Row, tables: Tables) -> Iterator[Found]:
    """Of a closed loop only: an open one leaves the accelerators idle by its own rate."""
    if row.get("rate"):
        return
    seen = _sampled(row)
    if seen is None:
        return
    util, samples = seen
    share, top = row["idle_share_window"], row["util_pct_max_all"]
    if not (util < IDLE_UTIL or (share is not None and share >= IDLE_SHARE)):
        return
    values = {"util_pct": util, "util_pct_max": top, "idle_share": share, "n": samples}
    values |= {"power_w": row["power_w_mean_all"]}
    low = util < IDLE_UTIL
    words = {
        "peak": "-" if top is None else f"{top:.0f}",
        "only_zh": "只有 " if low else "为 ",
        "only_en": "only " if low else "",
        "idle_zh": "" if share is None else f"{share:.0%} 的采样为 0%，",
        "idle_en": "" if share is None else f"{share:.0%} of samples at 0 %, ",
    }
    yield _finding("gpus_idle", row["run"], [row], values, **words)


def _sampled(row: Row) -> tuple[float, int] | None:
    """Mean utilisation (%) of a run and samples of each GPU behind it: inside its window where that
    is known. None where there are too few, or the capture is doubted as a whole.
    """
    inside, samples = row["util_pct_mean_window"], row["smi_samples_gpu_window"]
    util = inside if inside is not None else row["util_pct_mean_all"]
    samples = row["smi_samples_gpu"] if samples is None else samples
    if util is None or (samples or 0) < IDLE_SAMPLES or row["smi_validity"] == "invalid":
        return None
    return util, samples


def _several_tokens(row: Row, tables: Tables) -> Iterator[Found]:
    share, k = row["multi_token_share"], row["event_tokens_mode"]
    if share is not None:
        if share >= MULTI_TOKEN:
            zh = f"{share:.0%} 的流事件一次带多个 token" + (f"，最常见为 {k} 个" if k else "")
            en = f"{share:.0%} of the stream events carry several tokens" + (
                f", most often {k}" if k else ""
            )
            values = {"share": share, "tokens": k}
            yield _finding(
                "several_tokens_per_event", row["run"], [row], values, how_zh=zh, how_en=en
            )
        return
    ratio = _tokens_per_event(tables.requests.get(row["run"], []))
    if ratio is not None and ratio >= TOKENS_PER_EVENT:
        zh = f"流事件没有 token 计数，平均每个事件 {ratio:.1f} 个 token"
        en = f"the stream events have no counts, and hold {ratio:.1f} tokens each on average"
        values = {"share": None, "tokens": ratio}
        yield _finding("several_tokens_per_event", row["run"], [row], values, how_zh=zh, how_en=en)


def _tokens_per_event(requests: Sequence[Row]) -> float | None:
    both = [
        (r["completion_tokens"], r["n_events"])
        for r in requests
        if r["outcome"] == "ok" and r["completion_tokens"] is not None and r["n_events"]
    ]
    return sum(n for n, _events in both) / sum(e for _n, e in both) if both else None


# _idle is not among them: the GPUs of an attached server are not known to be the sampled ones.
_OF_ANY_RUN = (_first_request, _several_tokens)
