"""The host agent's working folder: queue of orders, agent record, stop file, finished launches.

In: orders (contract "decodelab.order/1"), stop requests. Out: files; every change of the queue is
made under queue.lock, so that `submit`, `stop` and the agent's decision to exit never race.

<workdir>/ queue.lock · queue/<seq6>-<launch16>.json · agent.json · agent.log · stop · halted.json
           stopped.json (calls that were stopped by hand) · host.lock · done/<launch16>/...
           live/<start_id>.json (what runs now) · cwd/<start_id>/ · secrets/<owner16>.json
           reserve (room for the last words on a full disk) · hanging_checks.json (of devices)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from cargo import procs, secret_files, whole
from cargo.mask import Mask
from cargo.room import Reserve

OUTCOME_SCHEMA = "decodelab.outcome/1"
DIGEST = re.compile(r"[0-9a-f]{16}\Z")
QUEUED = re.compile(r"(\d{6,})-([0-9a-f]{16})\.json\Z")
LOCK_WAIT_S = 30.0
FORGOTTEN = "forgotten"
FORGOTTEN_FOR_S = 24 * 3600.0


class StoreError(Exception):
    """Something about the folder or an order that the caller must be told in words."""


class Queued(NamedTuple):
    seq: int
    launch: str
    path: str


class Store:
    def __init__(self, workdir: str) -> None:
        self.root = os.path.abspath(workdir)
        self.reserve = Reserve(self.at("reserve"))

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
            if isinstance(order, dict) and order.get("launch") == item.launch:
                return order
            os.rename(item.path, item.path + ".unreadable")
        return None

    def append(self, order: Dict[str, Any]) -> str:
        taken = [item.seq for item in self.queued()]
        seq = max(taken) + 1 if taken else 1
        path = self.at("queue", "%06d-%s.json" % (seq, order["launch"]))
        whole.write_json(path, order, exact=True)
        return path

    def remove(self, launch: str) -> None:
        """The order leaves the queue, and with an owner's last one the owner's secrets go."""
        for item in self.queued():
            if item.launch == launch:
                os.unlink(item.path)
        self.sweep_secrets()

    def owners(self) -> List[str]:
        return [str((self.order(item) or {}).get("owner")) for item in self.queued()]

    def sweep_secrets(self) -> None:
        secret_files.sweep(self.root, self.owners())

    def drop_secrets(self, owner: Optional[str]) -> None:
        """At a stop: also those that no submit has claimed yet; of this owner, or of all."""
        left = self.owners()
        if owner is None:
            secret_files.sweep(self.root, left, unclaimed_too=True)
        elif owner not in left:
            secret_files.drop(self.root, owner)

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
        path = self.at("agent.json")
        self.reserve.write(lambda: whole.write_json(path, record, durable=False))

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
        self.reserve.write(lambda: whole.write_json(self.at("halted.json"), facts))

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
            if DIGEST.match(n)
            and os.path.exists(self.at("done", n, "outcome.json"))
            and not self.is_forgotten(n)
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
        from cargo import profiling  # only here: `status`, which is polled, needs nothing of it

        folder = self.launch_dir(launch)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            if not name.startswith("start-") or os.path.exists(os.path.join(path, whole.DONE)):
                continue
            record = whole.read_json(os.path.join(path, "start.json"))
            if record is None:
                shutil.rmtree(path, ignore_errors=True)  # not even begun
                continue
            profiling.settle(path)
            self.mask_of(launch).folder(path)
            came_up = record["t_ready"] is not None
            record.update(status="stopped" if came_up else "failed", note="agent_died")
            whole.write_json(os.path.join(path, "start.json"), record)
            facts = {key: record[key] for key in ("start_id", "server", "start")}
            facts["run"] = None
            whole.seal(path, facts, "done" if came_up else "invalid", ["agent_died"])

    def mask_of(self, launch: str) -> Mask:
        """Hides the secrets of the launch's owner, as far as they are still here."""
        owner = self.order_of(launch).get("owner")
        return Mask(secret_files.all_values(self.root, str(owner)))

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
        screened_out: Sequence[Dict[str, Any]] = (),
    ) -> Dict[str, Any]:
        outcome: Dict[str, Any] = {
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
        if screened_out:
            outcome["screened_out"] = list(screened_out)
        path = os.path.join(self.launch_dir(launch), "outcome.json")
        self.reserve.write(lambda: whole.write_json(path, outcome))
        return outcome

    def order_of(self, launch: str) -> Dict[str, Any]:
        """The order as it was begun, else as it is queued, else nothing."""
        begun = whole.read_json(os.path.join(self.launch_dir(launch), "order.json"))
        queued = (self.order(item) for item in self.queued() if item.launch == launch)
        return begun or next(queued, None) or {}

    def session(self, launch: str) -> Optional[str]:
        """Which call of the workflow ordered this launch; only its own word for it, never read here."""
        return self.order_of(launch).get("session")

    def forget(self, launch: str) -> bool:
        """Its owner has fetched it. It stays for a day, since another checkout of the same study may
        wait for the same launch."""
        if self.outcome(launch) is None:
            return False
        whole.write(os.path.join(self.launch_dir(launch), FORGOTTEN), b"", durable=False)
        return True

    def is_forgotten(self, launch: str) -> bool:
        return os.path.exists(os.path.join(self.launch_dir(launch), FORGOTTEN))

    def sweep_forgotten(self) -> None:
        for name in os.listdir(self.at("done")):
            with contextlib.suppress(OSError):
                age_s = time.time() - os.stat(self.at("done", name, FORGOTTEN)).st_mtime
                if abs(age_s) > FORGOTTEN_FOR_S:
                    self.purge(name)

    def purge(self, launch: str) -> bool:
        """Remove a finished launch; renamed first, so that nobody sees it half removed."""
        if self.outcome(launch) is None:
            return False
        trash = self.at("done", ".forgotten-%s-%d" % (launch, os.getpid()))
        os.rename(self.launch_dir(launch), trash)
        shutil.rmtree(trash, ignore_errors=True)
        return True
