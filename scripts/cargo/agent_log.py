"""The agent's own log, as its stdout and stderr: a line that cannot be written is let go.

In: text. Out: agent.log, as far as the disk takes it. A full disk must not end the agent between
the server's start and its stop.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys


class Forgiving(io.TextIOBase):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def fileno(self) -> int:
        return self._fd


def use() -> None:
    sys.stdout = Forgiving(1)
    sys.stderr = Forgiving(2)
