"""Other load clients on the same emitter: what they report beside what was true.

In:  the bench, the peers' commands (--peer NAME=COMMAND, else PATH).
Out: a `PeerRow` for each client and load, and their table.

They report aggregates only, so the truth is aggregated the same way: from a request's arrival (kernel
stamp) to its first event, and the gaps between its events. Ours stands in the table by the same rules.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cargo.record import output_gaps, percentile
from fidelity.client_run import REPO, Ended, run_client, run_command
from fidelity.emitter_process import Emitter, EmitterPlan, Spoken
from fidelity.peer_clis import PEERS, Cli, Reported, Task
from fidelity.rows import Load
from fidelity.table import markdown

LOADS = (Load(32, 50, "sync"), Load(256, 30, "sync"))
QUICK_LOADS = (Load(8, 50, "sync"),)
BASE = Load(1, 50, "sync")  # what a client costs when it has nearly nothing to do
BASE_EVENTS = 5
DELAY_S = 0.2
TINY_MODEL = REPO / ".venv-vllm" / "model"
LIMIT_S = 180.0
SCATTER = 0.15  # of the processor time that a start takes
HEAD = (
    "client",
    "load",
    "requests ok",
    "tokens",
    "TTFT P50 ms (true)",
    "TTFT P99 ms (true)",
    "gap P50 ms (true)",
    "gap P99 ms (true)",
    "CPU us/event",
    "CPU s in all",
)


class PeerRow(NamedTuple):
    client: str
    load: Load | None
    problem: str
    requests: int = 0
    events: int = 0  # spoken
    reported: Reported | None = None
    true: Reported | None = None
    cpu_s: float = 0.0
    base_cpu_s: float = 0.0


def truth(spoken: Sequence[Spoken], gaps: str) -> Reported:
    """The emitter's own figures, in the shape of a report."""
    ttft = [(one.stamps_ns[0] - one.request_ns) / 1e9 for one in spoken if one.stamps_ns]
    tokens = sum(len(one.stamps_ns) for one in spoken)
    each = [gaps_of(one.stamps_ns) for one in spoken if len(one.stamps_ns) > 1]
    pooled = [gap for gaps_s in each for gap in gaps_s]
    if gaps != "all":
        pooled = [sum(gaps_s) / len(gaps_s) for gaps_s in each]
    return Reported(len(each), tokens, *two(ttft), *two(pooled))


def gaps_of(stamps_ns: Sequence[int]) -> list[float]:
    return [(late - early) / 1e9 for early, late in pairwise(stamps_ns)]


def two(values: Sequence[float]) -> tuple[float | None, float | None]:
    return percentile(values, 50), percentile(values, 99)


def of_record(record: dict[str, Any]) -> Reported:
    """Our client's record, aggregated as the peers do it."""
    good = [one for one in record["requests"] if one["outcome"] == "ok"]
    gaps = [gap for one in good for gap, _tokens in output_gaps(one["events"])]
    tokens = sum(one["completion_tokens"] for one in good)
    return Reported(len(good), tokens, *two([one["ttft_s"] for one in good]), *two(gaps))


