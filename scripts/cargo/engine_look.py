"""Does the engine import in the server's own python?

In:  the server's first word, an environment, a module. Out: (state, found, todo) for
host_check.py. Children run in an empty folder, so that no checkout shadows what is installed,
and are ended with their session at the deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from typing import IO, Dict, List, NamedTuple, Optional, Tuple

from cargo import identity

IMPORT_S = 180.0
MARK = "decodelab-found:"
Said = Tuple[str, str, Optional[str]]

IMPORT = """
import importlib, json, sys
name = sys.argv[1]
module = importlib.import_module(name)
version = getattr(module, "__version__", None)
if version is None:
    try:
        from importlib import metadata
        version = metadata.version(name)
    except Exception:
        version = "unknown"
devices = module.cuda.device_count() if name == "torch" else None
place = getattr(module, "__file__", None) or list(getattr(module, "__path__", ["?"]))[0]
print("\\n" + sys.argv[2] + json.dumps([str(version), place, devices]), flush=True)
"""


class Done(NamedTuple):
    code: Optional[int]  # None: it had to be ended
    out: str
    err: str


def module(argv0: str, env: Dict[str, str], name: str) -> Said:
    python = identity.python_of(argv0, env)
    if python is None:
        words = "no python found behind %s" % argv0
        return (
            "fail",
            words,
            "correct server.command, or add its folder to PATH in the setup script",
        )
    done = run([python, "-c", IMPORT, name, MARK], env, IMPORT_S)
    if done.code is None:
        return (
            "fail",
            "no end of `import %s` within %g s" % (name, IMPORT_S),
            "try it by hand there",
        )
    marked = [line for line in done.out.splitlines() if line.startswith(MARK)]
    if done.code != 0 or not marked:
        return "fail", _last_words(done), _import_todo(python, name, done.err)
    version, place, devices = json.loads(marked[-1][len(MARK) :])
    found = "%s (%s)" % (version, place)
    if devices is None:
        return "ok", found, None
    found += ", %d devices" % devices
    if devices:
        return "ok", found, None
    return "warn", found, "on an accelerator: check its driver, and the paths that the setup sets"


def _import_todo(python: str, name: str, err: str) -> str:
    if "No module named '%s'" % name in err:
        return "install it for %s, or name the python that has it in server.command" % python
    if "cannot open shared object" in err:
        return (
            "add the library's folder to LD_LIBRARY_PATH in the setup script (hosts.<name>.setup)"
        )
    return "run `%s -c 'import %s'` there and read its words" % (python, name)


def _last_words(done: Done) -> str:
    lines = [x.strip() for x in (done.err or done.out).splitlines() if x.strip()]
    return lines[-1][:300] if lines else "no words (exit code %s)" % done.code


def run(argv: List[str], env: Dict[str, str], deadline_s: float) -> Done:
    """To its end or the deadline. Files, not pipes: a child in the background holds those open."""
    folder = tempfile.mkdtemp(prefix="decodelab-look-")
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            code: Optional[int] = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(deadline_s)
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session, and what it left there
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
            return Done(code, _text(out), _text(err))
    except OSError as error:
        return Done(127, "", "%s: %s" % (argv[0], error.strerror))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
