"""Fixtures: a real sshd on loopback, and a way to make more of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from decodelab.host_ssh import SshHost
from tests.ssh.sshd import Sshd, why_not


@pytest.fixture
def make_sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Sshd]]:
    """`make_sshd("MaxSessions 1", name="gate")` -> a running Sshd; all are stopped at the end."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    # The user's own agent plays no part unless a test sets one.
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made: list[Sshd] = []

    def make(*options: str, name: str = "sshd", **keywords: Any) -> Sshd:
        made.append(Sshd(tmp_path / name, *options, **keywords))
        made[-1].start()
        return made[-1]

    yield make
    for sshd in made:
        sshd.stop()


@pytest.fixture
def sshd(make_sshd: Callable[..., Sshd]) -> Sshd:
    """A plain, running sshd. `sshd.ssh_config()` gives the file that reaches it as `lab`."""
    return make_sshd()


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., SshHost]]:
    """`make_host(sshd)` -> the SshHost that reaches it; keywords are options of its ssh_config.

    `config` is another ssh_config, whose alias `lab` is taken; `beat_s`, `silence_s` as for SshHost;
    `block` adds to the host's block of the plan.
    """
    made: list[SshHost] = []

    def make(
        sshd: Sshd,
        *,
        config: Path | None = None,
        block: dict[str, Any] | None = None,
        beat_s: float = 5.0,
        silence_s: float = 15.0,
        **options: Any,
    ) -> SshHost:
        config = config or sshd.ssh_config(file=tmp_path / f"ssh_config_{len(made)}", **options)
        whole = {
            "ssh": "lab",
            "ssh_config": str(config),
            "workdir": str(tmp_path / "work"),
            "python": sys.executable,
            **(block or {}),
        }
        made.append(
            SshHost("lab", whole, tmp_path / "checkout", beat_s=beat_s, silence_s=silence_s)
        )
        return made[-1]

    yield make
    for host in made:
        host.close()
