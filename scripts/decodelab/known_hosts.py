"""Which host keys the user trusts: known_hosts files read as OpenSSH reads them, never written.

In:  paths of known_hosts files, a name to look up, a key that a server showed.
Out: a `Verdict` on the key, the key types to ask the server for, and notes on lines that do not count.
One bad line costs that line only: it is kept as (file, line, problem) and everything else still holds.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha1, sha256

import paramiko

# What a server signs with when its key is of this type in known_hosts (SHA-1 signatures are out).
SIGNED_AS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
VERIFIABLE: tuple[str, ...] = tuple(vars(paramiko.Transport)["_preferred_keys"])
MARKERS = ("@revoked", "@cert-authority")


@dataclass(frozen=True)
class Verdict:
    """What the files say of a key: known | unknown | changed | revoked, the last two with the line."""

    state: str
    file: str = ""
    line: int = 0


class HostKeyRefused(paramiko.SSHException):
    """A server's key that does not pass; raised by whoever opens the connection."""

    def __init__(self, name: str, key: paramiko.PKey, verdict: Verdict) -> None:
        super().__init__(f"host key of {name}: {verdict.state}")
        self.name = name
        self.key = key
        self.verdict = verdict


@dataclass(frozen=True)
class Line:
    """One line that counts."""

    marker: str  # "", "@revoked" or "@cert-authority"
    names: str  # the first field, as written
    key_type: str
    blob: bytes
    file: str
    number: int


@dataclass
class HostKeys:
    """The lines of all files, in order."""

    lines: list[Line] = field(default_factory=list)
    bad_lines: list[tuple[str, int, str]] = field(default_factory=list)

    @classmethod
    def load(cls, files: Iterable[str]) -> HostKeys:
        """Read the files that exist. Never raises: what cannot be read is a bad line 0."""
        keys = cls()
        for file in files:
            keys._read(file)
        return keys

    def _read(self, file: str) -> None:
        try:
            mode = os.stat(file).st_mode
            if not stat.S_ISREG(mode):  # a pipe would be waited for without end
                if file != os.devnull:
                    self.bad_lines.append((file, 0, "not a regular file"))
                return
            with open(file, "rb") as f:
                content = f.read()
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self.bad_lines.append((file, 0, f"cannot be read: {_words(error)}"))
            return
        for number, raw in enumerate(content.split(b"\n"), 1):
            text = raw.decode("utf-8", "surrogateescape").strip(" \t\r\f\v")
            if not text or text.startswith("#"):
                continue
            try:
                self.lines.append(_parse(text, file, number))
            except ValueError as problem:
                self.bad_lines.append((file, number, str(problem)))

    def types_for(self, name: str) -> list[str]:
        """The key types known for the name (ssh-ed25519, ssh-rsa …), in the order of the files."""
        return list(dict.fromkeys(x.key_type for x in self._of(name) if not x.marker))

    def unwanted_for(self, name: str) -> list[str]:
        """Signature algorithms to switch off, so that the server shows a key of a known type.

        For paramiko's disabled_algorithms={"keys": …}. Empty if no key is known (any may come), or
        if none of the known types can be verified here (then the check must see what comes).
        """
        wanted = {s for t in self.types_for(name) for s in SIGNED_AS.get(t, (t,))}
        return [k for k in VERIFIABLE if k not in wanted] if wanted & set(VERIFIABLE) else []

    def check(self, name: str, key: paramiko.PKey) -> Verdict:
        """What the files say of this key for this name.

        A key of another type than the known ones counts as changed: else whoever sits in between
        would only have to offer a type that the user has not seen.
        """
        blob = key.asbytes()
        plain = _without_port(name)
        for line in self.lines:
            meant = _matches(line.names, name) or (plain and _matches(line.names, plain))
            if meant and line.marker == "@revoked" and line.blob == blob:
                return Verdict("revoked", line.file, line.number)
        trusted = [x for x in self._of(name) if not x.marker]
        if any(x.blob == blob for x in trusted):
            return Verdict("known")
        if trusted:
            same_type = (x for x in trusted if x.key_type == key.get_name())
            line = next(same_type, trusted[0])
            return Verdict("changed", line.file, line.number)
        # As ssh does: a line without the port is good enough for a key that it has.
        if plain and any(not x.marker and x.blob == blob for x in self._of(plain)):
            return Verdict("known")
        return Verdict("unknown")

    def notes(self, name: str) -> list[str]:
        """Words for an error message: lines that did not count, and certificates for the name."""
        words = [
            f"{file}{f' line {number}' if number else ''} does not count: {problem}"
            for file, number, problem in self.bad_lines
        ]
        words += [
            f"{line.file} line {line.number} trusts host certificates, which are not supported here"
            for line in self._of(name)
            if line.marker == "@cert-authority"
        ]
        return words

    def _of(self, name: str) -> Iterator[Line]:
        return (x for x in self.lines if _matches(x.names, name))


