"""Who listens on a local TCP port.

In: a port, pids. Out: listeners from /proc/net/tcp{,6} and whether one of the pids owns them.
A port that answers proves nothing; only the inode -> pid link does.
"""

from __future__ import annotations

import os
import socket
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

LISTEN = "0A"
# What a client of 127.0.0.1 can reach: loopback, any, and their IPv6 twins (little-endian words).
REACHABLE = {
    "0100007F",
    "00000000",
    "0" * 32,
    "0000000000000000FFFF00000100007F",
    "0000000000000000FFFF000000000000",
}


class Listener(NamedTuple):
    address: str
    inode: int
    uid: int


def listeners(port: int, reachable_only: bool = False) -> List[Listener]:
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as f:
                rows = f.read().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            words = row.split()
            address, _, hex_port = words[1].partition(":")
            if words[3] != LISTEN or int(hex_port, 16) != port:
                continue
            if reachable_only and address not in REACHABLE:
                continue
            found.append(Listener(address, int(words[9]), int(words[7])))
    return found


def socket_inodes(pid: int) -> Set[int]:
    inodes: Set[int] = set()
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return inodes
    for name in names:
        try:
            target = os.readlink(folder + "/" + name)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(int(target[8:-1]))
    return inodes


def owner_among(port: int, pids: Iterable[int]) -> Optional[int]:
    """The first of these pids that holds a listener on the port."""
    wanted = {item.inode for item in listeners(port, reachable_only=True)}
    if not wanted:
        return None
    for pid in pids:
        if wanted & socket_inodes(pid):
            return pid
    return None


def owner_of(port: int) -> Optional[Dict[str, Optional[int]]]:
    """Whoever listens there: {"pid" (null when another user's), "uid"}; None when free."""
    found = listeners(port)
    if not found:
        return None
    wanted = {item.inode for item in found}
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted & socket_inodes(int(name)):
            return {"pid": int(name), "uid": found[0].uid}
    return {"pid": None, "uid": found[0].uid}


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
