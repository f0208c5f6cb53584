"""A log that another process is writing, read as it grows.

In:  its path. Out: whole lines as they come, when it last grew, and what stands
after the last line's end.
"""

from __future__ import annotations

import time
from typing import List


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
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                chunk = f.read(1 << 18)
        except OSError:
            return []
        if not chunk:
            return []
        self.offset += len(chunk)
        self.grown_at = time.monotonic()
        *whole_lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-65536:]
        return [line.decode("utf-8", "replace") for line in whole_lines]
