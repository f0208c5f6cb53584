"""A machine with accelerators, as the workflow reaches it: run a command, read a file's tail, bring
folders there and back.

In:  nothing. Out: the protocol `Host`, its errors, and `resolve`. host_local.py and host_ssh.py carry
it out; what is done on a host is the agent's matter (scripts/cargo/agent.py), so that a lost
connection costs nothing but the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class HostError(Exception):
    """The host cannot be reached or refused; the text is for the user and ends with what to do."""


class HostLost(HostError):
    """The connection failed or went away; the same call may be repeated later."""


@dataclass(frozen=True)
class Result:
    exit_code: int
    out: bytes
    err: bytes


class Host(Protocol):
    """What every transport can do. Paths are the host's own; any call may raise HostError.

    Every call may be repeated: none does more when made twice.
    """

    name: str
    workdir: str
    python: str
    poll_s: float  # how often a follower asks for news
    patience_s: float  # how long a call goes on trying after the connection was lost

    def symbols(self) -> dict[str, str]:
        """What {python}, {repo} and the like stand for on this host."""

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 60) -> Result:
        """Run a short command to its end. Raises HostError if it cannot be run or does not end in time."""

    def tail(self, path: str, offset: int) -> bytes:
        """The bytes of a growing file from `offset` on; empty if there is no such file yet."""

    def ship(self, folder: Path, target: str) -> None:
        """Bring a folder to `target` whole; nothing happens if it is there already."""

    def fetch(self, path: str, names: Sequence[str] | None = None) -> AbstractContextManager[Path]:
        """A local folder that holds the files of the host's folder `path` (only `names`, if given)
        for the while. The folder is sealed, it never changes, so that a broken transfer goes on.
        """

    def close(self) -> None:
        """Give up what the transport holds; a later call opens it again."""


def resolve(word: str, symbols: Mapping[str, str]) -> str:
    """The word with every symbol replaced by what it stands for."""
    for symbol, value in symbols.items():
        word = word.replace(symbol, value)
    return word
