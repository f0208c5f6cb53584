"""SshHost: words that arrive as they are, folders that go and come whole, and the host's own words."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paramiko
import pytest

from decodelab.host import HostError, HostLost
from decodelab.host_ssh import SshHost
from tests.ssh.sshd import Sshd

Make = Callable[..., Sshd]
MakeHost = Callable[..., SshHost]

SHOW = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
WORDS = [
    "two words",
    'it\'s "quoted" `twice`',
    "$(touch pwned) ${HOME} $HOME; touch pwned & | > x",
    "line\nline\r\n\ttab",
    "-rf",
    "--",
    "",
    "*",
    "~",
    "!history !!",
    "back\\slash \\n \\\\",
    "解碼 ü 🙂",
    os.fsdecode(b"not utf-8 \xff"),
    "%s {x} #",
]


def test_words_arrive_as_they_are(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    for words in [WORDS, *([word] for word in WORDS)]:
        done = host.run([sys.executable, "-S", "-c", SHOW, *words])
        assert done.out.split(b"\0") == [os.fsencode(word) for word in words], words
    assert not (sshd.home / "pwned").exists() and not Path("~/pwned").expanduser().exists()


def test_a_word_with_a_nul_is_refused(sshd: Sshd, make_host: MakeHost) -> None:
    with pytest.raises(HostError, match=r"NUL(.|\n)*Hint: "):
        make_host(sshd).run(["echo", "a\0b"])


def test_a_bashrc_that_talks(sshd: Sshd, make_host: MakeHost) -> None:
    (sshd.home / ".bashrc").write_text("echo welcome; echo -n to >&2; printf here; set -x\n")
    done = make_host(sshd).run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.exit_code, done.out, done.err) == (0, b"out\n", b"err\n")


@pytest.mark.parametrize(
    "options, bashrc, said",
    [
        (["ForceCommand echo only this"], "", "only this"),
        (["ForceCommand /bin/false"], "", "nothing"),
        ([], "echo Your password has expired; exit 1\n", "Your password has expired"),
    ],
)
def test_a_host_that_runs_something_else(
    options: Sequence[str], bashrc: str, said: str, make_sshd: Make, make_host: MakeHost
) -> None:
    sshd = make_sshd(*options)
    (sshd.home / ".bashrc").write_text(bashrc)
    with pytest.raises(HostError, match=rf"did not run our command(.|\n)*{said}(.|\n)*Hint: "):
        make_host(sshd).run(["true"])


def test_a_missing_python(sshd: Sshd, make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(sshd, block={"python": "/opt/none/python3"})
    for call in (
        lambda: host.run([host.python, "-c", "pass"]),
        lambda: host.ship(some_folder(tmp_path), str(tmp_path / "t")),
        lambda: host.fetch(str(tmp_path)).__enter__(),
    ):
        with pytest.raises(HostError, match=r"/opt/none/python3(.|\n)*Hint: set hosts.lab.python"):
            call()


def test_a_command_that_does_not_end(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    with pytest.raises(HostError, match="sleep 77 gave no answer in 1 s"):
        host.run(["sleep", "77"], timeout_s=1)
    assert host.run(["pgrep", "-x", "-f", "sleep 77"]).exit_code == 1  # nothing is left


def test_a_working_folder_that_is_no_absolute_path(sshd: Sshd, make_host: MakeHost) -> None:
    with pytest.raises(HostError, match=r"hosts.lab.workdir: '~/work'(.|\n)*Hint: "):
        make_host(sshd, block={"workdir": "~/work"})


def test_the_tail_of_a_growing_file(sshd: Sshd, make_host: MakeHost, tmp_path: Path) -> None:
    host, file = make_host(sshd), tmp_path / "-events of 解碼.jsonl"
    assert host.tail(str(file), 0) == b""
    file.write_bytes(b"one\ntwo\n")
    assert [host.tail(str(file), at) for at in (0, 4, 8, 99)] == [b"one\ntwo\n", b"two\n", b"", b""]
    with pytest.raises(HostError, match="cannot read"):
        host.tail(str(tmp_path), 0)


# -- shipping ----------------------------------------------------------------------------------


def some_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cargo"
    (folder / "inner").mkdir(parents=True, exist_ok=True)
    (folder / "__pycache__").mkdir(exist_ok=True)
    (folder / "__pycache__" / "x.pyc").write_text("x")
    (folder / "agent.py").write_text("print('解碼')\n")
    (folder / "inner" / "a b.py").write_bytes(os.urandom(300_000))
    return folder


def test_a_folder_is_shipped_whole_and_once(
    sshd: Sshd, make_host: MakeHost, tmp_path: Path
) -> None:
    host, folder = make_host(sshd), some_folder(tmp_path)
    target = tmp_path / "on host" / "it's" / "cargo"
    host.ship(folder, str(target))
    assert (target / "agent.py").read_text() == "print('解碼')\n"
    assert (target / "inner" / "a b.py").read_bytes() == (folder / "inner" / "a b.py").read_bytes()
    assert not (target / "__pycache__").exists()
    assert [p.name for p in target.parent.iterdir()] == ["cargo"]
    (folder / "agent.py").write_text("changed")
    host.ship(folder, str(target))
    assert (target / "agent.py").read_text() == "print('解碼')\n"


def test_a_broken_shipment_leaves_nothing_at_the_target(
    sshd: Sshd, make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, folder, target = make_host(sshd), some_folder(tmp_path), tmp_path / "t" / "cargo"
    (folder / "large").write_bytes(os.urandom(20 << 20))
    send, sent = paramiko.Channel.sendall, []

    def send_and_break(channel: paramiko.Channel, data: bytes) -> None:
        send(channel, data)
        sent.append(len(data))
        if sum(sent) == 5 << 20:
            sshd.kill_sessions()

    with monkeypatch.context() as patch:
        patch.setattr(paramiko.Channel, "sendall", send_and_break)
        with pytest.raises(HostLost):
            host.ship(folder, str(target))
    assert not target.exists()
    host.ship(folder, str(target))
    assert (target / "large").stat().st_size == 20 << 20


@pytest.fixture
def tiny_disk(make_sshd: Make, tmp_path: Path) -> Callable[[str], tuple[Sshd, Path]]:
    """An sshd that sees a file system of its own at a folder: `tiny_disk("size=64k")`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = f'mount -t tmpfs -o "$0" none {folder} && exec "$@"'
    trial = ["unshare", "-m", "sh", "-c", mount]
    if subprocess.run([*trial, "size=64k", "true"], capture_output=True).returncode:
        pytest.skip("needs root and a mount namespace for a small file system")
    return lambda options: (make_sshd(prefix=[*trial, options]), folder)


