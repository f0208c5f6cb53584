"""A child process that works beside the server: load client or sampler.

In: argv, environment, folder, where its output goes. Out: a handle to poll and to end.
It carries its own mark (not the server's, so that a server's clean-up never hits it) and the kernel
kills it when the agent dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Dict, List, Optional, Set

from cargo import autogroup, procs

RUNNING: Set[int] = set()  # pids of our own children; any other child was adopted
SUFFIX = ".beside"


class Beside:
    def __init__(
        self,
        argv: List[str],
        env: Dict[str, str],
        cwd: str,
        log: str,
        start_id: str,
        favoured: bool = False,
    ) -> None:
        me = os.getpid()
        env = dict(env)
        env[procs.MARK_ENV] = start_id + SUFFIX

        def in_child() -> None:
            if favoured:  # a session of its own, with a large share where that is allowed
                os.setsid()
                autogroup.set_nice("self", autogroup.FAVOURED)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            procs.die_with_parent(signal.SIGKILL, me)

        out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            self.process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=in_child,
            )
        finally:
            os.close(out)
        RUNNING.add(self.process.pid)

    def poll(self) -> Optional[int]:
        code = self.process.poll()
        if code is not None:
            RUNNING.discard(self.process.pid)
        return code

    def end(self, grace_s: float) -> Optional[int]:
        """TERM, wait, KILL; the exit code, or None when even KILL did not help (a stuck driver)."""
        if self.poll() is None:
            with contextlib.suppress(OSError):
                self.process.terminate()
            self._wait(grace_s)
        if self.poll() is None:
            with contextlib.suppress(OSError):
                self.process.kill()
            self._wait(5.0)
        return self.poll()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.01)


def last_words(log: str) -> str:
    """The last line that a child left in its log; "" where there is none."""
    try:
        with open(log, encoding="utf-8", errors="replace", newline="\n") as f:
            lines = f.read().split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
