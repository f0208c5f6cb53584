"""What leaves a host and what comes to it: the same bytes each time, whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

CARGO = Path(__file__).resolve().parents[2] / "scripts" / "cargo"
AWKWARD = ("a b.json", "-n", "--offset", "数据.log", "q'\"$(x).txt", "new\nline", "empty")


def call(
    name: str, *words: str, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    """As it is called on a host: the source is an argument, there is no file."""
    argv = [sys.executable, "-S", "-c", (CARGO / name).read_text(encoding="utf-8"), *words]
    return subprocess.run(
        argv, input=stdin, capture_output=True, env={**os.environ, **env}, timeout=60
    )


def send(folder: Path, offset: int, *names: str, **env: str) -> bytes:
    words = ["send", str(folder), "--offset", str(offset)]
    done = call("outbox.py", *words, *(["--", *names] if names else []), **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "-a folder ü"
    (made / "below").mkdir(parents=True)
    (made / "below" / "unseen").write_text("x")
    (made / "link").symlink_to("below/unseen")
    for i, name in enumerate(AWKWARD):
        (made / name).write_bytes(name.encode() * i * 50)
    return made


def test_the_stream_is_the_same_each_time_and_holds_the_regular_files(folder: Path) -> None:
    first = send(folder, 0)
    os.utime(folder / "empty", (1, 1))
    assert send(folder, 0) == first == send(folder, 0, LC_ALL="C")
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert {m.name for m in tar} == set(AWKWARD)
        for i, name in enumerate(AWKWARD):
            content = tar.extractfile(name)
            assert content is not None and content.read() == name.encode() * i * 50


def test_it_resumes_at_every_byte(folder: Path) -> None:
    """In one process: a thousand interpreters would only measure themselves."""
    from cargo import outbox

    out = io.BytesIO()
    outbox.send(os.fsencode(folder), [], 0, out)
    whole = out.getvalue()
    for offset in range(len(whole) + 2):
        out = io.BytesIO()
        outbox.send(os.fsencode(folder), [], offset, out)
        assert out.getvalue() == whole[offset:]
    assert send(folder, 0) == whole and send(folder, 17) == whole[17:]


def test_chosen_names_only(folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(send(folder, 0, "-n", "数据.log"))) as tar:
        assert tar.getnames() == ["-n", "数据.log"]
    done = call("outbox.py", "send", str(folder), "--offset", "0", "--", "link")
    assert done.returncode == 1 and b"no regular file link" in done.stderr


def test_the_list(folder: Path) -> None:
    done = call("outbox.py", "list", str(folder), LC_ALL="C")
    files = {f["name"]: f for f in json.loads(done.stdout)["files"]}
    assert set(files) == set(AWKWARD)
    for name, file in files.items():
        content = (folder / name).read_bytes()
        assert file["bytes"] == len(content)
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
        assert file["mtime"] == pytest.approx((folder / name).stat().st_mtime)
    done = call("outbox.py", "list", str(folder), ".json", ".txt")
    assert {f["name"] for f in json.loads(done.stdout)["files"]} == {"a b.json", "q'\"$(x).txt"}


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    with open(os.fsencode(odd) + b"/\xff\xfe.log", "wb") as f:
        f.write(b"x")
    (file,) = json.loads(call("outbox.py", "list", str(odd)).stdout)["files"]
    assert file["name"] == "\udcff\udcfe.log"
    with tarfile.open(fileobj=io.BytesIO(send(odd, 0))) as tar:
        assert tar.getnames() == ["\udcff\udcfe.log"]


def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cargo import outbox

    def closed(path: bytes, mode: str) -> Any:
        if path.endswith(b"/-n"):
            raise PermissionError(13, "Permission denied", path)
        if path.endswith(b"/empty"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return open(path, mode)

    monkeypatch.setattr(outbox, "open", closed, raising=False)
    files = {f["name"]: f for f in outbox.listing(os.fsencode(folder), [])["files"]}
    assert files["-n"] == {"name": "-n", "unreadable": "Permission denied"}
    assert set(files) == set(AWKWARD) - {"empty"} and "sha256" in files["a b.json"]


def test_a_path_in_an_error_is_told_as_it_is(tmp_path: Path) -> None:
    done = call("outbox.py", "list", f"{tmp_path}/没\udcff", LC_ALL="C")
    assert done.stderr.decode() == f"No such file or directory: {tmp_path}/没\\xff\n"


@pytest.mark.parametrize(
    "words",
    [[], ["send"], ["send", "/x"], ["send", "/x", "--offset", "-1"], ["give", "/x"]],
)
def test_wrong_words_get_one_line(words: list[str]) -> None:
    done = call("outbox.py", *words)
    assert done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    done = call("outbox.py", "list", str(tmp_path / "no"))
    assert done.returncode == 1 and b"No such file or directory" in done.stderr


def packed(root: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.add(root, ".")
    return out.getvalue()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_folder_arrives_whole(folder: Path, tmp_path: Path) -> None:
    (folder / "link").unlink()
    (folder / "empty").chmod(0o755)
    data, target = packed(folder), tmp_path / "new place" / "目标"
    done = call("receive.py", str(target), sha(data), stdin=data, LC_ALL="C")
    assert done.returncode == 0, done.stderr
    here = {p.relative_to(folder): p for p in folder.rglob("*") if p.is_file()}
    there = {p.relative_to(target): p for p in target.rglob("*") if p.is_file()}
    assert {k: p.read_bytes() for k, p in here.items()} == {
        k: p.read_bytes() for k, p in there.items()
    }
    assert os.access(target / "empty", os.X_OK)
    assert [p.name for p in target.parent.iterdir()] == ["目标"]  # no scratch is left


def test_what_is_there_stays(tmp_path: Path) -> None:
    target = tmp_path / "t"
    target.mkdir()
    (target / "mine").write_text("x")
    done = call("receive.py", str(target), "0" * 64, stdin=b"x" * 3_000_000)
    assert done.returncode == 0 and [p.name for p in target.iterdir()] == ["mine"]


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_cut_stream_leaves_nothing(folder: Path, tmp_path: Path, cut: int) -> None:
    (folder / "link").unlink()
    data = packed(folder)
    target = tmp_path / "place" / "t"
    for announced in (sha(data), sha(data[:cut])):  # also when the sum is that of the torn half
        done = call("receive.py", str(target), announced, stdin=data[:cut])
        assert done.returncode == 1 and done.stderr.count(b"\n") == 1, done.stderr
        assert list(target.parent.iterdir()) == []


def test_a_wrong_sum_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    data, target = packed(folder), tmp_path / "place" / "t"
    done = call("receive.py", str(target), "0" * 64, stdin=data)
    assert done.returncode == 1 and b"was announced" in done.stderr
    assert list(target.parent.iterdir()) == []


def entry(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    return gzip.compress(out.getvalue())


@pytest.mark.parametrize(
    "data",
    [entry("../x"), entry("/tmp/x"), entry("a/../../x"), entry("x", tarfile.SYMTYPE)],
    ids=["up", "absolute", "up below", "link"],
)
def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, data: bytes) -> None:
    target = tmp_path / "place" / "t"
    done = call("receive.py", str(target), sha(data), stdin=data)
    assert done.returncode == 1 and not target.exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = entry("x")
    done = call("receive.py", str(tmp_path / "file" / "t"), sha(data), stdin=data)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1
