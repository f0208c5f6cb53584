"""One host of a chaos world: a real sshd, a working folder, the way there.

In:  a folder, options of sshd, words before it (namespaces), a jump host or proxy in between. Out:
the host's entry for a config, and its sshd (`tests/ssh/sshd.py`) for the faults.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.proxy import Proxy
from tests.ssh.sshd import Sshd


class Machine:
    def __init__(
        self,
        root: Path,
        name: str = "h",
        *options: str,
        jump: Sshd | None = None,
        proxied: bool = False,
        address: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        keys: Mapping[str, object] | None = None,
    ) -> None:
        self.name, self.root = name, root / name
        self.workdir = self.root / "work"
        self.root.mkdir(parents=True)
        self._close: list[Callable[[], None]] = []
        self.sshd = Sshd(self.root / "sshd", *options, address=address, prefix=prefix)
        self.sshd.start()
        self.proxy = Proxy(self.sshd.port) if proxied else None
        self.ssh_config = self._way(jump, dict(keys or {}))

    def _way(self, jump: Sshd | None, words: dict[str, object]) -> Path:
        if self.proxy is not None:
            words |= {"Port": self.proxy.port, "HostKeyAlias": self._key_name()}
        if jump is not None:
            jump.ssh_config("jump", self.root / "ssh_config")
            words["ProxyJump"] = "jump"
        return self.sshd.ssh_config(self.name, self.root / "ssh_config", **words)

    def _key_name(self) -> str:
        return f"[{self.sshd.address}]:{self.sshd.port}"

    def block(self) -> dict[str, Any]:
        return {
            "transport": "ssh",
            "ssh": self.name,
            "ssh_config": str(self.ssh_config),
            "workdir": str(self.workdir),
            "python": sys.executable,
            "simulated": True,
            "devices": 1,
        }

    def at_close(self, act: Callable[[], None]) -> None:
        """For what must be undone after the sshd: mounts, namespaces."""
        self._close.insert(0, act)

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.close()
        self.sshd.stop()
        for act in self._close:
            act()
