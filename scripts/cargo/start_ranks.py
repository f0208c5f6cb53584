"""Which process of a starting server is behind its peers.

In:  the stages that its processes tell of, each known by the prefix of its log lines. Out: the stage
of the one that is behind. Peers are processes of one kind (workers, data-parallel engines): only
they do the same work. What the engine says for all of its workers ends what is known of them.
"""

from __future__ import annotations

import re
from typing import Dict, Optional

_WHO = re.compile(
    r"\(((?:EngineCore|Worker|VllmWorker|RayWorker)\w*[^()]{0,40}\bpid=\d+)[^()]{0,40}\)"
)
# Said by one process once all workers have left the stages before it.
_FOR_ALL = re.compile(
    r"# \w+ blocks: |KV cache size: |Maximum concurrency for|init engine \(|Starting vLLM |Available routes are"
)
_HEAD = 400  # characters of a line: the words of _FOR_ALL stand there
_PREFIX = 120  # characters of a line: who says it, behind a container's or a launcher's time


def process_of(line: str) -> str:
    """`Worker_TP1 pid=2` of a line that begins with it; "" where nobody is named."""
    found = _WHO.search(line[:_PREFIX])
    return found.group(1) if found else ""


def _kind(process: str) -> str:
    return re.sub(r"\d+", "", process)


class Ranks:
    """What each process told last; stages are their indices."""

    def __init__(self) -> None:
        self._at: Dict[str, int] = {}  # in the order in which they last spoke

    def restart(self) -> None:
        self._at.clear()

    def told(self, line: str, stage: int) -> None:
        who = process_of(line)
        if _FOR_ALL.search(line[:_HEAD]):
            kind = _kind(who)
            self._at = {one: at for one, at in self._at.items() if who and _kind(one) == kind}
        if who:
            self._at[who] = max(stage, self._at.pop(who, stage))

    def behind(self) -> Optional[int]:
        """The stage of the process that spoke last of those that a peer is ahead of."""
        ahead: Dict[str, int] = {}
        for one, at in self._at.items():
            ahead[_kind(one)] = max(at, ahead.get(_kind(one), at))
        return next(
            (at for one, at in reversed(list(self._at.items())) if at < ahead[_kind(one)]), None
        )
