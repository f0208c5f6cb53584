#!/usr/bin/env python3
"""Rebuild the raw logs of the 2026-07-14 decode report from its published tables.

The original raw files are not available. What comes in: nothing but the constants below. What goes
out, beside this file: one JSON file per decode run and one SMI capture under the report's own file
names, and the log of the start that failed. Every file says "reconstructed"; PROVENANCE.md says
which values are published, which follow, and which were free choices.

    python reconstruct.py            write the files beside this script (same bytes at every call)
    python reconstruct.py --out DIR  write them elsewhere
    python reconstruct.py --check    write nothing; print each published figure beside ours

Standard library only, and on purpose nothing of this repository is imported: the arithmetic here
(exact fractions over whole microseconds) is a second opinion on the product's, not a copy of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path

PROVENANCE = "reconstructed from the published tables"
MODEL = "/root/public-storage/models/Qwen/Qwen3.6-35B-A3B"

# The run's clock begins half a second before its first request. No figure depends on it, which is
# its purpose: a wall time that wrongly counts from the clock's zero misses the published totals.
LEAD_US = 500_000

# Follows from the published configuration: one scheduler step a delta, no speculation, so a delta
# holds one token.
FIRST_DELTA_TOKENS = 1

# Per request, in the order sent: (TTFT in ms, decode time from first token to end of stream in ms).
# `prompt` and `cached` are None where the report gives no tokens. Each request has `max_tokens`
# output tokens: every total in the report equals requests x max_tokens.
RUNS = {
    "decode_full_parser_short_c1_t256_r3": {
        "scenario": "short",
        "concurrency": 1,
        "max_tokens": 256,
        "requests_ms": [(1987, 28927), (1300, 29284), (1310, 29278)],
        "reasoning_per_request": 256,
    },
    "decode_full_parser_tool_c1_t128_r3": {
        "scenario": "tool",
        "concurrency": 1,
        "max_tokens": 128,
        "requests_ms": [(5970, 14712), (1010, 14709), (970, 14688)],
        "prompt": 2213,
        "cached": [0, 2208, 2208],
    },
    "decode_noparser_short_c1_t256_r3": {
        "scenario": "short",
        "concurrency": 1,
        "max_tokens": 256,
        "requests_ms": [(3790, 30872), (740, 30732), (750, 30695)],
    },
    "decode_noparser_short_c1_t128_r4": {
        "scenario": "short",
        "concurrency": 1,
        "max_tokens": 128,
        "requests_ms": [(902, 15444), (530, 15370), (525, 15357), (529, 15344)],
    },
    "decode_noparser_short_c2_t128_r4": {
        "scenario": "short",
        "concurrency": 2,
        "max_tokens": 128,
        "requests_ms": [(650, 34839), (950, 34409), (850, 34611), (700, 34650)],
    },
    "decode_noparser_short_c4_t128_r4": {
        "scenario": "short",
        "concurrency": 4,
        "max_tokens": 128,
        # max-num-seqs is 2: the third and fourth wait until the first two have ended, so their TTFT
        # holds the wait.
        "requests_ms": [(700, 49903), (950, 49574), (51450, 49200), (51665, 49120)],
    },
    "decode_noparser_short_c2_t128_r4_monitor": {
        "scenario": "short",
        "concurrency": 2,
        "max_tokens": 128,
        "requests_ms": [(760, 33791), (937, 33700), (880, 33746), (700, 33680)],
    },
}

CAPTURE = "ixsmi_noparser_short_c2_t128_r4_monitor"
CAPTURE_RUN = "decode_noparser_short_c2_t128_r4_monitor"
RECORDS = 52
# 52 records make 51 gaps; one record before the first request and one after the last stream need a
# gap of at least 69.2 / 51 = 1.357 s (69.2 / 52 = 1.33 s is the published rate: records over wall).
RECORD_GAP_US = 1_360_000
RECORD_FIRST_US = 430_000
MEMORY_MIB = (30555, 30495, 30499, 30359)
MEMORY_TOTAL_MIB = 32768
# Placeholders: the table needs a bus id to tell one card from another, and nobody published them.
BUS_IDS = ("00000000:01:00.0", "00000000:02:00.0", "00000000:03:00.0", "00000000:04:00.0")
POWER_CAP_W = 250
UTIL_SUM_PCT = 6013  # over 208 samples: 28.909 %
POWER_SUM_W = 10331  # over 208 samples: 49.668 W

START_LOG = "server_noparser_multistep.reconstructed.log"
START_LOG_LINES = [
    "# reconstructed from the published tables: only the two facts below are published (section",
    "# 4.1); the original log, its time stamps and its traceback are not available.",
    "INFO selector.py] Using XFormers backend.",
    "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: xformers",
]


# ---------------------------------------------------------------- decode runs


def schedule(spec: dict) -> list[tuple[int, int, int]]:
    """(t0, tF, tE) of each request in microseconds: a closed loop, the next sent when one ends."""
    free_at_us = [LEAD_US] * spec["concurrency"]
    times = []
    for ttft_ms, decode_ms in spec["requests_ms"]:
        lane = min(range(len(free_at_us)), key=lambda i: free_at_us[i])
        start = free_at_us[lane]
        first = start + ttft_ms * 1000
        end = first + decode_ms * 1000
        free_at_us[lane] = end
        times.append((start, first, end))
    return times


def seconds(microseconds: int) -> float:
    return microseconds / 1_000_000


def decimal6(value: Fraction) -> float:
    return float(rounded(value, 6))


def rounded(value: Fraction, digits: int) -> Decimal:
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)


def request_record(index: int, spec: dict, times: tuple[int, int, int]) -> dict:
    start, first, end = times
    tokens = spec["max_tokens"]
    prompt = spec.get("prompt")
    cached = spec.get("cached")
    return {
        "index": index,
        "warmup": False,
        "outcome": "ok",
        "error": None,
        "finish_reason": None,
        "t_start_s": seconds(start),
        "t_first_s": seconds(first),
        "t_last_s": None,
        "t_end_s": seconds(end),
        "ttft_s": seconds(first - start),
        "e2e_s": seconds(end - start),
        "decode_tps": decimal6(Fraction(tokens * 1_000_000, end - first)),
        "decode_rate": decimal6(Fraction((tokens - FIRST_DELTA_TOKENS) * 1_000_000, end - first)),
        "e2e_tps": decimal6(Fraction(tokens * 1_000_000, end - start)),
        "tpot_s": decimal6(Fraction(end - first, (tokens - FIRST_DELTA_TOKENS) * 1_000_000)),
        "input_tps": None
        if prompt is None
        else decimal6(Fraction(prompt * 1_000_000, first - start)),
        "n_first_delta": FIRST_DELTA_TOKENS,
        "prompt_tokens": prompt,
        "cached_tokens": None if cached is None else cached[index],
        "completion_tokens": tokens,
        "reasoning_tokens": spec.get("reasoning_per_request"),
        "n_events": None,
        "decode_end": "stream_end",
        "connect_s": None,
        "usage": None,
        "events": None,
    }


def percentile(values: list[Fraction], share: Fraction) -> Fraction:
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = position.numerator // position.denominator
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def exact_columns(spec: dict) -> dict[str, list[Fraction]]:
    """Metric -> exact value of each request."""
    times = schedule(spec)
    tokens = spec["max_tokens"]
    later = tokens - FIRST_DELTA_TOKENS
    decode_s = [Fraction(end - first, 1_000_000) for _, first, end in times]
    e2e_s = [Fraction(end - start, 1_000_000) for start, _, end in times]
    return {
        "ttft_s": [Fraction(first - start, 1_000_000) for start, first, _ in times],
        "e2e_s": e2e_s,
        "decode_tps": [tokens / value for value in decode_s],
        "decode_rate": [later / value for value in decode_s],
        "e2e_tps": [tokens / value for value in e2e_s],
        "tpot_s": [value / later for value in decode_s],
    }


def exact_figures(spec: dict) -> dict[str, Fraction]:
    times = schedule(spec)
    wall = Fraction(max(t[2] for t in times) - min(t[0] for t in times), 1_000_000)
    figures = {"wall_s": wall, "output_tps_total": len(times) * spec["max_tokens"] / wall}
    for name, values in exact_columns(spec).items():
        for q in (10, 50, 90):
            figures[f"{name}_p{q}"] = percentile(values, Fraction(q, 100))
    return figures


def total(values: list) -> int | None:
    return None if any(value is None for value in values) else sum(values)


def run_summary(spec: dict, requests: list[dict]) -> dict:
    exact = exact_figures(spec)
    summary: dict = {
        "n_attempted": len(requests),
        "n_ok": len(requests),
        "n_not_started": 0,
        "outcomes": {"ok": len(requests)},
        "success_rate": 1.0,
        "wall_s": decimal6(exact["wall_s"]),
        "output_tps_total": decimal6(exact["output_tps_total"]),
    }
    for field in ("completion_tokens", "prompt_tokens", "cached_tokens", "reasoning_tokens"):
        summary[field] = total([request[field] for request in requests])
    for name in exact_columns(spec):
        summary[name] = {f"p{q}": decimal6(exact[f"{name}_p{q}"]) for q in (10, 50, 90)}
        summary[name]["n"] = len(requests)
    return summary


def run_record(name: str) -> dict:
    spec = RUNS[name]
    requests = [request_record(i, spec, times) for i, times in enumerate(schedule(spec))]
    return {
        "schema": "decodelab.run/1",
        "source": "reconstructed",
        "provenance": PROVENANCE,
        "run": {
            "scenario": spec["scenario"],
            "model": MODEL,
            "base_url": None,
            "concurrency": spec["concurrency"],
            "requests": len(requests),
            "max_tokens": spec["max_tokens"],
            "seed": None,
            "warmup": None,
            "http": None,
            "temperature": None,
            "ignore_eos": None,
            "extra_body": None,
            "label": name,
        },
        "client": None,
        "clock": {"t0_monotonic_s": 0.0, "t0_wall": None},
        "requests": requests,
        "summary": run_summary(spec, requests),
    }


# ---------------------------------------------------------------- SMI capture


def utilisation_pct() -> list[list[int]]:
    """4 whole percentages per record: idle at both ends, bursts between; the sum is exact."""
    state = 20260714
    rows = []
    for record in range(RECORDS):
        row = []
        for _ in MEMORY_MIB:
            state = (1103515245 * state + 12345) % 2**31
            draw = state >> 16
            row.append(100 if draw % 41 == 0 else draw % 56)
        rows.append([0] * len(row) if record in (0, RECORDS - 1) else row)
    return balanced(rows, UTIL_SUM_PCT, low=1, high=99)


def power_w(util: list[list[int]]) -> list[list[int]]:
    rows = []
    for record, row in enumerate(util):
        idle = record in (0, RECORDS - 1)
        rows.append([48 if idle else 49 + (value > 20) + (value > 60) for value in row])
    return balanced(rows, POWER_SUM_W, low=49, high=50)


def balanced(rows: list[list[int]], wanted: int, low: int, high: int) -> list[list[int]]:
    """Move cells inside [low, high] by one, in a fixed order, until the sum is as wanted."""
    missing = wanted - sum(map(sum, rows))
    step = 1 if missing > 0 else -1
    cells = [(r, g) for r in range(1, RECORDS - 1) for g in range(len(rows[r]))]
    cells.sort(key=lambda cell: (cell[0] * 7 + cell[1] * 3) % 50)  # spread the changes over the run
    while missing:
        before = missing
        for r, g in cells:
            if missing and low <= rows[r][g] <= high and low <= rows[r][g] + step <= high:
                rows[r][g] += step
                missing -= step
        if missing == before:
            raise SystemExit(f"cannot reach a sum of {wanted} inside [{low}, {high}]")
    return rows


def ixsmi_table(util: list[int], power: list[int]) -> str:
    """One table as CoreX 3.2.x prints it. Cells that nobody published are N/A; no time line."""
    rule = "+-------------------------------+----------------------+----------------------+"
    lines = [
        "+-----------------------------------------------------------------------------+",
        "|  IX-ML: 3.2.x       Driver Version: 3.2.x       CUDA Version: N/A           |",
        "|-------------------------------+----------------------+----------------------|",
        "| GPU  Name                     | Bus-Id               | Clock-SM  Clock-Mem  |",
        "| Fan  Temp  Perf  Pwr:Usage/Cap|      Memory-Usage    | GPU-Util  Compute M. |",
        "|===============================+======================+======================|",
    ]
    for gpu, used in enumerate(MEMORY_MIB):
        name = f"{gpu:<4} Iluvatar BI-V100"
        state = f"N/A  N/A   P0    {power[gpu]}W / {POWER_CAP_W}W"
        memory = f"{used}MiB / {MEMORY_TOTAL_MIB}MiB"
        lines += [
            f"| {name:<30}| {BUS_IDS[gpu]:<21}| {'N/A       N/A':<21}|",
            f"| {state:<30}| {memory:<21}| {f'{util[gpu]}%':<10}{'Default':<11}|",
            rule,
        ]
    edge = "+-----------------------------------------------------------------------------+"
    lines += [
        "",
        edge,
        "| Processes:                                                       GPU Memory |",
        "|  GPU        PID      Process name                                Usage(MiB) |",
        "|=============================================================================|",
        edge,
        "",
    ]
    return "\n".join(lines)


def capture_record() -> dict:
    util = utilisation_pct()
    power = power_w(util)
    records = []
    for index in range(RECORDS):
        at_s = seconds(RECORD_FIRST_US + index * RECORD_GAP_US)
        table = ixsmi_table(util[index], power[index])
        records.append({"m0": at_s, "m1": at_s, "w0": None, "rc": 0, "out": table, "err": ""})
    return {
        "schema": "decodelab.capture/1",
        "source": "reconstructed",
        "provenance": PROVENANCE,
        "tool": "ixsmi",
        "argv": ["ixsmi"],
        "interval_s": None,
        "clock": {"monotonic_s": 0.0, "wall": None},
        "records": records,
    }


# ---------------------------------------------------------------- check against the report

PUBLISHED = {
    "decode_full_parser_short_c1_t256_r3": {
        "ttft_s_p90": "1.85",
        "decode_tps_p10": "8.74",
        "decode_tps_p50": "8.74",
        "output_tps_total": "8.34",
    },
    "decode_full_parser_tool_c1_t128_r3": {
        "ttft_s_p90": "4.98",
        "decode_tps_p10": "8.70",
        "decode_tps_p50": "8.70",
        "output_tps_total": "7.38",
    },
    "decode_noparser_short_c1_t256_r3": {
        "ttft_s_p90": "3.18",
        "decode_tps_p10": "8.30",
        "decode_tps_p50": "8.33",
        "output_tps_total": "7.87",
    },
    "decode_noparser_short_c1_t128_r4": {
        "ttft_s_p90": "0.79",
        "decode_tps_p10": "8.30",
        "output_tps_total": "8.00",
    },
    "decode_noparser_short_c2_t128_r4": {
        "ttft_s_p90": "0.92",
        "decode_tps_p10": "3.68",
        "output_tps_total": "7.23",
    },
    "decode_noparser_short_c4_t128_r4": {
        "ttft_s_p90": "51.60",
        "decode_tps_p10": "2.57",
        "output_tps_total": "5.08",
    },
    "decode_noparser_short_c2_t128_r4_monitor": {
        "ttft_s_p90": "0.92",
        "decode_tps_p10": "3.79",
        "output_tps_total": "7.40",
    },
}
PUBLISHED_SMI = {
    "util_pct mean": "28.91",
    "util_pct max": "100",
    "mem_used_mib mean": "30477",
    "mem_used_mib max": "30555",
    "power_w mean": "49.67",
    "power_w max": "51",
}


def smi_figures() -> dict[str, Fraction]:
    util = utilisation_pct()
    power = power_w(util)
    columns = {
        "util_pct": [value for row in util for value in row],
        "mem_used_mib": list(MEMORY_MIB) * RECORDS,
        "power_w": [value for row in power for value in row],
    }
    figures = {}
    for name, values in columns.items():
        figures[f"{name} mean"] = Fraction(sum(values), len(values))
        figures[f"{name} max"] = Fraction(max(values))
    return figures


def check() -> list[str]:
    """Lines "name figure published ours"; a mismatch is marked with '!'."""
    pairs = []
    for name, wanted in PUBLISHED.items():
        exact = exact_figures(RUNS[name])
        pairs += [(name, key, printed, exact[key]) for key, printed in wanted.items()]
    smi = smi_figures()
    pairs += [(CAPTURE, key, printed, smi[key]) for key, printed in PUBLISHED_SMI.items()]
    lines = []
    for name, key, printed, value in pairs:
        digits = len(printed.partition(".")[2])
        ours = str(rounded(value, digits))
        mark = " " if ours == printed else "!"
        lines.append(f"{mark} {name:<44} {key:<18} {printed:>8} {ours:>8}  {float(value):.5f}")
    return lines


def output_files() -> dict[str, str]:
    """File name -> text, for everything this script makes."""
    files = {f"{name}.json": run_record(name) for name in RUNS}
    files[f"{CAPTURE}.json"] = capture_record()
    texts = {
        name: json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        for name, value in files.items()
    }
    texts[START_LOG] = "\n".join(START_LOG_LINES) + "\n"
    return texts


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Rebuild the raw logs of the 2026-07-14 report.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument(
        "--check", action="store_true", help="print published and rebuilt figures, write nothing"
    )
    args = parser.parse_args(argv)
    lines = check()
    wrong = [line for line in lines if line.startswith("!")]
    if args.check or wrong:
        print("\n".join(lines))
    if wrong:
        print(f"{len(wrong)} published figures are not met", file=sys.stderr)
        return 1
    if not args.check:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, text in output_files().items():
            (args.out / name).write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
