"""The raw store: what was measured, by content, for ever.

In:  folders that a host agent wrote whole (a run's attempt, a start), each with a `DONE.json` of
checksums.
Out: `results/raw/<server>/start<k>/<run>/<attempt>/` and `.../start<k>/start-<start_id>/`, read
back as `Attempt` and `Start`.

A folder enters by copy, check and rename, and is never written again, so a half-copied one is
never seen. Snakemake does not know these files: no job failure, `-F` or `--delete-all-output` can
remove an hour of accelerator time. All studies share one store, so a renamed study or a reverted
edit finds its results again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cargo import start_cause

DONE = "DONE.json"


class StoreError(Exception):
    """The store cannot be read or written; the text is for the user."""


class DamagedError(StoreError):
    """A folder does not hold what its DONE.json says."""


@dataclass(frozen=True)
class Attempt:
    """One whole try at one run. `status` is "done" or "invalid" (kept as data, see `reasons`)."""

    path: Path
    run: str
    start_id: str
    status: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """One real start of a server, whatever came of it. `facts` is its start.json."""

    path: Path
    start_id: str
    facts: dict[str, Any]

    @property
    def not_possible(self) -> bool:
        """True if it failed for a cause that surely lies in the configuration."""
        cause = self.facts.get("cause") or {}
        return self.facts.get("status") == "failed" and start_cause.is_final(cause)

    @property
    def ready(self) -> bool:
        return self.facts.get("ready_s") is not None


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def verify(folder: Path) -> dict[str, Any]:
    """Check every file of `folder` against its DONE.json and return that. Raises StoreError naming the first fault."""
    done = _done(folder)
    if done is None:
        raise DamagedError(f"{folder}: no readable {DONE}")
    for name, expected in done["files"].items():
        file = folder / name
        if not file.is_file():
            raise DamagedError(f"{file}: missing, though {DONE} lists it")
        if sha256_of(file) != expected:
            raise DamagedError(f"{file}: content differs from the checksum in {DONE}")
    return done


def recorded_sums(folder: Path) -> dict[str, str]:
    """File -> hex sha256 as recorded when `folder` was made, with that of DONE.json as it is. Hashes
    nothing else. Raises DamagedError where there is no DONE.json."""
    done = _done(folder)
    if done is None:
        raise DamagedError(f"{folder}: no readable {DONE}")
    return {DONE: sha256_of(folder / DONE), **done["files"]}


class Store:
    """`root` is results/raw. Reading costs a directory listing and small JSON files; checksums are checked on entry."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def start_root(self, server: str, start: int) -> Path:
        return self.root / server / f"start{start}"

    def attempts(self, server: str, start: int, run: str) -> list[Attempt]:
        """All whole attempts at a run, oldest first."""
        found = []
        for folder in _folders(self.start_root(server, start) / run):
            done = _done(folder)
            if done is not None:
                status = str(done.get("status", "done"))
                reasons = tuple(str(r) for r in done.get("reasons", []))
                found.append(Attempt(folder, run, str(done.get("start_id")), status, reasons))
        return found

    def select(self, server: str, start: int, run: str) -> Attempt | None:
        """The attempt that counts: the first good one, else the newest invalid one, else None.

        The first, not the best: choosing among good attempts by their numbers would bias every verdict.
        """
        attempts = self.attempts(server, start, run)
        good = [a for a in attempts if a.status == "done"]
        return good[0] if good else (attempts[-1] if attempts else None)

    def starts(self, server: str, start: int) -> list[Start]:
        """All real starts under one start number, oldest first."""
        found = []
        for folder in _folders(self.start_root(server, start)):
            if folder.name.startswith("start-") and _done(folder) is not None:
                found.append(Start(folder, folder.name.removeprefix("start-"), _facts(folder)))
        return found

    def not_possible(self, server: str, start: int) -> Start | None:
        """The start that showed this server to be impossible, if that is what is known of it.

        The cause lies in the configuration, so a refusal under any start number holds for all; a start that came up
        under the same number, or for another number's refusal under any, outweighs it.
        """
        own = self.starts(server, start)
        if not any(s.not_possible for s in own):
            own = [s for number in self._start_numbers(server) for s in self.starts(server, number)]
        refusals = [s for s in own if s.not_possible]
        return None if any(s.ready for s in own) or not refusals else refusals[-1]

    def came_up(self, server: str, start: int) -> bool:
        """Whether the server was ready under this start number at least once."""
        return any(s.ready for s in self.starts(server, start))

    def ever_ready(self, server: str) -> bool:
        """Whether the server was ready under any start number."""
        return any(self.came_up(server, number) for number in self._start_numbers(server))

    def _start_numbers(self, server: str) -> list[int]:
        names = [folder.name.removeprefix("start") for folder in _folders(self.root / server)]
        return sorted(int(name) for name in names if name.isdigit())

    def has(self, server: str, start: int, name: str) -> bool:
        """Whether a start ("start-<id>") or an attempt ("<run>/<attempt>") is in the store, whole."""
        return _done(self.start_root(server, start) / name) is not None

    def put(self, source: Path, server: str, start: int, name: str) -> Path:
        """Take in a start ("start-<id>") or an attempt ("<run>/<attempt>"): copy, check, rename.

        A whole target that is already there is left as it is: names are unique per real attempt. Raises
        DamagedError if the source is not whole, StoreError if the store cannot be written.
        """
        target = self.start_root(server, start) / name
        if target.is_dir() and _done(target) is not None:
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".incoming-", dir=target.parent))
            try:
                copy = scratch / target.name
                shutil.copytree(source, copy)
                verify(copy)
                for file in [*copy.iterdir(), copy]:
                    _sync(file)
                _move_in(copy, target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        except OSError as error:  # shutil.Error is one as well
            raise StoreError(
                f"{target}: cannot be written: {cause_of(error)}.\n"
                "Hint: see to this machine's disk; what was measured stays on the host and is fetched by the next call."
            ) from error
        return target

    def engine_fingerprint(self, engine_key: str) -> str | None:
        """The fingerprint of the engine's files first seen under this engine key (command, build, host), if any."""
        file = self.root / "engines" / f"{engine_key}.json"
        if not file.is_file():
            return None
        value = json.loads(file.read_text(encoding="utf-8")).get("fingerprint")
        return None if value is None else str(value)

    def remember_engine(self, engine_key: str, fingerprint: str, start_id: str) -> None:
        """Record an engine's fingerprint once; later ones are compared with it, never written over it."""
        file = self.root / "engines" / f"{engine_key}.json"
        if not file.exists():
            write_json(file, {"fingerprint": fingerprint, "first_start": start_id})


def write_json(path: Path, value: object) -> None:
    """Write JSON whole: under a temporary name first, then renamed. Raises ValueError for a NaN.

    Bytes of a host that are no UTF-8 (lone surrogates) are written as escapes, which every reader takes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as f:
            f.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    """To the disk, so that a power cut leaves no half folder under a final name; files become read-only."""
    if path.is_file():
        path.chmod(0o444)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _move_in(copy: Path, target: Path) -> None:
    try:
        copy.rename(target)
    except OSError:
        if _done(target) is not None:
            return  # another process put the same checked content there in between
        # What lies there has no readable DONE.json: kept, out of the way.
        target.rename(target.with_name(f".broken-{target.name}-{time.time_ns()}"))
        copy.rename(target)


def cause_of(error: OSError) -> str:
    """The cause in one line; shutil.Error holds a list with one entry a file."""
    first = error.args[0] if error.args else error
    if isinstance(first, list) and first:
        return str(first[0][2])
    return str(error.strerror or error)


def _done(folder: Path) -> dict[str, Any] | None:
    try:
        done = json.loads((folder / DONE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return done if isinstance(done, dict) and isinstance(done.get("files"), dict) else None


def _facts(folder: Path) -> dict[str, Any]:
    file = folder / "start.json"
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(facts, dict):
            return facts
        problem = "it holds no object"
    except (OSError, ValueError) as error:
        problem = str(error)
    raise StoreError(
        f"{file}: cannot be read: {problem}.\n"
        "Hint: restore it from a copy, or move its folder out of results/raw; its runs are kept."
    )


def _folders(parent: Path) -> Iterator[Path]:
    if not parent.is_dir():
        return
    for folder in sorted(parent.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder
