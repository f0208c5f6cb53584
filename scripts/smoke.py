"""Step: one short start on each host of a study: server up, one request of 16 tokens, five seconds
of telemetry, server down; and what the study will take by that.

In:  the study's config. Out: what was seen, on the terminal and in results/<study>/smoke/<host>.json;
never in results/raw or a report. The host agent does it, after what it is asked to do already;
Ctrl-C takes only this test back. Exit code 1 if a host failed, with the cause.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodelab import call, digest, forecast, orders, smoke_facts, workloads
from decodelab.agent_client import AgentClient
from decodelab.follow import Follower, LaunchFailed
from decodelab.host import Host, HostError
from decodelab.mistakes import ConfigError
from decodelab.progress import Progress
from decodelab.receipts import is_pending, pending_runs
from decodelab.store import Store, StoreError, write_json
from decodelab.study import Study, open_study
from decodelab.transports import open_host

SCHEMA = "decodelab.smoke/1"
MAX_TOKENS = 16
SAMPLE_S = 5.0
STOP_PATIENCE_S = 20.0


class SmokeFailed(Exception):
    """The test came to nothing; the text says why."""


@dataclass(frozen=True)
class Trial:
    """The launch that is tried: the first one planned on a host, under digests of its own."""

    study: Study
    planned: str
    owner: str

    @classmethod
    def on(cls, study: Study, host: str) -> Trial:
        return cls(study, _first(study, host), f"{orders.owner(study)}:smoke")

    @property
    def host(self) -> str:
        return self.study.host_of(self.planned)

    @property
    def variant(self) -> str:
        return str(self.study.launches[self.planned]["variant"])

    @property
    def launch(self) -> dict[str, Any]:
        """Own digests: the agent keeps what it learns of a server, and the study must not inherit it."""
        planned = self.study.launches[self.planned]
        own = {"owner": self.owner, "host": self.host, "server": planned["server"]}
        return {
            **planned,
            "digest": digest.of("smoke launch", own),
            "server": digest.of("smoke server", own),
            "start": 1,
            "runs": [digest.of("smoke run", own)],
        }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="the study's config file")
    args = parser.parse_args(argv)
    root = Path.cwd()
    try:
        study = open_study([args.config], call.current().control, root)
        if study.replay:
            raise SmokeFailed(f"study {study.name} reads raw logs; it starts no server to try")
        failed = [name for name in study.hosts if not _on_host(study, name, root)]
    except (ConfigError, SmokeFailed) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if failed:
        print(f"smoke test failed on {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _on_host(study: Study, name: str, root: Path) -> bool:
    trial = Trial.on(study, name)
    print(f"{name}: {trial.variant}, one start, one request of {MAX_TOKENS} tokens", flush=True)
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "host": name,
        "variant": trial.variant,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    try:
        facts |= _try(trial, root)
        for line in smoke_facts.lines(facts["start"], facts["request"], facts["telemetry"]):
            print(f"  {line}")
        if facts["request"]["outcome"] != "ok":
            raise SmokeFailed(f"the request failed: {facts['request']['error']}")
        facts["forecast"] = _forecast(study, name, facts, root)
        facts["error"] = None
    except (HostError, LaunchFailed, SmokeFailed, StoreError) as error:
        print(f"{name}: smoke test failed: {error}", file=sys.stderr)
        facts["error"] = str(error)
    write_json(root / study.results / "smoke" / f"{name}.json", facts)
    return facts["error"] is None


def _first(study: Study, host: str) -> str:
    """The first launch planned there, best one that depends on no verdict."""
    mine = [d for d, launch in study.launches.items() if launch["host"] == host]
    return next((d for d in mine if study.launches[d]["when"] is None), mine[0])


def _try(trial: Trial, root: Path) -> dict[str, Any]:
    """Have the agent do it, and read what came home. Raises if there is nothing to read."""
    plan, name = trial.study.plan, trial.host
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="decodelab-smoke-"))
        own = Store(Path(scratch))
        host = stack.enter_context(contextlib.closing(open_host(name, plan["hosts"][name], root)))
        _carry_out(trial, host, own, root)
        launch = trial.launch
        starts = own.starts(launch["server"], launch["start"])
        attempts = own.attempts(launch["server"], launch["start"], launch["runs"][0])
        if not starts:
            raise SmokeFailed("the server was never started; see agent.log on the host")
        start = smoke_facts.start_facts(starts[-1])
        if start["cause"]:
            raise SmokeFailed(_why(start["cause"]))
        if not attempts:
            raise SmokeFailed("the server came up, but the request was never made")
        return {
            "start": start,
            "request": smoke_facts.request_facts(attempts[-1]),
            "telemetry": smoke_facts.telemetry_facts(attempts[-1].path / "capture.jsonl"),
        }


def _carry_out(trial: Trial, host: Host, own: Store, root: Path) -> None:
    study, client = trial.study, AgentClient(host)
    client.ship()
    store = Store(root / "results" / "raw")
    progress = Progress(f"{trial.host} {trial.variant}", 1, 1, 60, 0)
    follower = Follower(client, trial.launch, own, progress, "", trial.owner)
    digest_of_trial = trial.launch["digest"]
    state = client.status(digest_of_trial)
    if state["launch"]["state"] == "finished":  # of an earlier test, whose end nobody saw
        client.forget(digest_of_trial, purge=True)
    elif state["agent"]["alive"] and state.get("current") != digest_of_trial:
        ahead = len(state["queue"]) + bool(state.get("current"))
        progress.say(f"the host is at work; the test waits for {ahead} launches in its queue")
    order = _order(trial, host, store)
    secrets = orders.secrets(study, [trial.planned], os.environ)
    try:
        if secrets:
            client.entrust(trial.owner, secrets)
        follower.hand_over([order], orders.host_lock(study, trial.planned))
        follower.wait(orders.patience_s([order]))
        client.forget(digest_of_trial, purge=True)  # nobody else waits for it
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            progress.say("stopping the server")
        _take_back(client, trial, float(order["limits"]["stop_grace_s"]) + 30, progress)
        raise


def _take_back(client: AgentClient, trial: Trial, wait_s: float, progress: Progress) -> None:
    """Whatever went wrong: nothing of the test stays on the host, no secret either."""
    client.host.patience_s = STOP_PATIENCE_S
    try:
        client.stop(trial.owner, wait_s=wait_s)
        client.forget(trial.launch["digest"], purge=True)
    except HostError as error:
        progress.say(
            f"what was begun could not be taken back: {error}\n"
            "`snakemake --cores 1 stop` does it as soon as the host can be reached."
        )


def _order(trial: Trial, host: Host, store: Store) -> dict[str, Any]:
    """The planned launch's order, with one short run in place of its own."""
    launch = trial.launch
    made = orders.order(trial.study, trial.planned, host, store, call.current())
    limits = dict(made["limits"])
    run = _run(launch["runs"][0], limits, made["telemetry"]["tool"] != "none")
    limits["life_s"] = limits["start_s"] + limits["stop_grace_s"] + run["limit_s"] + 300
    server = {**made["server"], "digest": launch["server"], "start": launch["start"]}
    return {
        **made,
        "launch": launch["digest"],
        "owner": trial.owner,
        "session": "",
        "label": f"smoke test of {trial.variant}",
        "position": [1, 1],
        "server": server,
        "limits": limits,
        "runs": [run],
    }


