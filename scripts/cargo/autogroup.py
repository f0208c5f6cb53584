"""Scheduler autogroups: keep a busy server from starving the load client on few cores.

In: pids. Out: what could be done, in one word for the record.

Linux shares the processor between sessions, not processes. Measured on 2 loaded cores against 4
busy threads, lateness of a client's 5 ms tick, p99: client in the server's session 20-760 ms; in
a session of its own 6-147 ms; the same with the server's session made polite (19) 5-65 ms; with the
client's session favoured (-10) 4-9 ms. Favouring needs a privilege; politeness does not.
"""

from __future__ import annotations

FAVOURED = -10
POLITE = 19


def set_nice(pid: str, nice: int) -> bool:
    try:
        with open("/proc/%s/autogroup" % pid, "w", encoding="ascii") as f:
            f.write(str(nice))
        return True
    except OSError:  # no autogroups here, or no privilege
        return False


def may_favour() -> bool:
    """Tried on our own session, and put back."""
    if not set_nice("self", FAVOURED):
        return False
    set_nice("self", 0)
    return True
