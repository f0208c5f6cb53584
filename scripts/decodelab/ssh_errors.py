"""What went wrong on the way to a host, in words that say what to do.

In:  the exception that opening or using a connection raised, the hops, the index of the hop where it
     happened, notes of the parts that took part (keys that did not come to the trial, bad lines).
Out: a HostLost (the network: worth another try) or a HostError (somebody has to change something).
     The first line says it all; then the notes, one a line; then the hint.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import socket
from collections.abc import Sequence

import paramiko
from paramiko.auth_strategy import AuthFailure
from paramiko.ssh_exception import (
    AuthenticationException,
    ChannelException,
    IncompatiblePeer,
    NoValidConnectionsError,
    ProxyCommandFailure,
    SSHException,
)

from decodelab.host import HostError, HostLost
from decodelab.known_hosts import HostKeyRefused, HostKeys, fingerprint
from decodelab.ssh_alias import Hop

# What ssh_auth.py notes of keys that did not come to the trial.
ENCRYPTED = re.compile(r"key file (.+) cannot be used: it is encrypted", re.DOTALL)
MISSING = re.compile(r"key file (.+) is not there", re.DOTALL)
AGENT_OF_NO_USE = re.compile(r"the ssh-agent at .+ is of no use", re.DOTALL)
FORBIDDEN, CONNECT_FAILED = 1, 2  # reasons of a ChannelException (RFC 4254, 5.1)
SCAN_TYPES = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}
# What paramiko says when the time ran out, wherever it was.
TIME_OUTS = (
    "No existing session",
    "Authentication timeout",
    "Timeout opening channel",
    "Key-exchange timed out",
    "Timeout during negotiation",
)


def explain(
    error: BaseException,
    hops: tuple[Hop, ...],
    at: int,
    notes: Sequence[str] = (),
    session: bool = False,
) -> HostError:
    """The error for the user. A HostError that comes in goes out as it is.

    `session`: the connection stood, and a channel for a command was refused or lost.
    """
    if isinstance(error, HostError):
        return error
    hop = hops[at]
    place = _place(hops, at)
    if isinstance(error, HostKeyRefused):
        return _host_key(error, hops, at, notes)
    if isinstance(error, IncompatiblePeer):
        return _incompatible(error, place, hop, notes)
    if isinstance(error, ChannelException):
        return _channel(error, hops, at, session)
    if isinstance(error, AuthenticationException) and not _is_lost(error):
        return _keys_refused(error, place, hop, notes)
    if isinstance(error, ProxyCommandFailure) or (hop.proxy_command and _is_lost(error)):
        return _proxy_command(error, place, hop)
    if isinstance(error, SSHException):
        return _protocol(error, place, hop, notes)
    return _network(error, place, hop)


def _place(hops: tuple[Hop, ...], at: int) -> str:
    hop, target = hops[at], hops[-1].alias
    where = f"{hop.host}:{hop.port}"
    if at < len(hops) - 1:
        return f"ssh {target}: the jump host {hop.alias} ({where}, hop {at + 1} of {len(hops)})"
    if at:
        return f"ssh {target}: {where}, behind the jump host {hops[at - 1].alias},"
    return f"ssh {target}: {where}"


def _ssh(hop: Hop, *options: str, program: str = "ssh") -> str:
    """A command line that reads the configuration which led to the hop, with the hop's alias."""
    file = ["-F", hop.config] if hop.config is not None else []
    return shlex.join([program, *file, *options, hop.alias])


def _text(first: str, notes: Sequence[str], hint: str) -> str:
    return "\n".join([first, *(f"  {note}" for note in dict.fromkeys(notes)), f"Hint: {hint}"])


# Host keys


