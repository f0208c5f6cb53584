"""Who saw what a host really did: reads the agents' event files beside the product, while it runs.

In:  working folders of hosts. Out: every event in order of sight, waits for one, and the attempts
that were really measured. It remembers what the product has long removed, so "lost" and "measured
twice" do not rest on the product's own word.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LOOK_S = 0.05
WAIT_S = 60.0

Event = dict[str, Any]


class Witness:
    def __init__(self, workdirs: Sequence[Path]) -> None:
        self.workdirs = list(workdirs)
        self.events: list[Event] = []
        self._read: dict[tuple[int, int], int] = {}  # device and inode: bytes taken in
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    # ------------------------------------------------------------------ looking
    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        with self._lock:
            for workdir in self.workdirs:
                for file in sorted(workdir.glob("done/*/events.jsonl")):
                    self._take(file)

    def _take(self, file: Path) -> None:
        try:
            with file.open("rb") as f:
                facts = file.stat()
                key = (facts.st_dev, facts.st_ino)
                f.seek(self._read.get(key, 0))
                text = f.read()
        except OSError:
            return  # forgotten at this very moment
        cut = text.rfind(b"\n") + 1
        self._read[key] = self._read.get(key, 0) + cut
        for line in filter(None, text[:cut].splitlines()):
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a full disk tore it
            self.events.append({**event, "launch": file.parent.name, "host": str(file.parents[2])})

    # ------------------------------------------------------------------ asking
    def all(self, name: str, **fields: Any) -> list[Event]:
        found = [e for e in list(self.events) if e["event"] == name]
        return [e for e in found if all(e.get(key) == value for key, value in fields.items())]

    def until(self, name: str, count: int = 1, **fields: Any) -> Event:
        """Wait for the count-th event of this name."""
        wait_until(lambda: len(self.all(name, **fields)) >= count, f"event {name} x {count}")
        return self.all(name, **fields)[count - 1]

    def measured(self) -> Counter[tuple[str, str]]:
        """(launch, run) to how many good attempts were really made of it."""
        ends = {(e["launch"], e["run"], e["attempt"]) for e in self.all("run_end", status="done")}
        return Counter((launch, run) for launch, run, _ in ends)

    def attempts(self) -> set[str]:
        return {e["attempt"] for e in self.all("run_end", status="done")}


def wait_until(what: Callable[[], Any], why: str, seconds: float = WAIT_S) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"never in {seconds:g} s: {why}"
        time.sleep(0.02)
