"""Both clients in turn on one server, the same requests each time.

In:  a server's base URL, the loads. Out: for each load its `Turn`s, in the order in which they were made.

The order is ours, theirs, theirs, ours, ours, ...: what drifts falls on both alike. A first turn of each,
which fills the prefix cache, is thrown away. Both send the same messages, since `vllm bench serve` takes
the body's keys from --extra-body.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cargo import scenario
from engine_metrics import engine, server_side
from engine_metrics.bench_process import BenchProcess
from engine_metrics.definitions import Pair, pairs

CLIENT = engine.REPO / "scripts" / "cargo" / "decode_microbench.py"
SEED = "engine metrics"
SETTLE_S = 0.3  # the server's counters of a request come with its last step


class Load(NamedTuple):
    concurrency: int
    requests: int
    max_tokens: int

    @property
    def name(self) -> str:
        return (
            f"{self.requests} requests, {self.concurrency} at once, {self.max_tokens} tokens each"
        )


class Turn(NamedTuple):
    who: str  # ours | theirs
    record: dict[str, Any] | None  # our run record
    bench: dict[str, float] | None  # fields of vLLM's BenchmarkMetrics
    beside: list[server_side.Beside]  # of ours only


class Lab(NamedTuple):
    base_url: str
    model: str
    max_num_seqs: int
    bench: BenchProcess
    folder: Path


def turns(lab: Lab, load: Load, rounds: int) -> list[Turn]:
    for who in ("ours", "theirs"):
        turn(lab, load, who)
    return [turn(lab, load, who) for who in order(rounds)]


def order(rounds: int) -> Iterator[str]:
    for number in range(rounds):
        yield from ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours")


def turn(lab: Lab, load: Load, who: str) -> Turn:
    before = engine.scrape(lab.base_url)
    if who == "theirs":
        found = lab.bench.serve(bench_words(lab, load), lab.folder / "bench.json")
        found |= {
            "total_input": found["total_input_tokens"],
            "total_output": found["total_output_tokens"],
        }
        time.sleep(SETTLE_S)
        return Turn(who, None, found, [])
    record = run_ours(lab, load)
    time.sleep(SETTLE_S)
    after = engine.scrape(lab.base_url)
    told = server_side.beside(record, before, after, lab.max_num_seqs, load.concurrency)
    return Turn(who, record, None, told)


def run_ours(lab: Lab, load: Load) -> dict[str, Any]:
    out = lab.folder / "run.json"
    argv = [sys.executable, "-S", str(CLIENT), "--base-url", lab.base_url, "--model", lab.model]
    argv += ["--scenario", "short", "--seed", SEED, "--concurrency", str(load.concurrency)]
    argv += ["--continuous-usage-stats"]  # a late API process merges tokens: how many came first?
    argv += [
        "--requests",
        str(load.requests),
        "--max-tokens",
        str(load.max_tokens),
        "--out",
        str(out),
    ]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def messages() -> list[dict[str, Any]]:
    """What our client sends for its scenario `short` with this seed."""
    return scenario.salted(scenario.load("short")["messages"], scenario.salt(SEED))


def bench_words(lab: Lab, load: Load) -> list[str]:
    streamed = {"include_usage": True, "continuous_usage_stats": True}  # as ours asks
    body = {"messages": messages(), "temperature": 0.0, "stream_options": streamed}
    return [
        *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", lab.base_url, "--model", lab.model, "--tokenizer", str(engine.MODEL)),
        *("--dataset-name", "random", "--random-input-len", "16"),  # its prompts give way to ours
        *("--random-output-len", str(load.max_tokens), "--num-prompts", str(load.requests)),
        *("--max-concurrency", str(load.concurrency), "--ignore-eos", "--disable-tqdm"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90"),
        *("--ready-check-timeout-sec", "0", "--extra-body", json.dumps(body)),
    ]


class Compared(NamedTuple):
    """A metric over all turns of a load."""

    name: str
    unit: str
    ours: list[float]  # one a turn
    ours_their_way: list[float]
    theirs: list[float]

    @property
    def is_known(self) -> bool:
        return bool(self.ours and self.ours_their_way and self.theirs)

    @property
    def spread(self) -> float:
        """The A/A spread: the farthest that two turns of one client are apart."""
        return max(max(one) - min(one) for one in (self.ours_their_way, self.theirs))

    @property
    def difference(self) -> float:
        """Ours, by their definition, less theirs: of the medians."""
        return median(self.ours_their_way) - median(self.theirs)

    @property
    def agrees(self) -> bool:
        return self.is_known and abs(self.difference) <= self.spread


def compare(made: Sequence[Turn]) -> list[Compared]:
    records = [one.record for one in made if one.record is not None]
    benches = [one.bench for one in made if one.bench is not None]
    by_record = [pairs(record["requests"], benches[0]) for record in records]
    by_bench = [pairs(records[0]["requests"], bench) for bench in benches]
    out = []
    for number, pair in enumerate(by_record[0]):
        ours, theirs = ([one[number] for one in runs] for runs in (by_record, by_bench))
        values = (_known(ours, "ours"), _known(ours, "ours_their_way"), _known(theirs, "theirs"))
        out.append(Compared(pair.metric.name, pair.metric.unit, *values))
    return out


def _known(found: Sequence[Pair], way: str) -> list[float]:
    """Of the runs that tell it; a client that was too late to tell may have none."""
    values = [getattr(pair, way) for pair in found]
    return [value for value in values if value is not None]


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2


def wait_for_quiet(below: float, at_most_s: float) -> float:
    """Until the load average of a minute is below that; returns it as it is then."""
    deadline = time.monotonic() + at_most_s
    while os.getloadavg()[0] >= below and time.monotonic() < deadline:
        time.sleep(5)
    return os.getloadavg()[0]
