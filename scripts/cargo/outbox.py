"""What lies in a folder of the host, and its files as one stream that can be taken up at any byte.

    python -S -c SOURCE list DIR [SUFFIX ...]               names, sizes and checksums, as JSON
    python -S -c SOURCE send DIR --offset N [-- NAME ...]   a tar.gz, from byte N on, to stdout

In:  a folder whose files do not change any more (only regular files directly in it are seen).
Out: {"files": [{"name", "bytes", "sha256", "mtime"}]}, of a file that cannot be read {"name",
     "unreadable": words}; or the stream: the same bytes each time.
Exit code 0, or 1 with one line of words on stderr. Stands alone: it travels as an argument.
Names are handled as bytes: the host's locale says nothing about them.
"""

import gzip
import hashlib
import json
import os
import stat
import sys
import tarfile
from typing import Any, BinaryIO, List

if sys.version_info < (3, 9):  # before anything that an older one could trip over
    sys.exit("Python 3.9 or newer is needed, this is %s" % sys.version.split()[0])

BLOCK_BYTES = 1 << 20
LEVEL = 6


class Refused(Exception):
    """What was asked cannot be done; the text says why."""


class Skipping:
    """A sink that lets the first `offset` bytes fall and passes the rest on."""

    def __init__(self, out: BinaryIO, offset: int) -> None:
        self.out, self.left = out, offset

    def write(self, data: bytes) -> int:
        size = len(data)
        if self.left:
            dropped = min(self.left, size)
            self.left -= dropped
            data = data[dropped:]
        if data:
            self.out.write(data)
        return size

    def flush(self) -> None:
        self.out.flush()


def regular_files(folder: bytes) -> List[bytes]:
    return [n for n in sorted(os.listdir(folder)) if is_regular(os.path.join(folder, n))]


def is_regular(path: bytes) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:  # it went away meanwhile
        return False


def as_text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def in_words(error: Exception) -> str:
    """One line; a path as it is, and not as Python writes bytes."""
    if isinstance(error, OSError) and error.strerror:
        path = error.filename
        words = error.strerror
        if path is not None:
            words += ": " + (as_text(path) if isinstance(path, bytes) else str(path))
    else:
        words = str(error)
    told = words.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return told.replace("\n", " ")


def listing(folder: bytes, suffixes: List[bytes]) -> Any:
    files = []
    for name in regular_files(folder):
        if suffixes and not name.endswith(tuple(suffixes)):
            continue
        try:
            facts = described(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        except OSError as error:  # one file that may not be read is no reason to tell of none
            facts = {"unreadable": error.strerror or "it cannot be read"}
        files.append({"name": as_text(name), **facts})
    return {"files": files}


def described(path: bytes) -> Any:
    digest = hashlib.sha256()
    size = 0
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(BLOCK_BYTES), b""):
            digest.update(block)
            size += len(block)
        mtime = os.fstat(f.fileno()).st_mtime
    return {"bytes": size, "sha256": digest.hexdigest(), "mtime": mtime}


def send(folder: bytes, names: List[bytes], offset: int, out: BinaryIO) -> None:
    there = regular_files(folder)
    for name in names:
        if name not in there:
            raise Refused("no regular file %s in %s" % (as_text(name), as_text(folder)))
    sink: Any = Skipping(out, offset)
    # no times, no owners: the stream depends on names and contents only
    with gzip.GzipFile(
        filename="", mode="wb", compresslevel=LEVEL, fileobj=sink, mtime=0
    ) as zipped:
        pack(zipped, folder, [name for name in there if not names or name in names])
    sink.flush()


def pack(zipped: Any, folder: bytes, names: List[bytes]) -> None:
    with tarfile.open(
        fileobj=zipped,
        mode="w",
        format=tarfile.GNU_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
    ) as tar:
        for name in names:
            add(tar, os.path.join(folder, name), name)


def add(tar: tarfile.TarFile, path: bytes, name: bytes) -> None:
    with open(path, "rb") as f:
        entry = tarfile.TarInfo(as_text(name))
        entry.size = os.fstat(f.fileno()).st_size
        entry.mode = 0o644
        tar.addfile(entry, f)


def main(words: List[bytes]) -> None:
    if len(words) < 2 or words[0] not in (b"list", b"send"):
        raise Refused("list DIR [SUFFIX ...], or send DIR --offset N [-- NAME ...]")
    verb, folder, rest = words[0], words[1], words[2:]
    if verb == b"list":
        sys.stdout.buffer.write(json.dumps(listing(folder, rest)).encode("ascii") + b"\n")
        return
    if len(rest) < 2 or rest[0] != b"--offset" or not rest[1].isdigit():
        raise Refused("send DIR --offset N: N must be a number of bytes")
    names = rest[3:] if rest[2:3] == [b"--"] else []
    if rest[2:3] not in ([], [b"--"]):
        raise Refused("names come behind --")
    send(folder, names, int(rest[1]), sys.stdout.buffer)


if __name__ == "__main__":
    try:
        main([os.fsencode(word) for word in sys.argv[1:]])
        sys.stdout.flush()
    except (Refused, OSError, tarfile.TarError) as error:
        sys.stderr.buffer.write(in_words(error).encode("utf-8", "backslashreplace") + b"\n")
        sys.stderr.flush()
        os._exit(1)  # a closed pipe must not be complained about once more at the end
