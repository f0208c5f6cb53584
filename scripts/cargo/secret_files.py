"""Secret values on the host: one file per owner, readable by this user only, gone when not needed.

In:  an owner and {name: value}. Out: <workdir>/secrets/<16 hex of the owner>.json (folder 0700, file
0600). All calls but `values` and `all_values` are made under queue.lock.

A file is handed in just before the orders that need it: until a submit has claimed it, an owner
without orders does not cost it its life. A value that was replaced is kept for masking only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from typing import Any, Dict, Iterable, List

from cargo import whole
from cargo.mask import MIN_LENGTH

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
UNCLAIMED_S = 3600.0


def trouble(values: Any) -> "str | None":
    """Why these values cannot be taken; never with a value in it."""
    if not isinstance(values, dict):
        return "values must be an object {NAME: value}"
    for name, value in values.items():
        if not NAME.match(name):
            return "a secret's name must be that of an environment variable, found %r" % name
        if not isinstance(value, str) or "\0" in value:
            return "the value of %s must be text without a zero byte" % name
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            words = "the value of %s is not UTF-8 text. Hint: set it anew, in printable characters."
            return words % name
        if len(value.strip()) < MIN_LENGTH:
            words = (
                "the value of %s is shorter than %d characters and could not be told from ordinary "
                "text in a log. Hint: use a longer one."
            )
            return words % (name, MIN_LENGTH)
    return None


def path_of(root: str, owner: str) -> str:
    digest = hashlib.sha256(owner.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return os.path.join(root, "secrets", digest + ".json")


def put(root: str, owner: str, values: Dict[str, str]) -> None:
    known = _read(root, owner)
    former = set(known.get("former") or [])
    former |= {v for n, v in (known.get("values") or {}).items() if values.get(n, v) != v}
    merged = dict(known.get("values") or {}, **values)
    facts = {"owner": owner, "values": merged, "former": sorted(former), "claimed": False}
    _write(root, owner, facts)


def claim(root: str, owner: str) -> None:
    known = _read(root, owner)
    if known and not known.get("claimed"):
        _write(root, owner, dict(known, claimed=True))


def values(root: str, owner: str) -> Dict[str, str]:
    return dict(_read(root, owner).get("values") or {})


def all_values(root: str, owner: str) -> List[str]:
    """For masking: also those that were replaced."""
    known = _read(root, owner)
    return [*(known.get("values") or {}).values(), *(known.get("former") or [])]


def drop(root: str, owner: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path_of(root, owner))


def sweep(root: str, owners: Iterable[str], unclaimed_too: bool = False) -> None:
    """Remove the files of everybody who has no orders."""
    needed = {os.path.basename(path_of(root, owner)) for owner in owners}
    folder = os.path.join(root, "secrets")
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if name in needed:
            continue
        claimed = (whole.read_json(path) or {}).get("claimed", True)
        with contextlib.suppress(OSError):
            old = abs(time.time() - os.stat(path).st_mtime) > UNCLAIMED_S
            if claimed or old or unclaimed_too:
                os.unlink(path)


def _read(root: str, owner: str) -> Dict[str, Any]:
    return whole.read_json(path_of(root, owner)) or {}


def _write(root: str, owner: str, facts: Dict[str, Any]) -> None:
    path = path_of(root, owner)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.chmod(os.path.dirname(path), 0o700)
    part = "%s.%d.part" % (path, os.getpid())
    try:
        # born 0600: no moment in which another user could open it
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(json.dumps(facts).encode("ascii"))
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
