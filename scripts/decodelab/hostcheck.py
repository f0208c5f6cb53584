"""Whether a host can be measured on: what is seen from here, and what the host finds out itself.

In:  a Study and one host's name. Out: rows {"check", "state", "found", "todo"} with the states ok,
warn and fail, and what the setup script sets. A host that cannot be used is one failed row. The
host's own part is scripts/cargo/host_check.py, which is shipped with the agent; nothing is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import orders, start_orders
from decodelab.agent_client import AgentClient
from decodelab.host import Host, HostError, HostLost, resolve
from decodelab.study import Study
from decodelab.transports import open_host

Row = dict[str, str]
Block = Mapping[str, Any]
ROW_KEYS = ("check", "state", "found", "todo")
CHECK_S = 300  # importing an engine takes its time
DEVICE_S = 45  # for each step of the accelerators' check
ENGINE_MODULES = ("vllm", "torch")
UNKNOWN = "the other checks could not be made"
SECRET_CHARS = 8  # as scripts/cargo/mask.py has it
MODELS = """
import json, sys, urllib.parse, urllib.request
asked = json.load(sys.stdin)
headers = {"Authorization": "Bearer " + asked["key"]} if asked["key"] else {}
near = urllib.parse.urlsplit(asked["url"]).hostname in ("localhost", "127.0.0.1", "::1")
opener = urllib.request.build_opener(*[urllib.request.ProxyHandler({})] * near)
answer = opener.open(urllib.request.Request(asked["url"], headers=headers), timeout=10)
print(json.dumps({"models": [str(m["id"]) for m in json.load(answer)["data"]]}))
"""


@dataclass
class Checked:
    """One host: rows in the order of the table, the names and values that the setup script sets, and
    what the SMI tool printed.
    """

    host: str
    rows: list[Row] = field(default_factory=list)
    sets: dict[str, str] = field(default_factory=dict)
    smi: str | None = None  # None: no tool was called
    smi_tool: str = ""  # whose output it is, and the columns of a CSV without header
    smi_fields: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(row["state"] == "fail" for row in self.rows)

    def add(self, check: str, state: str, found: str, todo: str = "", first: bool = False) -> None:
        self.rows.insert(0 if first else len(self.rows), _row(check, state, found, todo))

    def add_error(self, check: str, error: HostError, first: bool = False) -> None:
        """The transport's own words; what to do stands behind their "Hint:"."""
        found, _, todo = str(error).partition("\nHint: ")
        self.add(check, "fail", found.removeprefix(f"host {self.host}: "), todo, first)


def _row(check: str, state: str, found: str, todo: str = "") -> Row:
    return {"check": check, "state": state, "found": found, "todo": todo}


def check_host(study: Study, name: str, root: Path) -> Checked:
    out, block = Checked(name), study.described[name]
    key: Row | None = None
    try:
        route, key = _route(block)
        with contextlib.closing(open_host(name, block, root)) as host:
            host.run(["true"], timeout_s=30)
            out.add("reachable", "ok", route, first=True)
            out.rows += [key] if key else []
            key = None
            _secrets(study, name, out)
            if _takes_stdin(host, out):
                _on_the_host(study, name, host, out)
    except HostError as error:
        out.add_error("reachable", error, first=True)
        if key and key["state"] == "ok":  # one that is not known is the error's own matter
            out.add("host key", "warn", f"not compared; {key['found']}", "see reachable")
    return out


# ---------------------------------------------------------------- seen from here


def _route(block: Block) -> tuple[str, Row | None]:
    """How the host is reached, and the row about the host keys on the way, if it can be."""
    if block["transport"] == "local":
        return "this machine", None
    from decodelab.known_hosts import HostKeys  # nobody needs ssh for a local host
    from decodelab.ssh_alias import resolve as hops_to

    hops = hops_to(str(block["ssh"]), block.get("ssh_config"))
    types = {hop: HostKeys.load(hop.known_hosts).types_for(hop.key_name) for hop in hops}
    unknown = [hop for hop in hops if not types[hop]]
    if unknown:
        strict = any(hop.strict == "yes" for hop in unknown)
        names = ", ".join(hop.key_name for hop in unknown)
        todo = "compare the fingerprint with the host's own, then add the key by `ssh-keyscan`"
        key = _row("host key", "fail" if strict else "warn", f"not known: {names}", todo)
    else:
        known = "; ".join(f"{hop.key_name} {', '.join(types[hop])}" for hop in hops)
        key = _row("host key", "ok", f"known: {known}")
    *jumps, target = [f"{hop.user}@{hop.host}:{hop.port}" for hop in hops]
    return target + (f" via {' and '.join(jumps)}" if jumps else ""), key


def _secrets(study: Study, name: str, out: Checked) -> None:
    """Whether the variables that the servers need are set here, to values that the host takes; no
    value is shown.
    """
    servers = _servers(study, name)
    keys = {server["api_key"] for server in servers if server["api_key"]}
    names = dict.fromkeys([*(s for server in servers for s in server["secrets"]), *sorted(keys)])
    if not names:
        return
    missing = [variable for variable in names if not os.environ.get(variable)]
    if missing:
        todo = f"export {missing[0]}=… before you call snakemake"
        out.add("secrets", "fail", f"not set in your environment: {', '.join(missing)}", todo)
        return
    wrong = {v: words for v in names if (words := _refused(os.environ[v], v in keys))}
    if wrong:
        found = "; ".join(f"{variable} {words}" for variable, words in wrong.items())
        out.add("secrets", "fail", found, f"give {', '.join(wrong)} another value")
    else:
        out.add("secrets", "ok", f"set in your environment: {', '.join(names)}")


