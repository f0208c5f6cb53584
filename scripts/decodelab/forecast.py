"""How long a study takes: by the config's first guess, by what is measured already, by a smoke test.

In:  a plan, the raw store, one request's figures. Out: seconds. Nothing else depends on them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from decodelab.store import Attempt, Store

Plan = Mapping[str, Any]
Launch = Mapping[str, Any]


@dataclass(frozen=True)
class Pace:
    """What a host needs: for a start with its stop, and for output tokens, all requests together."""

    start_s: float
    output_tps: float
    starts: int = 0  # how many real starts it was learned from; 0: a first guess
    runs: int = 0

    def launch_s(self, plan: Plan, launch: Launch, runs: Iterable[str] | None = None) -> float:
        """One launch, with all its runs or those named."""
        wanted = launch["runs"] if runs is None else runs
        return self.start_s + sum(self._run_s(plan["points"][run]) for run in wanted)

    def _run_s(self, point: Mapping[str, Any]) -> float:
        return max(point_tokens(point) / self.output_tps, sending_s(point)) * times(point)


def guess(plan: Plan, host: str) -> Pace:
    """What the config expects of the host."""
    expect = plan["hosts"][host]["expect"]
    return Pace(float(expect["start_s"]), float(expect["output_tps"]))


def point_tokens(point: Mapping[str, Any]) -> int:
    return int((point["requests"] + point["warmup"]) * point["max_tokens"])


def sending_s(point: Mapping[str, Any]) -> float:
    """How long an open loop takes to send its requests; a closed loop never waits to."""
    return float(point["requests"] / point["rate"]) if point.get("rate") else 0.0


def times(point: Mapping[str, Any]) -> int:
    """How often a run is made: twice where httpx repeats it."""
    return 2 if point.get("cross_check") else 1


def measured(plan: Plan, host: str, store: Store) -> Pace:
    """The first guess, corrected by the launches of this plan that the store holds for the host."""
    pace = guess(plan, host)
    overheads: list[float] = []
    done_tokens, busy_s, runs = 0, 0.0, 0
    pairs = {(x["server"], x["start"]) for x in plan["launches"] if x["host"] == host}
    for server, start in sorted(pairs):
        made = _made(store, server, start)
        for real in store.starts(server, start):
            facts = real.facts
            if facts.get("ready_s") is None:
                continue
            overheads.append(float(facts["ready_s"]) + float(facts.get("stop_s") or 0))
            mine = [run for run, attempt in made if attempt.start_id == real.start_id]
            good = all(a.status == "done" for _, a in made if a.start_id == real.start_id)
            span_s = _span_s(facts)
            points = [plan["points"].get(run) for run in mine]
            # A start that another study used as well says nothing about these runs' time, and an
            # open loop's time is its schedule's.
            if mine and good and span_s and all(p and not p.get("rate") for p in points):
                done_tokens += sum(point_tokens(p) * times(p) for p in points if p)
                busy_s += span_s
                runs += len(mine)
    if overheads:
        pace = replace(pace, start_s=statistics.median(overheads), starts=len(overheads))
    if busy_s > 0 and done_tokens:
        pace = replace(pace, output_tps=done_tokens / busy_s, runs=runs)
    return pace


@dataclass(frozen=True)
class StartHistory:
    """Earlier starts that came up: seconds from the begin of each stage until ready (medians)."""

    starts: int
    same: str  # variant, or model: another variant's starts of the same model on the same host
    left_s: Mapping[str, float]

    def ready_in_s(self, stage: str) -> float | None:
        return self.left_s.get(stage)


def start_history(plan: Plan, launch: Launch, store: Store) -> StartHistory | None:
    """What is known of how long this launch's server takes to come up; None for nothing."""
    model = plan["servers"][launch["server"]].get("model")
    alike = {
        x["server"]
        for x in plan["launches"]
        if x["host"] == launch["host"] and plan["servers"][x["server"]].get("model") == model
    }
    for same, servers in (("variant", {launch["server"]}), ("model", alike if model else set())):
        pairs = {(x["server"], x["start"]) for x in plan["launches"] if x["server"] in servers}
        facts = [real.facts for pair in sorted(pairs) for real in store.starts(*pair)]
        came_up = [f for f in facts if f.get("ready_s") is not None and f.get("stages")]
        if came_up:
            return StartHistory(len(came_up), same, _left_s(came_up))
    return None


def _left_s(came_up: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for facts in came_up:
        for stage in facts["stages"]:
            found.setdefault(stage["stage"], []).append(facts["ready_s"] - stage["t_s"])
    return {stage: statistics.median(seconds) for stage, seconds in found.items()}


def _made(store: Store, server: str, start: int) -> list[tuple[str, Attempt]]:
    """Every attempt that lies under a start number, whichever study wanted it."""
    root = store.start_root(server, start)
    names = [folder.name for folder in root.iterdir()] if root.is_dir() else []
    runs = sorted(name for name in names if not name.startswith(("start-", ".")))
    return [(run, found) for run in runs for found in store.attempts(server, start, run)]


def _span_s(facts: Mapping[str, Any]) -> float | None:
    """From ready to the stop: the time that the runs took with all that goes with them."""
    end = facts.get("t_stop") or facts.get("t_end")
    ready = facts.get("t_ready")
    return None if end is None or ready is None or end <= ready else float(end - ready)


@dataclass(frozen=True)
class OneRequest:
    """What a smoke test saw: a start and its stop, and one request all alone."""

    start_s: float
    ttft_s: float
    tps: float

    def launch_s(
        self, plan: Plan, launch: Launch, runs: Iterable[str] | None = None
    ) -> tuple[float, float]:
        """(if requests under way at once do not slow each other, if each waits for the others)."""
        wanted = list(launch["runs"] if runs is None else runs)
        at_once = _sequences(plan, launch)
        pairs = [self._run_s(plan["points"][run], at_once) for run in wanted]
        low, high = (sum(pair[i] for pair in pairs) for i in (0, 1))
        return self.start_s + low, self.start_s + high

    def _run_s(self, point: Mapping[str, Any], at_once: int) -> tuple[float, float]:
        one_s = self.ttft_s + point["max_tokens"] / self.tps
        requests, warmup = point["requests"], point["warmup"]
        width = max(1, min(point["concurrency"], at_once))
        low, high = math.ceil(requests / width) * one_s, requests * one_s
        if point.get("rate"):  # the last request is sent then, and has to be answered
            low, high = (max(s, sending_s(point) + one_s) for s in (low, high))
        return (warmup * one_s + low) * times(point), (warmup * one_s + high) * times(point)


def _sequences(plan: Plan, launch: Launch) -> int:
    """--max-num-seqs of the launch's server; without it the engine's own limit is far away."""
    told = plan["variants"][launch["variant"]]["canonical"].get("--max-num-seqs")
    return int(told) if str(told or "").isdigit() else 10**6


def words(seconds: float) -> str:
    """40 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
