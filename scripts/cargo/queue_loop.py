"""The agent's loop: next order, host lock, leftovers of a dead agent, launch, consequences.

In: the store, the signals. Out: outcomes in done/, an empty queue, possibly halted.json.
The decision to exit is made under queue.lock, so an order is never queued for an agent that leaves.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, List, Optional

from cargo import reasons
from cargo.client_floor import ClientFloor
from cargo.device_check import DeviceGate
from cargo.event_log import EventLog
from cargo.host_lock import HostLock, LockUnusable, holder
from cargo.keeper_link import clean_after_dead_agent
from cargo.launch import NOT_THE_HOST, Known, Launch, NotPossible
from cargo.queue_store import Store
from cargo.screening import Races
from cargo.setup_env import Setups
from cargo.watch import Signals

LOCK_POLL_S = 0.3
LOCK_EVENT_S = 60.0
FAILURES_TO_HALT = 2
HALT_AT_ONCE = ("no_space", "not_writable")  # the next launch would meet the same disk


class QueueLoop:
    def __init__(self, store: Store, signals: Signals) -> None:
        self.store, self.signals = store, signals
        self.known = Known(NotPossible(), Setups(), ClientFloor(), DeviceGate(), Races())
        self.lock: Optional[HostLock] = None
        self.lock_trouble: Optional[str] = None
        self.cleaned = False
        self.waiting_since: Optional[float] = None
        self.lock_told: Dict[str, float] = {}
        self.failures: List[str] = []  # launches that failed in a row for the host's sake

    def run(self) -> int:
        count = 0
        while True:
            order = self._next()
            if order is None:
                return count
            if not self._has_host():
                self._wait_for_host(order)
                continue
            self._clean_leftovers()
            launch = Launch(self.store, order, self.known, self.signals)
            launch.host_is_ours = self._host_is_ours
            outcome = launch.carry_out()
            count += 1
            self._after(order, outcome, launch.left)

    # ------------------------------------------------------------------ choosing
    def _next(self) -> Optional[Dict[str, Any]]:
        """The head of the queue, as current launch if the host is ours; None: we have left."""
        store = self.store
        with store.locked():
            self._heed_stop()
            order = store.head()
            while order is not None and store.outcome(order["launch"]) is not None:
                store.remove(order["launch"])  # an agent died between outcome and removal
                order = store.head()
            if order is None:
                store.remove_agent()
                store.sweep_secrets()
                store.reserve.give_up()
                if self.lock is not None:
                    self.lock.release()
                return None
            mine = self._take_host(order)
            state = {"state": "working" if mine else "lock_wait", "owner": order["owner"]}
            store.write_agent(os.getpid(), current=order["launch"] if mine else None, **state)
            return order

    def _heed_stop(self) -> None:
        """Between launches: a stop request is done with once the queue is dropped."""
        if self.signals.stop:
            for item in self.store.queued():
                self.store.drop(item.launch, "stopped")
        if self.store.stop_word() is not None:
            self.store.apply_stop()
            self.store.clear_stop()

    # ------------------------------------------------------------------ host lock
    def _take_host(self, order: Dict[str, Any]) -> bool:
        path = order["submitted"].get("host_lock") or self.store.at("host.lock")
        if self.lock is not None and self.lock.path != path:
            self.lock.release()
            self.lock = None
        if self.lock is None:
            self.lock = HostLock(path)
        owner = {
            "owner": order["owner"],
            "pid": os.getpid(),
            "uid": os.getuid(),
            "workdir": self.store.root,
            "since": time.time(),
            "doing": "launch %s %s" % (order.get("label"), order["launch"]),
        }
        self.lock_trouble = None
        try:
            return self.lock.take(owner)
        except LockUnusable as trouble:
            self.lock_trouble = str(trouble)
            return False

    def _host_is_ours(self) -> bool:
        return self.lock is not None and self.lock.is_the_file()

    def _has_host(self) -> bool:
        return self.lock is not None and self.lock.held

    def _wait_for_host(self, order: Dict[str, Any]) -> None:
        """Tell the waiting launch who is in the way; give up after the declared time."""
        now = time.monotonic()
        if self.waiting_since is None:
            self.waiting_since = now
        limit_s = order["submitted"]["lock_wait_s"]
        assert self.lock is not None
        who = holder(self.lock.path)
        if self.lock_trouble is not None:
            self._give_up(order, "lock_unusable", "the host lock %s" % self.lock_trouble)
            return
        if now - self.waiting_since > limit_s:
            text = "the host was busy for %g s; held by %s, doing: %s, since %s"
            words = (limit_s, who["owner"], who["doing"] or "unknown", _clock(who["since"]))
            self._give_up(order, "lock_timeout", text % words)
            return
        key = "%s %s" % (order["launch"], who)
        if now - self.lock_told.get(key, -LOCK_EVENT_S) >= LOCK_EVENT_S:
            self.lock_told[key] = now
            self._tell(order, who)
        end = time.monotonic() + LOCK_POLL_S
        while time.monotonic() < end and not self.signals.stop and self.store.stop_word() is None:
            time.sleep(0.05)

    def _tell(self, order: Dict[str, Any], who: Dict[str, Any]) -> None:
        folder = self.store.launch_dir(order["launch"])
        with contextlib.suppress(OSError):  # a full disk must not end the waiting
            os.makedirs(folder, exist_ok=True)
            events = EventLog(os.path.join(folder, "events.jsonl"))
            events.emit("lock_wait", **who)
            events.close()

    def _give_up(self, order: Dict[str, Any], code: str, text: str) -> None:
        launch = order["launch"]
        os.makedirs(self.store.launch_dir(launch), exist_ok=True)
        with self.store.locked():
            self.store.seal_half_starts(launch)
            kept, starts = self.store.finished_runs(launch), self.store.starts(launch)
            now, cause = time.time(), reasons.cause(code, text)
            self.store.write_outcome(launch, "invalid", code, cause, starts, kept, now, now)
            self.store.remove(launch)
            self.store.halt(text, [launch])

    # ------------------------------------------------------------------ before and after a launch
    def _clean_leftovers(self) -> None:
        """Once per agent, when the host is ours: end what a dead agent of this folder left."""
        if self.cleaned:
            return
        self.cleaned = True
        for name in sorted(os.listdir(self.store.at("live"))):
            if name.endswith(".json"):
                killed, left = clean_after_dead_agent(self.store.at("live", name))
                print("leftovers of %s: killed %d, left %s" % (name, killed, left), flush=True)

    def _after(self, order: Dict[str, Any], outcome: Dict[str, Any], left: List[int]) -> None:
        launch = order["launch"]
        host_fault = outcome["status"] == "invalid" and outcome["reason"] not in NOT_THE_HOST
        if outcome["status"] != "stopped":
            self.failures = [*self.failures, launch] if host_fault else []
        with self.store.locked():
            self.store.remove(launch)
            self.store.write_agent(os.getpid(), state="between", current=None, owner=order["owner"])
            if left:
                words = "processes %s of launch %s cannot be killed" % (left, launch)
                self.store.halt(words, [launch])
            elif outcome["reason"] in HALT_AT_ONCE:
                self.store.halt(str((outcome["cause"] or {}).get("root_cause")), [launch])
            elif len(self.failures) >= FAILURES_TO_HALT:
                words = (
                    "%d launches in a row failed for no cause known to lie in their configuration, "
                    "the last: %s (%s)"
                )
                cause = (outcome["cause"] or {}).get("root_cause")
                text = words % (len(self.failures), outcome["reason"], cause)
                self.store.halt(text, self.failures)
                self.failures = []


def _clock(since: Any) -> str:
    if not isinstance(since, (int, float)):
        return "unknown"
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(since))
