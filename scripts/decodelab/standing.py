"""Where a study stands: what the raw store and the logs of this checkout know of its launches.

In:  a Study, the Store. Out: per host, launches that are done, not possible, failed, stopped by hand,
not tried yet, or kept back since no verdict has chosen them. No host is asked; nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import decisions, forecast
from decodelab.receipts import pending_runs, receipt
from decodelab.store import Store
from decodelab.study import Study


@dataclass
class Standing:
    """The launches of one host by what has become of them, and the reasons."""

    host: str
    done: list[str] = field(default_factory=list)
    not_possible: dict[str, str] = field(default_factory=dict)
    screened_out: dict[str, str] = field(default_factory=dict)  # of those done, in words
    failed: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    kept_back: list[str] = field(default_factory=list)  # not chosen, or undecided: not to be done

    @property
    def to_do(self) -> list[str]:
        """What the next call measures: what failed or was stopped is tried again."""
        return [*self.remaining, *self.stopped, *self.failed]

    def came_to_nothing(self, digest: str, reason: str) -> None:
        """A launch with something to do has failed, or was stopped by hand."""
        self._take_out(digest)
        if was_stopped(reason):
            self.stopped.append(digest)
        else:
            self.failed[digest] = reason

    def tried_again(self, queued: Collection[str]) -> None:
        """What failed or was stopped and is in the host's queue now is still to be measured."""
        again = [digest for digest in (*self.failed, *self.stopped) if digest in queued]
        for digest in again:
            self._take_out(digest)
        self.remaining += again

    def _take_out(self, digest: str) -> None:
        self.failed.pop(digest, None)
        self.stopped = [other for other in self.stopped if other != digest]
        self.remaining = [other for other in self.remaining if other != digest]

    def rest_s(self, study: Study, store: Store, pace: forecast.Pace) -> float:
        """What all that is to do should take, at that pace."""
        launches = [study.launches[digest] for digest in self.to_do]
        return sum(pace.launch_s(study.plan, x, pending_runs(x, store)) for x in launches)

    @property
    def total(self) -> int:
        return len(self.done) + len(self.not_possible) + len(self.to_do)


def standings(study: Study, store: Store) -> list[Standing]:
    """One for each host of the study, in plan order."""
    found = {host: Standing(host) for host in study.hosts}
    states = study.launch_states()
    for digest, launch in study.launches.items():
        if states[digest] != decisions.CHOSEN:
            found[launch["host"]].kept_back.append(digest)
            continue
        _sort_in(found[launch["host"]], study, digest, launch, store)
    return list(found.values())


def was_stopped(reason: str) -> bool:
    """Whether the words of a launch that came to nothing say that somebody stopped it."""
    first = reason.split("\n", 1)[0]
    return first.startswith("stopped:") or first.endswith("was stopped by hand.")


def _sort_in(
    standing: Standing, study: Study, digest: str, launch: Mapping[str, Any], store: Store
) -> None:
    made = receipt(launch, store, study.root)
    if made["status"] == "done":
        standing.done.append(digest)
        for screen in made.get("screened_out") or []:
            values = f"{screen['value']:.3g} against {screen['best']:.3g}"
            standing.screened_out[digest] = f"{screen['metric']} {values}"
    elif made["status"] == "not_possible":
        cause = made["cause"] or {}
        standing.not_possible[digest] = str(cause.get("root_cause") or cause.get("class"))
    else:
        reason = _last_failure(study, digest)
        if reason is None:
            standing.remaining.append(digest)
        else:
            standing.came_to_nothing(digest, reason)


def _last_failure(study: Study, digest: str) -> str | None:
    """What launch.py left in its log when the launch came to nothing final."""
    try:
        folder = Path(study.root) / study.results / "logs"
        text = (folder / f"{digest}.log").read_text(encoding="utf-8")
    except OSError:
        return None
    return text.strip() or None
