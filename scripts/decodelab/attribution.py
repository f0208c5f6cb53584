"""Which requests a percentile gate sits on, what their time went into, and what they would need.

In: the plan's targets and the tables. Out: rows for verdicts.json, one for each gate on a percentile
of e2e_tps or ttft_s and each run that is held against it.

A request's time: e2e = queue + prefill + decode + rest, where queue + prefill = TTFT, decode = tL - tF
and rest = tE - tL. With N tokens, nF of them in the first delta, decode = (N - nF) / decode_rate, so
    e2e_tps = N / (ttft + (N - nF) / decode_rate + rest).
A target T of e2e_tps leaves N / T seconds. Each need is for itself, all else as it was:
    TTFT alone:   ttft <= N / T - decode - rest
    decode alone: decode_rate >= (N - nF) / (N / T - ttft - rest)
Where the time left is 0 or less, that term alone cannot do it. A term that is not on record is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import gates, queue_estimate
from decodelab.anomalies import max_num_seqs
from decodelab.tables import Row, Tables

_PERCENTILE = re.compile(r"(e2e_tps|ttft_s)_(p10|p50|p90)")
PARTS = ("queue_s", "prefill_s", "ttft_s", "decode_s", "rest_s", "e2e_s")
REACHABLE, NOT_REACHABLE = "reachable", "not_reachable"
Target = Mapping[str, Any]


def table(plan: Mapping[str, Any], tables: Tables) -> list[dict[str, Any]]:
    out = []
    for row in gates.held(tables):
        waits, limit = _waits(plan, row, tables)
        for metric, target in (plan.get("targets") or {}).items():
            found = _PERCENTILE.fullmatch(metric)
            if found and row.get(metric) is not None:
                requests = tables.requests.get(row["run"], [])
                told = attribute(requests, found.group(1), row[metric], target, waits)
                out.append({**_gate(row, metric, target), "max_num_seqs": limit, **told})
    return out


def _gate(row: Row, metric: str, target: Target) -> dict[str, Any]:
    usable = row["validity"] != "invalid"
    return {
        "run": row["run"],
        "variant": row["variant"],
        "metric": metric,
        "op": target["op"],
        "target": target["value"],
        "value": row[metric],
        "met": gates.meets(row[metric], target) if usable else None,
        "validity": row["validity"],
        "n": row["n_ok"],
        "n_failed": row["n_attempted"] - row["n_ok"],
        "queue_measured_s": row.get("queue_s"),
    }


def attribute(
    requests: Sequence[Row],
    base: str,
    percentile: float,
    target: Target,
    waits: Mapping[int, float],
) -> dict[str, Any]:
    """The successes at or beyond the percentile on its bad side, worst first, and their time in all."""
    rate = target["op"].startswith(">")
    ok = [r for r in requests if r["outcome"] == "ok" and r.get(base) is not None]
    there = [r for r in ok if (r[base] <= percentile if rate else r[base] >= percentile)]
    there.sort(key=lambda r: (r[base] if rate else -r[base], r["index"]))
    told = [_request(request, base, target, waits.get(request["index"])) for request in there]
    shares = {name: _share(told, name) for name in PARTS if name != "e2e_s"}
    return {"requests": told, "shares": shares}


def _request(request: Row, base: str, target: Target, queue: float | None) -> dict[str, Any]:
    ttft, e2e = request.get("ttft_s"), request.get("e2e_s")
    first, last, end = (request.get(name) for name in ("t_first_s", "t_last_s", "t_end_s"))
    rest = last is not None and end is not None and first is not None
    after = end - last if rest else None  # type: ignore[operator]
    decode = None if ttft is None or e2e is None else e2e - ttft - (after or 0.0)
    parts = {
        "queue_s": queue,
        "prefill_s": None if ttft is None or queue is None else ttft - queue,
        "ttft_s": ttft,
        "decode_s": decode,
        "rest_s": after,
        "e2e_s": e2e,
    }
    need = _rate_needs if base == "e2e_tps" else _latency_needs
    return {
        "index": request["index"],
        "value": request[base],
        **parts,
        "completion_tokens": request.get("completion_tokens"),
        "prompt_tokens": request.get("prompt_tokens"),
        "decode_rate": request.get("decode_rate"),
        **need(request, parts, target),
    }


def _rate_needs(request: Row, parts: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """TTFT alone and decode rate alone that give e2e_tps the target."""
    tokens, first = request.get("completion_tokens"), request.get("n_first_delta")
    ttft, decode = parts["ttft_s"], parts["decode_s"]
    rest, aim = parts["rest_s"] or 0.0, float(target["value"])
    blank = dict.fromkeys(("ttft_alone", "needed_ttft_s", "decode_alone", "needed_decode_rate"))
    if tokens is None or ttft is None or decode is None or aim <= 0:
        return blank
    room = tokens / aim
    for_ttft, for_decode = room - decode - rest, room - ttft - rest
    later = None if first is None else tokens - first
    out: dict[str, Any] = {**blank, "ttft_alone": REACHABLE if for_ttft > 0 else NOT_REACHABLE}
    out["needed_ttft_s"] = for_ttft if for_ttft > 0 else None
    if for_decode <= 0:
        out["decode_alone"] = NOT_REACHABLE
    elif later is not None and later > 0:
        out.update(decode_alone=REACHABLE, needed_decode_rate=later / for_decode)
    return out


def _latency_needs(request: Row, parts: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Prefill alone and queue alone that give TTFT the target."""
    queue, prefill, aim = parts["queue_s"], parts["prefill_s"], float(target["value"])
    names = ("prefill_alone", "needed_prefill_s", "queue_alone", "needed_queue_s")
    if queue is None or prefill is None:
        return dict.fromkeys(names)
    for_prefill, for_queue = aim - queue, aim - prefill
    values = (
        REACHABLE if for_prefill > 0 else NOT_REACHABLE,
        for_prefill if for_prefill > 0 else None,
        REACHABLE if for_queue >= 0 else NOT_REACHABLE,
        for_queue if for_queue >= 0 else None,
    )
    return dict(zip(names, values, strict=True))


def _share(told: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Of the summed time of these requests; None if one of them does not say. No rest is 0."""
    whole = [request["e2e_s"] for request in told]
    part = [request[name] for request in told]
    if not told or None in whole or None in part or not sum(whole):
        return None
    return float(sum(part) / sum(whole))


def _waits(
    plan: Mapping[str, Any], row: Row, tables: Tables
) -> tuple[dict[int, float], int | None]:
    """(estimated queue by request, how many sequences the server takes at once)."""
    limit = max_num_seqs(plan, row, tables.starts)
    closed = None if row.get("rate") else row["concurrency"]
    return queue_estimate.queue_s(tables.requests.get(row["run"], []), limit, closed), limit
