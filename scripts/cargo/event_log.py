"""The append-only event file of one launch.

In: an event name and its fields. Out: one JSON line each, flushed, stamped with wall (t) and
monotonic (m) time. A torn last line (power cut) is ended before the next is written.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


class EventLog:
    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def emit(self, event: str, **fields: Any) -> None:
        line = {"t": round(time.time(), 6), "m": round(time.monotonic(), 6), "event": event}
        line.update(fields)
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8")
        try:
            os.write(self._fd, data)
        except OSError as error:  # a full disk must not keep us from stopping the server
            print("event not written: %s: %s" % (error, data.decode().strip()), file=sys.stderr)

    def close(self) -> None:
        os.close(self._fd)
