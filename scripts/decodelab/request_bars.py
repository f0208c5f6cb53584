"""The requests of one run over time: what a timeline shows of each, and how many run at once.

In: the run's rows of requests.csv and the server's limit. Out: `Bar`s, their parts and a `Batch`, in seconds since the
run's first request; empty or None where the times are not known. Drawn by figure_timeline, interactive by
plot_timeline.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from decodelab import anomalies, queue_estimate
from decodelab.findings import Findings, Row

MAX_REQUESTS = 64
TICKS = 30  # labels of requests, at most
NEAR = 1.5  # a limit up to so many times the batch is shown beside it
_TIMES = ("t_start_s", "t_first_s", "t_last_s", "t_end_s")


def timed(findings: Findings, run: str) -> list[Row]:
    """As many of the run's requests as a figure has room for."""
    return all_timed(findings, run)[:MAX_REQUESTS]


def all_timed(findings: Findings, run: str) -> list[Row]:
    """The run's requests that have times, in order of their start, their times counted from the
    first start.
    """
    known = [row for row in findings.requests.get(run, []) if row.get("t_start_s") is not None]
    if not known:
        return []
    zero = min(row["t_start_s"] for row in known)
    moved = [
        {**row, **{name: row[name] - zero for name in _TIMES if row.get(name) is not None}}
        for row in known
    ]
    return sorted(moved, key=lambda row: (row["t_start_s"], row.get("index") or 0))


@dataclass(frozen=True)
class Bar:
    """One request: it waits from `start` to `first`, then decodes to `end` (seconds). Of the wait the first `queue`
    seconds lie in the server's queue, by estimate; None: not known.
    """

    number: int  # from 1
    start: float
    first: float  # `end` where no token came
    end: float
    outcome: str
    row: Row
    queue: float | None = None

    @property
    def begin(self) -> float | None:
        """When the server took it on, by estimate."""
        return None if self.queue is None else self.start + self.queue

    @property
    def failed(self) -> bool:
        return self.outcome != "ok"

    @property
    def parts(self) -> list[tuple[str, float, float]]:
        """Name, begin and end of what is drawn of it: `queue` (estimated; only where it waited there), `wait` (the rest
        until its first token), then `decode`, or `failed`.
        """
        taken = self.start if self.begin is None else min(self.begin, self.first)
        spans = [("wait", taken, self.first)]
        if taken > self.start:
            spans.insert(0, ("queue", self.start, taken))
        if self.end != self.first:
            spans.append(("failed" if self.failed else "decode", self.first, self.end))
        return spans


def told_apart(shown: Sequence[Bar]) -> bool:
    """Whether queue and prefill are known of every request: else a wait may be of both."""
    return all(one.queue is not None for one in shown)


def ticks(shown: Sequence[Bar]) -> list[int]:
    """The rows whose number there is room for."""
    return list(range(0, len(shown), -(-len(shown) // TICKS)))


def bars(findings: Findings, run: str) -> list[Bar]:
    """As many as a figure has room for, in order of their start."""
    return _all_bars(findings, run)[:MAX_REQUESTS]


def _all_bars(findings: Findings, run: str) -> list[Bar]:
    waits = queue_s(findings, run)
    return [bar(row, waits.get(row["index"])) for row in all_timed(findings, run)]


def queue_s(findings: Findings, run: str) -> dict[int, float]:
    """Estimated seconds in the queue by a request's index; empty where nothing is estimated."""
    row = findings.runs.get(run)
    requests = findings.requests.get(run, [])
    if row is None or not requests:
        return {}
    closed = None if row.get("rate") else row.get("concurrency")
    return queue_estimate.queue_s(requests, max_running(findings, run), closed)


def max_running(findings: Findings, run: str) -> int | None:
    """How many sequences the server takes at once."""
    row = findings.runs.get(run)
    return None if row is None else anomalies.max_num_seqs(findings.plan, row, findings.starts)


@dataclass(frozen=True)
class Batch:
    """How many requests at once, from each time (s) to the next: in flight, taken on by the server (by estimate; None:
    not known) and in decode.
    """

    t_s: list[float]
    in_flight: list[int]
    running: list[int] | None
    in_decode: list[int]
    limit: int | None = None  # of the server, where the batch comes near it

    @property
    def lines(self) -> dict[str, list[int]]:
        """By name; what runs is left out where it is what is in flight."""
        found = {"in_flight": self.in_flight, "in_decode": self.in_decode}
        if self.running is not None and self.running != self.in_flight:
            found["running"] = self.running
        return found


def batch(findings: Findings, run: str) -> Batch | None:
    """Over all of a run's requests; None where fewer than two of them have times."""
    found = _all_bars(findings, run)
    if len(found) < 2:
        return None
    ends = [one.row["t_end_s"] if one.row.get("t_end_s") is not None else one.end for one in found]
    flights = [(one.start, end) for one, end in zip(found, ends, strict=True)]
    begins = [one.begin for one in found]
    taken = [(b, end) for b, end in zip(begins, ends, strict=True) if b is not None]
    decodes = [(one.first, one.end) for one in found if one.end > one.first]
    times = sorted({t for spans in (flights, taken, decodes) for span in spans for t in span})
    running = _counts(taken, times) if len(taken) == len(found) else None
    in_flight, limit = _counts(flights, times), max_running(findings, run)
    near = limit if limit is not None and limit <= NEAR * max(in_flight) else None
    return Batch(times, in_flight, running, _counts(decodes, times), near)


def _counts(spans: Sequence[tuple[float, float]], times: Sequence[float]) -> list[int]:
    """Spans that hold each time, their begin included and their end not."""
    begins, ends = sorted(b for b, _ in spans), sorted(e for _, e in spans)
    return [bisect.bisect_right(begins, t) - bisect.bisect_right(ends, t) for t in times]


def bar(row: Row, queue: float | None = None) -> Bar:
    start, first = row["t_start_s"], row.get("t_first_s")
    last = row.get("t_last_s") if row.get("t_last_s") is not None else row.get("t_end_s")
    end = last if last is not None else start
    number = int(row.get("index") or 0) + 1
    first = first if first is not None else end
    return Bar(number, start, first, end, str(row["outcome"]), row, queue)
