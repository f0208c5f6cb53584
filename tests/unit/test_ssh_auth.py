"""Which keys are offered, in which order, and what is said of those that are not.

With the real ssh-keygen, ssh-agent and, for what a server answers, a real sshd on loopback.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from paramiko.auth_strategy import AuthFailure

from decodelab import ssh_keyfile
from decodelab.ssh_alias import Hop
from decodelab.ssh_auth import Identities
from tests.ssh.sshd import Sshd, public, why_not

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-agent") is None, reason="needs the OpenSSH client"
)


def run(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(w) for w in words], check=True, capture_output=True, text=True, timeout=60, **more
    )


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "", *more: str) -> Path:
    bits = ("-b", "2048") if kind == "rsa" else ()  # the default takes seconds
    run("ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-C", path.name, "-f", path, *more)
    return path


class Agent:
    """A real ssh-agent with a socket of its own."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "agent.sock")
        self.process = subprocess.Popen(
            ["ssh-agent", "-D", "-a", self.socket],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 30
        while not os.path.exists(self.socket) and time.monotonic() < end:
            time.sleep(0.01)

    def add(self, path: Path, *options: str, passphrase: str = "") -> None:
        ask = path.parent / "askpass"
        ask.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
        ask.chmod(0o700)
        env = {**os.environ, "SSH_AUTH_SOCK": self.socket, "SSH_ASKPASS": str(ask)}
        run(
            "ssh-add",
            "-q",
            *options,
            path,
            stdin=subprocess.DEVNULL,
            env={**env, "SSH_ASKPASS_REQUIRE": "force"},
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.stop()


def hop(**given: Any) -> Hop:
    values: dict[str, Any] = {
        "alias": "t",
        "host": "127.0.0.1",
        "port": 22,
        "user": "root",
        "identity_files": (),
        "missing_identity_files": (),
        "identities_only": False,
        "identity_agent": None,
        "known_hosts": (),
        "key_name": "t",
        "strict": "yes",
        "proxy_command": None,
        "connect_timeout_s": 5.0,
    }
    return Hop(**{**values, **given})


def offered(strategy: Identities) -> list[str]:
    return [source.label for source in strategy.get_sources()]


# The order


def test_agent_keys_with_a_file_then_files_then_other_agent_keys(
    tmp_path: Path, agent: Agent
) -> None:
    only_file, both, only_agent = (keygen(tmp_path / n) for n in ("file", "both", "other"))
    agent.add(only_agent)
    agent.add(both)
    strategy = Identities(
        hop(identity_files=(str(only_file), str(both)), identity_agent=agent.socket)
    )
    assert offered(strategy) == [
        f"key {both} (by the agent)",
        f"key file {only_file}",
        "agent key other",
    ]
    assert strategy.notes == []


def test_identities_only_leaves_other_agent_keys_out(tmp_path: Path, agent: Agent) -> None:
    named, other = keygen(tmp_path / "named"), keygen(tmp_path / "other")
    agent.add(named)
    agent.add(other)
    strategy = Identities(
        hop(identity_files=(str(named),), identities_only=True, identity_agent=agent.socket)
    )
    assert offered(strategy) == [f"key {named} (by the agent)"]


def test_at_most_five_other_keys(tmp_path: Path, agent: Agent) -> None:
    for i in range(7):
        agent.add(keygen(tmp_path / f"k{i}"))
    strategy = Identities(hop(identity_agent=agent.socket))
    assert offered(strategy) == [f"agent key k{i}" for i in range(5)]
    assert strategy.notes == [
        "the agent holds 7 keys that no IdentityFile names; only the first 5 were offered"
    ]


def test_a_public_key_file_names_the_agents_key(tmp_path: Path, agent: Agent) -> None:
    key = keygen(tmp_path / "k")
    agent.add(key)
    key.unlink()
    for path in (f"{key}.pub", str(key)):  # the second is not there, but its .pub is
        strategy = Identities(hop(identity_files=(path,), identity_agent=agent.socket))
        assert offered(strategy) == [f"key {path} (by the agent)"]


def test_certificates_come_before_their_key(tmp_path: Path, agent: Agent) -> None:
    ca, key, other = (keygen(tmp_path / n) for n in ("ca", "k", "other"))
    run("ssh-keygen", "-q", "-s", ca, "-I", "me", "-n", "root", f"{key}.pub")
    run("ssh-keygen", "-q", "-s", ca, "-I", "me", "-n", "root", f"{other}.pub")
    strategy = Identities(hop(identity_files=(str(key),), certificate_files=(f"{other}-cert.pub",)))
    assert offered(strategy) == [
        f"key file {key} with certificate {key}-cert.pub",
        f"key file {key}",
    ]
    # ssh-add brings the certificate along.
    agent.add(key)
    strategy = Identities(hop(identity_files=(str(key),), identity_agent=agent.socket))
    assert offered(strategy)[0] == f"key {key} (by the agent) with certificate {key}-cert.pub"


# What is said of keys that are not offered


def test_missing_key(tmp_path: Path) -> None:
    strategy = Identities(hop(missing_identity_files=(f"{tmp_path}/gone",)))
    assert offered(strategy) == []
    assert strategy.notes == [f"key file {tmp_path}/gone is not there"]


@pytest.mark.parametrize("options", [(), ("-m", "PEM"), ("-m", "PKCS8")])
def test_encrypted_key_without_and_with_the_agent(
    tmp_path: Path, agent: Agent, options: tuple[str, ...]
) -> None:
    kind = "rsa" if options else "ed25519"
    key = keygen(tmp_path / "k", kind, "päss word", *options)
    given = {"identity_files": (str(key),), "identity_agent": agent.socket}
    strategy = Identities(hop(**given))
    assert offered(strategy) == []
    assert strategy.notes == [
        f"key file {key} cannot be used: it is encrypted; `ssh-add {key}` gives it to the agent"
    ]
    agent.add(key, passphrase="päss word")
    strategy = Identities(hop(**given))
    assert offered(strategy) == [f"key {key} (by the agent)"]
    assert strategy.notes == []


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("form", ["RFC4716", "PEM", "PKCS8"])
def test_every_format_loads(tmp_path: Path, kind: str, form: str) -> None:
    key = keygen(tmp_path / "k", kind, "", "-m", form)
    assert ssh_keyfile.load(str(key)).asbytes() == ssh_keyfile.public_blob(f"{key}.pub")


def test_keys_without_a_comment_load(tmp_path: Path) -> None:
    """paramiko itself cannot read an ECDSA key that comes without comment and, as half of them do,
    without padding ("Invalid key curve identifier").
    """
    for i in range(6):
        key = keygen(tmp_path / f"k{i}", "ecdsa", "", "-C", "")
        assert ssh_keyfile.load(str(key)).asbytes() == ssh_keyfile.public_blob(f"{key}.pub")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is no private key"),
        (b"PuTTY-User-Key-File-3: ssh-ed25519\n", "it is in PuTTY's format"),
        (
            b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            "damaged",
        ),
        (b"-----BEGIN RSA PRIVATE KEY-----\n!!!!\n-----END RSA PRIVATE KEY-----\n", "damaged"),
        (b"\xff\xfe\x00", "it is no private key"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----", "damaged"),
    ],
)
def test_a_file_that_is_no_key(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "k").write_bytes(content)
    strategy = Identities(hop(identity_files=(f"{tmp_path}/k",)))
    assert offered(strategy) == []
    assert words in strategy.notes[0]


def test_public_key_that_the_agent_does_not_have(tmp_path: Path) -> None:
    key = keygen(tmp_path / "k")
    key.unlink()
    for path in (f"{key}.pub", str(key)):
        strategy = Identities(hop(identity_files=(path,)))
        assert offered(strategy) == []
        assert strategy.notes == [
            f"key file {path} cannot be used: only the public half is there, and the agent does"
            " not have the private one"
        ]


# Against a real server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """serve("an option of sshd_config", ...) -> a running sshd that lets nobody in yet"""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    running: list[Sshd] = []

    def start(*options: str) -> Sshd:
        running.append(Sshd(tmp_path / f"server{len(running)}", *options))
        running[-1].authorized_keys.write_text("")
        running[-1].start()
        return running[-1]

    yield start
    for server in running:
        server.stop()


def allow(server: Sshd, *keys: Path) -> None:
    server.authorized_keys.write_text("".join(f"{public(key)}\n" for key in keys))


def log_in(server: Sshd, strategy: Identities) -> bool:
    with socket.create_connection((server.address, server.port), 30) as line:
        transport = paramiko.Transport(line)
        try:
            transport.start_client(timeout=30)
            strategy.authenticate(transport)
            return transport.is_authenticated()
        finally:
            transport.close()


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_log_in_by_file_and_by_agent(tmp_path: Path, agent: Agent, serve, kind: str) -> None:
    wrong, right = keygen(tmp_path / "wrong"), keygen(tmp_path / "right", kind)
    server = serve()
    allow(server, right)
    assert log_in(server, Identities(hop(identity_files=(str(wrong), str(right)))))
    agent.add(wrong)
    agent.add(right)
    assert log_in(server, Identities(hop(identity_agent=agent.socket)))


def test_log_in_with_certificates(tmp_path: Path, agent: Agent, serve) -> None:
    ca, key = keygen(tmp_path / "ca"), keygen(tmp_path / "k", "rsa")
    run("ssh-keygen", "-q", "-s", ca, "-I", "me", "-n", "root", f"{key}.pub")
    server = serve(f"TrustedUserCAKeys {ca}.pub")
    assert log_in(server, Identities(hop(identity_files=(str(key),))))
    agent.add(key)  # key and certificate
    (tmp_path / "k-cert.pub").rename(tmp_path / "moved-cert.pub")
    assert log_in(server, Identities(hop(identity_agent=agent.socket)))
    given = {"identity_files": (f"{key}.pub",), "identities_only": True}
    certificate = (f"{tmp_path}/moved-cert.pub",)
    assert log_in(
        server, Identities(hop(identity_agent=agent.socket, certificate_files=certificate, **given))
    )


def test_no_key_fits(tmp_path: Path, serve) -> None:
    key = keygen(tmp_path / "k")
    strategy = Identities(hop(identity_files=(str(key),), missing_identity_files=("/no/key",)))
    with pytest.raises(AuthFailure) as caught:
        log_in(serve(), strategy)
    assert [repr(r.source) for r in caught.value.result] == [f"key file {key}"]
    assert strategy.notes == ["key file /no/key is not there"]


def test_a_server_with_little_patience(tmp_path: Path, serve) -> None:
    files = tuple(str(keygen(tmp_path / f"k{i}")) for i in range(4))
    strategy = Identities(hop(identity_files=files))
    with pytest.raises(AuthFailure):
        log_in(serve("MaxAuthTries 2"), strategy)
    assert strategy.notes == ["it hung up after 2 keys: Too many authentication failures"]


def test_right_key_is_the_sixth(tmp_path: Path, serve) -> None:
    keys = [keygen(tmp_path / f"k{i}") for i in range(6)]
    server = serve()
    allow(server, keys[-1])
    assert log_in(server, Identities(hop(identity_files=tuple(map(str, keys)))))


def test_the_agent_refuses_to_sign_and_the_file_helps(tmp_path: Path, agent: Agent, serve) -> None:
    key = keygen(tmp_path / "k")
    agent.add(key, "-c")  # to be confirmed by a hand that is not there
    server = serve()
    allow(server, key)
    strategy = Identities(hop(identity_files=(str(key),), identity_agent=agent.socket))
    assert log_in(server, strategy)
    assert strategy.notes == [
        f"key {key} (by the agent): the agent was asked to sign, but it refused to sign"
    ]


def test_rsa_with_sha1_only_does_not_end_the_trial(tmp_path: Path, serve) -> None:
    rsa, other = keygen(tmp_path / "rsa", "rsa"), keygen(tmp_path / "other")
    server = serve("PubkeyAcceptedAlgorithms ssh-rsa,ssh-ed25519")
    allow(server, other)
    strategy = Identities(hop(identity_files=(str(rsa), str(other))))
    assert log_in(server, strategy)


def test_rsa_where_the_server_says_that_it_takes_sha1_only(tmp_path: Path) -> None:
    rsa, other = keygen(tmp_path / "rsa", "rsa"), keygen(tmp_path / "other")
    strategy = Identities(hop(identity_files=(str(rsa), str(other))))
    server: Any = SimpleNamespace(server_extensions={"server-sig-algs": b"ssh-rsa,ssh-ed25519"})
    assert [strategy._is_signable(server, s) for s in strategy.get_sources()] == [False, True]
    assert strategy.notes == [
        f"key file {rsa} was not offered: it takes RSA with SHA-1 only, or not"
    ]


def test_server_without_keys(tmp_path: Path, serve) -> None:
    strategy = Identities(hop(identity_files=(str(keygen(tmp_path / "k")),)))
    server = serve("PubkeyAuthentication no", "PasswordAuthentication yes")
    with pytest.raises(AuthFailure):
        log_in(server, strategy)
    assert strategy.notes == ["it accepts no keys, only password"]


def test_server_that_wants_a_password_as_well(tmp_path: Path, serve) -> None:
    key = keygen(tmp_path / "k")
    server = serve("AuthenticationMethods publickey,password", "PasswordAuthentication yes")
    allow(server, key)
    strategy = Identities(hop(identity_files=(str(key),)))
    with pytest.raises(AuthFailure):
        log_in(server, strategy)
    assert strategy.notes == [f"it took the key file {key}, and then wants password as well"]


def test_server_that_wants_two_keys(tmp_path: Path, serve) -> None:
    keys = [keygen(tmp_path / f"k{i}") for i in range(2)]
    server = serve("AuthenticationMethods publickey,publickey")
    allow(server, *keys)
    assert log_in(server, Identities(hop(identity_files=tuple(map(str, keys)))))