def test_a_full_disk(tiny_disk: Any, make_host: MakeHost, tmp_path: Path) -> None:
    sshd, disk = tiny_disk("size=64k")
    host = make_host(sshd)
    with pytest.raises(HostError, match=r"No space left(.|\n)*Hint: free space") as caught:
        host.ship(some_folder(tmp_path), str(disk / "cargo"))
    assert not isinstance(caught.value, HostLost)
    assert host.run(["ls", "-A", str(disk)]).out == b""


def test_a_read_only_target(tiny_disk: Any, make_host: MakeHost, tmp_path: Path) -> None:
    sshd, disk = tiny_disk("ro")
    with pytest.raises(HostError, match=r"Read-only file system(.|\n)*Hint: set hosts.lab.workdir"):
        make_host(sshd).ship(some_folder(tmp_path), str(disk / "cargo"))


# -- fetching ----------------------------------------------------------------------------------


def sealed(tmp_path: Path, size: int = 1000) -> Path:
    folder = tmp_path / "done here" / "start-1"
    folder.mkdir(parents=True)
    (folder / "DONE.json").write_text("{}")
    (folder / "-log 解碼.txt").write_bytes(os.urandom(size))
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def parts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "checkout" / ".decodelab" / "incoming" / "lab").iterdir())


def test_a_folder_is_fetched_and_nothing_stays(
    sshd: Sshd, make_host: MakeHost, tmp_path: Path
) -> None:
    host, source = make_host(sshd), sealed(tmp_path)
    with host.fetch(str(source)) as copy:
        assert sorted(p.name for p in copy.iterdir()) == ["-log 解碼.txt", "DONE.json"]
        for file in copy.iterdir():
            assert file.read_bytes() == (source / file.name).read_bytes()
    assert parts(tmp_path) == []
    with host.fetch(str(source), ["-log 解碼.txt"]) as copy:
        assert [p.name for p in copy.iterdir()] == ["-log 解碼.txt"]
    with host.fetch(str(source), []) as copy:
        assert list(copy.iterdir()) == []
    assert parts(tmp_path) == []


