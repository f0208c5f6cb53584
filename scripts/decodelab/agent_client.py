"""Talk to the host agent: hand over orders, ask, stop, fetch. The workflow's side of
scripts/cargo/agent.py.

In:  a Host and orders (plain dicts, see scripts/cargo/agent.py). Out: the agent's own JSON
answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decodelab.host import Host, HostError

CARGO = Path(__file__).resolve().parent.parent / "cargo"
CHECKOUT = CARGO.parent.parent


def cargo_digest(folder: Path = CARGO) -> str:
    """First 16 hex of a sha256 over the names and contents of what is shipped."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            total.update(file.relative_to(folder).as_posix().encode() + b"\0")
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


def _wants_httpx(order: Mapping[str, Any]) -> bool:
    clients = [run.get("client") or {} for run in order["runs"]]
    return any(c.get("http") == "httpx" or c.get("cross_check") for c in clients)


class AgentClient:
    """One agent on one host. Every call is idempotent, so that a caller may repeat it after a lost connection."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._folder = f"{host.workdir}/cargo/{cargo_digest()}/cargo"

    def ship(self) -> None:
        self.host.ship(CARGO, self._folder)

    def submit(
        self,
        owner: str,
        orders: Sequence[dict[str, Any]],
        host_lock: str | None,
        lock_wait_s: float,
    ) -> dict[str, Any]:
        """Queue these orders in this order and see that an agent works on them.

        `host_lock`: the lock file that every user of the machine's accelerators shares; None for
        one of the working folder's own. `lock_wait_s`: how long to wait for its holder.
        """
        request = {
            "owner": owner,
            "orders": self._with_client(orders),
            "replace": True,
            "host_lock": host_lock,
            "lock_wait_s": lock_wait_s,
        }
        return self._call(["submit"], json.dumps(request).encode())

    def _with_client(self, orders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Orders that want httpx say where on the host the client is that brings it; it is brought there now."""
        if not any(_wants_httpx(order) for order in orders):
            return list(orders)
        from decodelab import client_zipapp  # few need it, and it reads every file of httpx

        made = client_zipapp.made(CHECKOUT)
        folder = f"{self.host.workdir}/cargo/client-{made.folder.name}"
        self.host.ship(made.folder, folder)
        told = {"file": f"{folder}/{client_zipapp.ZIPAPP}", "python": made.python}
        return [{**o, "client_zipapp": told} if _wants_httpx(o) else o for o in orders]

    def entrust(self, owner: str, values: Mapping[str, str]) -> None:
        """Give the agent the secrets that this owner's orders name; they travel on stdin, never on a command line."""
        request = {"owner": owner, "values": dict(values)}
        self._call(["secrets"], json.dumps(request).encode())

    def status(self, launch: str) -> dict[str, Any]:
        """What the agent says of itself and of the launch; "sealed": the launch's whole folders (starts,
        attempts at runs), relative to `folder_of` it.
        """
        return self._call(["status", "--launch", launch])

    def shipped(self, file: str) -> str:
        """Where a file of the cargo lies on the host once it is shipped."""
        return f"{self._folder}/{file}"

    def present(self) -> bool:
        """Whether this version of the agent was ever brought to the host. Raises HostError if nobody can tell."""
        return self.host.run(["test", "-d", self._folder], timeout_s=20).exit_code == 0

    def stop(self, owner: str, *, drain: bool = False, wait_s: float = 0) -> dict[str, Any]:
        """Stop this owner's work: now (the server ends within its grace), or after the launch that runs."""
        options = ["--owner", owner, *(["--drain"] if drain else [])]
        if wait_s:
            options += ["--wait", str(wait_s)]
        return self._call(["stop", *options], timeout_s=wait_s + 60)

    def forget(self, launch: str, *, purge: bool = False) -> None:
        """We have what the launch measured. With `purge` it may be ordered anew; else the host keeps it
        for a day, for another checkout that waits for the same launch.
        """
        self._call(["forget", "--launch", launch, *(["--purge"] if purge else [])])

    def lives(self, pid: int) -> bool:
        """Whether there is such a process: a cheap look between two answers of the agent itself."""
        return bool(self.host.tail(f"/proc/{pid}/stat", 0))

    def events(self, launch: str, offset: int) -> tuple[list[dict[str, Any]], int]:
        """The launch's events from a byte offset on, and the next offset. A half-written last line waits."""
        data = self.host.tail(f"{self.folder_of(launch)}/events.jsonl", offset)
        whole = data[: data.rfind(b"\n") + 1]
        events = [json.loads(line) for line in whole.splitlines() if line.strip()]
        return events, offset + len(whole)

    def folder_of(self, launch: str) -> str:
        return f"{self.host.workdir}/done/{launch}"

    def _call(
        self, words: Sequence[str], stdin: bytes = b"", timeout_s: float = 60
    ) -> dict[str, Any]:
        verb, *options = words
        argv = [self.host.python, "-S", f"{self._folder}/agent.py", verb]
        argv += ["--workdir", self.host.workdir, *options]
        done = self.host.run(argv, stdin, timeout_s)
        try:
            answer = json.loads(done.out)
            if not isinstance(answer, dict):
                raise ValueError("not an object")
        except ValueError:
            words_of_host = (done.err or done.out).decode("utf-8", "replace").strip()
            raise HostError(
                f"host {self.host.name}: the agent answered `{verb}` with exit code {done.exit_code}:\n"
                f"{words_of_host[-2000:]}"
            ) from None
        if answer.get("error"):
            raise HostError(f"host {self.host.name}: {answer['error']}")
        return answer
