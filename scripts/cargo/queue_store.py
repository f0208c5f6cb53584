"""The host agent's working folder: queue of orders, agent record, stop file, finished launches.

In: orders (contract "decodelab.order/1"), stop requests. Out: files; every change of the queue is
made under queue.lock, so that `submit`, `stop` and the agent's decision to exit never race.

<workdir>/ queue.lock · queue/<seq6>-<launch16>.json · agent.json · agent.log · stop · halted.json
           host.lock · live/<start_id>.json (what runs now) · cwd/<start_id>/ · done/<launch16>/...
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from cargo import procs, whole

ORDER_SCHEMA = "decodelab.order/1"
OUTCOME_SCHEMA = "decodelab.outcome/1"
DIGEST = re.compile(r"[0-9a-f]{16}\Z")
QUEUED = re.compile(r"(\d{6,})-([0-9a-f]{16})\.json\Z")
LOCK_WAIT_S = 30.0


class StoreError(Exception):
    """Something about the folder or an order that the caller must be told in words."""


class Queued(NamedTuple):
    seq: int
    launch: str
    path: str


class Store:
    def __init__(self, workdir: str) -> None:
        self.root = os.path.abspath(workdir)

    # ------------------------------------------------------------------ places
    def at(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def launch_dir(self, launch: str) -> str:
        return self.at("done", launch)

    def prepare(self) -> None:
        for name in ("queue", "done", "live", "cwd"):
            os.makedirs(self.at(name), exist_ok=True)

    @contextlib.contextmanager
    def locked(self, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        fd = os.open(self.at("queue.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        end = time.monotonic() + wait_s
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise StoreError("queue.lock is held for more than %g s" % wait_s) from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(fd)  # closing releases the lock

    # ------------------------------------------------------------------ queue
    def queued(self) -> List[Queued]:
        found = []
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.at("queue")):
                match = QUEUED.match(name)
                if match:
                    found.append(Queued(int(match[1]), match[2], self.at("queue", name)))
        return sorted(found)

    def order(self, item: Queued) -> Optional[Dict[str, Any]]:
        return whole.read_json(item.path)

    def head(self) -> Optional[Dict[str, Any]]:
        for item in self.queued():
            order = self.order(item)
            if order is not None:
                return order
            os.rename(item.path, item.path + ".unreadable")
        return None

    def append(self, order: Dict[str, Any]) -> None:
        taken = [item.seq for item in self.queued()]
        seq = max(taken) + 1 if taken else 1
        whole.write_json(self.at("queue", "%06d-%s.json" % (seq, order["launch"])), order)

    def remove(self, launch: str) -> None:
        for item in self.queued():
            if item.launch == launch:
                os.unlink(item.path)

    def drop(self, launch: str, why: str) -> None:
        """Take an order out. What a dead agent had measured for it stays fetchable."""
        folder = self.launch_dir(launch)
        if not os.path.exists(os.path.join(folder, "outcome.json")):
            self.seal_half_starts(launch)
            runs, starts = self.finished_runs(launch), self.starts(launch)
            if runs or starts:
                now = time.time()
                self.write_outcome(launch, "stopped", why, None, starts, runs, now, now)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self.remove(launch)

    # ------------------------------------------------------------------ agent record
    def agent(self) -> Optional[Dict[str, Any]]:
        return whole.read_json(self.at("agent.json"))

    def agent_alive(self) -> Optional[Dict[str, Any]]:
        agent = self.agent()
        if agent is None or agent.get("boot_id") != procs.boot_id():
            return None
        return agent if procs.alive(procs.Proc(agent["pid"], agent["start_time"])) else None

    def write_agent(self, pid: int, **facts: Any) -> None:
        stat = procs.read_stat(pid)
        record = {
            "pid": pid,
            "start_time": stat.start_time if stat else None,
            "boot_id": procs.boot_id(),
            "t": time.time(),
        }
        record.update(facts)
        whole.write_json(self.at("agent.json"), record, durable=False)

    def remove_agent(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at("agent.json"))

    def log_tail(self, limit: int = 2000) -> str:
        try:
            with open(self.at("agent.log"), "rb") as f:
                f.seek(0, os.SEEK_END)
                f.seek(max(0, f.tell() - limit))
                return f.read().decode("utf-8", "replace")
        except OSError:
            return ""

    # ------------------------------------------------------------------ stop file and halt
    def _stop_words(self) -> List[str]:
        try:
            with open(self.at("stop"), encoding="utf-8", errors="replace") as f:
                return f.read().split() or ["now"]
        except FileNotFoundError:
            return []
        except OSError:
            return ["now"]

    def stop_word(self) -> Optional[str]:
        """ "now", "drain" or None. An unknown word means "now": someone wants it to end."""
        words = self._stop_words()
        if not words:
            return None
        return "drain" if words[0] == "drain" else "now"

    def drop_queued(self, owner: str) -> None:
        """Under the lock: take one owner's orders out, but for the launch that runs."""
        current = (self.agent_alive() or {}).get("current")
        for item in self.queued():
            if item.launch != current and (self.order(item) or {}).get("owner") == owner:
                self.drop(item.launch, "stopped")

    def apply_stop(self) -> None:
        """Under the lock: drop what is queued behind the current launch, once per stop file.

        Orders that are submitted after the stop was asked for survive it.
        """
        word = self.stop_word()
        if word is None or "dropped" in self._stop_words():
            return
        current = (self.agent_alive() or {}).get("current")
        for item in self.queued():
            if item.launch != current:
                self.drop(item.launch, "stopped")
        whole.write(self.at("stop"), (word + " dropped\n").encode(), durable=False)

    def ask_to_stop(self, word: str, *, dropped: bool = False) -> None:
        """ "now" outranks "drain"; asking twice drops nothing twice. `dropped`: the queue is done with already."""
        if self.stop_word() not in (word, "now"):
            text = word + (" dropped" if dropped else "")
            whole.write(self.at("stop"), (text + "\n").encode(), durable=False)

    def clear_stop(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at("stop"))

    def halt(self, reason: str, launches: List[str]) -> None:
        session = self.session(launches[-1]) if launches else None
        for item in self.queued():
            self.drop(item.launch, "halted")
        facts = {"reason": reason, "launches": launches, "session": session, "t": time.time()}
        whole.write_json(self.at("halted.json"), facts)

    def halted(self) -> Optional[Dict[str, Any]]:
        return whole.read_json(self.at("halted.json"))

    def clear_halt(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at("halted.json"))

    # ------------------------------------------------------------------ launches and their results
    def outcome(self, launch: str) -> Optional[Dict[str, Any]]:
        return whole.read_json(os.path.join(self.launch_dir(launch), "outcome.json"))

    def kept(self) -> List[str]:
        """Finished launches that nobody has fetched and forgotten yet."""
        try:
            names = sorted(os.listdir(self.at("done")))
        except FileNotFoundError:
            return []
        return [
            n
            for n in names
            if DIGEST.match(n) and os.path.exists(self.at("done", n, "outcome.json"))
        ]

    def finished_runs(self, launch: str) -> Dict[str, Dict[str, Any]]:
        """The whole results that lie in the launch's folder; half-made ones are not seen."""
        found: Dict[str, Dict[str, Any]] = {}
        folder = os.path.join(self.launch_dir(launch), "runs")
        for run in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            for attempt in sorted(os.listdir(os.path.join(folder, run))):
                done = whole.read_json(os.path.join(folder, run, attempt, whole.DONE))
                if attempt.startswith(".") or done is None:
                    continue
                if run in found and found[run]["status"] == "done":
                    continue
                found[run] = {
                    "status": done["status"],
                    "start_id": done["start_id"],
                    "attempt": attempt,
                    "reasons": done["reasons"],
                }
        return found

    def starts(self, launch: str) -> List[str]:
        folder = self.launch_dir(launch)
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [
            n[len("start-") :]
            for n in names
            if n.startswith("start-") and os.path.exists(os.path.join(folder, n, whole.DONE))
        ]

    def start_came_up(self, launch: str, start_id: str) -> bool:
        path = os.path.join(self.launch_dir(launch), "start-" + start_id, "start.json")
        return (whole.read_json(path) or {}).get("t_ready") is not None

    def seal_half_starts(self, launch: str) -> None:
        """A start whose agent died has a log and no DONE.json: seal it as what it was."""
        folder = self.launch_dir(launch)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            if not name.startswith("start-") or os.path.exists(os.path.join(path, whole.DONE)):
                continue
            record = whole.read_json(os.path.join(path, "start.json"))
            if record is None:
                shutil.rmtree(path, ignore_errors=True)  # not even begun
                continue
            came_up = record["t_ready"] is not None
            record.update(status="stopped" if came_up else "failed", note="agent_died")
            whole.write_json(os.path.join(path, "start.json"), record)
            facts = {key: record[key] for key in ("start_id", "server", "start")}
            facts["run"] = None
            whole.seal(path, facts, "done" if came_up else "invalid", ["agent_died"])

    def write_outcome(
        self,
        launch: str,
        status: str,
        reason: Optional[str],
        cause: Optional[Dict[str, Any]],
        starts: List[str],
        runs: Dict[str, Dict[str, Any]],
        t_begin: float,
        t_end: float,
    ) -> Dict[str, Any]:
        outcome = {
            "schema": OUTCOME_SCHEMA,
            "launch": launch,
            "session": self.session(launch),
            "status": status,
            "reason": reason,
            "cause": cause,
            "starts": starts,
            "runs": runs,
            "t_begin": t_begin,
            "t_end": t_end,
        }
        whole.write_json(os.path.join(self.launch_dir(launch), "outcome.json"), outcome)
        return outcome

    def session(self, launch: str) -> Optional[str]:
        """Which call of the workflow ordered this launch; only its own word for it, never read here."""
        order = whole.read_json(os.path.join(self.launch_dir(launch), "order.json"))
        queued = (self.order(item) for item in self.queued() if item.launch == launch)
        return (order or next(queued, None) or {}).get("session")

    def forget(self, launch: str) -> bool:
        """Remove a finished launch; renamed first, so that nobody sees it half removed."""
        if self.outcome(launch) is None:
            return False
        trash = self.at("done", ".forgotten-%s-%d" % (launch, os.getpid()))
        os.rename(self.launch_dir(launch), trash)
        shutil.rmtree(trash, ignore_errors=True)
        return True


