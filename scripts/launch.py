"""Step: one launch. See that its runs are in the raw store, measuring only what is missing, and
write its receipt.

The first job on a host hands over every launch that this call wants, in plan order; each later
job finds its own order already queued and only waits, shows progress and fetches. All work is the
host agent's: this process may die at any moment and costs nothing but the view.

Signals: Ctrl-C stops the server and keeps what is finished; SIGTERM lets the running launch end
and drops the rest of the queue; SIGHUP (the terminal is gone) and the death of the workflow, with
which this process dies, leave the queue to go on by itself.
Exit codes: 0 receipt written; 1 nothing final (the host's fault, tried again at the next call);
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from decodelab import (
    backend_ask,
    call,
    decision_words,
    decisions,
    forecast,
    lifetime,
    orders,
)
from decodelab.agent_client import AgentClient
from decodelab.follow import Follower, LaunchFailed
from decodelab.host import Host, HostError, HostLost
from decodelab.host_trouble import HostTrouble
from decodelab.mistakes import ConfigError
from decodelab.naming import launch_label
from decodelab.progress import Progress, screened_out
from decodelab.receipts import is_pending, pending_runs, receipt
from decodelab.store import Store, StoreError, write_json
from decodelab.study import Study, open_study
from decodelab.transports import open_host

STOP_PATIENCE_S = 20.0
AGAIN = (
    "Nothing final was stored; the next call tries this launch again. Until then\n"
    "`snakemake --cores 1 report_partial` writes the report from what there is."
)
GOES_ON = (
    "The host's queue goes on to its end and stops each server by itself; the next call of snakemake\n"
    "fetches what it measured. Nothing is measured twice."
)


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    lifetime.end_with_workflow()
    root = Path.cwd()
    try:
        now = call.current()
        study = open_study([args.config], now.control, root)
        return _launch(study, args.launch, args.receipt, root, now)
    except LaunchFailed as error:
        return _failed(args, f"{error}\n{AGAIN}")
    except (ConfigError, HostError, StoreError) as error:
        return _failed(args, str(error))
    except KeyboardInterrupt:
        return 130


def _failed(args: argparse.Namespace, reason: str) -> int:
    print(f"launch {args.launch}: {reason}", file=sys.stderr)
    if args.log:
        args.log.parent.mkdir(parents=True, exist_ok=True)
        args.log.write_text(f"{reason}\n", encoding="utf-8")
    return 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="the study's config file")
    parser.add_argument("--launch", required=True, help="digest of the launch, as the plan has it")
    parser.add_argument("--receipt", type=Path, required=True, help="the file to write")
    parser.add_argument("--log", type=Path, help="where to leave the reason of a failure")
    return parser.parse_args(argv)


def _launch(study: Study, digest: str, target: Path, root: Path, now: call.Call) -> int:
    launch = study.launches.get(digest)
    if launch is None:
        raise HostError(
            f"the plan of {study.config} has no such launch any more: the config was edited while this call ran.\n"
            "Hint: call snakemake again; what is measured is kept."
        )
    store = Store(root / "results" / "raw")
    retry = study.is_retried(digest, now.retried)
    watched = False
    if is_pending(launch, store, retry=retry):
        _refuse_unless_chosen(study, digest)
        watched = _measure(study, digest, store, root, now)
    made = receipt(launch, store, root)
    if not watched:
        _tell(launch, made)
    if made["status"] == "pending":
        raise HostError(
            f"{len(made['missing'])} of {len(launch['runs'])} runs are not measured yet"
        )
    for file in {target.with_name(f"{digest}.json"), target}:
        try:
            write_json(file, made)
        except OSError as error:
            raise StoreError(
                f"{file}: cannot be written: {error.strerror}.\n"
                "Hint: see to this machine's disk, then call snakemake again; nothing is measured twice."
            ) from error
    return 0


def _tell(launch: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """What nobody saw happen: that it was screened out, or not started since its refusal is known."""
    lines = [screened_out(screen) for screen in made.get("screened_out") or []]
    known = made.get("known_from")
    if known:
        source = known.get("source") or known.get("log")
        lines.append(f"not started: {made['cause'].get('root_cause')} (known from {source})")
    for line in lines:
        print(f"{launch_label(launch)}: {line}", file=sys.stderr, flush=True)


def _refuse_unless_chosen(study: Study, digest: str) -> None:
    """Whatever asks for it: what waits for a verdict is measured by that verdict alone."""
    if study.launch_states()[digest] == decisions.CHOSEN:
        return
    made = study.choices()
    names = study.launches[digest]["experiments"]
    told = "; ".join(f"{name}: {decision_words.line(name, made[name])}" for name in names)
    raise HostError(
        f"this launch is not to be measured: {told}.\n"
        "Hint: `snakemake --cores 1 report` measures what the verdicts choose."
    )


def _measure(study: Study, digest: str, store: Store, root: Path, now: call.Call) -> bool:
    """Hand over, follow and fetch. Returns when the launch has a final outcome, and whether it was
    watched; raises LaunchFailed for no final outcome.
    """
    name = study.host_of(digest)
    trouble = HostTrouble(root / study.results / "logs", now.session)
    trouble.check(name)
    with contextlib.ExitStack() as stack:
        try:
            host = open_host(name, study.plan["hosts"][name], root)
            stack.callback(host.close)
            AgentClient(host).ship()
        except HostError as error:
            trouble.note(name, error)
            raise
        try:
            return _follow(study, digest, store, host, now)
        except HostLost as lost:
            trouble.note(name, lost)
            raise HostError(f"{lost}\n{GOES_ON}") from lost


def _follow(study: Study, digest: str, store: Store, host: Host, now: call.Call) -> bool:
    client, owner = AgentClient(host), orders.owner(study)
    queue = orders.queue_from(study, digest, store, now)
    secrets = orders.secrets(study, queue, os.environ)
    pace = forecast.measured(study.plan, study.host_of(digest), store)
    pending = [pending_runs(study.launches[d], store) for d in queue]
    estimates = [
        pace.launch_s(study.plan, study.launches[d], runs)
        for d, runs in zip(queue, pending, strict=True)
    ]
    place, of = orders.position(study, digest)
    progress = Progress(
        label=launch_label(study.launches[digest]),
        position=place,
        of=of,
        estimate_s=estimates[0],
        rest_s=sum(estimates[1:]),
        earlier=forecast.start_history(study.plan, study.launches[digest], store),
    )
    follower = Follower(client, study.launches[digest], store, progress, now.session, owner)
    if follower.settle_earlier(retry=study.is_retried(digest, now.retried)):
        return False
    for line in backend_ask.before_start(study, queue, host, study.root):
        progress.say(line)
    if not is_pending(study.launches[digest], store, retry=study.is_retried(digest, now.retried)):
        return False  # its engine has just told that it refuses this
    queue = orders.queue_from(study, digest, store, now)
    made = [orders.order(study, d, host, store, now) for d in queue]
    try:
        with _drain_on_sigterm(follower):
            if secrets:
                client.entrust(owner, secrets)
            follower.hand_over(made, orders.host_lock(study, digest))
            follower.wait(orders.patience_s(made))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        progress.say("stopping the server")
        _stop(follower, float(made[0]["limits"]["stop_grace_s"]) + 30)
        raise
    return True


def _stop(follower: Follower, wait_s: float) -> None:
    """Stop this owner's work on the host and take in what is finished; a host out of reach goes on by itself."""
    follower.client.host.patience_s = STOP_PATIENCE_S
    try:
        follower.client.stop(follower.owner, wait_s=wait_s)
        follower.fetch()
    except HostLost as lost:
        follower.progress.say(
            f"the host could not be told to stop: {lost}\n{GOES_ON}\n"
            "`snakemake --cores 1 stop` stops it as soon as the host can be reached."
        )


class _drain_on_sigterm:
    """While it holds, SIGTERM asks the agent to finish this launch and drop the rest; this process goes on waiting."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower

    def __enter__(self) -> None:
        signal.signal(signal.SIGTERM, self._drain)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _drain(self, _signal: int, _frame: FrameType | None) -> None:
        self.follower.drain = True  # told by its loop: a connection is nothing for a signal handler


if __name__ == "__main__":
    raise SystemExit(main())
