"""What may end a launch from outside while it waits: a stop request, its maximum life.

In: the store (stop file), the signals this process got. Out: `pause` sleeps, `check` raises.
Every wait of a launch goes through here, so that no wait can outlast a stop.
"""

from __future__ import annotations

import signal
import time
from typing import Any, Optional

from cargo.queue_store import Store

TICK_S = 0.1


class StopNow(Exception):
    """Someone asked to stop at once."""


class LifeOver(Exception):
    """The launch used up its maximum life."""


class Signals:
    """TERM and INT to the agent mean: stop now. HUP is ignored (the terminal is long gone)."""

    def __init__(self) -> None:
        self.stop = False

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _note(self, *_: Any) -> None:
        self.stop = True


class Watch:
    def __init__(self, store: Store, signals: Signals, life_s: Optional[float]) -> None:
        self.store = store
        self.signals = signals
        self.end = None if life_s is None else time.monotonic() + life_s

    def check(self) -> None:
        if self.signals.stop or self.store.stop_word() == "now":
            raise StopNow()
        if self.end is not None and time.monotonic() > self.end:
            raise LifeOver()

    def extend(self, seconds: float) -> None:
        if self.end is not None:
            self.end += seconds

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            self.check()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(TICK_S, left))
