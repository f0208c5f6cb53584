"""Agent sockets that are of no use: each is said, none is waited for without end."""

from __future__ import annotations

import shutil
import socket
import threading
from pathlib import Path

import pytest
from test_ssh_auth import Agent, hop, offered

from decodelab import ssh_agent
from decodelab.ssh_auth import Identities

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-agent") is None, reason="needs the OpenSSH client"
)


def test_no_such_socket(tmp_path: Path) -> None:
    strategy = Identities(hop(identity_agent=f"{tmp_path}/none"))
    assert offered(strategy) == []
    assert strategy.notes == [
        f"the ssh-agent at {tmp_path}/none is of no use: there is no such socket"
    ]


def test_socket_left_by_a_dead_agent(tmp_path: Path) -> None:
    dead = Agent(tmp_path)
    dead.process.kill()
    dead.process.wait(30)
    strategy = Identities(hop(identity_agent=dead.socket))
    assert offered(strategy) == []
    assert strategy.notes == [
        f"the ssh-agent at {dead.socket} is of no use: nobody serves this socket any more"
    ]


@pytest.mark.parametrize("accepts", [True, False])
def test_socket_that_never_answers(tmp_path: Path, accepts: bool) -> None:
    path = str(tmp_path / "mute")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(path)
        server.listen(5 if accepts else 0)
        if not accepts:
            first.connect(path)  # the queue is full: connecting itself would wait
        strategy = Identities(hop(identity_agent=path), agent_timeout_s=0.3)
        assert offered(strategy) == []
    why = "it gave no answer in 0.3 s" if accepts else "it takes no more questions"
    assert strategy.notes == [f"the ssh-agent at {path} is of no use: {why}"]


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0\0\0", b"\xff\xff\xff\xff", b"HTTP/1.1 400", b"\0\0\0\1\5"]
)
def test_socket_of_something_else(tmp_path: Path, answer: bytes) -> None:
    path = str(tmp_path / "odd")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.recv(100)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ssh_agent.AgentError):
            ssh_agent.keys(path, 5)
        thread.join(30)


def test_a_file_instead_of_a_socket_and_a_path_too_long(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (f"{tmp_path}/file", "/" + "x" * 200, "a\0b"):
        with pytest.raises(ssh_agent.AgentError):
            ssh_agent.keys(path, 5)
