"""A private key file of the user, in any of the usual formats.

In:  a path. Out: the key, or a KeyFileError that says why it cannot be used; the public half, which is
     there to be read even when the key itself is encrypted or lies in the agent only.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from paramiko.message import Message

CERTIFICATE = "-cert-v01@openssh.com"
OPENSSH_MAGIC = b"openssh-key-v1\0"


class KeyFileError(Exception):
    """Why a key file cannot be used as it is; `encrypted` if only the passphrase is missing."""

    def __init__(self, words: str, encrypted: bool = False) -> None:
        super().__init__(words)
        self.encrypted = encrypted


def load(path: str) -> paramiko.PKey:
    """The private key. Raises KeyFileError."""
    content = _read(path)
    if _public_line(content) is not None or not Path(path).exists():
        raise KeyFileError(
            "only the public half is there, and the agent does not have the private one"
        )
    if content.startswith(b"PuTTY-User-Key-File"):
        raise KeyFileError(
            "it is in PuTTY's format; `puttygen KEY -O private-openssh -o NEW` converts it"
        )
    if b"-----BEGIN" not in content:
        raise KeyFileError("it is no private key")
    if _is_encrypted(content):
        raise KeyFileError("it is encrypted", encrypted=True)
    openssh = b"BEGIN OPENSSH PRIVATE KEY" in content
    read = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    try:
        private = read(content, password=None)
        kind: type[paramiko.PKey]
        if isinstance(private, rsa.RSAPrivateKey):
            kind = paramiko.RSAKey
        elif isinstance(private, ed25519.Ed25519PrivateKey):
            kind = paramiko.Ed25519Key
        elif isinstance(private, ec.EllipticCurvePrivateKey):
            kind = paramiko.ECDSAKey
        else:
            raise KeyFileError("keys of its type are not supported (DSA is out of use)")
        # paramiko's classes read fewer formats than OpenSSH does; all of them read this one.
        text = private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        ).decode("ascii")
        return kind.from_private_key(io.StringIO(text))
    except UnsupportedAlgorithm as error:
        raise KeyFileError("keys of its type work through the agent only") from error
    except (ValueError, TypeError, paramiko.SSHException) as error:
        raise KeyFileError("it is damaged, or of an unknown format") from error


def public_blob(path: str) -> bytes | None:
    """The public half, from the file itself if it shows it, else from the .pub beside it."""
    for candidate in (path, path + ".pub"):
        try:
            content = _read(candidate)
        except KeyFileError:
            continue
        blob = _public_line(content) or _openssh_header(content)[1]
        if blob is not None:
            return blob
    return None


def certificate(path: str, key_blob: bytes) -> tuple[str, bytes] | None:
    """(type, content) of the certificate in the file, if it is one for this key."""
    try:
        blob = _public_line(_read(path))
    except KeyFileError:
        return None
    if blob is None:
        return None
    message, key = Message(blob), Message(key_blob)
    kind = message.get_string().decode("latin-1")
    if kind != key.get_string().decode("latin-1") + CERTIFICATE:
        return None
    message.get_string()  # the nonce; then follow the numbers of the key, as they stand in the key
    return (kind, blob) if message.get_remainder().startswith(key.get_remainder()) else None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if Path(path).is_file() else b""
    except OSError as error:
        raise KeyFileError(f"it cannot be read: {error.strerror}") from error


def _public_line(content: bytes) -> bytes | None:
    """The key of `type base64 comment`."""
    fields = content.split(None, 2)
    if len(fields) < 2 or not fields[0].startswith((b"ssh-", b"ecdsa-", b"sk-")):
        return None
    try:
        blob = base64.b64decode(fields[1], validate=True)
    except ValueError:
        return None
    return blob if Message(blob).get_string() == fields[0] else None


def _is_encrypted(content: bytes) -> bool:
    if b"BEGIN OPENSSH PRIVATE KEY" in content:
        return _openssh_header(content)[0] not in (b"none", b"")
    return b"BEGIN ENCRYPTED PRIVATE KEY" in content or b"Proc-Type: 4,ENCRYPTED" in content


def _openssh_header(content: bytes) -> tuple[bytes, bytes | None]:
    """(name of the cipher, public half), which an OpenSSH key file shows without its passphrase."""
    _, begin, rest = content.partition(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    body, end, _ = rest.partition(b"-----END")
    try:
        raw = base64.b64decode(b"".join(body.split()))
    except ValueError:
        return b"", None
    if not begin or not end or not raw.startswith(OPENSSH_MAGIC):
        return b"", None
    message = Message(raw[len(OPENSSH_MAGIC) :])
    cipher = message.get_string()
    message.get_string()  # the key derivation and
    message.get_string()  # its options
    message.get_int()
    return cipher, message.get_string() or None
