"""A host whose connection may break: every call is repeated until it gets through or patience ends.

In:  a Host. Out: the same Host, except that HostLost is raised only after `patience_s` of trying.
HostError is raised at once: repeating does not help. All calls of a Host may be repeated.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from decodelab.host import Host, HostLost, Result

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
PATIENCE_S = 60.0

T = TypeVar("T")


class SteadyHost:
    """Wraps a host. `on_trouble` is told once when the connection breaks and once when it is back."""

    def __init__(self, host: Host, sleep: Callable[[float], None] = time.sleep) -> None:
        self.host = host
        self.name, self.workdir, self.python = host.name, host.workdir, host.python
        self.poll_s = host.poll_s
        self.on_trouble: Callable[[str], None] = _tell
        self._sleep = sleep
        self._patience_s: float | None = None
        self._reached = False  # at least once
        self._since: float | None = None  # the trouble that is on
        self._lock = threading.Lock()

    @property
    def patience_s(self) -> float:
        """How long a call goes on trying. Until it is set: not at all before the first call that got
        through, since a host that never answered is rather a mistake than a trouble; then a minute.
        """
        if self._patience_s is not None:
            return self._patience_s
        return PATIENCE_S if self._reached or getattr(self.host, "reached", False) else 0.0

    @patience_s.setter
    def patience_s(self, value: float) -> None:
        self._patience_s = value

    def symbols(self) -> dict[str, str]:
        return self.host.symbols()

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 60) -> Result:
        return self._steadily(lambda: self.host.run(argv, stdin, timeout_s))

    def tail(self, path: str, offset: int) -> bytes:
        return self._steadily(lambda: self.host.tail(path, offset))

    def ship(self, folder: Path, target: str) -> None:
        self._steadily(lambda: self.host.ship(folder, target))

    @contextmanager
    def fetch(self, path: str, names: Sequence[str] | None = None) -> Iterator[Path]:
        with ExitStack() as stack:
            # Only the fetching is repeated, never what the caller does with the files.
            yield self._steadily(lambda: stack.enter_context(self.host.fetch(path, names)))

    def close(self) -> None:
        self.host.close()

    def _steadily(self, call: Callable[[], T]) -> T:
        started, pause_s = time.monotonic(), FIRST_PAUSE_S
        while True:
            try:
                value = call()
            except HostLost as error:
                left_s = self.patience_s - (time.monotonic() - started)
                if left_s <= 0:
                    raise
                self._troubled(error, left_s)
                self._sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._got_through()
                return value

    def _troubled(self, error: HostLost, left_s: float) -> None:
        with self._lock:
            if self._since is not None:
                return
            self._since = time.monotonic()
        words = str(error).partition("\nHint: ")[0]  # it says to call again, which we do
        self.on_trouble(
            f"{words}\nWhat runs on the host goes on. Trying again for {_span(left_s)}."
        )

    def _got_through(self) -> None:
        with self._lock:
            self._reached = True
            since, self._since = self._since, None
        if since is not None:
            self.on_trouble(f"host {self.name}: back after {_span(time.monotonic() - since)}.")


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
