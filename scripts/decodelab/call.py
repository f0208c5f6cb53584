"""What one call of snakemake is about, as its jobs learn it: control keys, wanted launches, session.

In:  the environment variable DECODELAB_CALL that the Snakefile sets. Out: a `Call`; without the
variable (a step run by hand) an empty one. It travels in the environment since Snakemake would
take a parameter for a reason to run jobs again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

VARIABLE = "DECODELAB_CALL"


@dataclass(frozen=True)
class Call:
    """`control`: the keys of --config. `queue`: digests of the launches that the targets need.
    `session` tells a failure of this call from one of an earlier call, which is tried again.
    `code` is the digest of the reading code that the call began with.
    """

    control: Mapping[str, Any] = field(default_factory=dict)
    queue: frozenset[str] = frozenset()
    session: str = ""
    code: str = ""

    @property
    def retried(self) -> frozenset[str]:
        """The names that --config retry=NAME gives: variants, grids, runs, experiments, or `all`."""
        given = self.control.get("retry") or []
        return frozenset([given] if isinstance(given, str) else given)


def begin(control: Mapping[str, Any], queue: Iterable[str], code: str = "") -> None:
    """Set the variable for every job of this call."""
    session = f"{os.getpid()}-{time.time_ns()}"
    told = {"control": dict(control), "queue": sorted(queue), "session": session, "code": code}
    os.environ[VARIABLE] = json.dumps(told)


def current() -> Call:
    told = json.loads(os.environ.get(VARIABLE, "{}"))
    return Call(
        told.get("control", {}),
        frozenset(told.get("queue", [])),
        told.get("session", ""),
        told.get("code", ""),
    )
