"""Whole files and whole folders: either complete under the final name, or not there.

In: bytes / JSON / a folder of files. Out: files renamed into place, DONE.json with checksums.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any, Dict, List, Optional

from cargo import printable

DONE_SCHEMA = "decodelab.done/1"
DONE = "DONE.json"


def dump(value: Any, exact: bool = False) -> bytes:
    """Printable text; `exact`: read again as it was, also bytes that are no UTF-8 (as JSON's own
    escapes), for what is still to be used on this host.
    """
    if not exact:
        return printable.dumps(value, indent=1) + b"\n"
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write(path: str, data: bytes, durable: bool = True) -> None:
    """Replace the file in one step; a reader sees the old or the new one, never a half."""
    part = "%s.%d.part" % (path, os.getpid())
    try:
        with open(part, "wb") as f:
            f.write(data)
            f.flush()
            if durable:
                os.fsync(f.fileno())
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def write_json(path: str, value: Any, durable: bool = True, exact: bool = False) -> None:
    write(path, dump(value, exact), durable)


def read_json(path: str) -> Optional[Any]:
    """None when the file is missing or is not JSON (a torn file counts as missing)."""
    try:
        with open(path, "rb") as f:
            return json.loads(f.read().decode("utf-8"))
    except (OSError, ValueError):
        return None


def sync(path: str) -> None:
    """Best effort: some file systems refuse fsync on folders."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def seal(folder: str, facts: Dict[str, Any], status: str, reasons: List[str]) -> Dict[str, Any]:
    """Write DONE.json, last of all files: names and checksums of what is in the folder."""
    files = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name != DONE and not name.endswith(".part") and os.path.isfile(path):
            sync(path)
            files[name] = sha256_of(path)
    done = {"schema": DONE_SCHEMA, "files": files, "status": status, "reasons": reasons}
    done.update(facts)
    write_json(os.path.join(folder, DONE), done)
    sync(folder)
    return done
