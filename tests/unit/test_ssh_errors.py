"""The words for everything that can go wrong on the way to a host, with paramiko's own exceptions."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.auth_strategy import AuthFailure, AuthResult, SourceResult
from paramiko.ssh_exception import (
    AuthenticationException,
    ChannelException,
    IncompatiblePeer,
    NoValidConnectionsError,
    ProxyCommandFailure,
    SSHException,
)

from decodelab.host import HostError, HostLost
from decodelab.known_hosts import HostKeyRefused, Verdict
from decodelab.ssh_alias import Hop
from decodelab.ssh_auth import Identities, Trial
from decodelab.ssh_errors import explain

# A key that is the same in every run, so that its fingerprint can stand in a text.
KEY = paramiko.Ed25519Key(
    data=b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes.fromhex("5866666666666666" + "66" * 24)
)
PRINT = "ssh-ed25519 SHA256:m/ejOXkI0ofKT+bW34mhHdSH63xu9c+QU7djuKirDXM"


def hop(alias: str = "bi100", **given: Any) -> Hop:
    values: dict[str, Any] = {
        "alias": alias,
        "host": "10.0.0.7",
        "port": 22,
        "user": "lab",
        "identity_files": (),
        "missing_identity_files": (),
        "identities_only": False,
        "identity_agent": None,
        "known_hosts": ("/home/me/.ssh/known_hosts",),
        "key_name": "10.0.0.7",
        "strict": "yes",
        "proxy_command": None,
        "connect_timeout_s": 15.0,
    }
    return Hop(**{**values, **given})


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


ONE = (hop(),)
GATE = hop("gate", host="gate.example", port=2222, key_name="[gate.example]:2222")
TWO = (GATE, hop())
ADDRESS = ("10.0.0.7", 22)


def refused_key(state: str, name: str = "10.0.0.7") -> HostKeyRefused:
    verdict = Verdict("unknown") if state == "unknown" else Verdict(state, "/kh", 7)
    return HostKeyRefused(name, KEY, verdict)


def no_key_fits(labels: list[str], notes: list[str]) -> AuthFailure:
    strategy = Identities(hop())
    strategy.notes = notes
    result = AuthResult(strategy=strategy)
    for label in labels:
        result.append(SourceResult(Trial("lab", label, KEY), AuthenticationException("no")))
    return AuthFailure(result=result)


COMPARE = (
    "Hint: compare the fingerprint with the host's own"
    " (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there); if it is right, run "
)
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
NO_ROUTE = OSError(errno.EHOSTUNREACH, "No route to host")
LATE = (
    "ssh bi100: 10.0.0.7:22 did not answer in time.\n"
    "Hint: look at your network or VPN, and whether 10.0.0.7 is up; it was given 15 s to connect"
    " (ConnectTimeout)."
)
HUNG_UP = (
    "ssh bi100: 10.0.0.7:22 closed the connection.\n"
    "Hint: look whether 10.0.0.7 is going down or has too many connections (MaxStartups)."
)
OWN_KEYS = (
    "Hint: `ssh-copy-id bi100` brings your key there; `ssh -v bi100` shows what ssh itself would"
    " offer."
)


def case(
    name: str,
    error: BaseException,
    text: str,
    hops: tuple[Hop, ...] = ONE,
    at: int = 0,
    notes: Sequence[str] = (),
    lost: bool = True,
) -> Any:
    return pytest.param(error, text, hops, at, notes, lost, id=name)


CASES = [
    case(
        "refused",
        NoValidConnectionsError({ADDRESS: REFUSED}),
        "ssh bi100: 10.0.0.7:22 refuses the connection: nothing listens on port 22.\n"
        "Hint: start sshd there, or correct HostName and Port of bi100.",
    ),
    case(
        "refused by one address, no route to another",
        NoValidConnectionsError({("::1", 22, 0, 0): NO_ROUTE, ADDRESS: REFUSED}),
        "ssh bi100: 10.0.0.7:22 refuses the connection: nothing listens on port 22.\n"
        "Hint: start sshd there, or correct HostName and Port of bi100.",
    ),
    case(
        "refused by the jump host",
        REFUSED,
        "ssh bi100: the jump host gate (gate.example:2222, hop 1 of 2) refuses the connection:"
        " nothing listens on port 2222.\n"
        "Hint: start sshd there, or correct HostName and Port of gate.",
        hops=TWO,
    ),
    case(
        "no route",
        NoValidConnectionsError({ADDRESS: NO_ROUTE}),
        "ssh bi100: 10.0.0.7:22 cannot be reached: No route to host.\n"
        "Hint: look at your network or VPN, and at HostName of bi100.",
    ),
    case(
        "network down",
        OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH)),
        "ssh bi100: 10.0.0.7:22 cannot be reached: Network is unreachable.\n"
        "Hint: look at your network or VPN, and at HostName of bi100.",
    ),
    case(
        "name not known",
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        "ssh bi100: bi100.lan:22: the name bi100.lan is not known: Name or service not known.\n"
        "Hint: correct the alias or its HostName in your ssh configuration; `ssh -G bi100` shows"
        " what it stands for.",
        hops=(hop(host="bi100.lan"),),
    ),
    case("time out of the socket", TimeoutError("timed out"), LATE),
    case("time out of the kernel", OSError(errno.ETIMEDOUT, "x"), LATE),
    case("no existing session", SSHException("No existing session"), LATE),
    case("login late", AuthenticationException("Authentication timeout."), LATE),
    case("channel late", SSHException("Timeout opening channel."), LATE),
    case("end of file", EOFError(), HUNG_UP),
    case("reset", ConnectionResetError(errno.ECONNRESET, "x"), HUNG_UP),
    case(
        "hung up during the login",
        AuthenticationException("Authentication failed: transport shut down or saw EOF"),
        HUNG_UP,
    ),
    case(
        "banner garbage",
        SSHException('Indecipherable protocol version "<html>"'),
        "ssh bi100: 10.0.0.7:22 answers, but not as an SSH server does.\n"
        "Hint: correct the port of bi100; a server that is too busy (MaxStartups) hangs up like this"
        " as well.",
    ),
    case(
        "unknown key",
        refused_key("unknown"),
        "ssh bi100: 10.0.0.7:22 shows a host key that no known_hosts file has for 10.0.0.7:"
        f" {PRINT}.\n"
        "  /kh line 3 does not count: the key is not base64\n"
        f"{COMPARE}`ssh-keyscan -t ed25519 10.0.0.7 >> /home/me/.ssh/known_hosts`.",
        notes=["/kh line 3 does not count: the key is not base64"],
        lost=False,
    ),
    case(
        "unknown key of a jump host, another port",
        refused_key("unknown", "[gate.example]:2222"),
        "ssh bi100: the jump host gate (gate.example:2222, hop 1 of 2) shows a host key that no"
        f" known_hosts file has for [gate.example]:2222: {PRINT}.\n"
        f"{COMPARE}`ssh-keyscan -p 2222 -t ed25519 gate.example >> /home/me/.ssh/known_hosts`.",
        hops=TWO,
        lost=False,
    ),
    case(
        "unknown key behind a jump host, HostKeyAlias",
        refused_key("unknown", "the card"),
        "ssh bi100: 10.0.0.7:22, behind the jump host gate, shows a host key that no known_hosts"
        f" file has for the card: {PRINT}.\n"
        f"{COMPARE}`ssh gate 'ssh-keyscan -t ed25519 10.0.0.7' | sed 's/^[^# ][^ ]*/the-card/' >>"
        " /home/me/.ssh/known_hosts`.",
        hops=(GATE, hop(key_name="the-card")),
        at=1,
        lost=False,
    ),
    case(
        "unknown key behind a ProxyCommand",
        refused_key("unknown"),
        "ssh bi100: 10.0.0.7:22 shows a host key that no known_hosts file has for 10.0.0.7:"
        f" {PRINT}.\n"
        f"{COMPARE}`ssh -o StrictHostKeyChecking=accept-new bi100 true`.",
        hops=(hop(proxy_command="nc x 22"),),
        lost=False,
    ),
    case(
        "changed key",
        refused_key("changed"),
        f"ssh bi100: 10.0.0.7:22 shows another host key than /kh line 7 has: {PRINT}. The host was"
        " set up anew, or somebody is in between.\n"
        f"{COMPARE}`ssh-keygen -R 10.0.0.7 -f /kh`, then `ssh-keyscan -t ed25519 10.0.0.7 >>"
        " /home/me/.ssh/known_hosts`.",
        lost=False,
    ),
    case(
        "revoked key",
        refused_key("revoked"),
        f"ssh bi100: 10.0.0.7:22 shows a host key that /kh line 7 revokes: {PRINT}.\n"
        "Hint: do not use this host until who runs it has given it a new key.",
        lost=False,
    ),
    case(
        "SHA-1 only",
        IncompatiblePeer("Incompatible ssh peer (no acceptable host key)"),
        "ssh bi100: 10.0.0.7:22 signs with SHA-1 only (ssh-rsa, ssh-dss), which is not accepted as"
        " a host key.\n"
        "Hint: give the host an ed25519 key (`ssh-keygen -A` there), or rsa-sha2-256 in its"
        " HostKeyAlgorithms.",
        lost=False,
    ),
    case(
        "version 1",
        IncompatiblePeer("Incompatible version (1.5 instead of 2.0)"),
        "ssh bi100: 10.0.0.7:22 speaks SSH version 1 only, which is out of use: Incompatible version"
        " (1.5 instead of 2.0).\n"
        "Hint: bring its SSH server up to date.",
        lost=False,
    ),
    case(
        "no common cipher",
        IncompatiblePeer("Incompatible ssh server (no acceptable ciphers)"),
        "ssh bi100: 10.0.0.7:22 and this program have no common algorithm: no acceptable ciphers.\n"
        "Hint: widen Ciphers, MACs or KexAlgorithms in the host's sshd_config:"
        " aes256-gcm@openssh.com, hmac-sha2-256 and ecdh-sha2-nistp256 do.",
        lost=False,
    ),
    case(
        "bad signature of the host key",
        SSHException("Signature verification (ssh-ed25519) failed."),
        "ssh bi100: 10.0.0.7:22 could not prove that its host key is its own: Signature"
        " verification (ssh-ed25519) failed.\n"
        "Hint: do not use this connection; somebody may be in between.",
        lost=False,
    ),
    case(
        "no key fits",
        no_key_fits(
            ["key file /k/a", "agent key lab"],
            [
                "key file /k/gone is not there",
                "key file /k/b cannot be used: it is encrypted; `ssh-add /k/b` gives it to the agent",
                "the ssh-agent at /run/x is of no use: nobody serves this socket any more",
            ],
        ),
        "ssh bi100: 10.0.0.7:22 lets lab in with none of the keys: key file /k/a; agent key lab.\n"
        "  /kh line 3 does not count: the key is not base64\n"
        "  key file /k/gone is not there\n"
        "  key file /k/b cannot be used: it is encrypted; `ssh-add /k/b` gives it to the agent\n"
        "  the ssh-agent at /run/x is of no use: nobody serves this socket any more\n"
        "Hint: there is no agent: start one (`eval $(ssh-agent)`), then `ssh-add /k/b` in the same"
        " shell.",
        notes=["/kh line 3 does not count: the key is not base64"],
        lost=False,
    ),
    case(
        "no key at all",
        no_key_fits([], []),
        "ssh bi100: 10.0.0.7:22 does not let lab in, and there was no key to offer.\n" + OWN_KEYS,
        lost=False,
    ),
    case(
        "too many keys",
        no_key_fits(["agent key a"], ["it hung up after 5 keys: Too many authentication failures"]),
        "ssh bi100: 10.0.0.7:22 hung up before the right key came: too many keys were offered.\n"
        "  it hung up after 5 keys: Too many authentication failures\n"
        "Hint: name the key as IdentityFile of bi100 and set `IdentitiesOnly yes`.",
        lost=False,
    ),
    case(
        "second factor",
        no_key_fits(
            ["key file /k"],
            ["it took the key file /k, and then wants keyboard-interactive as well"],
        ),
        "ssh bi100: 10.0.0.7:22 asks lab for more than a key.\n"
        "  it took the key file /k, and then wants keyboard-interactive as well\n"
        "Hint: allow the key alone there (AuthenticationMethods publickey); nobody is here to type.",
        lost=False,
    ),
    case(
        "RSA key with SHA-1",
        SSHException("Invalid key"),
        "ssh bi100: 10.0.0.7:22 takes RSA keys with SHA-1 signatures only, which are out of use.\n"
        "Hint: use an ed25519 key for bi100 (`ssh-keygen -t ed25519`).",
        lost=False,
    ),
    case(
        "the gateway forbids forwarding",
        ChannelException(1, "Administratively prohibited"),
        "ssh bi100: the jump host gate (gate.example:2222, hop 1 of 2) does not pass connections on"
        " to 10.0.0.7:22: Administratively prohibited.\n"
        "Hint: allow it there (AllowTcpForwarding, PermitOpen in sshd_config), or use another"
        " ProxyJump.",
        hops=TWO,
        at=1,
        lost=False,
    ),
    case(
        "the gateway cannot reach the host",
        ChannelException(2, "Connect failed"),
        "ssh bi100: the jump host gate (gate.example:2222, hop 1 of 2) cannot reach 10.0.0.7:22:"
        " Connect failed.\n"
        "Hint: look whether bi100 is up and its HostName and Port are right as seen from there.",
        hops=TWO,
        at=1,
    ),
    case(
        "no more sessions",
        ChannelException(2, "Connect failed"),
        "ssh bi100: 10.0.0.7:22 refuses another session: Connect failed.\n"
        "Hint: raise MaxSessions in the host's sshd_config, or end other sessions.",
    ),
    case(
        "ProxyCommand fails",
        ProxyCommandFailure("nc x 22", "nc: bad port\n"),
        "ssh bi100: 10.0.0.7:22 cannot be reached by its ProxyCommand: nc: bad port.\n"
        "Hint: try it in a shell: nc x 22",
        hops=(hop(proxy_command="nc x 22"),),
    ),
    case(
        "something of paramiko's",
        SSHException("Mismatched MAC"),
        "ssh bi100: 10.0.0.7:22: the connection failed: Mismatched MAC.\nHint: try `ssh -v bi100`.",
    ),
    case(
        "something else",
        RuntimeError("what"),
        "ssh bi100: 10.0.0.7:22: RuntimeError: what.\nHint: try `ssh -v bi100`.",
        lost=False,
    ),
]


@pytest.mark.parametrize(("error", "text", "hops", "at", "notes", "lost"), CASES)
def test_words(
    error: BaseException,
    text: str,
    hops: tuple[Hop, ...],
    at: int,
    notes: Sequence[str],
    lost: bool,
) -> None:
    told = explain(error, hops, at, notes)
    assert str(told) == text
    assert isinstance(told, HostLost) is lost


def test_an_error_that_is_told_already_stays() -> None:
    told = HostError("told")
    assert explain(told, ONE, 0) is told


def test_known_key_types_that_the_host_does_not_show(tmp_path: Path) -> None:
    rsa = paramiko.RSAKey.generate(2048)
    (tmp_path / "kh").write_text(f"10.0.0.7 ssh-rsa {rsa.get_base64()}\n")
    error = IncompatiblePeer("Incompatible ssh peer (no acceptable host key)")
    told = explain(error, (hop(known_hosts=(f"{tmp_path}/kh",)),), 0)
    assert str(told) == (
        "ssh bi100: 10.0.0.7:22 shows no host key of a type that known_hosts has for 10.0.0.7"
        " (ssh-rsa).\n"
        "Hint: compare the host's keys with `ssh bi100`, and add the one it has now to known_hosts."
    )


ENCRYPTED = (
    "key file /k/a b cannot be used: it is encrypted; `ssh-add /k/a b` gives it to the agent"
)
DEAD = "the ssh-agent at /run/agent is of no use: nobody serves this socket any more"
ADD = "`ssh-add '/k/a b'`"


@pytest.mark.parametrize(
    ("agent", "usual", "notes", "hint"),
    [
        ("/run/agent", "/run/agent", [], f"{ADD} gives the key to the agent."),
        (
            "/run/agent",
            "/run/usual",
            [],
            "`SSH_AUTH_SOCK=/run/agent ssh-add '/k/a b'` gives the key to the agent.",
        ),
        (
            "/run/agent",
            "/run/agent",
            [DEAD],
            f"the agent is dead: start one (`eval $(ssh-agent)`), then {ADD} in the same shell.",
        ),
        (
            "/run/agent",
            None,
            [DEAD],
            f"start the agent that serves /run/agent (IdentityAgent of bi100), then {ADD}.",
        ),
        (
            None,
            None,
            [],
            f"there is no agent: start one (`eval $(ssh-agent)`), then {ADD} in the same shell.",
        ),
        (
            None,
            "/run/usual",
            [],
            f"{ADD} gives the key to your agent, which is not asked: IdentityAgent of bi100 is none,"
            " or names nothing; take that line out.",
        ),
    ],
    ids=["agent", "its own agent", "dead", "its own is dead", "no agent", "IdentityAgent none"],
)
def test_an_encrypted_key_goes_to_the_agent(
    monkeypatch: pytest.MonkeyPatch,
    agent: str | None,
    usual: str | None,
    notes: list[str],
    hint: str,
) -> None:
    if usual is not None:
        monkeypatch.setenv("SSH_AUTH_SOCK", usual)
    told = explain(no_key_fits([], [ENCRYPTED, *notes]), (hop(identity_agent=agent),), 0)
    assert str(told).partition("\nHint: ")[2] == hint


@pytest.mark.parametrize(
    ("config", "where"), [(None, ""), ("/etc/lab config", " in /etc/lab config")]
)
def test_a_missing_key_file_is_the_hint(config: str | None, where: str) -> None:
    error = no_key_fits(["agent key lab"], ["key file /k/gone is not there"])
    told = str(explain(error, (hop(config=config),), 0))
    assert told.endswith(
        f"Hint: there is no /k/gone: put the key there, or correct IdentityFile of bi100{where}."
    )


@pytest.mark.parametrize(
    ("error", "at", "command"),
    [
        (no_key_fits([], []), 0, "ssh-copy-id -F '/my lab/config' gate"),
        (no_key_fits([], []), 0, "ssh -F '/my lab/config' -v gate"),
        (socket.gaierror(socket.EAI_NONAME, "x"), 0, "ssh -F '/my lab/config' -G gate"),
        (SSHException("Mismatched MAC"), 0, "ssh -F '/my lab/config' -v gate"),
        (RuntimeError("what"), 0, "ssh -F '/my lab/config' -v gate"),
        (
            refused_key("unknown"),
            1,
            "ssh -F '/my lab/config' gate 'ssh-keyscan -t ed25519 10.0.0.7' >>"
            " /home/me/.ssh/known_hosts",
        ),
    ],
)
def test_commands_read_the_configuration_of_the_host(
    error: BaseException, at: int, command: str
) -> None:
    own = {"config": "/my lab/config"}
    hops = (hop("gate", host="gate.example", port=2222, **own), hop(**own))
    assert f"`{command}`" in str(explain(error, hops, at))


def test_a_host_behind_a_proxy_command_with_its_own_configuration() -> None:
    target = hop(proxy_command="nc x 22", config="/c")
    told = str(explain(refused_key("unknown"), (target,), 0))
    assert "`ssh -F /c -o StrictHostKeyChecking=accept-new bi100 true`" in told
