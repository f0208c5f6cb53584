"""The load client as one file, for `--http httpx` on a host that has nothing installed.

In:  the cargo's client files, and httpx with what it needs as it is installed beside the workflow.
Out: a folder that holds decode_microbench.pyz and is named by its content. `python3 -S
     decode_microbench.pyz …` takes the same options as decode_microbench.py and is the same client:
     the same bytes under the same names, so the same digest.

Pure Python only: it runs on any machine, from the oldest Python on that every part supports.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from decodelab.host import HostError

CARGO = Path(__file__).resolve().parent.parent / "cargo"
CLIENT, ZIPAPP = "decode_microbench.py", "decode_microbench.pyz"
SECOND_OPINION = "httpx"
PYTHONS = [f"3.{minor}" for minor in range(9, 30)]  # of hosts, oldest first
COMPILED = {".so", ".pyd", ".dylib"}
# Parses on any Python, so that an old one can say what is wrong.
MAIN = """\
import sys

if sys.version_info < ({wanted}):
    sys.stderr.write(
        "{client}: --http httpx needs Python {python} or newer on the host; this is %d.%d\\n"
        % sys.version_info[:2]
    )
    sys.exit(2)

from cargo.{module} import main

sys.exit(main())
"""


@dataclass(frozen=True)
class Zipapp:
    folder: Path  # holds the one file; its name is the digest of the content
    python: str  # the oldest that can run it, such as "3.10"


def made(root: Path) -> Zipapp:
    """The zipapp of this checkout `root`, built unless its .decodelab folder has it. Raises HostError."""
    python, packages = _packages()
    content = {"__main__.py": _main(python), **_client(), **packages}
    total = hashlib.sha256()
    for name in sorted(content):
        total.update(f"{name} {len(content[name])}\n".encode() + content[name])
    folder = root / ".decodelab" / "client" / total.hexdigest()[:16]
    if not (folder / ZIPAPP).is_file():
        _write(folder, content)
    return Zipapp(folder, python)


def _main(python: str) -> bytes:
    wanted, module = python.replace(".", ", "), CLIENT.removesuffix(".py")
    return MAIN.format(wanted=wanted, python=python, client=CLIENT, module=module).encode()


def _client() -> dict[str, bytes]:
    """What the client itself counts as its files, and the scenarios that it ships."""
    scenarios = sorted((CARGO / "scenarios").glob("*.json"))
    files = [*(CARGO / name for name in _own_files()), *scenarios]
    return {f"cargo/{file.relative_to(CARGO).as_posix()}": file.read_bytes() for file in files}


def _own_files() -> tuple[str, ...]:
    for node in ast.parse((CARGO / CLIENT).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FILES":
            found: tuple[str, ...] = ast.literal_eval(node.value)
            return found
    raise LookupError(f"{CLIENT} does not name its FILES")


def _packages() -> tuple[str, dict[str, bytes]]:
    """The oldest Python for which all that httpx needs is installed here, and the files of all that."""
    for python in PYTHONS:
        needed = _needed(python)
        if needed is not None:
            return python, {name: data for found in needed for name, data in _files(found)}
    raise HostError(
        f"{SECOND_OPINION} and what it needs are not installed beside the workflow, so that the load client\n"
        "cannot bring them to a host.\n"
        "Hint: call `make` again, which installs requirements/run.lock."
    )


def _needed(python: str) -> list[importlib.metadata.Distribution] | None:
    """Every distribution that httpx needs on a host with that Python; None if one is not installed
    here, or does not support that Python.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    todo = [Requirement(SECOND_OPINION)]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return None
        supported = ",".join(found[name].metadata.get_all("Requires-Python") or [])
        if not SpecifierSet(supported).contains(python):
            return None
        for text in found[name].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(_host(python)):
                todo.append(requirement)
    return [found[name] for name in sorted(found)]


def _host(python: str) -> dict[str, str]:
    """What a requirement's marker asks about, on a host; no extras."""
    return {
        "extra": "",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
    }


def _files(found: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """Its modules and data, and of its description what does not depend on how it was installed."""
    name = found.metadata["Name"]
    if found.files is None:
        raise HostError(
            f"{name}: nothing says which files belong to it, so that it cannot be brought to a host.\n"
            "Hint: call `make`, which makes an environment in which that is known."
        )
    for file in found.files:
        path = PurePosixPath(file)
        if path.suffix in COMPILED:
            raise HostError(
                f"{name}: {path} is compiled for this machine and cannot run on a host.\n"
                "Hint: call `make` again, which installs requirements/run.lock."
            )
        described = path.parts[0].endswith(".dist-info")
        wanted = not described or path.name == "METADATA" or "licenses" in path.parts
        if wanted and ".." not in path.parts and path.suffix != ".pyc":
            yield str(path), Path(str(found.locate_file(file))).read_bytes()


def _write(folder: Path, content: dict[str, bytes]) -> None:
    """Whole or not at all; the same content makes the same file."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".incoming-", dir=folder.parent))
        try:
            copy = scratch / folder.name
            copy.mkdir()
            with zipfile.ZipFile(copy / ZIPAPP, "w") as zipped:
                for name in sorted(content):
                    entry = zipfile.ZipInfo(name)  # dated 1980, whatever the day
                    entry.external_attr = 0o644 << 16
                    entry.create_system = 3
                    zipped.writestr(entry, content[name], zipfile.ZIP_DEFLATED)
            os.rename(copy, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        if not (folder / ZIPAPP).is_file():  # else another process built the same just now
            raise HostError(
                f"{folder}: cannot be written: {error.strerror}.\nHint: see to this machine's disk."
            ) from error
