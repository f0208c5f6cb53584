"""fetch_raw against hosts that fail half-way: each file is told of, and what is here has its checksum."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fetch_raw
import pytest

from decodelab.fetched import PROVENANCE, SUMS, Fetched
from decodelab.host import HostLost
from decodelab.host_local import LocalHost

Fetch = Callable[..., tuple[int, Path]]


class Breaking(LocalHost):
    """This machine, behind a line that breaks at the n-th file and stays broken."""

    breaks_at = 10**9
    error: BaseException = HostLost("the line is gone.\nHint: call again.")
    asked = 0

    @contextmanager
    def fetch(self, path: str, names: Sequence[str] | None = None) -> Iterator[Path]:
        self.asked += 1
        if self.asked >= self.breaks_at:
            raise self.error
        yield Path(path)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.json").write_text(name)
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Breaking:
    return Breaking("near", {}, tmp_path)


@pytest.fixture
def fetch(
    tmp_path: Path, there: Path, host: Breaking, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fetch]:
    """Exit code, and the folder here."""
    monkeypatch.setattr(fetch_raw, "open_host", lambda *_: host)
    study: Any = SimpleNamespace(described={"near": {}})

    def run(folder: str = str(there)) -> tuple[int, Path]:
        code = fetch_raw._fetch(study, "near", folder, tmp_path)
        (home,) = (tmp_path / "results/fetched/near").iterdir()
        return code, home

    yield run


def sums_hold(home: Path) -> list[str]:
    done = subprocess.run(["sha256sum", "-c", "--strict", SUMS], cwd=home, capture_output=True)
    assert done.returncode == 0, done.stderr
    return [line.rpartition(":")[0] for line in done.stdout.decode().splitlines()]


def test_a_lost_line_is_waited_for_once(
    fetch: Fetch, host: Breaking, capsys: pytest.CaptureFixture[str]
) -> None:
    host.breaks_at = 2
    code, home = fetch()
    told = capsys.readouterr()
    assert code == 1 and host.asked == 2
    assert "not fetched: b.json: the line is gone." in told.err
    assert "since the connection was lost: c.json, d.json" in told.err
    assert sums_hold(home) == ["a.json"]
    failed = json.loads((home / PROVENANCE).read_text())["failed"]
    assert failed[1:] == ["c.json: not tried", "d.json: not tried"]
    host.breaks_at = 10**9
    assert fetch()[0] == 0 and len(sums_hold(home)) == 4


def test_what_is_here_after_an_interrupt_has_its_checksum(fetch: Fetch, host: Breaking) -> None:
    host.breaks_at, host.error = 3, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fetch()
    host.breaks_at = 10**9
    (home,) = (Path(host._symbols["{repo}"]) / "results/fetched/near").iterdir()
    assert sums_hold(home) == ["a.json", "b.json"]


def test_a_file_that_cannot_be_kept_does_not_stop_the_others(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = Fetched.keep

    def refuse(self: Fetched, source: Path, entry: Any) -> str:
        if entry["name"] == "b.json":
            raise OSError(36, "File name too long")
        return keep(self, source, entry)

    monkeypatch.setattr(Fetched, "keep", refuse)
    code, home = fetch()
    assert code == 1 and sums_hold(home) == ["a.json", "c.json", "d.json"]
    assert "not fetched: b.json: it cannot be kept here: File name too long" in (
        capsys.readouterr().err
    )


def test_a_long_name_comes_home(fetch: Fetch, there: Path) -> None:
    long = "x" * 250 + ".json"
    (there / long).write_text("1")
    code, home = fetch()
    assert code == 0 and (home / long).read_text() == "1"
    (there / long).write_text("2")
    assert fetch()[0] == 0 and len(sums_hold(home)) == 6


def test_a_file_that_may_not_be_read_is_named(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = fetch_raw._listing

    def listing(host: Any, remote_dir: str) -> list[dict[str, Any]]:
        words = {"name": "closed.json", "unreadable": "Permission denied"}
        return [words, *ask(host, remote_dir)]

    monkeypatch.setattr(fetch_raw, "_listing", listing)
    code, home = fetch()
    assert code == 1 and len(sums_hold(home)) == 4
    told = capsys.readouterr().err
    assert told == "not fetched: closed.json: not readable there: Permission denied\n"


def test_a_file_that_is_called_as_our_account(
    fetch: Fetch, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (there / PROVENANCE).write_text("theirs")
    code, home = fetch()
    told = capsys.readouterr().out
    assert code == 0 and "another content" not in told
    assert "fetched  PROVENANCE.host.json  6 bytes" in told and "our own account" in told
    sha256 = hashlib.sha256(b"theirs").hexdigest()
    noted = json.loads((home / PROVENANCE).read_text())["files"]["PROVENANCE.host.json"]
    assert (noted["name_on_host"], noted["sha256"]) == (PROVENANCE, sha256)
    assert fetch()[0] == 0
    assert "0 files fetched, 5 were here already" in capsys.readouterr().out


def test_names_that_are_no_text_are_told_once(
    fetch: Fetch, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("find") is None:
        pytest.skip("needs find")
    for name in (b"\xff.json", b"\xfe.bin"):
        (there / os.fsdecode(name)).write_text("x")
    code, home = fetch()
    told = capsys.readouterr()
    assert code == 1 and len(sums_hold(home)) == 4
    assert told.err == "not fetched: \\xff.json: no name for a file here\n"
    assert "left there, other file: \\xfe.bin\n" in told.out and "\\xff" not in told.out


def test_a_missing_folder_is_told_in_words(fetch: Fetch, there: Path) -> None:
    missing = f"{there}/no such 目录"
    with pytest.raises(fetch_raw.HostError) as caught:
        fetch(missing)
    assert str(caught.value) == (
        f"host near: cannot list {missing}: No such file or directory: {missing}\n"
        f"Hint: look for the folder with `ls '{missing}'` on the host."
    )
