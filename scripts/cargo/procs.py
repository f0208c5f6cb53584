"""Processes by identity: pid + start time (+ boot id), never by name.

In: pids, a mark (environment variable value), a log file. Out: who is alive, who descends from
whom, who carries our mark; signals that reach exactly the process that was meant.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

MARK_ENV = "DECODELAB_MARK"
PYTHON = [sys.executable, "-X", "utf8"]  # for our own children: paths are UTF-8 in any locale
NEWEST = 64
QUIET_S = 0.3
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

try:  # a python without libffi still works: pipe EOF and the marks remain
    import ctypes

    _libc: Optional["ctypes.CDLL"] = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):  # pragma: no cover
    _libc = None


class Proc(NamedTuple):
    """A process that cannot be confused with a later one of the same pid (within one boot)."""

    pid: int
    start_time: int


class Stat(NamedTuple):
    state: str
    ppid: int
    session: int
    start_time: int


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return "unknown"


def prctl(option: int, value: int) -> bool:
    return _libc is not None and _libc.prctl(option, value, 0, 0, 0) == 0


def become_subreaper() -> bool:
    """Orphans below us become our children instead of init's."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(sig: int, parent_pid: int) -> None:
    """For the child side of a fork: get `sig` when the parent dies (also if it is dead already)."""
    prctl(PR_SET_PDEATHSIG, int(sig))
    if os.getppid() != parent_pid:
        os._exit(127)


def read_stat(pid: int) -> Optional[Stat]:
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            text = f.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name may hold spaces and brackets
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def identify(pid: int) -> Optional[Proc]:
    """The living process with this pid; zombies are not alive."""
    stat = read_stat(pid)
    return None if stat is None or stat.state in "ZX" else Proc(pid, stat.start_time)


def alive(proc: Optional[Proc]) -> bool:
    return proc is not None and identify(proc.pid) == proc


def send(proc: Proc, sig: int) -> bool:
    """Signal this very process; a reused pid is never hit (pidfd, then check, then signal)."""
    if proc.pid <= 1 or proc.pid == os.getpid():
        return False
    try:
        fd = os.pidfd_open(proc.pid)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # old kernel or python, or it is gone
        if not alive(proc):
            return False
        try:
            os.kill(proc.pid, sig)
        except OSError:
            return False
        return True
    try:
        if not alive(proc):
            return False
        signal.pidfd_send_signal(fd, sig)  # type: ignore[attr-defined,unused-ignore]
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def all_pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> List[int]:
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []
    found: List[int] = []
    for task in tasks:
        try:
            with open("/proc/%d/task/%s/children" % (pid, task), "rb") as f:
                found.extend(int(word) for word in f.read().split())
        except FileNotFoundError:
            if os.path.exists("/proc/%d/task/%s" % (pid, task)):  # kernel without this file
                return _children_by_scan(pid)
        except OSError:
            continue
    return found


def _children_by_scan(pid: int) -> List[int]:
    found = []
    for other in all_pids():
        stat = read_stat(other)
        if stat is not None and stat.ppid == pid:
            found.append(other)
    return found


def descendants(pid: int) -> List[int]:
    """Everything below pid, nearest first (pid itself not included)."""
    found: List[int] = []
    seen = {pid}
    queue = [pid]
    while queue:
        for child in children(queue.pop(0)):
            if child not in seen:
                seen.add(child)
                found.append(child)
                queue.append(child)
    return found


def living(pids: Iterable[int]) -> List[Proc]:
    procs = (identify(pid) for pid in pids)
    return [proc for proc in procs if proc is not None]


def newest(count: int = NEWEST) -> List[int]:
    """The pids that were given out last. One that forks and ends all the time is never seen by a
    walk through all of /proc, which takes longer than it lives; it is among these."""
    try:
        with open("/proc/loadavg", encoding="ascii") as f:
            last = int(f.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return []
    return list(range(last, max(1, last - count), -1))


def marked(
    marks: Iterable[str], log: Optional[Tuple[int, int]], among: Optional[List[int]] = None
) -> Iterator[int]:
    """Pids whose environment has one of the marks, or whose stdout/stderr is the log (dev, ino);
    each as it is found.

    Some engines erase their environment (setproctitle), so neither mark is enough alone.
    """
    wanted = [("%s=%s" % (MARK_ENV, mark)).encode() for mark in marks]
    me = os.getpid()
    for pid in all_pids() if among is None else among:
        if pid != me and (_has_mark(pid, wanted) or (log is not None and _writes_to(pid, log))):
            yield pid


def _has_mark(pid: int, wanted: List[bytes]) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as f:
            environ = f.read()
    except OSError:
        return False
    if not any(mark in environ for mark in wanted):
        return False
    entries = environ.split(b"\0")
    return any(mark in entries for mark in wanted)


def _writes_to(pid: int, log: Tuple[int, int]) -> bool:
    for fd in (1, 2):
        try:
            stat = os.stat("/proc/%d/fd/%d" % (pid, fd))
        except OSError:
            continue
        if (stat.st_dev, stat.st_ino) == log:
            return True
    return False


def file_id(path: str) -> Optional[Tuple[int, int]]:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino)


def kill_until_gone(
    find: Callable[[], Iterable[Proc]],
    reap: Callable[[], None],
    deadline_s: float,
    quick: Optional[Callable[[], Iterable[Proc]]] = None,
) -> Tuple[int, List[Proc]]:
    """KILL whatever `find` returns, as it returns it, until it finds nothing three times in a row.

    One walk is never enough: processes fork while we look. Where there is no tree to walk, whole
    looks are too slow for some; `quick` must have found nothing for a while as well.
    Returns (how many killed, who is left).
    """
    end = time.monotonic() + deadline_s
    killed: Set[Proc] = set()
    quiet = 0
    while True:
        found = _kill_each(find(), killed)
        reap()
        if quick is not None:
            found += _kill_quick_ones(quick, reap, killed, end)
        if not found:
            quiet += 1
            if quiet >= (3 if quick is None else 1):
                return len(killed), []
            time.sleep(0.005)
            continue
        quiet = 0
        if time.monotonic() > end:
            return len(killed), [proc for proc in dict.fromkeys(found) if alive(proc)]
        time.sleep(0.01)


def _kill_each(found: Iterable[Proc], killed: Set[Proc]) -> List[Proc]:
    met = []
    for proc in found:
        met.append(proc)
        if send(proc, signal.SIGKILL):
            killed.add(proc)
    return met


def _kill_quick_ones(
    quick: Callable[[], Iterable[Proc]], reap: Callable[[], None], killed: Set[Proc], end: float
) -> List[Proc]:
    met: List[Proc] = []
    quiet_from = time.monotonic()
    while time.monotonic() - quiet_from < QUIET_S and time.monotonic() < end:
        found = _kill_each(quick(), killed)
        reap()
        if found:
            met += found
            quiet_from = time.monotonic()
        time.sleep(0.002)
    return met


def describe(pid: int) -> dict:
    """What can be told about a process that is in the way (for messages)."""
    info: dict = {"pid": pid, "uid": None, "command": None}
    try:
        info["uid"] = os.stat("/proc/%d" % pid).st_uid
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            words = f.read(400).decode("utf-8", "replace").split("\0")
        info["command"] = " ".join(words).strip()[:200]
    except OSError:
        pass
    return info