def _host_key(
    error: HostKeyRefused, hops: tuple[Hop, ...], at: int, notes: Sequence[str]
) -> HostError:
    place, verdict = _place(hops, at), error.verdict
    shown = f"{error.key.get_name()} {fingerprint(error.key)}"
    line = f"{verdict.file} line {verdict.line}"
    if verdict.state == "revoked":
        return HostError(
            _text(
                f"{place} shows a host key that {line} revokes: {shown}.",
                notes,
                "do not use this host until who runs it has given it a new key.",
            )
        )
    scan = _scan_line(error.key, hops, at)
    there = (
        "compare the fingerprint with the host's own"
        f" (`ssh-keygen -lf /etc/ssh/ssh_host_{_scan_type(error.key)}_key.pub` there)"
    )
    if verdict.state == "changed":
        remove = f"ssh-keygen -R {shlex.quote(error.name)} -f {shlex.quote(verdict.file)}"
        return HostError(
            _text(
                f"{place} shows another host key than {line} has: {shown}. The host was set up anew,"
                " or somebody is in between.",
                notes,
                f"{there}; if it is right, run `{remove}`, then `{scan}`.",
            )
        )
    return HostError(
        _text(
            f"{place} shows a host key that no known_hosts file has for {error.name}: {shown}.",
            notes,
            f"{there}; if it is right, run `{scan}`.",
        )
    )


def _scan_type(key: paramiko.PKey) -> str:
    name = key.get_name()
    return SCAN_TYPES.get(name, "ecdsa" if name.startswith("ecdsa-") else name)


def _scan_line(key: paramiko.PKey, hops: tuple[Hop, ...], at: int) -> str:
    """The line that makes the host known, run from where the host can be reached."""
    hop = hops[at]
    file = next(iter(hop.known_hosts), "~/.ssh/known_hosts")
    if hop.proxy_command and not at:
        return f"{_ssh(hop, '-o', 'StrictHostKeyChecking=accept-new')} true"
    words = ["ssh-keyscan", *(["-p", str(hop.port)] if hop.port != 22 else [])]
    scan = shlex.join([*words, "-t", _scan_type(key), hop.host])
    if at:
        scan = f"{_ssh(hops[at - 1])} {shlex.quote(scan)}"
    if hop.key_name not in (hop.host, f"[{hop.host}]:{hop.port}"):  # a HostKeyAlias
        scan += f" | sed {shlex.quote(f's/^[^# ][^ ]*/{hop.key_name}/')}"
    return f"{scan} >> {file if file.startswith('~') else shlex.quote(file)}"


def _incompatible(error: IncompatiblePeer, place: str, hop: Hop, notes: Sequence[str]) -> HostError:
    what = str(error)
    if "version" in what:
        return HostError(
            _text(
                f"{place} speaks SSH version 1 only, which is out of use: {what}.",
                (),
                "bring its SSH server up to date.",
            )
        )
    if "host key" not in what:
        part = what.partition("(")[2].rstrip(")") or what
        return HostError(
            _text(
                f"{place} and this program have no common algorithm: {part}.",
                (),
                "widen Ciphers, MACs or KexAlgorithms in the host's sshd_config:"
                " aes256-gcm@openssh.com, hmac-sha2-256 and ecdh-sha2-nistp256 do.",
            )
        )
    known = HostKeys.load(hop.known_hosts).types_for(hop.key_name)
    if known:
        return HostError(
            _text(
                f"{place} shows no host key of a type that known_hosts has for {hop.key_name}"
                f" ({', '.join(known)}).",
                notes,
                f"compare the host's keys with `{_ssh(hop)}`, and add the one it has now"
                " to known_hosts.",
            )
        )
    return HostError(
        _text(
            f"{place} signs with SHA-1 only (ssh-rsa, ssh-dss), which is not accepted as a host key.",
            notes,
            "give the host an ed25519 key (`ssh-keygen -A` there), or"
            " rsa-sha2-256 in its HostKeyAlgorithms.",
        )
    )


# Our own keys


