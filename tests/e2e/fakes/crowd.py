"""The fake server with a dozen processes that are hard to end, for benchmarks/stop_trials.py.

In: --crowd-tag and the flags of fake_server.py. Out: the server, and around it: plain children,
children in sessions of their own, daemons, grandchildren in new sessions, some without environment
and output, and one that forks into a new session every 20 ms. All ignore TERM, INT and HUP.
"""

from __future__ import annotations

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import fake_server

LIFE_S = 600.0


def sit() -> None:
    time.sleep(LIFE_S)
    os._exit(0)


def plain() -> None:
    if os.fork() == 0:
        sit()


def own_session() -> None:
    if os.fork() == 0:
        os.setsid()
        sit()


def daemon() -> None:
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        sit()
    os.waitpid(child, 0)


def parent_of_a_session() -> None:
    """Two processes: a child, and below it one in a session of its own."""
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
        sit()


def bare(tag: str) -> None:
    """A daemon without a mark in its environment and without the log."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        code = "import time\ntime.sleep(%g)" % LIFE_S  # noqa: UP031
        os.execve(sys.executable, [sys.executable, "-S", "-c", code, tag], {})
    os.waitpid(child, 0)


def escape_artist() -> None:
    """Never the same pid twice."""
    if os.fork():
        return
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        time.sleep(0.02)
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)


def main() -> int:
    tag = sys.argv[sys.argv.index("--crowd-tag") + 1]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for make in (plain, own_session, daemon) * 2 + (parent_of_a_session,) * 2:
        make()
    bare(tag)
    escape_artist()
    at = sys.argv.index("--crowd-tag")
    del sys.argv[at : at + 2]
    return fake_server.main()


if __name__ == "__main__":
    sys.exit(main())
