"""What a command of the cargo reads and says is JSON in UTF-8, whatever the host's locale is.

In: stdin. Out: stdout. Paths too are UTF-8: under another locale the interpreter starts over.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from cargo import printable


class NotReadable(Exception):
    """What came is no JSON in UTF-8; the text says why."""


def start_in_utf8() -> None:
    """Start over where the locale would spell paths in another way (zh_CN.GBK)."""
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8"):
        return
    with open("/proc/self/cmdline", "rb") as f:
        words = f.read().split(b"\0")[:-1]
    os.execv(sys.executable, [os.fsencode(sys.executable), b"-X", b"utf8", *words[1:]])


def read() -> Any:
    try:
        return json.loads(sys.stdin.buffer.read().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotReadable("stdin is not UTF-8, at byte %d" % error.start) from None
    except ValueError as error:
        raise NotReadable("stdin is not JSON: %s" % error) from None


def say(found: Any) -> None:
    left = memoryview(printable.dumps(found) + b"\n")
    with contextlib.suppress(OSError):  # nobody listens, or the disk of a log is full
        while left:
            left = left[os.write(1, left) :]
