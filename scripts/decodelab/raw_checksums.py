"""The raw files that a report rests on, under their checksums, and whether they are still those.

In: the plan, the index of published files, the checkout. Out: folder -> {"whole", "files"}: file ->
hex sha256. In the raw store the sums are those that DONE.json recorded when it was measured, with
that file's own; of a replay they are those of the files as they lie in its folders. `whole`: a file
that is in the folder beside these is one too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from decodelab import backend_probe, step_read
from decodelab.difference import ABSENT, Difference
from decodelab.store import recorded_sums, sha256_of

Folders = dict[str, dict[str, Any]]


def collect(
    plan: Mapping[str, Any], published: Mapping[str, Any], root: Path, results: Path
) -> Folders:
    """`results`: the study's folder, whose answers about backends a report shows. Raises StoreError
    for a folder of the raw store that is not whole."""
    folders: Folders = {}
    if plan.get("replay"):
        for name in _replayed(plan):
            _add(folders, name, _sums(_files(_at(root, name))), whole=True)
    else:
        entries = [*(published.get("runs") or {}).values(), *(published.get("starts") or [])]
        for name in sorted({entry["raw"] for entry in entries if entry.get("raw")}):
            _add(folders, name, recorded_sums(root / name), whole=True)
    for name, file in _profiles(plan, root):
        _add(folders, name, {file.name: sha256_of(file)}, whole=False)
    answers = _files(results / backend_probe.FOLDER)
    if answers:
        named = f"results/{plan['study']}/{backend_probe.FOLDER}"
        _add(folders, named, _sums(answers), whole=True)
    return dict(sorted(folders.items()))


def _add(folders: Folders, name: str, sums: Mapping[str, str], *, whole: bool) -> None:
    known = folders.setdefault(name, {"whole": whole, "files": {}})
    known["files"] = dict(sorted({**known["files"], **sums}.items()))
    known["whole"] = known["whole"] or whole


def _replayed(plan: Mapping[str, Any]) -> list[str]:
    """The folders of a replay as its config names them: originals first."""
    replay = plan["replay"]
    return [replay[key] for key in ("raw_dir", "folder") if replay.get(key)]


def _profiles(plan: Mapping[str, Any], root: Path) -> Iterable[tuple[str, Path]]:
    """Folder and file of each profile that the config names, as far as it was there for the plan."""
    for entry in (plan.get("profiles") or {}).values():
        if entry.get("file") and entry.get("sha256"):
            path, named = _at(root, entry["file"]), Path(entry["file"])
            if path.is_dir():
                yield from ((named.as_posix(), file) for file in step_read.files_of(path))
            elif path.is_file():
                yield named.parent.as_posix(), path


def _at(root: Path, name: str) -> Path:
    return root / Path(name).expanduser()


def _files(folder: Path) -> list[Path]:
    """As the importer and the workflow look for them: no folders within."""
    return sorted(file for file in folder.glob("*") if file.is_file()) if folder.is_dir() else []


def _sums(files: Iterable[Path]) -> dict[str, str]:
    return {file.name: sha256_of(file) for file in files}


def count(folders: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(len(entry["files"]) for entry in folders.values())


def check(folders: Mapping[str, Mapping[str, Any]], root: Path) -> list[Difference]:
    """Every file that is missing, changed or too many, by name."""
    found: list[Difference] = []
    for name, entry in folders.items():
        folder = _at(root, name)
        if not folder.is_dir():
            files = f"a folder of {len(entry['files'])} files"
            found.append(Difference(name, "", ABSENT, files))
            continue
        found += _check_folder(folder, name, entry)
    return found


def _check_folder(folder: Path, name: str, entry: Mapping[str, Any]) -> Iterable[Difference]:
    for file, wanted in entry["files"].items():
        path = folder / file
        if not path.is_file():
            yield Difference(f"{name}/{file}", "", ABSENT, f"sha256 {wanted[:16]}")
        elif (now := sha256_of(path)) != wanted:
            sums = (f"sha256 {one[:16]}" for one in (now, wanted))
            yield Difference(f"{name}/{file}", "changed", *sums)
    if entry["whole"]:
        for path in _files(folder):
            if path.name not in entry["files"]:
                yield Difference(f"{name}/{path.name}", "added", "a file", ABSENT)
