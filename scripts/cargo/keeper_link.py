"""The agent's end of a keeper: start it, hear it, stop it, and finish its work if it dies.

In: argv, environment, folders. Out: the server's process identity, its exit, a stop report.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set

from cargo import autogroup, beside, procs, whole

SHORT_GRACE_S = 3.0
KILL_DEADLINE_S = 20.0
KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")


class StopReport(NamedTuple):
    seconds: float
    killed: int
    left: List[int]


class KeeperLink:
    def __init__(self, mark: str, log: str, live: str, cwd: str) -> None:
        self.mark, self.log, self.live, self.cwd = mark, log, live, cwd
        self.main: Optional[procs.Proc] = None
        self.exit_code: Optional[int] = None
        self.exited = False  # the main process ended
        self.lost = False  # the keeper itself ended without having stopped the server
        self.exec_error: Optional[str] = None
        self.favour_client = autogroup.may_favour()
        self.polite: List[bool] = []
        self.report: Optional[StopReport] = None
        self._text = b""

    def start(self, argv: List[str], env: Dict[str, str]) -> None:
        me = procs.identify(os.getpid())
        spec = {
            "argv": argv,
            "env": env,
            "cwd": self.cwd,
            "log": self.log,
            "live": self.live,
            "mark": self.mark,
            "polite": not self.favour_client,
            "agent": {"pid": os.getpid(), "start_time": me.start_time if me else 0},
        }
        self.process = subprocess.Popen(  # not adopted: reaped through this object
            [*procs.PYTHON, "-S", KEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,  # agent.log
            cwd=self.cwd,
            bufsize=0,
        )
        beside.RUNNING.add(self.process.pid)
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(spec).encode("utf-8") + b"\n")
        self._wait_for(lambda: self.main or self.exec_error or self.lost, 20.0)

    # ------------------------------------------------------------------ hearing
    def poll(self) -> bool:
        """Take in what the keeper said. True while the server's main process lives."""
        self._listen(0.0)
        return self.main is not None and not (self.exited or self.lost)

    def _listen(self, seconds: float) -> None:
        out = self.process.stdout
        assert out is not None
        while not self.lost and select.select([out], [], [], seconds)[0]:
            seconds = 0.0
            chunk = os.read(out.fileno(), 65536)
            if not chunk:
                self.lost = self.report is None and self.exec_error is None
                return
            self._text += chunk
            *lines, self._text = self._text.split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, said: Dict[str, Any]) -> None:
        event = said["event"]
        if event == "started":
            self.main = procs.Proc(said["pid"], said["start_time"])
        elif event == "exec_failed":
            self.exec_error = said["error"]
        elif event == "exit":
            self.exited, self.exit_code = True, said["code"]
        elif event == "autogroup":
            self.polite.append(said["done"])
        elif event == "stopped":
            self.report = StopReport(said["seconds"], said["killed"], said["left"])

    def _wait_for(self, done: Any, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self.process.poll() is not None and not self._readable():
                self.lost = self.lost or (self.report is None and self.exec_error is None)
                return bool(done())
            self._listen(min(0.1, left))
        return True

    def _readable(self) -> bool:
        out = self.process.stdout
        assert out is not None
        return bool(select.select([out], [], [], 0)[0])

    def scheduling(self) -> str:
        """How the client is kept from starving: see autogroup.py."""
        if self.favour_client:
            return "client favoured"
        return "server polite" if any(self.polite) else "none"

    # ------------------------------------------------------------------ members
    def pids(self) -> List[int]:
        """The server's processes, as far as they descend from the keeper."""
        return procs.descendants(self.process.pid)

    # ------------------------------------------------------------------ stop
    def stop(self, grace_s: float) -> StopReport:
        """Stop everything of this server; never raises, always ends."""
        begin = time.monotonic()
        if self.report is None and not self.lost and self.exec_error is None:
            assert self.process.stdin is not None
            with contextlib.suppress(OSError):
                command = {"cmd": "stop", "grace_s": grace_s}
                self.process.stdin.write(json.dumps(command).encode() + b"\n")
            limit = grace_s + 3 * KILL_DEADLINE_S + 5.0
            self._wait_for(lambda: self.report is not None or self.lost, limit)
        self._end_keeper()
        killed, left = self._sweep()
        seconds = round(time.monotonic() - begin, 3)
        if self.report is not None:
            killed, left = killed + self.report.killed, sorted(set(left) | set(self.report.left))
        if not left:
            with contextlib.suppress(OSError):
                os.unlink(self.live)
        return StopReport(seconds, killed, left)

    def _end_keeper(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5.0)
        if self.process.poll() is None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
        if self.process.poll() is not None:
            beside.RUNNING.discard(self.process.pid)

    def _sweep(self) -> "tuple[int, List[int]]":
        """What a keeper that was killed left behind has become our child, or carries the marks."""
        members = whole.read_json(self.live)
        log_id = procs.file_id(self.log)

        def find() -> Iterator[procs.Proc]:
            return find_leftovers([self.mark], log_id, members, adopted_children)

        def quick() -> Iterator[procs.Proc]:
            return find_newest([self.mark], log_id, adopted_children)

        hurry = quick if self.lost or adopted_children() else None
        killed, left = procs.kill_until_gone(find, self._reap_adopted, KILL_DEADLINE_S, hurry)
        return killed, sorted(proc.pid for proc in left)

    def _reap_adopted(self) -> None:
        """Collect the dead whom the kernel gave to us when the keeper died."""
        for pid in adopted_children():
            stat = procs.read_stat(pid)
            if stat is not None and stat.state == "Z":
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)


