"""The host lock: one launch at a time on this machine, whoever asks.

In: the lock's path, who we are. Out: held or not, and who holds it (readable by every user).
flock: the kernel frees it when its holder dies, so there is no stale lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any, Dict, Optional


class HostLock:
    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: Optional[int] = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def take(self, owner: Dict[str, Any]) -> bool:
        """Try once; note the owner in the file when it is ours."""
        if self._fd is None:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            self._fd = fd
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, (json.dumps(owner, ensure_ascii=False) + "\n").encode("utf-8"), 0)
        return True

    def _open(self) -> int:
        try:  # first without O_CREAT: sticky folders refuse it for another user's file
            return os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            with contextlib.suppress(OSError):
                os.fchmod(fd, 0o666)  # the umask must not shut others out
            return fd

    def owner(self) -> Optional[Dict[str, Any]]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as f:
                return json.loads(f.read())
        except (OSError, ValueError):
            return None

    def release(self) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None
