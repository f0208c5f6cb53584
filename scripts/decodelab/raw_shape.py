"""The one error of importing: a raw file is of no known shape, or a line of it is mangled."""

from __future__ import annotations

from pathlib import Path


class RawShapeError(Exception):
    """A raw file is of no known shape; the text says which file, what was looked for and found."""

    def __init__(self, path: Path, looked_for: str, found: str, hint: str | None = None):
        names = "add its names to resources/import_mapping.yaml, then try "
        super().__init__(
            f"{path}: not a result file that can be read.\n"
            f"  looked for: {looked_for}\n"
            f"  found: {found}\n"
            f"  Hint: {hint or names + f'`python scripts/import_raw.py --explain {path}`.'}"
        )
