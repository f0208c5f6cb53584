"""The keeper: the process that holds one server and everything it ever forks.

In, on stdin (a pipe whose other end only the agent holds): one JSON line with what to start, then
{"cmd": "stop", "grace_s": S}. End of file means that the agent is gone: the server is stopped.
Out, on stdout: JSON lines started{pid,start_time} | exec_failed{error} | exit{code} |
stopped{killed,left,seconds}. Beside it: the live file (who is alive now), refreshed every second.

Why a process of its own: as a subreaper it becomes the parent of every orphan of the server, so
workers in other sessions, daemons and re-parented children stay in its tree and can be killed
exactly. The server gets KILL from the kernel if the keeper dies; the agent, a subreaper too, then
finds the rest by the marks.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Set, Tuple

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import autogroup, procs, whole

REFRESH_S = 1.0
FIRST_REFRESH_S = 0.1
KILL_DEADLINE_S = 20.0
ORPHAN_GRACE_S = 3.0  # the agent died: nobody waits for a polite end


class Keeper:
    def __init__(self, spec: Dict[str, Any], buffer: bytes) -> None:
        self.spec = spec
        self.main: Optional[procs.Proc] = None
        self.exit_code: Optional[int] = None
        self.exited = False
        self.polite: Set[int] = set()  # sessions that were asked to be
        self.buffer = buffer

    # ------------------------------------------------------------------ start
    def start(self) -> bool:
        spec, me = self.spec, os.getpid()
        log = os.open(spec["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.log_id = procs.file_id(spec["log"])

        def in_child() -> None:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            procs.die_with_parent(signal.SIGKILL, me)

        try:
            child = subprocess.Popen(
                spec["argv"],
                cwd=spec["cwd"],
                env=spec["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=in_child,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            say("exec_failed", error="%s: %s" % (spec["argv"][0], error))
            return False
        finally:
            os.close(log)
        self.child = child  # kept only so that Popen is not collected; we reap by ourselves
        stat = procs.read_stat(child.pid)
        self.main = procs.Proc(child.pid, stat.start_time if stat else 0)
        say("started", pid=child.pid, start_time=self.main.start_time)
        self.refresh()
        return True

    # ------------------------------------------------------------------ watching
    def refresh(self) -> None:
        """Write who lives now, for whoever must clean up if we cannot."""
        pids = procs.descendants(os.getpid())
        live = {
            "mark": self.spec["mark"],
            "log": self.spec["log"],
            "log_id": self.log_id,
            "cwd": self.spec["cwd"],
            "boot_id": procs.boot_id(),
            "agent": self.spec["agent"],
            "keeper": procs.identify(os.getpid()),
            "members": procs.living(pids),
        }
        with contextlib.suppress(OSError):  # a full disk must not stop the watch
            whole.write_json(self.spec["live"], live, durable=False, exact=True)
        if self.spec["polite"]:
            self.be_polite(pids)

    def be_polite(self, pids: List[int]) -> None:
        """Where the client cannot be favoured: every session of the server gets a small share."""
        for pid in pids:
            stat = procs.read_stat(pid)
            if stat is not None and stat.session not in self.polite:
                self.polite.add(stat.session)
                done = autogroup.set_nice(str(pid), autogroup.POLITE)
                say("autogroup", session=stat.session, done=done)

    def reap(self) -> None:
        """Collect every dead child; remember how the main process ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.main is not None and pid == self.main.pid and not self.exited:
                self.exited = True
                self.exit_code = (
                    os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                )
                self.child.returncode = self.exit_code
                say("exit", code=self.exit_code)

    def run(self, wake_fd: int) -> float:
        """Wait until it must end; returns the grace for the server."""
        begin = time.monotonic()
        next_refresh = begin + FIRST_REFRESH_S
        while True:
            self.reap()
            if self.exited:
                return 0.0
            if b"\n" in self.buffer:
                return float(json.loads(self.buffer.split(b"\n")[0])["grace_s"])
            ready, _, _ = select.select(
                [0, wake_fd], [], [], max(0.0, next_refresh - time.monotonic())
            )
            if wake_fd in ready:
                signals = os.read(wake_fd, 4096)
                if (
                    signal.SIGTERM in signals
                    or signal.SIGINT in signals
                    or signal.SIGHUP in signals
                ):
                    return ORPHAN_GRACE_S
            if 0 in ready:
                chunk = os.read(0, 65536)
                if not chunk:
                    return ORPHAN_GRACE_S
                self.buffer += chunk
            if time.monotonic() >= next_refresh:
                self.refresh()
                next_refresh = time.monotonic() + refresh_pause(time.monotonic() - begin)

    # ------------------------------------------------------------------ stop
    def stop(self, grace_s: float) -> None:
        begin = time.monotonic()
        if grace_s > 0 and self.main is not None and procs.send(self.main, signal.SIGTERM):
            end = begin + grace_s
            while time.monotonic() < end and procs.descendants(os.getpid()):
                self.reap()
                if self.exited:  # its children had their chance when it told them to end
                    end = min(end, time.monotonic() + ORPHAN_GRACE_S)
                time.sleep(0.02)
        killed, _ = procs.kill_until_gone(self.tree, self.reap, KILL_DEADLINE_S)
        more, left_marked = procs.kill_until_gone(self.marked, self.reap, KILL_DEADLINE_S)
        again, left_tree = procs.kill_until_gone(self.tree, self.reap, KILL_DEADLINE_S)
        self.reap()
        everyone = sorted({proc.pid for proc in left_marked + left_tree})
        seconds = round(time.monotonic() - begin, 3)
        say("stopped", killed=killed + more + again, left=everyone, seconds=seconds)

    def tree(self) -> List[procs.Proc]:
        return procs.living(procs.descendants(os.getpid()))

    def marked(self) -> List[procs.Proc]:
        """Who carries our marks, with whatever they have forked."""
        found = list(procs.marked([self.spec["mark"]], self.log_id))
        below = [pid for one in found for pid in procs.descendants(one)]
        return procs.living(dict.fromkeys(found + below))


def refresh_pause(age_s: float) -> float:
    """A young server forks its workers: look often then, once a second later."""
    return min(REFRESH_S, max(FIRST_REFRESH_S, age_s / 10))


def say(event: str, **fields: Any) -> None:
    line = {"event": event}
    line.update(fields)
    with contextlib.suppress(OSError):  # the agent may be gone; we go on and stop the server
        os.write(1, (json.dumps(line) + "\n").encode())


def read_spec() -> Tuple[Optional[Dict[str, Any]], bytes]:
    """The first line of stdin, and what came behind it (commands)."""
    text = b""
    while b"\n" not in text:
        chunk = os.read(0, 65536)
        if not chunk:
            return None, b""
        text += chunk
    line, _, rest = text.partition(b"\n")
    return json.loads(line), rest


def main() -> int:
    spec, rest = read_spec()
    if spec is None:
        return 1
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    procs.become_subreaper()
    procs.die_with_parent(signal.SIGTERM, int(spec["agent"]["pid"]))
    keeper = Keeper(spec, rest)
    if not keeper.start():
        return 2
    keeper.stop(keeper.run(wake_read))
    return 0


if __name__ == "__main__":
    sys.exit(main())