def _refused(value: str, is_key: bool) -> str:
    """Why the host would not take the value; empty if it does."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "is not UTF-8"
    bare = value.strip()
    if len(bare) < SECRET_CHARS:
        return f"is shorter than {SECRET_CHARS} characters: it could not be told from ordinary text"
    if is_key and not (bare.isascii() and bare.isprintable()):
        return "has characters that no HTTP header takes: an API key is printable ASCII"
    return ""


# ---------------------------------------------------------------- found out there


def _takes_stdin(host: Host, out: Checked) -> bool:
    """All that is handed to the host goes by standard input; a start-up file may swallow it."""
    token = secrets.token_hex(8).encode()
    if token in host.run(["cat"], token, timeout_s=30).out:
        return True
    found = "what is sent to a command does not arrive: your .bashrc on the host reads it"
    guard = "guard it with `case $- in *i*) ;; *) return;; esac`"
    out.add("stdin", "fail", found, f"your .bashrc on the host reads standard input: {guard}")
    out.add("all else", "warn", UNKNOWN, "mend what stands above, then call again")
    return False


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
    servers = _servers(study, name)
    addresses = {str(s["attach"]): s["api_key"] for s in servers if s["attach"]}
    for told in rows:
        row = {key: str(told.get(key) or "") for key in ROW_KEYS}
        if row["check"] == "port" and servers and all(s["attach"] for s in servers):
            continue  # none of ours is opened
        out.rows.append(row if servers else _softened(row))
        if told.get("set"):
            _take_sets(told["set"], row, out)
        if "out" in told:
            out.smi = str(told["out"] or "")
            out.smi_tool = str(told.get("tool") or "")
            out.smi_fields = [str(name) for name in told.get("fields") or []]
    for address, key in addresses.items():
        value = os.environ.get(key or "", "")
        out.rows.append(_attached(host, address, "" if _refused(value, True) else value.strip()))


def _take_sets(told: Mapping[str, Any], row: Row, out: Checked) -> None:
    out.sets |= {str(name): str(value) for name, value in told.items()}
    cut_off = [name for name, value in out.sets.items() if value.endswith("\r")]
    if cut_off and row["state"] != "fail":
        row["state"] = "warn"
        row["found"] += f"; values that end in a carriage return: {', '.join(cut_off)}"
        row["todo"] = "the script has Windows line ends: `sed -i 's/\\r$//'` it on the host"


def _attached(host: Host, address: str, key: str) -> Row:
    """Whether somebody's server answers where the study wants to measure it, as the host sees it."""
    asked = json.dumps({"url": f"{address.rstrip('/').removesuffix('/v1')}/v1/models", "key": key})
    check, todo = "attached server", "start that server, or correct server.attach"
    try:
        done = host.run([host.python, "-S", "-c", MODELS], asked.encode(), timeout_s=30)
        models = json.loads(done.out)["models"]
    except HostLost:
        raise
    except HostError as error:
        return _row(check, "fail", str(error).partition("\nHint: ")[0], todo)
    except (ValueError, KeyError, TypeError):
        words = (done.err or done.out).decode("utf-8", "replace").strip() or "no answer"
        last = words.splitlines()[-1]
        said = last.replace(key, "***") if key else last
        return _row(check, "fail", f"{address}/v1/models, asked from there: {said}", todo)
    return _row(check, "ok", f"{address} answers, asked from there; models {', '.join(models)}")


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
            "modules": modules(servers, simulated=block["simulated"])
            if planned or block["simulated"]
            else list(ENGINE_MODULES),
        },
        "telemetry": orders.telemetry(block, host),
        "port": block.get("port"),
        "lock": None if block["simulated"] else block["lock"],
        "owner": orders.owner(study),
        "device_check": _device_check(study, name),
    }


def _device_check(study: Study, name: str) -> dict[str, Any] | None:
    """As the host's first launch will have it, with less patience; None where none is planned."""
    first = next((x for x in study.launches.values() if x["host"] == name), None)
    check = start_orders.device_check(study.plan, first) if first else None
    return {**check, "deadline_s": min(check["deadline_s"], DEVICE_S)} if check else None


def modules(servers: Iterable[Mapping[str, Any]], *, simulated: bool = False) -> list[str]:
    """What must be importable for these servers."""
    found: dict[str, None] = {}
    for server in servers:
        found |= dict.fromkeys(server["fingerprint"]["modules"])
        # The simulated server says which vLLM it stands for, and needs none.
        real = not simulated and "{simulator}" not in server["argv"]
        if real and str(server["engine"]).startswith("vllm"):
            found["torch"] = None
    return list(found)


def _servers(study: Study, host: str) -> list[Mapping[str, Any]]:
    """The servers that the study measures on the host, in queue order."""
    mine = [x["server"] for x in study.launches.values() if x["host"] == host]
    return [study.plan["servers"][digest] for digest in dict.fromkeys(mine)]