def adopted_children() -> List[int]:
    """Our children that we did not make: the kernel gave them to us, a subreaper, when the keeper
    died. Only the agent itself is one, and it makes children through Beside and KeeperLink only."""
    return [pid for pid in procs.children(os.getpid()) if pid not in beside.RUNNING]


def find_leftovers(
    marks: List[str],
    log_id: Any,
    members: Optional[Dict[str, Any]],
    adopted: Callable[[], List[int]] = list,
) -> Iterator[procs.Proc]:
    """Processes of a server without a keeper, each as it is found: the recorded members (pid +
    start time, same boot), who was adopted, who carries the mark or the log; and all below them."""
    seen: Set[int] = {os.getpid()}
    if members is not None and members.get("boot_id") == procs.boot_id():
        recorded = [procs.Proc(*pair) for pair in members.get("members", [])]
        for proc in recorded:
            if procs.alive(proc):
                yield from _with_below(proc.pid, seen)
    for pid in procs.marked(marks, log_id):
        yield from _with_below(pid, seen)
    for pid in adopted():  # last, so that it is true when it is used
        yield from _with_below(pid, seen)


def find_newest(
    marks: List[str], log_id: Any, adopted: Callable[[], List[int]] = list
) -> Iterator[procs.Proc]:
    """The same in a millisecond, for those who are gone before a whole look ends."""
    seen: Set[int] = {os.getpid()}
    for pid in adopted():
        yield from _with_below(pid, seen)
    for pid in procs.marked(marks, log_id, procs.newest()):
        yield from _with_below(pid, seen)


def _with_below(pid: int, seen: Set[int]) -> Iterator[procs.Proc]:
    for one in [pid, *procs.descendants(pid)]:  # known before the first of them is killed
        if one not in seen:
            seen.add(one)
            yield from procs.living([one])


def clean_after_dead_agent(live: str) -> "tuple[int, List[int]]":
    """End what a dead agent's live file still names. A keeper at work gets time to do it itself."""
    record = whole.read_json(live)
    if record is None or record.get("boot_id") != procs.boot_id():
        with contextlib.suppress(OSError):
            os.unlink(live)  # another boot: nothing of it can be alive
        return 0, []
    keeper = procs.Proc(*record["keeper"]) if record.get("keeper") else None
    end = time.monotonic() + SHORT_GRACE_S + 5.0
    while procs.alive(keeper) and time.monotonic() < end:
        time.sleep(0.05)
    if keeper is not None:
        procs.send(keeper, signal.SIGKILL)
    marks = [record["mark"], record["mark"] + beside.SUFFIX]
    log_id = tuple(record["log_id"]) if record.get("log_id") else None

    def find() -> Iterator[procs.Proc]:
        return find_leftovers(marks, log_id, record)

    def quick() -> Iterator[procs.Proc]:
        return find_newest(marks, log_id)

    killed, left = procs.kill_until_gone(find, lambda: None, KILL_DEADLINE_S, quick)
    if not left:
        shutil.rmtree(str(record.get("cwd")), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(live)
    return killed, sorted(proc.pid for proc in left)
