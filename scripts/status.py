"""Step: say what a study's hosts do now and how far the study is, from any terminal, also while it
is measured. Starts nothing, changes nothing, ships nothing.

In:  the study's config; the raw store; what the agents on the hosts answer. Out: a table and the
reasons of what failed. A host that cannot be reached is said to be so, with what is known here.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stop_queue import OtherVersion, agent_there

from decodelab import call, damaged, forecast, hosttable, orders
from decodelab.agent_client import AgentClient
from decodelab.host import Host, HostError
from decodelab.mistakes import ConfigError, cut
from decodelab.naming import launch_label
from decodelab.standing import Standing, standings
from decodelab.store import Store, StoreError
from decodelab.study import Study, open_study
from decodelab.transports import open_host

AT_ONCE = 8
HEADINGS = (
    "host",
    "now",
    "done",
    "failed",
    "stopped",
    "not possible",
    "remaining",
    "expected end",
)


@dataclass
class Seen:
    """What a host's agent told."""

    now: str
    known: bool = True  # whether anybody answered
    works: bool = False  # on something of this study
    spent_s: float = 0.0  # on the launch that runs
    queued: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)  # not fetched yet
    nothing: dict[str, str] = field(default_factory=dict)  # of these, came to nothing: the reason


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="the study's config file")
    args = parser.parse_args(argv)
    root = Path.cwd()
    try:
        study = open_study([args.config], call.current().control, root)
        store = Store(root / "results" / "raw")
        known = standings(study, store)
    except (ConfigError, StoreError) as error:
        print(error, file=sys.stderr)
        return 1
    if study.replay:
        print(f"study {study.name} reads raw logs that exist already; no host works for it.")
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen = list(pool.map(lambda standing: _ask(study, standing, root), known))
    for standing, at in zip(known, seen, strict=True):
        standing.tried_again(at.queued)
        for digest, reason in at.nothing.items():
            standing.came_to_nothing(digest, reason)
    _show(study, known, seen, store)
    return 0


# ---------------------------------------------------------------- the hosts


def _ask(study: Study, standing: Standing, root: Path) -> Seen:
    """Every answer is bounded, and nothing is tried again: the user can ask again."""
    name = standing.host
    try:
        with contextlib.closing(open_host(name, study.plan["hosts"][name], root)) as host:
            host.run(["true"], timeout_s=20)
            host.patience_s = 0.0
            return _look(study, standing, host)
    except HostError as error:
        return Seen(f"not reachable: {_first_line(error)}", known=False)


def _look(study: Study, standing: Standing, host: Host) -> Seen:
    client = agent_there(host)
    if client is None:
        return Seen("never used")
    if not isinstance(client, OtherVersion):
        return _told(study, standing, client)
    try:
        seen = _told(study, standing, client)
    except (HostError, KeyError, TypeError):  # its words may be others
        return Seen("another version was used here", known=False)
    seen.now += " (another version)"
    return seen


def _told(study: Study, standing: Standing, client: AgentClient) -> Seen:
    some = next(iter(study.launches))
    state = client.status(some)
    seen = Seen(_idle(state))
    current = state.get("current")
    seen.queued = {str(digest) for digest in [current, *state["queue"]] if digest}
    if state["agent"]["alive"] and current:
        _working(seen, study, client, state, str(current))
    elif state["agent"]["alive"]:
        seen.now = _waiting(state)
        seen.works = state["agent"].get("owner") == orders.owner(study)
    for digest in state.get("kept") or []:
        if digest in standing.to_do:
            _ended(seen, study, client, digest)
    return seen


def _idle(state: Mapping[str, Any]) -> str:
    if state["agent"]["alive"]:
        return "idle"
    if state.get("queue"):
        trouble = state["agent"].get("trouble")
        why = f" ({trouble})" if trouble else ""
        return f"dead{why}, {len(state['queue'])} launches in its queue; the next call goes on"
    halted = state.get("halted")
    return f"halted: {halted['reason']}" if halted else "nothing"


def _waiting(state: Mapping[str, Any]) -> str:
    """An agent between launches, or one that waits until somebody else leaves the host."""
    doing = state.get("doing") or {}
    if doing.get("event") == "lock_wait":
        return _doing([doing])[0]
    what = str(state["agent"].get("state") or "at work").replace("_", " ")
    return f"{what}, for {state['agent'].get('owner')}"


def _working(
    seen: Seen, study: Study, client: AgentClient, state: Mapping[str, Any], current: str
) -> None:
    events, _ = client.events(current, 0)
    # The host's clock may be another one: only differences of its own stamps are used.
    begin = next((e["t"] for e in reversed(events) if e["event"] == "launch_begin"), state["now"])
    launch = study.launches.get(current)
    what = launch_label(launch) if launch else f"launch {current} of {state['agent'].get('owner')}"
    seen.works = launch is not None
    seen.spent_s = max(0.0, float(state["now"]) - float(begin))
    doing, t = _doing(events)
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - (float(state["now"]) - t)))
    seen.now = f"{what}: {doing} since {since}" if doing else what


