"""The transport to this machine: plain processes and files.

In:  a host block with `transport: local`. Out: a `Host` (see host.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from decodelab.host import HostError, Result, resolve
from decodelab.store import cause_of
from decodelab.vocabulary import SIMULATOR_PATH


class LocalHost:
    """This machine. The agent still runs detached and by itself, exactly as it does on a remote host."""

    poll_s = 0.25
    patience_s = 0.0  # there is no connection to lose

    def __init__(self, name: str, block: Mapping[str, Any], root: Path) -> None:
        self.name = name
        here = {
            "{this}": sys.executable,
            "{repo}": str(root),
            "{simulator}": str(root / SIMULATOR_PATH),
        }
        self.python = resolve(str(block.get("python") or "{this}"), here)
        self.workdir = str(root / resolve(str(block.get("workdir") or f".decodelab/{name}"), here))
        self._symbols = {**here, "{python}": self.python}

    def symbols(self) -> dict[str, str]:
        return dict(self._symbols)

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 60) -> Result:
        try:
            # A new session keeps Ctrl-C in the user's terminal away from the command:
            # the caller decides what stops.
            done = subprocess.run(
                list(argv),
                input=stdin,
                capture_output=True,
                timeout=timeout_s,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise HostError(
                f"host {self.name}: cannot run {argv[0]!r}: no such program.\n"
                f"Hint: set hosts.{self.name}.python to a Python 3.9 or newer on that host."
            ) from error
        except OSError as error:
            raise HostError(
                f"host {self.name}: cannot run {argv[0]!r}: {error.strerror}"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"host {self.name}: {' '.join(argv[:3])} gave no answer in {timeout_s:.0f} s.\n"
                f"Hint: look at {self.workdir}/agent.log."
            ) from error
        return Result(done.returncode, done.stdout, done.stderr)

    def tail(self, path: str, offset: int) -> bytes:
        try:
            with open(path, "rb") as f:
                f.seek(offset)
                return f.read()
        except (FileNotFoundError, ProcessLookupError):  # one in /proc may have ended just now
            return b""

    def ship(self, folder: Path, target: str) -> None:
        if os.path.isdir(target):
            return
        parent = os.path.dirname(target)
        try:
            os.makedirs(parent, exist_ok=True)
            scratch = tempfile.mkdtemp(prefix=".incoming-", dir=parent)
        except OSError as error:
            raise HostError(
                f"host {self.name}: cannot write in {parent}: {error.strerror}.\n"
                f"Hint: set hosts.{self.name}.workdir to a folder that you may write."
            ) from error
        try:
            copy = os.path.join(scratch, os.path.basename(target))
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
            os.rename(copy, target)
        except OSError as error:  # shutil.Error, for a full disk, is one as well
            if not os.path.isdir(target):  # else another workflow brought the same digest just now
                raise HostError(
                    f"host {self.name}: cannot write the agent to {target}: {cause_of(error)}.\n"
                    f"Hint: free space there, or set hosts.{self.name}.workdir to another folder."
                ) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    @contextmanager
    def fetch(self, path: str, names: Sequence[str] | None = None) -> Iterator[Path]:
        yield Path(path)  # it lies here already

    def close(self) -> None:
        return
