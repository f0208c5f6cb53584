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
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from cargo import beside, printable
from cargo.mask import STARS, url_passwords

DEADLINE_S = 60.0
WORDS_CHARS = 600
CUT_BYTES = 8192
MAX_SAID_BYTES = 4 << 20
SECRETIVE = re.compile(r"TOKEN|SECRET|KEY|PASS|_PWD|CRED|ACCESS|AUTH|PRIVATE", re.IGNORECASE)
SHELLS_OWN = ("PWD", "OLDPWD", "SHLVL", "_")
STATUS = "DECODELAB_SETUP_STATUS"
SCRIPT = (
    "decodelab_script=$1 decodelab_out=$2 decodelab_cat=$3; set --; "
    '. "$decodelab_script" >"$decodelab_out"; '
    '%s=$? exec "$decodelab_cat" /proc/self/environ' % STATUS
)


NOT_TAKEN = "it calls exit or exec, so that its environment cannot be taken"


class SetupFailed(Exception):
    """The script gave no environment; the text holds its own words, never a URL's password."""

    def __init__(self, words: str) -> None:
        super().__init__(printable.plain(url_passwords(words)))


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
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    dump, said, told = (os.memfd_create("setup", flags) for _ in range(3))
    try:
        words = [path, path, "/proc/self/fd/%d" % told, cat]
        argv = [shell, *options, "-c", SCRIPT, *words]
        code = _run(argv, env, dump, said, told, check)
        _let_nobody_write(dump, said, told)
        flooded = _flooded(said, told)
        found = {} if flooded else _parse(_last(dump))
        error = _last(said, CUT_BYTES).strip()
        said_last = (error or _last(told, CUT_BYTES).strip()).decode("utf-8", "replace")
        said_last = url_passwords(said_last)[-WORDS_CHARS:]  # in this order: a cut one is not seen
    finally:
        for fd in (dump, said, told):
            os.close(fd)
    if flooded:
        text = (
            "setup %s wrote more than %d MiB to stdout or stderr and was ended. Its last words: %s"
        )
        raise SetupFailed(text % (path, MAX_SAID_BYTES >> 20, " ".join(said_last.split())[-80:]))
    if code is None:
        raise SetupFailed("setup %s: no end within %g s. %s" % (path, DEADLINE_S, said_last))
    status = found.pop(STATUS, None)
    if status is None and code == 0:
        raise SetupFailed("setup %s: %s. %s" % (path, NOT_TAKEN, said_last))
    if status is None or (status != "0" and error):
        said_last = said_last or "It said nothing; perhaps %s" % NOT_TAKEN
        raise SetupFailed("setup %s ended with status %s. %s" % (path, status or code, said_last))
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
        while process.poll() is None and time.monotonic() < end and not _flooded(said, told):
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


def _flooded(*fds: int) -> bool:
    return any(os.fstat(fd).st_size > MAX_SAID_BYTES for fd in fds)


def _let_nobody_write(*fds: int) -> None:
    """A child that was left in the background must not fill the memory with what it says."""
    for fd in fds:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)


def _last(fd: int, limit: Optional[int] = None) -> bytes:
    size = os.fstat(fd).st_size
    begin = 0 if limit is None else max(0, size - limit)
    return os.pread(fd, size - begin, begin)


def _parse(dump: bytes) -> Dict[str, str]:
    """As it is, byte by byte: the server gets this."""
    pairs = (entry.partition(b"=") for entry in dump.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _changes(
    path: str, digest: str, before: Dict[str, str], after: Dict[str, str]
) -> Dict[str, Any]:
    """What the script did, for people; values that look secret are not shown."""
    changed = {
        printable.plain(name): STARS
        if SECRETIVE.search(name)
        else url_passwords(printable.plain(value))
        for name, value in sorted(after.items())
        if before.get(name) != value and name not in SHELLS_OWN
    }
    gone = [printable.plain(name) for name in sorted(set(before) - set(after) - set(SHELLS_OWN))]
    return {"path": printable.plain(path), "sha256": digest, "set": changed, "unset": gone}