def fingerprint(key: paramiko.PKey) -> str:
    """SHA256:… as `ssh-keygen -l` prints it."""
    digest = sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def _parse(text: str, file: str, number: int) -> Line:
    """One line that is neither empty nor a comment. Raises ValueError with what is wrong."""
    marker = ""
    if text.startswith("@"):
        marker, text = [*text.split(None, 1), ""][:2]
        if marker not in MARKERS:
            raise ValueError(f"unknown marker {_shown(marker)}; allowed are {', '.join(MARKERS)}")
    fields = text.split(None, 3)
    if len(fields) < 3:
        raise ValueError("not three fields (names, key type, key)")
    names, key_type, encoded = fields[:3]
    if key_type.isdigit():
        raise ValueError("a key of SSH version 1")
    if names.startswith("|") and _unhash(names) is None:
        raise ValueError("a hashed name that is not |1|salt|hash")
    try:
        blob = base64.b64decode(encoded.encode("ascii"), validate=True)
    except ValueError as error:  # binascii.Error and UnicodeEncodeError are both one
        raise ValueError("the key is not base64") from error
    if _type_in(blob) != key_type:
        raise ValueError(f"the key is cut short, or is no {_shown(key_type)} key")
    return Line(marker, names, key_type, blob, file, number)


def _type_in(blob: bytes) -> str | None:
    """The type that the key's own bytes begin with, if all of its length-prefixed parts are whole."""
    parts = []
    at = 0
    while at + 4 <= len(blob):
        (size,) = struct.unpack_from(">I", blob, at)
        parts.append(blob[at + 4 : at + 4 + size])
        at += 4 + size
    return parts[0].decode("latin-1") if len(parts) >= 2 and at == len(blob) else None


def _shown(word: str) -> str:
    return ascii(word if len(word) <= 30 else word[:27] + "...")


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _matches(names: str, name: str) -> bool:
    """Whether the first field of a line is about the name: a hash, or patterns where one with ! vetoes."""
    if names.startswith("|"):
        hashed = _unhash(names)
        if hashed is None:
            return False
        salt, digest = hashed
        return hmac.compare_digest(
            hmac.new(salt, name.lower().encode("utf-8", "surrogateescape"), sha1).digest(), digest
        )
    found = False
    for pattern in names.split(","):
        veto = pattern.startswith("!")
        if _is_like(pattern[veto:], name):
            if veto:
                return False
            found = True
    return found


def _unhash(names: str) -> tuple[bytes, bytes] | None:
    parts = names.split("|")
    if len(parts) != 4 or parts[0] or parts[1] != "1":
        return None
    try:
        salt, digest = (base64.b64decode(p.encode("ascii"), validate=True) for p in parts[2:])
    except ValueError:
        return None
    return (salt, digest) if len(digest) == sha1().digest_size else None


def _is_like(pattern: str, name: str) -> bool:
    """* and ? only: the brackets of [host]:port stand for themselves. Letters in any case."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.lower() == name.lower()
    # Parts between stars are found from left to right, so that no pattern can take long.
    first, *rest = pattern.lower().split("*")
    name = name.lower()
    if not rest:
        return _fits(first, name, 0) and len(first) == len(name)
    last = rest.pop()
    at = len(first)
    if not _fits(first, name, 0) or len(name) < at + len(last):
        return False
    for part in rest:
        while not _fits(part, name, at):
            at += 1
            if at > len(name):
                return False
        at += len(part)
    return len(name) - len(last) >= at and _fits(last, name, len(name) - len(last))


def _fits(part: str, name: str, at: int) -> bool:
    """Whether the part, where ? is any letter, stands in the name at this place."""
    piece = name[at : at + len(part)]
    return len(piece) == len(part) and all(p in ("?", c) for p, c in zip(part, piece, strict=True))


def _without_port(name: str) -> str:
    """host of [host]:port, else nothing."""
    found = re.fullmatch(r"\[(.+)\]:\d+", name)
    return found[1] if found else ""