def _keys_refused(
    error: AuthenticationException, place: str, hop: Hop, notes: Sequence[str]
) -> HostError:
    said = list(notes)
    offered: list[str] = []
    if isinstance(error, AuthFailure):
        offered = [getattr(r.source, "label", str(r.source)) for r in error.result]
        said += [n for n in getattr(error.result.strategy, "notes", ()) if n not in said]
    many = any("Too many authentication failures" in note for note in said)
    second = any("as well" in note for note in said)
    if offered:
        first = f"{place} lets {hop.user} in with none of the keys: {'; '.join(offered)}."
    else:
        first = f"{place} does not let {hop.user} in, and there was no key to offer."
    if second:
        first = f"{place} asks {hop.user} for more than a key."
        hint = (
            "allow the key alone there (AuthenticationMethods publickey); nobody is here to type."
        )
    elif many:
        first = f"{place} hung up before the right key came: too many keys were offered."
        hint = f"name the key as IdentityFile of {hop.alias} and set `IdentitiesOnly yes`."
    else:
        hint = _key_hint(hop, said)
    return HostError(_text(first, said, hint))


def _key_hint(hop: Hop, notes: Sequence[str]) -> str:
    """What to do first: a key that could not be offered is rather the right one than those refused."""
    encrypted = [found[1] for note in notes if (found := ENCRYPTED.match(note))]
    if encrypted:
        return _agent_hint(hop, encrypted[0], any(AGENT_OF_NO_USE.match(n) for n in notes))
    missing = [found[1] for note in notes if (found := MISSING.fullmatch(note))]
    if missing:
        file = f" in {hop.config}" if hop.config is not None else ""
        return (
            f"there is no {missing[0]}: put the key there, or correct IdentityFile of"
            f" {hop.alias}{file}."
        )
    return (
        f"`{_ssh(hop, program='ssh-copy-id')}` brings your key there; `{_ssh(hop, '-v')}` shows"
        " what ssh itself would offer."
    )


def _agent_hint(hop: Hop, key: str, of_no_use: bool) -> str:
    """How the agent gets a key whose passphrase nobody is here to type."""
    add, usual = f"ssh-add {shlex.quote(key)}", os.environ.get("SSH_AUTH_SOCK") or None
    agent = hop.identity_agent
    if agent is None and usual is not None:
        return (
            f"`{add}` gives the key to your agent, which is not asked: IdentityAgent of"
            f" {hop.alias} is none, or names nothing; take that line out."
        )
    if agent is None or (of_no_use and agent == usual):
        state = "there is no agent" if agent is None else "the agent is dead"
        return f"{state}: start one (`eval $(ssh-agent)`), then `{add}` in the same shell."
    if of_no_use:
        return f"start the agent that serves {agent} (IdentityAgent of {hop.alias}), then `{add}`."
    socket_of = "" if agent == usual else f"SSH_AUTH_SOCK={shlex.quote(agent)} "
    return f"`{socket_of}{add}` gives the key to the agent."


# Channels


def _channel(error: ChannelException, hops: tuple[Hop, ...], at: int, session: bool) -> HostError:
    said = error.text or f"reason {error.code}"
    if session or not at:
        return HostLost(
            f"{_place(hops, at)} refuses another session: {said}.\n"
            "Hint: raise MaxSessions in the host's sshd_config, or end other sessions."
        )
    place, hop = _place(hops[: at + 1], at - 1), hops[at]
    goal = f"{hop.host}:{hop.port}"
    if error.code == FORBIDDEN:
        return HostError(
            f"{place} does not pass connections on to {goal}: {said}.\n"
            "Hint: allow it there (AllowTcpForwarding, PermitOpen in sshd_config), or use another"
            " ProxyJump."
        )
    return HostLost(
        f"{place} cannot reach {goal}: {said}.\n"
        f"Hint: look whether {hop.alias} is up and its HostName and Port are right as seen from there."
    )


