"""Step: ask the agents of a study's hosts to stop: at once, or (--drain) after the launch that runs.

In:  the study's config. Out: for each host one line that says what happened. Exit code 1 if one
could not be stopped or reached. With --best-effort, as at the end of a workflow with an error, only
trouble is told and the exit code is 0, so that an unreachable host does not hide the first error.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoke import Trial

from decodelab import call, orders
from decodelab.agent_client import AgentClient
from decodelab.host import Host, HostError, HostLost
from decodelab.host_trouble import HostTrouble
from decodelab.mistakes import ConfigError
from decodelab.study import Study, open_study
from decodelab.transports import open_host

AT_ONCE = 8


class OtherVersion(AgentClient):
    """The agent of another version of this program that was brought to the host: `status` and `stop`
    mean the same in each, and all versions in a working folder share one queue.
    """

    def __init__(self, host: Host, version: str) -> None:
        super().__init__(host)
        self._folder = f"{host.workdir}/cargo/{version}/cargo"


@dataclass(frozen=True)
class Told:
    """What became of one host."""

    host: str
    words: str
    failed: bool = False


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="the study's config file")
    parser.add_argument("--drain", action="store_true", help="let the launch that runs end")
    parser.add_argument("--best-effort", action="store_true", help="tell trouble only; exit code 0")
    parser.add_argument(
        "--wait", type=float, default=0, help="seconds to wait for the server's end"
    )
    args = parser.parse_args(argv)
    root = Path.cwd()
    now = call.current()
    try:
        study = open_study([args.config], now.control, root)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 0 if args.best_effort else 1
    trouble = HostTrouble(root / study.results / "logs", now.session)
    # One out of reach in this call: its queue is to go on by itself.
    names = [name for name in study.hosts if trouble.noted(name) is None]
    failed = False
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for told in pool.map(lambda name: _on_host(study, name, root, args), names):
            if told.failed:
                print(f"{told.host}: {told.words}", file=sys.stderr)
            elif not args.best_effort:
                print(f"{told.host}: {told.words}")
            failed = failed or told.failed
    return 1 if failed and not args.best_effort else 0


def agent_there(host: Host) -> AgentClient | None:
    """The agent's files on the host: of this version or, failing that, the newest of another one.
    None if no version was ever brought there.
    """
    own = AgentClient(host)
    if own.present():
        return own
    listed = host.run(["ls", "-t", f"{host.workdir}/cargo"], timeout_s=20)
    for version in listed.out.decode("utf-8", "replace").split():
        other = OtherVersion(host, version)
        if other.present():
            return other
    return None


def _on_host(study: Study, name: str, root: Path, args: argparse.Namespace) -> Told:
    try:
        with contextlib.closing(open_host(name, study.plan["hosts"][name], root)) as host:
            client = agent_there(host)
            if client is None:
                return Told(name, "nothing was queued; the host was never used")
            return _stop(study, name, client, args)
    except HostLost as lost:
        return Told(name, f"cannot be reached, not stopped: {lost}", failed=True)
    except HostError as error:
        return Told(name, f"could not be stopped: {error}", failed=True)


def _stop(study: Study, name: str, client: AgentClient, args: argparse.Namespace) -> Told:
    trial = Trial.on(study, name)
    owners = [orders.owner(study)]
    if not args.drain:  # a call that ended leaves a smoke test in another terminal alone
        owners.append(trial.owner)
    some = next(iter(study.launches))
    before = client.status(some)
    wait_s = args.wait and max(args.wait, float(study.plan["limits"]["stop_grace_s"]) + 30)
    answers = [client.stop(owner, drain=args.drain, wait_s=wait_s) for owner in owners]
    after = client.status(some)
    failed = next((answer for answer in answers if not answer.get("stopped")), None)
    if failed is not None and wait_s:
        return Told(name, _not_stopped(failed, wait_s), failed=True)
    mine = {*study.launches, trial.launch["digest"]}
    gone = (_asked(before) & mine) - _asked(after)
    words = _what_happened(after, len(gone), owners, "after the launch that runs" * args.drain)
    if isinstance(client, OtherVersion):
        words += "; another version of decodelab is on this host, its agent was asked"
    return Told(name, words)


def _asked(state: Mapping[str, Any]) -> set[str]:
    """The launches that the host has still to carry out, the one that runs among them."""
    return {str(launch) for launch in [state.get("current"), *state.get("queue", [])] if launch}


def _what_happened(after: Mapping[str, Any], gone: int, owners: list[str], when: str) -> str:
    owner, current = after["agent"].get("owner"), after.get("current")
    if current and owner in owners:  # nobody waited for its end
        return f"stops {when or 'now'}"
    words = f"stopped, {gone} launches taken out of its queue" if gone else "nothing was queued"
    if not (after["agent"]["alive"] and _asked(after)):
        return words
    return f"{words}; busy for others: owner {owner if current else 'not known yet'}"


def _not_stopped(answer: Mapping[str, Any], wait_s: float) -> str:
    if answer.get("left"):
        pids = ", ".join(str(pid) for pid in answer["left"])
        return (
            f"not stopped: processes {pids} do not end.\n"
            "Hint: one that is stuck in a driver needs the administrator."
        )
    return (
        f"not stopped within {wait_s:.0f} s: launch {answer.get('current')} is still being taken "
        "down.\nHint: call stop again; `snakemake --cores 1 status` says what goes on."
    )


if __name__ == "__main__":
    raise SystemExit(main())
