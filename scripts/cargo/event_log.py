"""The append-only event file of one launch.

In: an event name and its fields. Out: one JSON line each, flushed, stamped with wall (t) and
monotonic (m) time, printable, without any secret. A torn last line (power cut, full disk) is taken away
before the next is written: readers only ever count whole lines as read.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from cargo import printable
from cargo.mask import Mask

BLOCK_BYTES = 65536


class EventLog:
    def __init__(self, path: str, mask: Mask = Mask()) -> None:  # noqa: B008  (it never changes)
        self.mask = mask
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._cut_torn_line()

    def _cut_torn_line(self) -> None:
        size = end = os.fstat(self._fd).st_size
        while end > 0:
            begin = max(0, end - BLOCK_BYTES)
            at = os.pread(self._fd, end - begin, begin).rfind(b"\n")
            if at >= 0:
                end = begin + at + 1
                break
            end = begin
        if end < size:
            os.ftruncate(self._fd, end)

    def emit(self, event: str, **fields: Any) -> None:
        line = {"t": round(time.time(), 6), "m": round(time.monotonic(), 6), "event": event}
        line.update(self.mask.deep(fields))
        data = printable.dumps(line) + b"\n"
        try:
            if os.write(self._fd, data) < len(data):
                self._cut_torn_line()
                raise OSError("half of it only")
        except OSError as error:  # a full disk must not keep us from stopping the server
            text = data.decode("utf-8").strip()
            print("event not written: %s: %s" % (error, text), file=sys.stderr, flush=True)

    def close(self) -> None:
        os.close(self._fd)
