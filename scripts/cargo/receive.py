"""Bring a folder to this host whole or not at all.

    python -S -c SOURCE TARGET SHA256 < folder.tar.gz

In:  a tar.gz of regular files and folders on stdin, its sha256, where the folder shall be.
Out: TARGET, renamed into place from a scratch folder beside it. There already: nothing changes.
Exit code 0, or 1 with one line of words on stderr. Stands alone: it travels as an argument.
"""

import gzip
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import zlib
from typing import BinaryIO, List

if sys.version_info < (3, 9):  # before anything that an older one could trip over
    sys.exit("Python 3.9 or newer is needed, this is %s" % sys.version.split()[0])

BLOCK_BYTES = 1 << 20


class Refused(Exception):
    """What came cannot be taken; the text says why."""


def receive(source: BinaryIO, target: str, sha256: str) -> None:
    if os.path.isdir(target):
        while source.read(BLOCK_BYTES):  # the sender need not learn of it by a broken pipe
            pass
        return
    parent = os.path.dirname(os.path.abspath(target))
    os.makedirs(parent, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".incoming-", dir=parent)
    try:
        archive = os.path.join(scratch, "archive")
        found = spool(source, archive)
        if found != sha256:
            raise Refused("what came has sha256 %s, %s was announced" % (found, sha256))
        content = os.path.join(scratch, "content")
        os.mkdir(content)
        os.chmod(content, 0o755)
        unpack(archive, content)
        try:
            os.rename(content, target)
        except OSError:
            if not os.path.isdir(target):  # else somebody else brought the same just now
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def spool(source: BinaryIO, path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "wb") as f:
        for block in iter(lambda: source.read(BLOCK_BYTES), b""):
            digest.update(block)
            f.write(block)
    return digest.hexdigest()


def unpack(archive: str, folder: str) -> None:
    """Regular files and folders only, none of them outside: older Pythons have no filter for it."""
    with gzip.open(archive) as zipped:
        unpack_tar(zipped, folder)
        while zipped.read(BLOCK_BYTES):  # to the stream's own checksum, behind the last file
            pass


def unpack_tar(zipped: gzip.GzipFile, folder: str) -> None:
    with tarfile.open(fileobj=zipped, encoding="utf-8", errors="surrogateescape") as tar:
        for entry in tar:
            parts = entry.name.split("/")
            if entry.name.startswith("/") or ".." in parts:
                raise Refused("the archive names a place outside: %s" % entry.name)
            path = os.fsencode(folder) + b"/" + entry.name.encode("utf-8", "surrogateescape")
            if entry.isdir():
                os.makedirs(path, exist_ok=True)
                continue
            content = tar.extractfile(entry) if entry.isreg() else None
            if content is None:
                raise Refused("the archive holds something that is no file: %s" % entry.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                shutil.copyfileobj(content, out, BLOCK_BYTES)
            os.chmod(path, 0o755 if entry.mode & 0o100 else 0o644)


def main(words: List[str]) -> None:
    if len(words) != 2:
        raise Refused("two words are needed: TARGET SHA256")
    receive(sys.stdin.buffer, words[0], words[1])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Refused, OSError, EOFError, tarfile.TarError, zlib.error) as error:
        line = str(error).replace("\n", " ")
        sys.stderr.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")
        sys.exit(1)
