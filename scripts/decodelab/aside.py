"""What a call of snakemake asks of one host, aside of the study: check_hosts, probe and fetch_raw take
`--config host=NAME` for themselves, so that it does not put the study's servers on that host.

In:  the control keys of --config and the words of the command line. Out: the control keys that are
left for the study, and the host. It travels in the environment, as the call does (see call.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

VARIABLE = "DECODELAB_ASIDE"
OF_ONE_HOST = frozenset({"check_hosts", "fetch_raw", "probe"})
# Targets that measure nothing: nothing is queued for them, and their failure stops no queue.
TARGETS = OF_ONE_HOST | {"status", "smoke", "stop", "report_partial", "verify"}


def begin(control: Mapping[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """Note the host that is asked about, for every job of this call; returns what is left."""
    left = dict(control)
    alone = "remote_dir" in left or not OF_ONE_HOST.isdisjoint(words)
    os.environ[VARIABLE] = str(left.pop("host", "")) if alone else ""
    return left


def host() -> str | None:
    return os.environ.get(VARIABLE) or None
