"""The environment that a setup script makes: sourced by a shell once, taken as it is afterwards.

In:  the script's path, the agent's own environment. Out: the resulting environment and a record of
what it changed, or SetupFailed with the script's words. A shell that is not interactive reads no
profile: where an accelerator's paths come from a script, this is how they reach the server.

The shell's last act is to become `cat /proc/self/environ`: what is exported is seen byte by byte.
A last status other than 0 counts as a failure only if the script also said something on stderr:
`[ -d x ] && export y` as a last line is common and harmless.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from cargo import beside

DEADLINE_S = 60.0
WORDS_BYTES = 600
SECRETIVE = re.compile(r"TOKEN|SECRET|KEY|PASSW|CREDENTIAL", re.IGNORECASE)
SHELLS_OWN = ("PWD", "OLDPWD", "SHLVL", "_")
STATUS = "DECODELAB_SETUP_STATUS"
SCRIPT = (
    "decodelab_script=$1 decodelab_out=$2 decodelab_cat=$3; set --; "
    '. "$decodelab_script" >"$decodelab_out"; '
    '%s=$? exec "$decodelab_cat" /proc/self/environ' % STATUS
)


class SetupFailed(Exception):
    """The script gave no environment; the text holds its own words."""


class Setup(NamedTuple):
    env: Dict[str, str]
    record: Optional[Dict[str, Any]]  # for start.json


class Setups:
    """One for the agent's life: a script is sourced once, and again when its content changed."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[str, str], Setup] = {}

    def of(self, path: Optional[str], check: Callable[[], None] = lambda: None) -> Setup:
        if path is None:
            return Setup(dict(os.environ), None)
        path = os.path.expanduser(path)
        if not os.path.isabs(path):
            raise SetupFailed(
                "setup %s: an absolute path is needed, or one that begins with ~" % path
            )
        try:
            with open(path, "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
        except OSError as error:
            raise SetupFailed("setup %s: %s" % (path, error.strerror)) from error
        if (path, digest) not in self._known:
            self._known[path, digest] = source(path, digest, dict(os.environ), check)
        return self._known[path, digest]


def source(path: str, digest: str, env: Dict[str, str], check: Callable[[], None]) -> Setup:
    shell, cat = shutil.which("bash") or "/bin/sh", shutil.which("cat")
    if cat is None:
        raise SetupFailed("setup %s: no `cat` on this host" % path)
    options = ["--noprofile", "--norc"] if shell.endswith("bash") else []
    # In memory: the environment may hold what must not lie in a file. And no pipes: a child that
    # the script left in the background would keep us waiting for their end.
    dump, said, told = (os.memfd_create("setup") for _ in range(3))
    try:
        words = [path, path, "/proc/self/fd/%d" % told, cat]
        argv = [shell, *options, "-c", SCRIPT, *words]
        code = _run(argv, env, dump, said, told, check)
        found = _parse(_content(dump))
        error = _content(said).strip()
        own_words = (error or _content(told).strip())[-WORDS_BYTES:].decode("utf-8", "replace")
    finally:
        for fd in (dump, said, told):
            os.close(fd)
    if code is None:
        raise SetupFailed("setup %s: no end within %g s. %s" % (path, DEADLINE_S, own_words))
    status = found.pop(STATUS, None)
    if status is None or (status != "0" and error):
        ended = status or code
        raise SetupFailed("setup %s ended with status %s. %s" % (path, ended, own_words))
    return Setup(found, _changes(path, digest, env, found))


def _run(
    argv: List[str],
    env: Dict[str, str],
    dump: int,
    said: int,
    told: int,
    check: Callable[[], None],
) -> Optional[int]:
    """The exit code; None when it had to be ended."""
    process = subprocess.Popen(
        argv,
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=dump,
        stderr=said,
        pass_fds=(told,),
        start_new_session=True,
    )
    beside.RUNNING.add(process.pid)
    end = time.monotonic() + DEADLINE_S
    try:
        while process.poll() is None and time.monotonic() < end:
            check()
            time.sleep(0.01)
        return process.poll()
    finally:
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # the session is its own
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
        beside.RUNNING.discard(process.pid)


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _parse(dump: bytes) -> Dict[str, str]:
    pairs = (entry.partition(b"=") for entry in dump.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _changes(
    path: str, digest: str, before: Dict[str, str], after: Dict[str, str]
) -> Dict[str, Any]:
    """What the script did, for people; values that look secret are not shown."""
    changed = {
        name: "***" if SECRETIVE.search(name) else value
        for name, value in sorted(after.items())
        if before.get(name) != value and name not in SHELLS_OWN
    }
    gone = sorted(set(before) - set(after) - set(SHELLS_OWN))
    return {"path": path, "sha256": digest, "set": changed, "unset": gone}