def test_thousands_of_names(sshd: Sshd, make_host: MakeHost, tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    names = [f"{'n' * 60} {i:04}.json" for i in range(900)]
    for name in [*names, "another"]:
        (source / name).write_text(name)
    with make_host(sshd).fetch(str(source), names) as copy:
        assert sorted(p.name for p in copy.iterdir()) == names


class Counted:
    """Counts the bytes that each stream of a host brings, and breaks the first `kills` of them behind
    `limit` bytes.
    """

    def __init__(self, host: SshHost, sshd: Sshd, limit: int, kills: int) -> None:
        self.sshd, self.limit, self.kills = sshd, limit, kills
        self.streams: list[int] = []
        self._stream = host._link.stream
        host._link.stream = self.stream  # type: ignore[method-assign]

    def stream(self, command: str, sink: Callable[[bytes], None], **options: Any) -> Any:
        self.streams.append(0)
        to_kill = [True] * (len(self.streams) <= self.kills)

        def counted(data: bytes) -> None:
            sink(data)
            self.streams[-1] += len(data)
            if to_kill and self.streams[-1] > self.limit:
                to_kill.pop()
                self.sshd.kill_sessions()

        return self._stream(command, counted, **options)


def test_a_broken_fetch_goes_on_where_it_was(
    sshd: Sshd, make_host: MakeHost, tmp_path: Path
) -> None:
    host, source = make_host(sshd), sealed(tmp_path, 9 << 20)
    whole = Counted(host, sshd, 0, kills=0)
    with host.fetch(str(source)):
        pass
    host = make_host(sshd)
    broken = Counted(host, sshd, 2 << 20, kills=2)
    for _ in range(2):
        with pytest.raises(HostLost), host.fetch(str(source)):
            raise AssertionError("not whole")
    assert [p.name.endswith(".tar.gz.part") for p in parts(tmp_path)] == [True]
    with host.fetch(str(source)) as copy:
        name = "-log 解碼.txt"
        assert (copy / name).read_bytes() == (source / name).read_bytes()
    marker_bytes = 27
    assert len(broken.streams) == 3 and min(broken.streams[:2]) > 2 << 20
    assert sum(broken.streams) - 3 * marker_bytes == whole.streams[0] - marker_bytes
    assert parts(tmp_path) == []


def test_a_part_that_does_not_fit_is_fetched_anew(
    sshd: Sshd, make_host: MakeHost, tmp_path: Path
) -> None:
    host, source = make_host(sshd), sealed(tmp_path, 1 << 20)
    counted = Counted(host, sshd, 100_000, kills=1)
    with pytest.raises(HostLost), host.fetch(str(source)):
        pass
    (part,) = parts(tmp_path)
    part.write_bytes(os.urandom(part.stat().st_size))
    with host.fetch(str(source)) as copy:
        assert (copy / "DONE.json").read_text() == "{}"
    assert len(counted.streams) == 3


def test_a_folder_that_is_not_there(sshd: Sshd, make_host: MakeHost, tmp_path: Path) -> None:
    with (
        pytest.raises(HostError, match=r"cannot fetch(.|\n)*No such file") as caught,
        make_host(sshd).fetch(str(tmp_path / "none")),
    ):
        pass
    assert not isinstance(caught.value, HostLost)


def test_two_fetch_the_same_folder_at_once(sshd: Sshd, make_host: MakeHost, tmp_path: Path) -> None:
    source, whole = sealed(tmp_path, 3 << 20), []

    def fetch(host: SshHost) -> None:
        with host.fetch(str(source)) as copy:
            whole.append({p.name: p.read_bytes() for p in copy.iterdir()})

    threads = [threading.Thread(target=fetch, args=(make_host(sshd),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = {
        p.name: p.read_bytes() for p in source.iterdir() if p.is_file() and not p.is_symlink()
    }
    assert whole == [expected] * 3 and parts(tmp_path) == []
