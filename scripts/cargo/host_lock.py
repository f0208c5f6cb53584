"""The host lock: one launch at a time on this machine, whoever asks.

In: the lock's path, who we are. Out: held or not, and who holds it (readable by every user).
flock: the kernel frees it when its holder dies, so there is no stale lock. A file that we may not
write (another user's, a read-only folder) is locked all the same; then it does not name us.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from typing import Any, Dict, Optional

from cargo import room


class LockUnusable(Exception):
    """The lock can neither be opened nor made; the text says why."""


class HostLock:
    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: Optional[int] = None
        self._writable = False

    @property
    def held(self) -> bool:
        return self._fd is not None

    def take(self, owner: Dict[str, Any]) -> bool:
        """Try once; note the owner in the file when it is ours. Raises LockUnusable."""
        if self._fd is not None and not self.is_the_file():
            os.close(self._fd)  # deleted meanwhile: what we hold keeps nobody out any more
            self._fd = None
        if self._fd is None:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            except OSError as error:  # some network file systems know no locks
                os.close(fd)
                raise LockUnusable("%s: %s" % (self.path, error.strerror)) from error
            self._fd = fd
            if not self.is_the_file():  # deleted between our open and our lock
                os.close(fd)
                self._fd = None
                return False
        self._note((json.dumps(owner, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
        return True

    def is_the_file(self) -> bool:
        """Whether what we hold is still the file that others would lock."""
        if self._fd is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except OSError:
            return False

    def _note(self, text: bytes) -> None:
        """Best effort: the lock holds without it, also on a full disk."""
        if self._fd is not None and self._writable:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, text, 0)

    def _open(self) -> int:
        try:
            return self._open_or_make()
        except OSError as error:
            raise LockUnusable(room.words(error)) from error

    def _open_or_make(self) -> int:
        self._writable = True
        try:  # first without O_CREAT: sticky folders refuse it for another user's file
            return self._plain(os.O_RDWR)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # somebody else was faster
                return self._make()
            return self._plain(os.O_RDWR)
        except OSError as error:
            if error.errno not in room.NOT_WRITABLE:
                raise
            self._writable = False
            return self._plain(os.O_RDONLY)

    def _plain(self, how: int) -> int:
        """A link of somebody else's making would have us empty the file that it leads to."""
        fd = os.open(self.path, how | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a plain file", self.path)
        return fd

    def _make(self) -> int:
        """Open to all from its first moment: the umask must not shut others out."""
        before = os.umask(0)
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        finally:
            os.umask(before)
        with contextlib.suppress(OSError):
            os.fchmod(fd, 0o666)  # a folder's default rights (ACL) may have taken some away
        return fd

    def owner(self) -> Optional[Dict[str, Any]]:
        return read_owner(self.path)

    def release(self) -> None:
        if self._fd is not None:
            self._note(b"")
            os.close(self._fd)
            self._fd = None


def read_owner(path: str) -> Optional[Dict[str, Any]]:
    """What the file says of its holder; None when it says nothing, or speaks of one who is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            told = json.loads(f.read())
    except (OSError, ValueError):
        return None
    if not isinstance(told, dict):
        return None
    pid = told.get("pid")
    gone = isinstance(pid, int) and not os.path.exists("/proc/%d" % pid)
    return None if gone else told


def holder(path: str) -> Dict[str, Any]:
    """For people: {"owner", "since", "doing"} of whoever holds it; "someone" without a name."""
    told = read_owner(path) or {}
    return {
        "owner": str(told.get("owner") or "someone"),
        "since": told.get("since"),
        "doing": told.get("doing"),
    }
