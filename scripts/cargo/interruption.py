"""SIGTERM and SIGINT, from the start of a run until its record is written.

In:  what to do at the first signal (`on`), which depends on how far the run is.
Out: `told`: whether there was one. The first ends the run early and its record is written all the same; a
     second ends the process at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, Optional, Type

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Told(BaseException):
    """Raised by a signal where a wait is to be broken off; no `except Exception` may swallow it."""


def _nothing() -> None:
    """While a record is made of what there is, a signal changes nothing."""


def _break_off() -> None:
    raise Told


class Interruption:
    def __init__(self) -> None:
        self.told = False
        self._act: Callable[[], None] = _nothing
        self._before: Dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        _kind: Optional[Type[BaseException]],
        _error: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        self._restore()

    @contextlib.contextmanager
    def on(self, act: Callable[[], None]) -> Iterator[None]:
        """At the first signal do this; at once where it has come already."""
        self._act = act
        try:
            if self.told:
                act()
            yield
        finally:
            self._act = _nothing

    def breaking_off(self) -> Any:
        """The first signal raises Told."""
        return self.on(_break_off)

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.told:
            self._restore()
            os.kill(os.getpid(), number)
            return
        self.told = True
        self._act()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
