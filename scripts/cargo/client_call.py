"""The command line of one call of the load client.

In:  an order, one of its runs, the server. Out: argv; the client that it starts is this folder's own, or
the zipapp that the order names, which brings httpx along.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional

from cargo import procs, whole

HERE = os.path.dirname(os.path.abspath(__file__))
# Keys of the run's client that are options of the same name, with a value or without one.
_VALUES = ("arrivals", "cache", "min_tokens", "rate", "temperature")
_SWITCHES = ("continuous_usage_stats", "return_token_ids")


class Target(NamedTuple):
    """What is to be asked, as its start found it."""

    base_url: str
    model: str
    source: str
    key_name: Optional[str]  # the variable that holds the key


def program(order: Dict[str, Any], http: str) -> List[str]:
    zipapp = order.get("client_zipapp")
    if http != "httpx":  # nothing of site-packages is needed; not looking there saves 0.2 s a run
        return [*procs.PYTHON, "-S", os.path.join(HERE, "decode_microbench.py")]
    if zipapp:
        return [*procs.PYTHON, "-S", zipapp["file"]]
    return [*procs.PYTHON, os.path.join(HERE, "decode_microbench.py")]


def options(run: Dict[str, Any], target: Target, scratch: str, seed: str) -> List[str]:
    """All but the transport and where the record goes; the scenario is written into `scratch`."""
    client = run.get("client") or {}
    scenario = os.path.join(scratch, "scenario.json")
    whole.write_json(scenario, run["scenario"], durable=False, exact=True)
    argv = ["--base-url", target.base_url, "--model", target.model, "--source", target.source]
    argv += ["--scenario", scenario, "--seed=" + seed, "--label=" + run["name"]]
    argv += ["--concurrency", str(run["concurrency"]), "--requests", str(run["requests"])]
    argv += ["--max-tokens", str(run["max_tokens"]), "--warmup", str(run.get("warmup", 0))]
    argv += ["--extra-body=" + json.dumps(client.get("extra_body") or {})]
    for name, seconds in sorted((client.get("timeout_s") or {}).items()):
        argv += [_option("timeout_" + name), repr(float(seconds))]
    for name in _VALUES:
        if client.get(name) is not None:
            argv += [_option(name), str(client[name])]
    if client.get("rate") is not None:
        # the second opinion has another seed, and is asked in the same moments all the same
        argv += ["--arrivals-seed=" + str(client.get("arrivals_seed") or run["seed"])]
    argv += [_option(name) for name in _SWITCHES if client.get(name)]
    if client.get("ignore_eos") is False:
        argv += ["--no-ignore-eos"]
    if target.key_name is not None:
        argv += ["--api-key-env", target.key_name]
    return argv


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