def _run(run: str, limits: Mapping[str, Any], sampled: bool) -> dict[str, Any]:
    prompt = workloads.scenario({"prompt": "short", "chat_template_kwargs": {}}, _checkout())
    limit_s = MAX_TOKENS / limits["floor_tps"] + 120
    return {
        "digest": run,
        "name": "smoke",
        "scenario": {"name": "short", **prompt},
        "concurrency": 1,
        "requests": 1,
        "max_tokens": MAX_TOKENS,
        "warmup": 0,
        "seed": f"smoke-{time.time_ns()}",
        "telemetry": sampled,
        "sample_s": SAMPLE_S,
        "client": {
            "extra_body": {},
            "timeout_s": {"connect": 10, "total": limit_s},
            "ignore_eos": True,
            "http": "epoll",
        },
        "limit_s": limit_s + SAMPLE_S,
    }


def _checkout() -> Path:
    return Path(__file__).resolve().parents[1]


def _forecast(study: Study, host: str, facts: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Print and return what the study's launches on this host should take."""
    pace = smoke_facts.pace(facts["start"], facts["request"])
    if pace is None:
        raise SmokeFailed("the request gave no rate that a forecast could be made of")
    store = Store(root / "results" / "raw")
    here = [launch for launch in study.launches.values() if launch["host"] == host]
    mine = [launch for launch in here if not launch["when"]]
    open_ones = [launch for launch in mine if is_pending(launch, store)]
    whole = [pace.launch_s(study.plan, launch) for launch in mine]
    rest = [pace.launch_s(study.plan, x, pending_runs(x, store)) for x in open_ones]
    whole_s, to_go_s = _sums(whole), _sums(rest)
    print(f"  forecast   {len(mine)} starts of {pace.start_s:.1f} s: {_between(*whole_s)}")
    print(f"             still to be measured, {len(open_ones)} starts: {_between(*to_go_s)}")
    if len(mine) < len(here):
        print(f"             {len(here) - len(mine)} more starts wait for a verdict")
    return {
        "starts": len(mine),
        "starts_to_go": len(open_ones),
        "whole_s": whole_s,
        "to_go_s": to_go_s,
    }


def _sums(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(low for low, _ in pairs), sum(high for _, high in pairs)


def _between(low_s: float, high_s: float) -> str:
    low, high = forecast.words(low_s), forecast.words(high_s)
    if low == high:
        return low
    return f"{low} if concurrent requests do not slow each other, {high} if they do fully"


def _why(cause: Mapping[str, Any]) -> str:
    hint = (cause.get("hint") or {}).get("en")
    lines = [f"the server did not start: {cause.get('class')}"]
    lines += [f"root cause: {cause['root_cause']}"] if cause.get("root_cause") else []
    return "\n".join(lines + ([f"Hint: {hint}"] if hint else []))


if __name__ == "__main__":
    raise SystemExit(main())