def check_order(order: Any) -> None:
    """Refuse what cannot be carried out, and any digest that is not safe as a folder name."""
    if not isinstance(order, dict) or order.get("schema") != ORDER_SCHEMA:
        raise StoreError("an order must be an object with schema %s" % ORDER_SCHEMA)
    if not DIGEST.match(str(order.get("launch"))):
        raise StoreError("launch must be 16 hex digits, found %r" % order.get("launch"))
    server = order.get("server")
    if not isinstance(server, dict) or not DIGEST.match(str(server.get("digest"))):
        raise StoreError("launch %s: server.digest must be 16 hex digits" % order["launch"])
    argv = server.get("argv")
    if not server.get("attach") and not (
        isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv)
    ):
        raise StoreError("launch %s: server.argv must be a list of strings" % order["launch"])
    limits = order.get("limits")
    wanted = ("start_s", "silence_s", "probe_s", "stop_grace_s", "life_s")
    if not isinstance(limits, dict) or not all(
        isinstance(limits.get(name), (int, float)) for name in wanted
    ):
        names = ", ".join(wanted)
        raise StoreError("launch %s: limits needs numbers %s" % (order["launch"], names))
    runs = order.get("runs")
    if not isinstance(runs, list):
        raise StoreError("launch %s: runs must be a list" % order["launch"])
    for run in runs:
        if not isinstance(run, dict) or not DIGEST.match(str(run.get("digest"))):
            raise StoreError("launch %s: a run's digest must be 16 hex digits" % order["launch"])


