"""The health gate: do the accelerators compute, before a launch spends half an hour on them?

In:  an order's "device_check" {"mode": "auto"|"on", "devices": [indices] | null, "need": n,
"choose": bool, "deadline_s"}, the server's first word and environment. Out: a finding (see device_verdict.py).

The work is device_probe.py's, in the server's own python. A check that outlasts its deadline is
left alone, for a card wedges when a kernel's process is killed: its pid is told and remembered, and
its device is not touched again while it lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from cargo import apart, beside, identity
from cargo.device_use import NODES, Hung, nodes, places, unplaced, visible_ids, who_holds
from cargo.device_verdict import TAKEN_MIB, Asked, Result, finding, read

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "device_probe.py")
POLL_S = 0.05
MARGIN_S = 5.0  # the leader's own deadline comes first
_LEFT: List["subprocess.Popen[bytes]"] = []  # still there when we went on; each is reaped in time


def nothing() -> None:
    """For who has no stop to heed."""


def check(
    asked: Asked,
    argv0: str,
    env: Mapping[str, str],
    root: str,
    heed: Callable[[], None] = nothing,
) -> Dict[str, Any]:
    """`root`: the working folder, which remembers what hangs; `heed` may raise to end the waiting."""
    begin = time.monotonic()
    if asked.mode == "auto" and not asked.choose and not nodes():
        return finding("skipped", "this machine shows no accelerator (no %s …)" % NODES[0])
    python = identity.python_of(argv0, dict(env))
    if python is None:
        return finding("skipped", "no python found behind %s" % argv0)
    hung, here = Hung(root), visible_ids(env)
    _settle(hung, asked, heed)
    stuck = hung.living()
    whole_host = [told for told in stuck if told["device"] is None]
    holders = who_holds([told["pid"] for told in stuck])
    if whole_host:
        words = "an earlier check still hangs at %(stage)s (pid %(pid)d)" % whole_host[0]
        return finding("failed", words, holders=holders)
    for told in unplaced(stuck, here):
        words = (
            "device %(device)s, on which an earlier check hangs at %(stage)s (pid %(pid)d)" % told
        )
        words += ", may be one of %s" % ", ".join(here or ["those that are counted here"])
        return finding("failed", words, holders=holders)
    wanted = _indices(asked, here)
    before = [(i, told) for i, told in places(stuck, here) if wanted is None or i in wanted]
    leave = [index for index, _ in before]
    folder = tempfile.mkdtemp(prefix="decodelab-devices-")
    ended = False
    try:
        _reap()
        leader = _start(python, env, folder, asked._replace(devices=wanted), leave)
        try:
            ended = _wait(leader, folder, asked.deadline_s, heed)
        except BaseException:  # a stop: what is on a device stays there, and is not forgotten
            hung.add_unsettled(leader.pid, folder, env)
            raise
        result = Result(folder, asked, env, holders, before)
        if result.hanging:
            hung.add(result.hanging)
        return dict(result.finding(), seconds=round(time.monotonic() - begin, 3))
    finally:
        _reap()
        if ended:
            shutil.rmtree(folder, ignore_errors=True)


def _settle(hung: Hung, asked: Asked, heed: Callable[[], None]) -> None:
    """A check that a stop left behind gets the time that it would have had; what it hangs in after
    that is read from its folder.
    """
    end = time.monotonic() + asked.deadline_s
    while hung.unsettled() and time.monotonic() < end:
        heed()
        _reap()
        time.sleep(POLL_S)
    for told in hung.unsettled():
        found = Result(told["folder"], asked, told["seen"], [], []).hanging
        if found:  # else nothing is known of its devices, and the host as a whole stays untouched
            hung.replace(told, found)


def _indices(asked: Asked, here: Optional[List[str]]) -> Optional[List[int]]:
    """The ones to look at, as torch counts them."""
    if asked.devices is None:
        return None
    return asked.devices if here is None else list(range(len(here)))[: len(asked.devices)]


def _start(
    python: str, env: Mapping[str, str], folder: str, asked: Asked, leave: List[int]
) -> "subprocess.Popen[bytes]":
    told = dict(asked._asdict(), leave=leave, taken_mib=TAKEN_MIB)
    leader = apart.start(python, PROBE, env, folder, told)
    beside.RUNNING.add(leader.pid)  # else a stopping server would take it for its own orphan
    _LEFT.append(leader)
    return leader


def _reap() -> None:
    for leader in [one for one in _LEFT if one.poll() is not None]:
        _LEFT.remove(leader)
        beside.RUNNING.discard(leader.pid)


def _wait(
    leader: "subprocess.Popen[bytes]", folder: str, deadline_s: float, heed: Callable[[], None]
) -> bool:
    """Until it ended, has said its last word, or makes no step within the deadline. Whether it
    ended; it is never ended from here.
    """
    steps, end = -1, 0.0
    while leader.poll() is None:
        heed()
        lines = read(folder, "leader")
        if any("end" in line for line in lines):
            with contextlib.suppress(subprocess.TimeoutExpired):
                leader.wait(0.5)  # it leaves at once unless something hangs
            break
        if len(lines) != steps:
            steps, end = len(lines), time.monotonic() + deadline_s + MARGIN_S
        if time.monotonic() > end:
            break
        time.sleep(POLL_S)
    return leader.poll() is not None


class DeviceGate:
    """One agent's memory: a launch that ended well proves its devices better than any check, so
    the next one on the same devices needs none.
    """

    def __init__(self) -> None:
        self._key: Optional[str] = None
        self._last: Dict[str, Any] = {}
        self.proved = False

    def look(
        self, asked: Asked, argv0: str, env: Mapping[str, str], root: str, heed: Callable[[], None]
    ) -> Tuple[Dict[str, Any], bool]:
        """The finding, and whether it is new."""
        key = json.dumps([asked, argv0, visible_ids(env)])
        if self.proved and key == self._key:
            words = "not made again: the launch before ended well on these devices"
            return dict(self._last, found=words, seconds=0.0), False
        self.proved, self._key = False, key
        self._last = check(asked, argv0, env, root, heed)
        return self._last, True
