"""Room on the disk: what is left, a reserve for the last words, and a full disk told in words.

In:  the working folder, an OSError. Out: bytes, a file that is given up when the disk is full (so
that a launch can still write how it ended), the cause's code and the host's own words.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Callable, Optional

RESERVE_BYTES = 256 << 10
FULL_BYTES = 64 << 10  # less than this is left: whatever could not be written could not for that
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


def free_bytes(path: str) -> Optional[int]:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return _free(found)


def _free(found: os.statvfs_result) -> int:
    """Some blocks are kept for root, who can use them."""
    return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize


def is_full(path: str) -> bool:
    left = free_bytes(path)
    return left is not None and left < FULL_BYTES


def code_of(error: BaseException) -> Optional[str]:
    """The cause's code (reasons.py) of an error that the disk gave, or None."""
    number = error.errno if isinstance(error, OSError) else None
    if number in NO_SPACE:
        return "no_space"
    return "not_writable" if number in NOT_WRITABLE else None


def words(error: OSError) -> str:
    """The host's own words, place first."""
    said = error.strerror or str(error)
    return "%s: %s" % (error.filename, said) if error.filename else said


def trouble(path: str) -> Optional[str]:
    """What keeps anybody from writing there now, or None."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return words(error)
    if found.f_flag & os.ST_RDONLY:
        return "%s: %s" % (path, os.strerror(errno.EROFS))
    if _free(found) < FULL_BYTES:
        return "%s: %s" % (path, os.strerror(errno.ENOSPC))
    return (
        None if os.access(path, os.W_OK | os.X_OK) else "%s: %s" % (path, os.strerror(errno.EACCES))
    )


class Reserve:
    """Some blocks that are held for the moment in which there are no others."""

    def __init__(self, path: str) -> None:
        self.path = path

    def hold(self) -> None:
        """Raises OSError when there is no room for it."""
        if os.path.exists(self.path) and os.path.getsize(self.path) == RESERVE_BYTES:
            return
        try:
            with open(self.path, "wb") as f:
                f.write(os.urandom(RESERVE_BYTES))  # zeros may cost no blocks
                f.flush()
                os.fsync(f.fileno())
        except OSError:
            self.give_up()
            raise

    def give_up(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def write(self, action: Callable[[], object]) -> None:
        """Do it; when the disk is full, once more with the reserve's room."""
        try:
            action()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.give_up()
            action()
