"""Profiles that the config names by file: told by the plan, read beside the tables.

In: the plan's `profiles` with a file (a folder, of a run of ours). Out: a `Profile` for each; one that cannot be
read is a profile with that problem, so that what rests on it is not known for that reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from decodelab import step_read
from decodelab.step_table import Problem, Profile
from decodelab.store import sha256_of

UNREAD = "file"  # the source of one that could not be read


def digest(path: Path) -> str | None:
    """Hex sha256 of the file, or of a folder's files of a profile; None where it is not there yet."""
    if path.is_dir():
        found = [f"{file.name} {sha256_of(file)}\n" for file in step_read.files_of(path)]
        return hashlib.sha256("".join(found).encode()).hexdigest()
    return sha256_of(path) if path.is_file() else None


def read(plan: Mapping[str, Any], root: Path) -> dict[str, Profile]:
    """By name in the config; without those whose file was not there when the plan was made."""
    declared = plan.get("profiles") or {}
    return {
        name: _read(root, entry["file"], entry.get("run"))
        for name, entry in declared.items()
        if entry.get("file") and entry.get("sha256")
    }


def _read(root: Path, file: str, run: str | None) -> Profile:
    try:
        return replace(step_read.one([root / file], run), files=(file,))
    except (OSError, ValueError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return Profile(UNREAD, None, (file,), None, (), (Problem("unreadable", {"why": why}),))
