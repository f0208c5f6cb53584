"""Our figures of a submission held against the evaluator's own, figure by figure.

In: an imported record of the evaluator's rows, and our run and its row of runs.csv. Out: one line a figure:
{metric, theirs, ours, difference, basis, state}. `basis` says what ours rests on: the rows alone, the
rows with cached tokens as the account tells them, or nothing (the rows do not hold it). The row's own
figures are compared, so what agrees here is what the report shows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cargo import record as run_record
from decodelab import evaluator_told, score, stats, telemetry, ttft_buckets
from decodelab.records import Run

Line = dict[str, Any]
ROWS, WITH_TOLD, NOTHING = "rows", "rows_and_account", "not_in_rows"
AGREES, DIFFERS, NOT_COMPARED, NO_SCORE = "agrees", "differs", "not_compared", "no_score"
CLOSE = 1e-4  # relative; rows are stamped to 1 ms and last to 0.1 ms
WALL_S = 0.1  # the first request's start is unknown where it failed


def lines(run: Run) -> list[Line]:
    """Every figure of the account that is a figure of requests, in its order; [] without an account."""
    evaluator = run.record.get("evaluator") or {}
    theirs = evaluator.get("metrics") or {}
    if not theirs:
        return []
    row = stats.run_row(run, {})
    ours = dict(_ours(run, row))
    wall = row["batch_wall_s"]
    slack = CLOSE + (WALL_S / wall if wall else 0.0)
    found = [
        _line(name, theirs[name], *ours.get(name, (None, NOTHING)), slack)
        for name in theirs
        if name in ours or name.startswith("ttft_")
    ]
    for group, kind in (("error_class_counts", "class"), ("finish_marker_counts", "finish")):
        mine = ours.get(group, ({}, ROWS))[0]
        told = {k.rpartition("finish_reason_")[2]: n for k, n in (theirs.get(group) or {}).items()}
        for name in sorted({*mine, *told}):
            found.append(_line(f"{kind} {name}", told.get(name, 0), mine.get(name, 0), ROWS, slack))
    return [line for line in found if not isinstance(line["theirs"], Mapping)] + [
        _score(evaluator.get("score"), row, slack)
    ]


def disagrees(found: list[Line]) -> bool:
    return any(line["state"] == DIFFERS for line in found)


def _score(theirs: Any, row: Mapping[str, Any], slack: float) -> Line:
    if not row["n_ok"]:
        blank = {"metric": "score", "theirs": theirs, "ours": None, "difference": None}
        return {**blank, "basis": ROWS, "state": NO_SCORE}
    return _line("score", theirs, row["platform_score"], _basis(row), slack)


def _line(name: str, theirs: Any, ours: float | None, basis: str, slack: float) -> Line:
    told = telemetry.number(theirs)
    line = {"metric": name, "theirs": theirs, "ours": ours, "difference": None, "basis": basis}
    if isinstance(theirs, Mapping) or (told is None and ours is None):
        return {**line, "state": NOT_COMPARED}
    if told is None or ours is None:
        return {**line, "state": NOT_COMPARED if basis == NOTHING else DIFFERS}
    by_wall = name.endswith(("_tpm", "wall_time_s")) or name == "score"
    whole = isinstance(theirs, int) and float(ours).is_integer()
    near = told == ours if whole else math.isclose(told, ours, rel_tol=slack if by_wall else CLOSE)
    return {**line, "difference": ours - told, "state": AGREES if near else DIFFERS}


def _basis(row: Mapping[str, Any]) -> str:
    return WITH_TOLD if row["cached_tokens"] is None else ROWS


def _ours(run: Run, row: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, str]]]:
    ok = run.ok
    attempted, n_ok = row["n_attempted"], row["n_ok"]
    yield "attempted_requests", (attempted, ROWS)
    yield "successful_requests", (n_ok, ROWS)
    yield "error_requests", (attempted - n_ok, ROWS)
    yield "error_rate", (stats.ratio(attempted - n_ok, attempted), ROWS)
    yield "uptime", (row["success_rate"], ROWS)
    statuses = (run.record["evaluator"] or {}).get("statuses") or {}
    yield "http_200_count", (statuses.get("200", 0), ROWS)
    yield "error_class_counts", (dict(run.record["evaluator"]["classes"]), ROWS)
    yield "finish_marker_counts", (dict(Counter(r["finish_reason"] for r in ok)), ROWS)
    for q in (50, 99):
        yield f"total_time_p{q}_ms", (_ms(_percentile(ok, "e2e_s", q)), ROWS)
    yield "avg_prompt_tokens", (score.mean(ok, "prompt_tokens"), ROWS)
    yield "avg_completion_tokens", (score.mean(ok, "completion_tokens"), ROWS)
    yield "output_tps_mean", (row["e2e_tps_mean"], ROWS)
    for q in (10, 50, 90):
        yield f"output_tps_p{q}", (row[f"e2e_tps_p{q}"], ROWS)
    yield from _totals(row)
    yield from _ttft(ok)


def _totals(row: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Sums, and the same a minute. Where nothing succeeded they are 0 to the evaluator, so as counts
    they are to us.
    """
    wall, in_rows = row["batch_wall_s"], row["cached_tokens"] is not None
    empty = row["n_ok"] == 0
    basis = ROWS if in_rows or empty else WITH_TOLD
    cached = row["cached_tokens"] if in_rows else evaluator_told.of_row(row).get("cached_tokens")
    prompt, output = row["prompt_tokens"], row["completion_tokens"]
    sums = {
        "input": (prompt, ROWS),
        "output": (output, ROWS),
        "cached": (cached, basis),
        "uncached_input": (_minus(prompt, cached), basis),
    }
    for name, (value, rests_on) in sums.items():
        tokens = 0 if empty else value
        rate = None if tokens is None or not wall else tokens * 60.0 / wall
        mere_echo = name == "cached" and basis == WITH_TOLD
        yield f"total_{name}_tokens", (None, NOTHING) if mere_echo else (tokens, rests_on)
        yield f"{name}_tpm", (rate, rests_on)
    yield "cache_hit_rate", (stats.ratio(cached, prompt), basis)
    yield "wall_time_s", (wall, ROWS)


def _ttft(ok: list[dict[str, Any]]) -> Iterator[tuple[str, tuple[Any, str]]]:
    told = all(request["ttft_s"] is not None for request in ok)
    basis = ROWS if told else NOTHING
    for q in (50, 90, 99):
        yield f"ttft_p{q}_ms", (_ms(_percentile(ok, "ttft_s", q)), basis)
    yield "ttft_mean_ms", (_ms(score.mean(ok, "ttft_s")), basis)
    yield "input_tps_mean", (score.mean(ok, "input_tps"), basis)
    for q in (10, 50, 90):
        yield f"input_tps_p{q}", (_percentile(ok, "input_tps", q), basis)
    yield "ttft_input_unknown_count", (sum(r["prompt_tokens"] is None for r in ok), ROWS)
    for name, found in ttft_buckets.split(ok).items():
        yield f"ttft_{name}_count", (found["n"], ROWS)
        for ours, theirs in (("p90_s", "p90"), ("p50_s", "p50"), ("mean_s", "avg")):
            yield f"ttft_{name}_{theirs}_ms", (_ms(found[ours]), basis)


def _percentile(ok: list[dict[str, Any]], name: str, q: int) -> float | None:
    values = [request[name] for request in ok]
    return None if None in values else run_record.percentile(values, q)


def _ms(value: float | None) -> float | None:
    return None if value is None else value * 1000.0


def _minus(top: float | None, less: float | None) -> float | None:
    return None if top is None or less is None else top - less
