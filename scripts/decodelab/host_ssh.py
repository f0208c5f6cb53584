"""The transport to another machine, over one SSH connection (ssh_link.py).

In:  a host block with `transport: ssh`. Out: a `Host` (see host.py).

Every command goes out as `/bin/sh -c '…; exec timeout N WORD…'` with each word quoted, so that
spaces, quotes, $(), newlines, leading dashes and other alphabets arrive as they are whatever the
login shell is. It first prints a word of ours: what the host's .bashrc says before that is
dropped, and where it never comes (a forced command, no login shell) the host's own words are told.
"""

from __future__ import annotations

import base64
import fcntl
import gzip
import hashlib
import io
import math
import os
import re
import secrets
import shlex
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from decodelab.host import HostError, Result
from decodelab.ssh_alias import resolve
from decodelab.ssh_link import BEAT_S, SILENCE_S, SshLink
from decodelab.vocabulary import SIMULATOR_PATH

CARGO = Path(__file__).resolve().parent.parent / "cargo"
GRACE_S = 15.0  # for the host's own `timeout` to have its word first
SHIP_S = 300.0
SEND_S = 6 * 3600.0
SILENT_S = 30.0  # a stream that says nothing for so long is broken
SKIP_BYTES_PER_S = 500_000  # the host packs again what a resumed stream leaves out, in silence
TURN_S = 900.0  # waiting for another process that fetches the same folder
NOISE_BYTES = 1 << 20
COMMAND_BYTES = 120_000  # Linux takes 128 KiB as one argument
NAMES_BYTES = 30_000
NO_SUCH_FILE = 66
TAIL = f'test -e "$1" || exit {NO_SUCH_FILE}; exec tail -c "+$2" -- "$1"'
HINTS = {
    "No space left|quota": "free space on the host, or set hosts.{0}.workdir to another folder.",
    "Read-only file system": "set hosts.{0}.workdir to a folder that can be written.",
    "Permission denied|not permitted": "set hosts.{0}.workdir to a folder that you may write.",
    "Not a directory": "set hosts.{0}.workdir to a folder: a part of that path is a file there.",
    "File name too long": "set hosts.{0}.workdir to a folder with a shorter path.",
    "No such file or directory": "see whether hosts.{0}.workdir, or what it links to, is still there.",
    "Python 3.9 or newer": "set hosts.{0}.python to a Python 3.9 or newer on that host.",
    "No module named|SyntaxError": "set hosts.{0}.python to a whole Python 3.9 or newer on that host.",
}


