"""The host lock when its file is meddled with: deleted while held, a link, no plain file."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from cargo import decode_microbench
from cargo.endpoint import UsageError
from cargo.host_lock import HostLock, LockUnusable

ME = {"owner": "me", "pid": os.getpid(), "since": 1.0, "doing": "x"}


def test_a_lock_file_that_was_deleted_keeps_nobody_out_and_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "host.lock"
    first, second = HostLock(str(path)), HostLock(str(path))
    assert first.take(ME) and first.is_the_file() and not second.take(ME)
    path.unlink()
    assert not first.is_the_file()
    assert second.take(ME)
    assert not first.take(ME), "the other one has it now"
    second.release()
    assert first.take(ME) and first.is_the_file()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("data")
    (tmp_path / "host.lock").symlink_to(precious)
    with pytest.raises(LockUnusable):
        HostLock(str(tmp_path / "host.lock")).take(ME)
    assert precious.read_text() == "data"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LockUnusable):
        HostLock(str(tmp_path / "pipe")).take(ME)


def test_the_client_makes_room_for_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: told.append((which, pair)))
    decode_microbench._room_for(80)
    assert told == [(resource.RLIMIT_NOFILE, (80 + decode_microbench.SPARE_FILES, 4096))]
    with pytest.raises(UsageError, match="ulimit -Hn"):
        decode_microbench._room_for(5000)
