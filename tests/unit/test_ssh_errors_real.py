"""The words for what paramiko raises on a real line, and whether the line of the hint does what it says."""

from __future__ import annotations

import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko
import pytest
from test_ssh_errors import ONE, hop

from decodelab.host import HostLost
from decodelab.known_hosts import HostKeyRefused, HostKeys, Verdict, fingerprint
from decodelab.ssh_errors import explain
from tests.ssh.sshd import Sshd, dead_port, why_not


def trouble(port: int, **options: Any) -> BaseException:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.connect(
            "127.0.0.1", port, "lab", "x", look_for_keys=False, allow_agent=False, **options
        )
    except Exception as error:
        return error
    finally:
        client.close()
    raise AssertionError("connected")


@contextmanager
def answering(words: bytes, hang_up: bool) -> Iterator[int]:
    """A port where somebody says these words to the first who calls."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(words)
                if not hang_up:
                    over.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        over.set()
        thread.join(30)


def test_a_port_where_nobody_listens() -> None:
    with dead_port() as port:
        told = explain(trouble(port), ONE, 0)
    assert isinstance(told, HostLost) and "refuses the connection" in str(told)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("words", "hang_up", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 120, False, "answers, but not as an SSH server"),
        (b"Not allowed at this time\r\n", True, "closed the connection instead of greeting"),
        (b"", True, "closed the connection instead of greeting"),
        (b"", False, "did not answer in time"),
        (b"SSH-2.0-x\r\n", False, "did not answer in time"),
    ],
)
def test_a_port_with_something_else(words: bytes, hang_up: bool, expected: str) -> None:
    with answering(words, hang_up) as port:
        error = trouble(port, timeout=1, banner_timeout=1)
    told = explain(error, ONE, 0)
    assert isinstance(told, HostLost) and expected in str(told)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Sshd(tmp_path / "sshd") as server:
        yield server


def test_the_line_of_the_hint_makes_the_host_known(sshd: Sshd, tmp_path: Path) -> None:
    key = paramiko.Transport((sshd.address, sshd.port))
    key.start_client(timeout=30)
    shown = key.get_remote_server_key()
    key.close()
    for number, alias in enumerate(["", "the-card"]):
        file = tmp_path / f"known hosts {number}"
        name = alias or f"[{sshd.address}]:{sshd.port}"
        target = hop(host=sshd.address, port=sshd.port, key_name=name, known_hosts=(str(file),))
        assert HostKeys.load([str(file)]).check(name, shown) == Verdict("unknown")
        told = str(explain(HostKeyRefused(name, shown, Verdict("unknown")), (target,), 0))
        line = told.rpartition("run `")[2].rstrip("`.")
        assert fingerprint(shown) in told and shlex.quote(str(file)) in line
        subprocess.run(["sh", "-c", line], check=True, capture_output=True, timeout=60)
        assert HostKeys.load([str(file)]).check(name, shown) == Verdict("known")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("HostKeyAlgorithms ssh-rsa", "signs with SHA-1 only"),
        ("Ciphers chacha20-poly1305@openssh.com", "no common algorithm: no acceptable ciphers"),
        (
            "KexAlgorithms sntrup761x25519-sha512@openssh.com",
            "no common algorithm: no acceptable kex",
        ),
    ],
)
def test_a_server_that_speaks_otherwise(tmp_path: Path, option: str, words: str) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Sshd(tmp_path / "sshd", option, host_keys=["rsa"]) as server:
        told = explain(trouble(server.port, timeout=30), ONE, 0)
    assert words in str(told) and not isinstance(told, HostLost)