def _doing(events: list[dict[str, Any]]) -> tuple[str, float]:
    """What the events say goes on, and since when on the host's clock."""
    words = {
        "lock_wait": "waits for the host",
        "calibrating": "measures the load client's own floor",
        "start_begin": "server starts",
        "ready": "server is ready",
        "stop_begin": "server stops",
    }
    for event in reversed(events):
        kind = event["event"]
        if kind == "run_begin":
            return f"run {event['i']} of {event['n']}", float(event["t"])
        if kind in words:
            who = (event.get("owner") or {}).get("owner") if kind == "lock_wait" else None
            return words[kind] + (f", in use by {who}" if who else ""), float(event["t"])
    return "", float(events[-1]["t"]) if events else 0.0


def _ended(seen: Seen, study: Study, client: AgentClient, digest: str) -> None:
    """A launch that ended on the host and that nobody has fetched yet."""
    outcome = client.status(digest)["launch"].get("outcome") or {}
    seen.ended.add(digest)
    status = outcome.get("status")
    if status not in ("done", "not_possible"):
        cause = outcome.get("cause") or {}
        reason = cause.get("root_cause") or outcome.get("reason") or "no reason given"
        seen.nothing[digest] = f"stopped: {reason}" if status == "stopped" else str(reason)


# ---------------------------------------------------------------- the table


def _show(study: Study, known: list[Standing], seen: list[Seen], store: Store) -> None:
    paces = [forecast.measured(study.plan, standing.host, store) for standing in known]
    left = [
        max(0.0, standing.rest_s(study, store, pace) - at.spent_s)
        for standing, at, pace in zip(known, seen, paces, strict=True)
    ]
    rows = [
        [standing.host, at.now, *map(str, _counts(standing)), _end(standing, at, left_s)]
        for standing, at, left_s in zip(known, seen, left, strict=True)
    ]
    sums = [str(sum(numbers)) for numbers in zip(*map(_counts, known), strict=True)]
    total = f"{sum(s.total for s in known)} launches"
    kept_back = sum(len(s.kept_back) for s in known)
    total += f" (+ {kept_back} kept back)" if kept_back else ""
    rows.append(["total", total, *sums, _rest(known, max(left), study.to_be_decided())])
    hosttable.show(f"study {study.name}", HEADINGS, rows, sys.stdout, total=1)
    wrong = damaged.lines(damaged.found(study), removed=False)
    for line in [*wrong, *study.branches_told()]:
        print(line)
    for standing, at, pace in zip(known, seen, paces, strict=True):
        _reasons(study, standing, at)
        if standing.to_do:
            _basis(standing.host, pace)


def _rest(known: list[Standing], left_s: float, to_be_decided: Sequence[str] = ()) -> str:
    if not any(standing.to_do for standing in known):
        if to_be_decided:
            return f"nothing left to measure before {', '.join(to_be_decided)} is decided"
        return "nothing left to do"
    again = sum(len(standing.failed) + len(standing.stopped) for standing in known)
    tried = f", {again} to be tried again" if again else ""
    return f"about {forecast.words(left_s)} of work{tried}"


def _counts(standing: Standing) -> tuple[int, ...]:
    return (
        len(standing.done),
        len(standing.failed),
        len(standing.stopped),
        len(standing.not_possible),
        len(standing.remaining),
    )


def _end(standing: Standing, seen: Seen, left_s: float) -> str:
    if not standing.to_do:
        return "-"
    if not seen.known:
        return "unknown"
    if not seen.works:
        return f"not at work; {forecast.words(left_s)} left"
    form = "%H:%M" if left_s < 12 * 3600 else "%a %H:%M"
    clock = time.strftime(form, time.localtime(time.time() + left_s))
    return f"about {clock}, in {forecast.words(left_s)}"


def _reasons(study: Study, standing: Standing, seen: Seen) -> None:
    for digest, reason in standing.failed.items():
        what = launch_label(study.launches[digest])
        print(f"failed, tried again by the next call: {what}: {_one_line(reason)}")
    for digest in standing.stopped:
        print(f"stopped, goes on with the next call: {launch_label(study.launches[digest])}")
    for digest, figures in standing.screened_out.items():
        print(f"screened out: {launch_label(study.launches[digest])}: {figures}")
    for digest, reason in standing.not_possible.items():
        print(f"not possible: {launch_label(study.launches[digest])}: {_one_line(reason)}")
    if seen.ended:
        print(
            f"{standing.host}: {len(seen.ended)} ended launches wait to be fetched by the next call"
        )


def _basis(host: str, pace: forecast.Pace) -> None:
    learned = f"{pace.starts} starts and {pace.runs} runs measured here"
    source = learned if pace.starts else "the config (hosts.<name>.expect)"
    print(
        f"{host}: expected with {pace.start_s:.1f} s a start and {pace.output_tps:.1f} tok/s, "
        f"from {source}"
    )


def _one_line(text: str) -> str:
    return cut(" ".join(text.split()), 300)


def _first_line(error: HostError) -> str:
    return str(error).splitlines()[0]


if __name__ == "__main__":
    raise SystemExit(main())
