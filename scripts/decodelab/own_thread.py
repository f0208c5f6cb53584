"""Work that Ctrl-C must not cut into, and work with a limit: done in a thread of its own.

In:  a function. Out: what it returns or raises; TimeoutError if it takes too long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_own_thread(work: Callable[[], T], limit_s: float | None = None) -> T:
    """Do it in another thread, so that Ctrl-C or the limit ends the wait but never cuts into the work.

    Raises what the work raised, or TimeoutError.
    """
    end = None if limit_s is None else time.monotonic() + limit_s
    done = threading.Event()
    value: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            value.append(work())
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=body, daemon=True).start()
    while not done.wait(0.5 if end is None else max(0.0, min(0.5, end - time.monotonic()))):
        if end is not None and time.monotonic() >= end:
            raise TimeoutError(f"no answer in {limit_s:.0f} s")
    if failure:
        raise failure[0]
    return value[0]
