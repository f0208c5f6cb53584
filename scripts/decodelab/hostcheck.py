"""Whether a host can be measured on: what is seen from here, and what the host finds out itself.

In:  a Study and one host's name. Out: rows {"check", "state", "found", "todo"} with the states ok,
warn and fail, and what the setup script sets. A host that cannot be used is one failed row. The
host's own part is scripts/cargo/host_check.py, which is shipped with the agent; nothing is started.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import orders
from decodelab.agent_client import AgentClient
from decodelab.host import Host, HostError, HostLost, open_host, resolve
from decodelab.study import Study

Row = dict[str, str]
Block = Mapping[str, Any]
ROW_KEYS = ("check", "state", "found", "todo")
CHECK_S = 300  # importing an engine takes its time
ENGINE_MODULES = ("vllm", "torch")
UNKNOWN = "the other checks could not be made"


@dataclass
class Checked:
    """One host: rows in the order of the table, the names and values that the setup script sets, and
    what the SMI tool printed.
    """

    host: str
    rows: list[Row] = field(default_factory=list)
    sets: dict[str, str] = field(default_factory=dict)
    smi: str = ""

    @property
    def failed(self) -> bool:
        return any(row["state"] == "fail" for row in self.rows)

    def add(self, check: str, state: str, found: str, todo: str = "", first: bool = False) -> None:
        row = {"check": check, "state": state, "found": found, "todo": todo}
        self.rows.insert(0 if first else len(self.rows), row)

    def add_error(self, check: str, error: HostError, first: bool = False) -> None:
        """The transport's own words; what to do stands behind their "Hint:"."""
        found, _, todo = str(error).partition("\nHint: ")
        self.add(check, "fail", found.removeprefix(f"host {self.host}: "), todo, first)


def check_host(study: Study, name: str, root: Path) -> Checked:
    out, block = Checked(name), study.described[name]
    try:
        route = _route(block, out)
        with contextlib.closing(open_host(name, block, root)) as host:
            host.run(["true"], timeout_s=30)
            out.add("reachable", "ok", route, first=True)
            _secrets(study, name, out)
            _on_the_host(study, name, host, out)
    except HostError as error:
        out.add_error("reachable", error, first=True)
    return out


# ---------------------------------------------------------------- seen from here


def _route(block: Block, out: Checked) -> str:
    """How the host is reached; adds a row about the host keys on the way."""
    if block["transport"] == "local":
        return "this machine"
    from decodelab.known_hosts import HostKeys  # nobody needs ssh for a local host
    from decodelab.ssh_alias import resolve as hops_to

    hops = hops_to(str(block["ssh"]), block.get("ssh_config"))
    types = {hop: HostKeys.load(hop.known_hosts).types_for(hop.key_name) for hop in hops}
    unknown = [hop for hop in hops if not types[hop]]
    if unknown:
        strict = any(hop.strict == "yes" for hop in unknown)
        names = ", ".join(hop.key_name for hop in unknown)
        todo = "compare the fingerprint with the host's own, then add the key by `ssh-keyscan`"
        out.add("host key", "fail" if strict else "warn", f"not known: {names}", todo)
    else:
        known = "; ".join(f"{hop.key_name} {', '.join(types[hop])}" for hop in hops)
        out.add("host key", "ok", f"known: {known}")
    *jumps, target = [f"{hop.user}@{hop.host}:{hop.port}" for hop in hops]
    return target + (f" via {' and '.join(jumps)}" if jumps else "")


def _secrets(study: Study, name: str, out: Checked) -> None:
    """Whether the variables that the servers need are set here; their values are looked at by nobody."""
    names = dict.fromkeys(
        variable
        for server in _servers(study, name)
        for variable in [*server["secrets"], *filter(None, [server["api_key"]])]
    )
    if not names:
        return
    missing = [variable for variable in names if not os.environ.get(variable)]
    if missing:
        todo = f"export {missing[0]}=… before you call snakemake"
        out.add("secrets", "fail", f"not set in your environment: {', '.join(missing)}", todo)
    else:
        out.add("secrets", "ok", f"set in your environment: {', '.join(names)}")


# ---------------------------------------------------------------- found out there


def _on_the_host(study: Study, name: str, host: Host, out: Checked) -> None:
    try:
        client = AgentClient(host)
        client.ship()
        rows = _ask(client, question(study, name, host))
    except HostLost:
        raise
    except HostError as error:
        out.add_error("host", error)
        out.add("all else", "warn", UNKNOWN, "mend what stands above, then call again")
        return
    used = bool(_servers(study, name))
    for told in rows:
        row = {key: str(told.get(key) or "") for key in ROW_KEYS}
        out.rows.append(row if used else _softened(row))
        out.sets |= {str(k): str(v) for k, v in (told.get("set") or {}).items()}
        out.smi += str(told.get("out") or "")


def _ask(client: AgentClient, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The host's rows. The one about the setup script has "set" (names and values), the one about
    telemetry "out" (what the tool printed) as well.
    """
    host = client.host
    argv = [host.python, "-S", client.shipped("host_check.py")]
    done = host.run(argv, json.dumps(asked).encode(), CHECK_S)
    try:
        rows = json.loads(done.out)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("no list of rows")
    except ValueError:
        words = (done.err or done.out).decode("utf-8", "replace").strip()
        raise HostError(
            f"host {host.name}: the check answered with exit code {done.exit_code}: {words[-1000:]}\n"
            f"Hint: try `{host.python} --version` there; Python 3.9 or newer is needed."
        ) from None
    return rows


def _softened(row: Row) -> Row:
    """The study starts nothing here: an engine that is not there is no fault of the host."""
    if row["state"] != "fail" or not any(module in row["check"] for module in ENGINE_MODULES):
        return row
    return {**row, "state": "warn", "todo": "needed only by a study that starts vLLM here"}


def question(study: Study, name: str, host: Host) -> dict[str, Any]:
    """What the host is to find out about itself; every symbol resolved for it."""
    block, symbols = study.described[name], host.symbols()
    planned = _servers(study, name)
    servers = [server for server in planned if not server["attach"]]
    env = orders.environment(symbols, block["env"], *(server["env"] for server in servers[:1]))
    argv = [resolve(word, symbols) for server in servers[:1] for word in server["argv"]]
    return {
        "workdir": host.workdir,
        "setup": orders.setup(block, host),
        "server": {
            "argv0": argv[0] if argv else None if planned else host.python,
            "env": env,
            "modules": modules(servers) if planned or block["simulated"] else list(ENGINE_MODULES),
        },
        "telemetry": orders.telemetry(block, host),
        "port": block.get("port"),
        "lock": None if block["simulated"] else block["lock"],
        "owner": orders.owner(study),
    }


def modules(servers: Iterable[Mapping[str, Any]]) -> list[str]:
    """What must be importable for these servers."""
    found: dict[str, None] = {}
    for server in servers:
        found |= dict.fromkeys(server["fingerprint"]["modules"])
        # The simulated server says which vLLM it stands for, and needs none.
        if str(server["engine"]).startswith("vllm") and "{simulator}" not in server["argv"]:
            found["torch"] = None
    return list(found)


def _servers(study: Study, host: str) -> list[Mapping[str, Any]]:
    """The servers that the study measures on the host, in queue order."""
    mine = [x["server"] for x in study.launches.values() if x["host"] == host]
    return [study.plan["servers"][digest] for digest in dict.fromkeys(mine)]
