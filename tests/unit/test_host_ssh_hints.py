"""What a host's own words about a path say to do: about the workdir only where it is meant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from decodelab.host_ssh import SshHost

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client")


@pytest.fixture
def host(tmp_path: Path) -> SshHost:
    (tmp_path / "config").write_text("Host lab\n  HostName 127.0.0.1\n")
    block = {"ssh": "lab", "ssh_config": str(tmp_path / "config"), "workdir": "/root/work"}
    return SshHost("lab", block, tmp_path)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("Not a directory: /root/work", "a folder: a part of that path is a file there."),
        ("File name too long: /root/work/x", "a folder with a shorter path."),
        ("No such file or directory: /root/work", "what it links to, is still there."),
        ("Permission denied: /root/work", "a folder that you may write."),
    ],
)
def test_words_about_a_path(host: SshHost, words: str, hint: str) -> None:
    told = str(host._refused("cannot write the agent to /root/work/agent-1", words.encode()))
    assert "\nHint: " in told and "hosts.lab.workdir" in told and told.endswith(hint)
    told = str(host._refused("cannot fetch /data/logs", words.encode(), ours=False))
    assert told.endswith("\nHint: see to what the host says, then call again.")


def test_python_is_meant_wherever_the_path_is(host: SshHost) -> None:
    told = str(
        host._refused("cannot fetch /data/logs", b"Python 3.9 or newer is needed", ours=False)
    )
    assert "hosts.lab.python" in told