class SshHost:
    """A machine that the user's own ssh configuration leads to."""

    poll_s = 1.0
    patience_s = 0.0  # a loss is told at once; SteadyHost has the patience

    def __init__(
        self,
        name: str,
        block: Mapping[str, Any],
        root: Path,
        *,
        beat_s: float = BEAT_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.name = name
        self.workdir = str(block.get("workdir") or "")
        if not self.workdir.startswith("/"):
            raise HostError(
                f"hosts.{name}.workdir: {self.workdir!r} is not an absolute path on the host.\n"
                "Hint: name a folder there that you may write, such as /root/work."
            )
        self.python = str(block.get("python") or "python3")
        config = block.get("ssh_config")
        path = str(root / os.path.expanduser(str(config))) if config else None
        hops = resolve(str(block.get("ssh") or name), path)
        self._root = root
        self._incoming = root / ".decodelab" / "incoming" / name
        self._link = SshLink(name, hops, beat_s=beat_s, silence_s=silence_s)

    def symbols(self) -> dict[str, str]:
        # The checkout is not on the host. A simulated host reached over ssh shares this disk.
        return {
            "{this}": self.python,
            "{repo}": str(self._root),
            "{simulator}": str(self._root / SIMULATOR_PATH),
            "{python}": self.python,
        }

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 60) -> Result:
        marker = _new_marker()
        started = time.monotonic()
        command = self._command(argv, marker, timeout_s, fed=bool(stdin))
        raw = self._link.run(command, stdin, timeout_s + GRACE_S)
        if marker not in raw.out:
            raise self._not_ours(raw.exit_code, raw.out + raw.err)
        done = Result(raw.exit_code, raw.out.partition(marker)[2], _after(marker, raw.err))
        self._check_started(argv, done)
        if done.exit_code in (124, 137) and time.monotonic() - started >= timeout_s:
            raise HostError(
                f"host {self.name}: {' '.join(argv[:3])} gave no answer in {timeout_s:.0f} s.\n"
                f"Hint: look at {self.workdir}/agent.log there."
            )
        return done

    def tail(self, path: str, offset: int) -> bytes:
        done = self.run(["/bin/sh", "-c", TAIL, "sh", path, str(offset + 1)])
        if done.exit_code == NO_SUCH_FILE:
            return b""
        if done.exit_code:
            raise self._refused(f"cannot read {path}", done.err)
        return done.out

    def ship(self, folder: Path, target: str) -> None:
        if self.run(["test", "-d", target]).exit_code == 0:
            return
        archive = _packed(folder)
        words = [target, hashlib.sha256(archive).hexdigest()]
        done = self.run(self._cargo("receive.py", words), archive, SHIP_S)
        if done.exit_code:
            raise self._refused(f"cannot write the agent to {target}", done.err)

    @contextmanager
    def fetch(self, path: str, names: Sequence[str] | None = None) -> Iterator[Path]:
        """A copy of the sealed folder; what came before a loss of the connection is not sent again.

        The stream's own checksum is checked here; each file's sha256 is checked against the
        folder's own record by whoever takes it in.
        """
        key = _key(path, names or ())
        unpacked = self._incoming / f"{key}.unpacked"
        with self._turn(self._incoming / f"{key}.turn"):
            try:
                self._make(unpacked)
                for batch in _batches(names):
                    self._bring(path, batch, unpacked)
                yield unpacked
            finally:
                shutil.rmtree(unpacked, ignore_errors=True)

    @property
    def reached(self) -> bool:
        """Whether the host let us in at least once: what is lost then is the line, not a mistake."""
        return self._link.reached

    def close(self) -> None:
        self._link.close()

    # -- fetching ---------------------------------------------------------------------------

    @contextmanager
    def _turn(self, file: Path) -> Iterator[None]:
        """One process at a time fetches a folder."""
        end = time.monotonic() + TURN_S
        while True:
            self._make(file.parent, keep=True)
            with file.open("a") as held:
                if _locked(held, file):
                    try:
                        yield
                    finally:
                        file.unlink()
                    return
            if time.monotonic() > end:
                raise HostError(
                    f"host {self.name}: another process has held {file} for {TURN_S:.0f} s.\n"
                    f"Hint: see `fuser {file}`."
                )
            time.sleep(0.2)

    def _bring(self, path: str, names: Sequence[str], unpacked: Path) -> None:
        """The files into `unpacked`. The stream is kept until it is whole, so that it can go on."""
        part = self._incoming / f"{_key(path, names)}.tar.gz.part"
        trial = unpacked.with_suffix(".trial")  # a broken stream may unpack in part
        for last_try in (False, True):
            self._stream(path, names, part)
            self._make(trial)
            try:
                _unpack(part, trial)
                for file in trial.iterdir():
                    file.rename(unpacked / file.name)
                return
            except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
                if last_try:
                    raise HostError(
                        f"host {self.name}: {path} arrived broken twice: {error}.\n"
                        "Hint: see whether something on the host still writes into that folder."
                    ) from error
            except OSError as error:
                raise self._disk(error) from error
            finally:
                part.unlink()  # taken in, or useless
                shutil.rmtree(trial, ignore_errors=True)

    def _stream(self, path: str, names: Sequence[str], part: Path) -> None:
        """Append to `part` what is still missing of the stream."""
        have = part.stat().st_size if part.exists() else 0
        words = ["send", path, "--offset", str(have), *(["--", *names] if names else [])]
        marker = _new_marker()
        command = self._command(self._cargo("outbox.py", words), marker, SEND_S)
        try:
            with part.open("ab") as file:
                clean = _AfterMarker(marker, file)
                patience_s = SILENT_S + have / SKIP_BYTES_PER_S
                done = self._link.stream(command, clean.take, idle_s=patience_s)
        except OSError as error:
            raise self._disk(error) from error
        if not clean.found:
            raise self._not_ours(done.exit_code, bytes(clean.noise) + done.err)
        done = Result(done.exit_code, b"", _after(marker, done.err))
        self._check_started([self.python], done)
        if done.exit_code:
            part.unlink()
            ours = path.startswith(self.workdir.rstrip("/"))
            raise self._refused(f"cannot fetch {path}", done.err, ours=ours)

    def _make(self, folder: Path, *, keep: bool = False) -> None:
        """An empty folder; what a killed process left in it is gone, unless it is to be kept."""
        try:
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._disk(error) from error

    def _disk(self, error: OSError) -> HostError:
        return HostError(
            f"cannot write what host {self.name} sends into {self._incoming}: {error.strerror}.\n"
            "Hint: see to this machine's disk (space, permissions); what came so far is kept."
        )

    # -- commands ---------------------------------------------------------------------------

    def _cargo(self, file: str, words: Sequence[str]) -> list[str]:
        """A cargo program that need not be on the host: its source travels as an argument."""
        return [self.python, "-S", "-c", (CARGO / file).read_text(encoding="utf-8"), *words]

    def _command(
        self, argv: Sequence[str], marker: bytes, timeout_s: float, fed: bool = False
    ) -> str:
        if any("\0" in word for word in argv):
            raise HostError(
                f"host {self.name}: a word of a command holds a NUL character: {argv!r}.\n"
                "Hint: no program can be given one; correct the path or value."
            )
        word = marker.decode().strip()
        script = f"echo {word}; echo {word} >&2; "
        words = f"timeout -k 5 {math.ceil(timeout_s)} {shlex.join(argv)}"
        # One that ends early takes the rest of its input all the same: see _Job.do in ssh_link.py.
        script += f"{words}; code=$?; cat >/dev/null; exit $code" if fed else f"exec {words}"
        # Shells differ in what a backslash, a newline or a ! means between single quotes.
        if not re.fullmatch(r"[ -~]*", script) or re.search(r"[\\!]", script):
            packed = base64.b64encode(script.encode("utf-8", "surrogateescape")).decode()
            script = f'eval "$(echo {packed} | base64 -d)"'
        command = f"exec /bin/sh -c {shlex.quote(script)}"
        if len(command) > COMMAND_BYTES:
            raise HostError(
                f"host {self.name}: a command of {len(command)} bytes is too long for the host: "
                f"{argv[0]} …\nHint: fewer or shorter names at a time."
            )
        return command

    def _check_started(self, argv: Sequence[str], done: Result) -> None:
        """`timeout` says by itself when there is nothing to run: 126 or 127 and a word of its own."""
        words = done.err.decode("utf-8", "replace").strip().splitlines()
        if done.exit_code in (126, 127) and words and "timeout: " in words[-1]:
            raise HostError(
                f"host {self.name}: cannot run {argv[0]!r}: {words[-1]}\n"
                + (
                    f"Hint: set hosts.{self.name}.python to a Python 3.9 or newer on that host."
                    if argv[0] == self.python
                    else "Hint: decodelab needs coreutils on the host (timeout, tail, test, base64)."
                )
            )

    def _not_ours(self, exit_code: int, said: bytes) -> HostError:
        words = said.decode("utf-8", "replace").strip()[-1000:] or "nothing"
        return HostError(
            f"host {self.name}: logged in, but the host did not run our command (exit code "
            f"{exit_code}). It said:\n{words}\n"
            "Hint: the account needs an ordinary login shell, no forced command, and a .bashrc "
            "that neither exits nor starts another shell."
        )

    def _refused(self, what: str, err: bytes, *, ours: bool = True) -> HostError:
        """`ours`: it is about the workdir, and not about a folder that the user named (fetch_raw)."""
        words = err.decode("utf-8", "replace").strip()[-1000:] or "no reason given"
        hints = (
            hint
            for cause, hint in HINTS.items()
            if re.search(cause, words) and (ours or "workdir" not in hint)
        )
        hint = next(hints, "see to what the host says, then call again.").format(self.name)
        return HostError(f"host {self.name}: {what}: {words}\nHint: {hint}")