class Contest:
    def __init__(self, bench: Any, arguments: argparse.Namespace) -> None:
        self.bench = bench
        self.loads = QUICK_LOADS if arguments.quick else LOADS
        self.tokenizer: str = arguments.tokenizer or str(TINY_MODEL)
        self.places = dict(pair.partition("=")[::2] for pair in arguments.peer)

    def ours(self, http: str) -> list[PeerRow]:
        base_cpu_s = 0.0
        rows = []
        for load, events in [(BASE, BASE_EVENTS), *self.timed()]:
            with self.emitter(load, events) as emitter:
                counts = (load.streams, load.streams, events, LIMIT_S)
                run = run_client(
                    self.bench.client,
                    emitter.base_url,
                    self.bench.folder,
                    http,
                    *counts,
                    self.bench.client_place,
                    self.bench.processes if http == "epoll" else 1,
                )
                spoken = emitter.end()
            if load is BASE:
                base_cpu_s = run.process_cpu_s
                continue
            reported, true = of_record(run.record), truth(spoken, "all")
            heard = load.streams * events
            rows.append(
                PeerRow(
                    f"ours, {http}",
                    load,
                    "",
                    load.streams,
                    heard,
                    reported,
                    true,
                    run.process_cpu_s,
                    base_cpu_s,
                )
            )
        return rows

    def peer(self, name: str, cli: Cli) -> list[PeerRow]:
        place = self.places.get(name) or self.places.get(cli.program) or cli.program
        program = shutil.which(place)
        if program is None:
            return [PeerRow(name, None, "not installed")]
        base_cpu_s = 0.0
        rows = []
        for load, events in [(BASE, BASE_EVENTS), *self.timed()]:
            print(f"{name} {load.name}", file=sys.stderr)
            ended, reported, spoken = self.one(program, cli, load, events)
            if load is BASE and reported is not None:
                base_cpu_s = ended.cpu_s
                continue
            if reported is None:
                last = ended.output.strip().splitlines()[-1:] or [""]
                rows.append(PeerRow(name, load, f"exit code {ended.code}: {last[0][:80]}"))
                continue
            true = truth(spoken[-load.streams :], cli.gaps)  # before them: its own test requests
            heard = load.streams * events
            rows.append(
                PeerRow(
                    name, load, "", load.streams, heard, reported, true, ended.cpu_s, base_cpu_s
                )
            )
        return rows

    def one(
        self, program: str, cli: Cli, load: Load, events: int
    ) -> tuple[Ended, Reported | None, list[Spoken]]:
        with (
            tempfile.TemporaryDirectory(dir=self.bench.folder) as scratch,
            self.emitter(load, events) as emitter,
        ):
            folder = Path(scratch)
            counts = (load.streams, load.streams, events)
            task = Task(emitter.base_url, *counts, self.tokenizer, folder)
            argv, log = [program, *cli.words(task)], folder / "peer.log"
            ended = run_command(argv, self.bench.peer_place, LIMIT_S, log, cli.env)
            spoken = emitter.end()
            try:
                return ended, cli.read(task), spoken
            except (OSError, ValueError, KeyError, StopIteration, TypeError) as problem:
                print(f"{problem!r}\n{ended.output[-2000:]}", file=sys.stderr)
                return ended, None, spoken

    def emitter(self, load: Load, events: int) -> Emitter:
        plan = EmitterPlan(load.rate_hz, events, load.mode, 0, DELAY_S)
        return Emitter(self.bench.argv, self.bench.folder, plan, self.bench.emitter_place)

    def timed(self) -> list[tuple[Load, int]]:
        return [(load, round(load.rate_hz * self.bench.seconds)) for load in self.loads]


def compare_all(bench: Any, arguments: argparse.Namespace) -> list[PeerRow]:
    contest = Contest(bench, arguments)
    rows = contest.ours("epoll")
    if not arguments.no_httpx:
        rows += contest.ours("httpx")
    for name, cli in PEERS.items():
        rows += contest.peer(name, cli)
    return rows


def peer_table(rows: Sequence[PeerRow]) -> str:
    return markdown(HEAD, [line_of(row) for row in rows])


def line_of(row: PeerRow) -> list[str]:
    first = [row.client, row.load.name if row.load else "-"]
    if row.reported is None or row.true is None:
        return [*first, row.problem, *["-"] * (len(HEAD) - 3)]
    pairs = zip(row.reported[2:], row.true[2:], strict=True)
    return [
        *first,
        f"{row.reported.ok} of {row.requests}",
        f"{row.reported.tokens or 0:.0f} of {row.true.tokens:.0f}",
        *(f"{milli(said)} ({milli(true)})" for said, true in pairs),
        marginal(row),
        f"{row.cpu_s:.1f}",
    ]


def marginal(row: PeerRow) -> str:
    """Beyond the start; not told where the start's own scatter would be most of it."""
    more_s = row.cpu_s - row.base_cpu_s
    return f"{more_s / row.events * 1e6:.0f}" if more_s > SCATTER * row.base_cpu_s else "-"


def milli(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"
