"""From the plan to orders: what the workflow hands to a host agent (schema decodelab.order/1, see
scripts/cargo/agent.py).

In:  a Study, a launch digest, the Host and the Store. Out: order dicts with every symbol resolved
for that host, and the queue of launches that this call wants on it.
"""

from __future__ import annotations

import hashlib
import math
import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import decisions, races, start_orders
from decodelab.call import Call
from decodelab.host import Host, HostError, resolve
from decodelab.naming import launch_label
from decodelab.receipts import is_pending, pending_runs
from decodelab.store import Store
from decodelab.study import Study
from decodelab.workloads import OPTIONS

Launch = Mapping[str, Any]
SCHEMA = "decodelab.order/1"
FLUSH_S = 10.0  # the longest that the agent waits, a run, for what the step profiler still holds
HOST_LOCK = "/tmp/decodelab.lock"


def owner(study: Study) -> str:
    """Who the orders belong to: this checkout and study. Another owner's orders are never touched."""
    checkout = hashlib.sha256(str(study.root.resolve()).encode()).hexdigest()[:8]
    return f"{_user()}:{study.name}:{checkout}"


def _user() -> str:
    """By uid: cron, sudo and containers set USER in their own ways."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def position(study: Study, digest: str) -> tuple[int, int]:
    """(place, of how many) among the launches that are to be measured as far as is decided now."""
    states = study.launch_states()
    chosen = [d for d in study.launches if states[d] == decisions.CHOSEN or d == digest]
    return chosen.index(digest) + 1, len(chosen)


def queue_from(study: Study, digest: str, store: Store, call: Call) -> list[str]:
    """This launch, then all later ones of the call on the same host that have something to measure.

    What waits for a verdict that is not there, or that is another, is never queued. Earlier ones are
    left out: they were handed over by their own job, and one that failed is not tried twice in a call.
    """
    host = study.host_of(digest)
    digests = list(study.launches)
    states = study.launch_states()
    queue = [digest]
    for other in digests[digests.index(digest) + 1 :]:
        launch = study.launches[other]
        retry = study.is_retried(other, call.retried)
        if other not in call.queue or launch["host"] != host:
            continue
        if states[other] != decisions.CHOSEN:
            continue
        if is_pending(launch, store, retry=retry):
            queue.append(other)
    return queue


def order(study: Study, digest: str, host: Host, store: Store, call: Call) -> dict[str, Any]:
    """One order. Raises KeyError only if the plan is not whole, which planning has checked."""
    launch = study.launches[digest]
    plan = study.plan
    runs = [r for r in plan["runs"] if r["launch"] == digest]
    retry = study.is_retried(digest, call.retried)
    pending = pending_runs(launch, store, retry=retry)
    chosen = {r["run"]: r for r in runs if r["run"] in pending}
    made = [_run(plan, chosen[run]) for run in launch["runs"] if run in chosen]
    check = start_orders.device_check(plan, launch)
    limits = start_orders.limits(plan, launch)
    limits["life_s"] = (
        limits["start_s"] + limits["stop_grace_s"] + sum(_time_s(r) for r in made) + 300
    ) + (start_orders.CHECK_PHASES * check["deadline_s"] if check else 0)
    limits["life_s"] += len(made) * FLUSH_S if plan["servers"][launch["server"]]["profile"] else 0
    return {
        "schema": SCHEMA,
        "launch": digest,
        "study": study.name,
        "owner": owner(study),
        "session": call.session,
        "label": launch_label(launch),
        "position": list(position(study, digest)),
        "server": _server(study, launch, host, store),
        "limits": limits,
        "device_check": check,
        "telemetry": telemetry(plan["hosts"][launch["host"]], host),
        "setup": setup(plan["hosts"][launch["host"]], host),
        "secrets": list(plan["servers"][launch["server"]].get("secrets") or []),
        "api_key": plan["servers"][launch["server"]].get("api_key"),
        "runs": made,
        "screens": races.for_order(launch, store),
    }


def host_lock(study: Study, digest: str) -> str | None:
    """The lock file that everybody who uses the machine's accelerators shares. Simulated servers use none,
    so that checkouts need not wait for each other (None: a lock of the working folder's own).
    """
    block = study.plan["hosts"][study.host_of(digest)]
    return None if block.get("simulated") else str(block.get("lock") or HOST_LOCK)


def secrets(study: Study, digests: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What these launches need from the caller's environment, by name. Raises HostError for a missing value."""
    servers = [study.plan["servers"][study.launches[digest]["server"]] for digest in digests]
    names = dict.fromkeys(name for server in servers for name in _secret_names(server))
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise HostError(
            f"the server needs {', '.join(missing)} from your environment (server.secrets, server.api_key), "
            "which is not set there.\n"
            f"Hint: export {missing[0]}=… before you call snakemake; the value is kept in no file of the study."
        )
    return {name: environment[name] for name in names}


def _secret_names(server: Mapping[str, Any]) -> list[str]:
    key = server.get("api_key")
    return [*(server.get("secrets") or []), *([key] if key else [])]


def patience_s(orders: list[dict[str, Any]]) -> float:
    """The longest this process may wait for the first of these: its life and the wait for the host's lock."""
    first = orders[0]["limits"]
    return float(first["life_s"]) + float(first.get("lock_wait_s", 21600)) + 300


def _run(plan: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    point = plan["points"][run["run"]]
    scenario = {"name": point["scenario_name"], **plan["scenarios"][point["scenario"]]}
    return {
        "digest": run["run"],
        "name": run["name"],
        "scenario": scenario,
        "concurrency": point["concurrency"],
        "requests": point["requests"],
        "max_tokens": point["max_tokens"],
        "warmup": point["warmup"],
        "seed": run["seed"],
        "telemetry": point["telemetry"],
        "client": {
            "extra_body": point["extra_body"],
            "timeout_s": point["timeout_s"],
            "ignore_eos": point["ignore_eos"],
            "http": point["http"],
            **{key: point[key] for key in OPTIONS if key in point},
            **arrivals_seed(point, run["start"]),
        },
        "limit_s": limit_s(point, plan["limits"]["floor_tps"]),
    }


def arrivals_seed(point: Mapping[str, Any], start: int) -> dict[str, str]:
    """What an open loop's schedule is drawn from. Not the run's own seed, which its prompt changes:
    runs of one start that ask different things are compared under one pattern of arrivals.
    """
    if point.get("rate") is None:
        return {}
    return {"arrivals_seed": f"{point['seed']}-start{start}"}


def limit_s(point: Mapping[str, Any], floor_tps: float) -> float:
    """A run at the slowest rate that the study calls alive, some time for its first tokens, and
    until an open loop has sent its last request.
    """
    tokens = (point["requests"] + point["warmup"]) * point["max_tokens"]
    limit = tokens / floor_tps + 120
    if point.get("rate"):
        # Random distances add up to more than their mean, hardly ever by six standard deviations.
        limit += (point["requests"] + 6 * math.sqrt(point["requests"])) / point["rate"]
    return float(limit)


def _time_s(run: Mapping[str, Any]) -> float:
    """The longest a run may take; a cross-check has the run's limit once more."""
    return float(run["limit_s"]) * (2 if run["client"].get("cross_check") else 1)


def _server(study: Study, launch: Launch, host: Host, store: Store) -> dict[str, Any]:
    server = study.plan["servers"][launch["server"]]
    block = study.plan["hosts"][launch["host"]]
    symbols = host.symbols()
    fingerprint = server["fingerprint"]
    return {
        "digest": launch["server"],
        "start": launch["start"],
        "argv": [resolve(word, symbols) for word in server["argv"]],
        "env": environment(symbols, block["env"], server["env"]),
        "model": resolve(str(server["served_model"] or ""), symbols) or None,
        "engine": server["engine"],
        "port": None if block.get("port") in (None, "auto") else int(block["port"]),
        "source": launch["source"],
        "attach": server["attach"],
        "profile": server["profile"],
        "engine_key": server["engine_key"],
        "expected_fingerprint": store.engine_fingerprint(server["engine_key"]),
        "fingerprint": {
            "modules": list(fingerprint["modules"]),
            "files": [resolve(f, symbols) for f in fingerprint["files"]],
        },
    }


def setup(block: Mapping[str, Any], host: Host) -> str | None:
    """The script that is sourced on the host before anything is started."""
    script = block.get("setup")
    return resolve(str(script), host.symbols()) if script else None


def telemetry(block: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """How the SMI tool is called on the host."""
    told = block["telemetry"]
    symbols = host.symbols()
    return {
        "tool": told["tool"],
        "argv": [resolve(str(word), symbols) for word in told.get("command") or [told["tool"]]],
        "interval_s": told["interval_s"],
        "env": environment(symbols, block["env"], told.get("env") or {}),
    }


def environment(symbols: Mapping[str, str], *layers: Mapping[str, Any]) -> dict[str, str]:
    """Later layers win; symbols are resolved."""
    merged = {name: value for layer in layers for name, value in layer.items()}
    return {name: resolve(str(value), symbols) for name, value in merged.items()}
