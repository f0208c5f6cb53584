"""Raw logs that were brought home from a host: results/fetched/<host>/<folder>/.

In:  files of a host's folder with their sha256. Out: the same files, SHA256SUMS and
PROVENANCE.json. A file enters whole and is never written again: another content under a known name
is kept beside it under a name of its own, and so is a file that has a name of these two.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from decodelab.store import sha256_of, write_json

SCHEMA = "decodelab.fetched/1"
SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".log", ".txt")
SUMS, PROVENANCE = "SHA256SUMS", "PROVENANCE.json"
# What the host's own files of these names are called here.
OURS = {SUMS: "SHA256SUMS.host", PROVENANCE: "PROVENANCE.host.json"}
NAME_BYTES = 255  # what a file system takes as one name
FOLDER_BYTES = 200


class Changed(Exception):
    """What came is not what the host listed: the file was written to meanwhile."""


def folder_name(remote_dir: str) -> str:
    """One flat name for a host's folder, another one for each: /root/work/logs -> root_work_logs."""
    path = posixpath.normpath("/" + remote_dir.lstrip("/"))
    # The underscore stands between parts, so one inside a part is written as %5F.
    name = "_".join(_spelled(part) for part in path.strip("/").split("/")) or "_"
    name = "%2E" + name[1:] if name.startswith(".") else name
    if len(name.encode()) <= FOLDER_BYTES:
        return name
    return f"{_cut(name, FOLDER_BYTES - 17)}~{_hash(path)[:16]}"


def _spelled(part: str) -> str:
    """Other alphabets stay as they are; what a shell or an eye could mistake is written as %XX."""
    return "".join(
        c
        if ord(c) > 127 and c.isprintable()
        else quote(c, safe="", errors="surrogateescape").replace("_", "%5F")
        for c in part
    )


def _cut(text: str, size_bytes: int) -> str:
    return text.encode("utf-8", "surrogateescape")[:size_bytes].decode("utf-8", "ignore")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_safe(name: str) -> bool:
    """Whether a host's file name can be a line of SHA256SUMS and a file of ours."""
    return name.isprintable() and "/" not in name and "\\" not in name and name not in (".", "..")


class Fetched:
    """The files of one folder of one host that are here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, Any]] = self._account().get("files") or {}

    def _account(self) -> dict[str, Any]:
        try:
            account = json.loads((self.folder / PROVENANCE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return account if isinstance(account, dict) else {}

    def holds(self, name: str, sha256: str) -> str | None:
        """The name under which this very content is here already."""
        name = OURS.get(name, name)
        for here in (name, beside(name, sha256)):
            file = self.folder / here
            if file.is_file() and sha256_of(file) == sha256:
                return here
        return None

    def keep(self, source: Path, entry: Mapping[str, Any]) -> str:
        """Copy, check, rename; returns the name it has here. Raises Changed if the content is another."""
        name, sha256 = str(entry["name"]), str(entry["sha256"])
        self.folder.mkdir(parents=True, exist_ok=True)
        name = OURS.get(name, name)
        here = beside(name, sha256) if (self.folder / name).exists() else name
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=self.folder) as scratch:
            copy = Path(scratch) / "file"
            shutil.copyfile(source, copy)
            if sha256_of(copy) != sha256:
                raise Changed(name)
            copy.chmod(0o444)
            copy.rename(self.folder / here)
        return here

    def note(self, here: str, entry: Mapping[str, Any], time: str) -> None:
        """Say of a file that is here what it is on the host."""
        known = self.files.get(here, {})
        self.files[here] = {
            "name_on_host": entry["name"],
            "bytes": entry["bytes"],
            "sha256": entry["sha256"],
            "mtime": entry["mtime"],
            "fetched": known.get("fetched", time),
        }

    def write_account(self, facts: Mapping[str, Any], time: str) -> None:
        """SHA256SUMS (for `sha256sum -c`) and PROVENANCE.json, written whole; untouched if nothing is new."""
        self.folder.mkdir(parents=True, exist_ok=True)
        here = {n: entry for n, entry in self.files.items() if (self.folder / n).is_file()}
        files = dict(sorted(here.items()))
        account = {"schema": SCHEMA, **facts, "files": files}
        if self._account() == {**account, "time": self._account().get("time")}:
            return
        lines = "".join(f"{entry['sha256']}  {name}\n" for name, entry in files.items())
        part = self.folder / f".{SUMS}.part"
        part.write_text(lines, encoding="utf-8")
        part.replace(self.folder / SUMS)
        write_json(self.folder / PROVENANCE, {**account, "time": time})


def beside(name: str, sha256: str) -> str:
    """decode_x.json -> decode_x.1a2b3c4d.json; of a name too long for that, its beginning and a hash."""
    stem, suffix = posixpath.splitext(name)
    ending = f".{sha256[:8]}{suffix}"
    if len((stem + ending).encode("utf-8", "surrogateescape")) <= NAME_BYTES:
        return stem + ending
    ending = f"~{_hash(name)[:16]}.{sha256[:8]}{_cut(suffix, 16)}"
    return _cut(stem, NAME_BYTES - len(ending.encode())) + ending
