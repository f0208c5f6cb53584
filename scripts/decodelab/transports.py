"""Which transport a host block asks for: this machine, or another one over ssh.

In:  a host's name and its block of the plan. Out: a `Host` (see host.py); nothing is connected yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decodelab.host import Host


def open_host(name: str, block: Mapping[str, Any], root: Path) -> Host:
    """`root` is the checkout. Raises HostError if the block's ssh alias cannot be resolved."""
    # Imported here, since nobody needs ssh for a local host, and fabric takes half a second.
    if block.get("transport", "local") == "ssh":
        from decodelab.host_ssh import SshHost
        from decodelab.steady import SteadyHost

        return SteadyHost(SshHost(name, block, root))
    from decodelab.host_local import LocalHost

    return LocalHost(name, block, root)
