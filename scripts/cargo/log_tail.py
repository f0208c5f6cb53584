"""A log that another process is writing, read as it grows.

In:  its path. Out: whole lines as they come, when it last grew, and what stands
after the last line's end.
"""

from __future__ import annotations

import os
import time
from typing import List

MOST_BYTES = 8 << 20  # of one call: a flood must not keep its reader from a stop for long


class LogReader:
    """New lines of a growing log; remembers when it last grew, and what stands after the last line's
    end (a progress bar).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.grown_at = time.monotonic()
        self._rest = b""

    def rest(self) -> str:
        return self._rest.decode("utf-8", "replace")

    def lines(self) -> List[str]:
        """What has been written since the last call, up to MOST_BYTES of it."""
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                chunk = f.read(MOST_BYTES)
        except OSError:
            return []
        if not chunk:
            return []
        self.offset += len(chunk)
        self.grown_at = time.monotonic()
        *whole_lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-65536:]
        return [line.decode("utf-8", "replace") for line in whole_lines]

    def behind(self) -> bool:
        """Whether the file holds more than was read."""
        try:
            return os.path.getsize(self.path) > self.offset
        except OSError:
            return False