def _proxy_command(error: BaseException, place: str, hop: Hop) -> HostError:
    said = getattr(error, "error", None) or str(error) or type(error).__name__
    if isinstance(said, bytes):
        said = said.decode("utf-8", "replace")
    return HostLost(
        f"{place} cannot be reached by its ProxyCommand: {str(said).strip()}.\n"
        f"Hint: try it in a shell: {hop.proxy_command or getattr(error, 'command', '')}"
    )


# The network


def _is_lost(error: BaseException) -> bool:
    said = str(error)
    return said.startswith(TIME_OUTS) or any(
        words in said for words in ("saw EOF", "protocol banner", "session not active")
    )


def _protocol(error: SSHException, place: str, hop: Hop, notes: Sequence[str]) -> HostError:
    said = str(error).rstrip(".")
    before = error.__cause__ or error.__context__
    if said.startswith(TIME_OUTS):
        return _late(place, hop)
    if "banner" in said or "protocol version" in said:
        if isinstance(before, TimeoutError):
            return _late(place, hop)
        first = "answers, but not as an SSH server does"
        if isinstance(before, EOFError | OSError):
            first = "closed the connection instead of greeting as an SSH server does"
        return HostLost(
            f"{place} {first}.\n"
            f"Hint: correct the port of {hop.alias}; a server that is too busy (MaxStartups) hangs up"
            " like this as well."
        )
    if "saw EOF" in said or "session not active" in said:
        return _hung_up(place, hop)
    if "Signature verification" in said:
        return HostError(
            _text(
                f"{place} could not prove that its host key is its own: {said}.",
                notes,
                "do not use this connection; somebody may be in between.",
            )
        )
    if "Invalid key" in said:
        return HostError(
            _text(
                f"{place} takes RSA keys with SHA-1 signatures only, which are out of use.",
                notes,
                f"use an ed25519 key for {hop.alias} (`ssh-keygen -t ed25519`).",
            )
        )
    return HostLost(
        f"{place}: the connection failed: {said or type(error).__name__}.\n"
        f"Hint: try `{_ssh(hop, '-v')}`."
    )


def _network(error: BaseException, place: str, hop: Hop) -> HostError:
    if isinstance(error, NoValidConnectionsError) and error.errors:
        # One for each address of the name: one that exists and refuses tells more.
        tried = list(error.errors.values())
        error = next((e for e in tried if isinstance(e, ConnectionRefusedError)), tried[0])
    if isinstance(error, socket.gaierror):
        return HostLost(
            f"{place}: the name {hop.host} is not known: {error.strerror or error}.\n"
            f"Hint: correct the alias or its HostName in your ssh configuration;"
            f" `{_ssh(hop, '-G')}` shows what it stands for."
        )
    if isinstance(error, ConnectionRefusedError):
        return HostLost(
            f"{place} refuses the connection: nothing listens on port {hop.port}.\n"
            f"Hint: start sshd there, or correct HostName and Port of {hop.alias}."
        )
    if isinstance(error, TimeoutError) or getattr(error, "errno", None) == errno.ETIMEDOUT:
        return _late(place, hop)
    if isinstance(error, EOFError | ConnectionResetError | BrokenPipeError):
        return _hung_up(place, hop)
    if isinstance(error, OSError):
        said = os.strerror(error.errno) if error.errno else str(error)
        return HostLost(
            f"{place} cannot be reached: {said}.\n"
            f"Hint: look at your network or VPN, and at HostName of {hop.alias}."
        )
    return HostError(f"{place}: {type(error).__name__}: {error}.\nHint: try `{_ssh(hop, '-v')}`.")


def _late(place: str, hop: Hop) -> HostLost:
    return HostLost(
        f"{place} did not answer in time.\n"
        f"Hint: look at your network or VPN, and whether {hop.host} is up; it was given"
        f" {hop.connect_timeout_s:g} s to connect (ConnectTimeout)."
    )


def _hung_up(place: str, hop: Hop) -> HostLost:
    return HostLost(
        f"{place} closed the connection.\n"
        f"Hint: look whether {hop.host} is going down or has too many connections (MaxStartups)."
    )