def submit_orders(store: Store, batch: Dict[str, Any]) -> Dict[str, Any]:
    """Under the lock: put the batch into the queue. Idempotent by launch.

    The owner's own pending orders become the batch, in its order; other owners' orders stay and
    come first. Launches that run, are finished, or belong to another owner are left as they are.
    """
    store.apply_stop()  # a stop that was asked for before this batch must not swallow it
    owner, orders = str(batch.get("owner", "")), batch.get("orders", [])
    current = (store.agent_alive() or {}).get("current")
    others, mine = {}, []
    for item in store.queued():
        order = store.order(item) or {}
        if order.get("owner") == owner and item.launch != current:
            mine.append(item.launch)
        else:
            others[item.launch] = order
    already: Dict[str, str] = {}
    wanted: List[Dict[str, Any]] = []
    for order in orders:
        launch = order["launch"]
        if launch in others:
            already[launch] = "running" if launch == current else "queued"
        elif store.outcome(launch) is not None:
            already[launch] = "finished"
        elif launch not in {o["launch"] for o in wanted}:
            wanted.append(_stamped(order, owner, batch))
    names = [order["launch"] for order in wanted]
    dropped = (
        [launch for launch in mine if launch not in names] if batch.get("replace", True) else []
    )
    for launch in dropped:
        store.drop(launch, "replaced")
    kept = [launch for launch in mine if launch in names]
    in_place = {item.launch: item.path for item in store.queued()}
    if kept != names[: len(kept)]:
        for launch in kept:
            store.remove(launch)
        kept = []
    for order in wanted:
        if order["launch"] in kept:
            whole.write_json(in_place[order["launch"]], order)
        else:
            store.append(order)
    if orders:
        store.clear_halt()
    return {
        "queued": [item.launch for item in store.queued()],
        "already": already,
        "dropped": dropped,
    }


def _stamped(order: Dict[str, Any], owner: str, batch: Dict[str, Any]) -> Dict[str, Any]:
    stamped = json.loads(json.dumps(order))
    stamped["owner"] = owner
    stamped["submitted"] = {
        "t": time.time(),
        "lock_wait_s": float(batch.get("lock_wait_s", 6 * 3600)),
        "host_lock": batch.get("host_lock"),
    }
    return stamped
