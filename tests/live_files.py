"""The files of folders in which others are still at work: what vanishes meanwhile is passed over.

`Path.rglob` and `Path.glob` raise when a folder goes between being listed and being entered;
`os.walk` goes on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Seen(NamedTuple):
    path: Path
    mode: int  # as it was before the content was read
    content: bytes


def seen(*folders: Path) -> Iterator[Seen]:
    """Every regular file below the folders, with what was in it."""
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                found = _look(Path(place, name))
                if found is not None:
                    yield found


def _look(path: Path) -> Seen | None:
    try:
        if not path.is_file():  # a pipe would be waited for
            return None
        with path.open("rb") as f:
            mode = stat.S_IMODE(os.fstat(f.fileno()).st_mode)
            return Seen(path, mode, f.read())
    except FileNotFoundError:
        return None