class _AfterMarker:
    """Passes a stream on from behind the marker."""

    def __init__(self, marker: bytes, file: BinaryIO) -> None:
        self.marker, self.file = marker, file
        self.noise = bytearray()
        self.found = False

    def take(self, data: bytes) -> None:
        if not self.found:
            self.noise += data
            before, found, data = bytes(self.noise).partition(self.marker)
            self.found = bool(found)
            self.noise = bytearray(before[-NOISE_BYTES:])
        if data:
            self.file.write(data)


def _new_marker() -> bytes:
    return f"decodelab-{secrets.token_hex(8)}\n".encode()


def _after(marker: bytes, said: bytes) -> bytes:
    return said.partition(marker)[2] if marker in said else said


def _batches(names: Sequence[str] | None) -> Iterator[Sequence[str]]:
    """Names in groups that fit on a command line; one empty group stands for all files."""
    if names is None:
        yield []
        return
    batch: list[str] = []
    for name in names:
        if batch and sum(len(n.encode(errors="surrogateescape")) for n in batch) > NAMES_BYTES:
            yield batch
            batch = []
        batch.append(name)
    if batch:
        yield batch


def _packed(folder: Path) -> bytes:
    """A tar.gz of the folder's files, without what Python left there."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                tar.add(file, file.relative_to(folder).as_posix(), filter=_nobodys)
    return buffer.getvalue()


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _unpack(part: Path, folder: Path) -> None:
    """Read the stream to its end, so that its checksum is compared; plain files only."""
    with gzip.open(part, "rb") as plain:
        with tarfile.open(fileobj=plain, mode="r|", encoding="utf-8") as tar:
            for entry in tar:
                if not entry.isreg() or "/" in entry.name:
                    raise ValueError(f"holds something that is no plain file: {entry.name!r}")
                tar.extract(entry, folder, filter="data")
        while plain.read(1 << 20):
            pass


def _key(path: str, names: Sequence[str]) -> str:
    """What a fetched folder, or a part of it, is called while it is on its way."""
    whole = "\0".join([path, *names]).encode("utf-8", "surrogateescape")
    return hashlib.sha256(whole).hexdigest()[:32]


def _locked(held: IO[str], file: Path) -> bool:
    """Whether we have it alone, and it is still the file of that name."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(held.fileno()).st_ino == file.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
