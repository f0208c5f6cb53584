"""From an alias of the user's ssh configuration to the hops that lead there.

In:  an alias as `ssh` would take it (name, user@name, ssh://user@name:port; user@name:port as well)
     and, if wanted, a configuration file as for `ssh -F`.
Out: one `Hop` per machine on the way, jump hosts first, the target last. `ssh -G` itself answers for
     each hop, so that Include, Match, HostKeyAlias, tokens and `ProxyJump none` mean what they mean to ssh.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from decodelab.host import HostError

# `ssh -G` prints these when the user names no IdentityFile; that one of them is not there means nothing.
DEFAULT_KEYS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa")
DEFAULT_CONNECT_TIMEOUT_S = 15.0  # ssh would wait as long as the kernel does: two minutes
ANSWER_LIMIT_S = 30.0  # a `Match exec` of the user's configuration runs within it
LONGEST_WAY = 16
STRICT = {
    "yes": "yes",
    "true": "yes",
    "ask": "yes",  # nobody is there to be asked
    "accept-new": "accept-new",
    "no": "no",
    "off": "no",
    "false": "no",
}

Answer = Mapping[str, list[str]]


@dataclass(frozen=True)
class Hop:
    """One machine on the way, as the user's ssh configuration describes it."""

    alias: str  # as the user wrote it
    host: str
    port: int
    user: str
    identity_files: tuple[str, ...]  # existing ones (or only their .pub), expanded, in order
    missing_identity_files: tuple[str, ...]  # named by the user (not ssh's defaults) and not there
    identities_only: bool
    identity_agent: str | None  # socket path, or None when there is none
    known_hosts: tuple[str, ...]  # files that may exist
    key_name: str  # what is looked up there: HostKeyAlias, or host, or [host]:port
    strict: str  # "yes" | "accept-new" | "no"
    proxy_command: str | None  # tokens expanded; for a shell to run, as ssh does (`exec …`)
    connect_timeout_s: float
    certificate_files: tuple[str, ...] = ()
    config: str | None = (
        None  # the configuration file of `ssh -F`, if it is not the user's usual one
    )


@dataclass(frozen=True)
class Destination:
    """[user@]name[:port], taken apart."""

    name: str
    user: str | None = None
    port: int | None = None


def resolve(alias: str, config: str | None = None) -> tuple[Hop, ...]:
    """The hops to the alias, jump hosts first. Raises HostError with what ssh itself says."""
    if config is not None and config != "none":
        config = _at_home(config)
        if not os.path.isfile(config):
            raise HostError(
                f"ssh {alias}: there is no ssh configuration file {config}.\n"
                "Hint: correct the host's `ssh_config`, or leave it out to use ~/.ssh/config."
            )
    return _way(alias, config, ())


def _way(word: str, config: str | None, trail: tuple[str, ...]) -> tuple[Hop, ...]:
    """The hop of the word, behind those of its own ProxyJump."""
    if word in trail or len(trail) >= LONGEST_WAY:
        raise HostError(
            f"ssh {trail[0]}: the jump hosts lead in a circle: {' -> '.join((*trail, word))}.\n"
            f"Hint: set `ProxyJump none` for {word} in your ssh configuration."
        )
    target, answer = _ask(word, config, None)
    hop = _hop(word, target, answer, config)
    jumps = _first(answer, "proxyjump")
    if jumps is None or jumps.lower() == "none":
        return (hop,)
    chain = _expand(jumps, target, hop).split(",")
    # ssh runs `ssh -J first,second third`: a ProxyJump of its own counts for the first only.
    way = _way(chain[0], config, (*trail, word))
    for i, middle in enumerate(chain[1:], 1):
        way += (_hop(middle, *_ask(middle, config, ",".join(chain[:i])), config),)
    return (*way, hop)


def _ask(word: str, config: str | None, jumps: str | None) -> tuple[Destination, Answer]:
    """What `ssh -G` says of the word."""
    to = _destination(word)
    options = ["-J", jumps] if jumps else []
    answer: dict[str, list[str]] = {}
    for line in _ssh_g(word, to, config, options).splitlines():
        key, _, value = line.partition(" ")
        answer.setdefault(key.lower(), []).append(value)
    if _first(answer, "proxyusefdpass") == "yes":
        raise HostError(
            f"ssh {word}: ProxyUseFdpass is not supported.\n"
            "Hint: use a ProxyCommand that passes the bytes on, or ProxyJump."
        )
    return to, answer


def _destination(word: str) -> Destination:
    """Taken apart as ssh does it, which reads a port in jump hosts and ssh:// only; here it may always be there."""
    rest = word
    uri = rest.lower().startswith("ssh://")
    if uri:
        rest = rest[len("ssh://") :].rstrip("/")
    user, at, rest = rest.rpartition("@")
    match = re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]*):(\d+)|(.+)", rest, re.DOTALL)
    if match is None or not (match[1] or match[3] or match[5]) or re.search(r"[\x00-\x1f]", word):
        raise HostError(
            f"ssh {word!r}: this is not the name of a host.\n"
            "Hint: write an alias of ~/.ssh/config, user@name, or ssh://user@name:port."
        )
    port = match[2] or match[4]
    return Destination(
        match[1] or match[3] or match[5],
        (unquote(user) if uri else user) if at else None,
        int(port) if port else None,
    )


def _ssh_g(word: str, to: Destination, config: str | None, options: Sequence[str]) -> str:
    file = ["-F", config] if config is not None else []
    argv = ["ssh", "-G", *file, *options]
    argv += ["-l", to.user] if to.user is not None else []
    argv += ["-p", str(to.port)] if to.port is not None else []
    try:
        done = subprocess.run(
            [*argv, "--", to.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_LIMIT_S,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError as error:
        raise HostError(
            f"ssh {word}: there is no program `ssh` on this machine.\n"
            "Hint: install the OpenSSH client (Debian: openssh-client); it reads your ssh configuration."
        ) from error
    except OSError as error:
        raise HostError(
            f"ssh {word}: `ssh -G` cannot be run: {error.strerror}.\n"
            "Hint: make `ssh` runnable by this user."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise HostError(
            f"ssh {word}: `ssh -G` gave no answer in {ANSWER_LIMIT_S:.0f} s.\n"
            "Hint: look at the `Match exec` lines of your ssh configuration."
        ) from error
    if done.returncode != 0:
        lines = [x.strip() for x in done.stderr.decode("utf-8", "replace").splitlines()]
        said = "; ".join(x for x in lines if x and "terminating" not in x and "Pseudo" not in x)
        raise HostError(
            f"ssh {word}: ssh does not accept this: {said or f'exit {done.returncode}'}.\n"
            "Hint: correct the alias or your ssh configuration until"
            f" `{shlex.join(['ssh', '-G', *file, word])}` answers."
        )
    return done.stdout.decode("utf-8", "surrogateescape")


def _hop(word: str, to: Destination, answer: Answer, config: str | None) -> Hop:
    host = _first(answer, "hostname") or to.name
    port = int(_first(answer, "port") or 22)
    found, missing = _identity_files(word, to, answer, config)
    certificates = (
        _path(word, to, config, f) for f in answer.get("certificatefile", []) if f != "none"
    )
    strict = _first(answer, "stricthostkeychecking") or "ask"
    waits = _first(answer, "connecttimeout") or "none"
    known = [*answer.get("userknownhostsfile", []), *answer.get("globalknownhostsfile", [])]
    hop = Hop(
        alias=word,
        host=host,
        port=port,
        user=_first(answer, "user") or to.user or "",
        identity_files=found,
        missing_identity_files=missing,
        identities_only=_first(answer, "identitiesonly") == "yes",
        identity_agent=_agent(_first(answer, "identityagent")),
        known_hosts=tuple(dict.fromkeys(f for line in known for f in _files(line))),
        key_name=_first(answer, "hostkeyalias") or (host if port == 22 else f"[{host}]:{port}"),
        strict=STRICT.get(strict, "yes"),
        proxy_command=None,
        connect_timeout_s=float(waits)
        if waits.isdigit() and int(waits)
        else DEFAULT_CONNECT_TIMEOUT_S,
        certificate_files=tuple(c for c in certificates if os.path.exists(c)),
        config=config,
    )
    command = _first(answer, "proxycommand")
    if command is None or command.lower() == "none":
        return hop
    return replace(hop, proxy_command=_expand(command, to, hop))


def _first(answer: Answer, key: str) -> str | None:
    return answer[key][0] if key in answer else None


def _identity_files(
    word: str, to: Destination, answer: Answer, config: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(those there, those that the user named and that are not there)."""
    defaults = {f"~/.ssh/id_{kind}" for kind in DEFAULT_KEYS}
    found: dict[str, None] = {}
    missing: dict[str, None] = {}
    for written in answer.get("identityfile", []):
        if written.lower() == "none":
            continue
        path = _path(word, to, config, written)
        # With the private half in the agent, the .pub alone says which key is meant.
        if os.path.exists(path) or os.path.exists(path + ".pub"):
            found[path] = None
        elif written not in defaults:
            missing[path] = None
    return tuple(found), tuple(missing)


def _path(word: str, to: Destination, config: str | None, written: str) -> str:
    """An IdentityFile, which `ssh -G` prints as written, with ~, tokens and ${NAME} filled in.

    For tokens ssh is asked once more, with the path as the IdentityAgent: that one it prints filled in.
    """
    if "%" not in written and "${" not in written:
        return _at_home(written)
    quoted = written.replace("\\", "\\\\").replace('"', '\\"')
    try:
        answer = _ssh_g(word, to, config, ["-o", f'IdentityAgent="{quoted}"'])
    except HostError:  # such as a ${NAME} that is not set: it is named as a missing file, then
        return written
    lines = (line.partition(" ") for line in answer.splitlines())
    return next((value for key, _, value in lines if key == "identityagent"), written)


def _at_home(path: str) -> str:
    """~ and ~user as ssh takes them: from the password database, not from $HOME."""
    if not path.startswith("~"):
        return path
    user, _, rest = path[1:].partition("/")
    try:
        home = (pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())).pw_dir
    except KeyError:
        return path
    return os.path.join(home, rest) if rest else home


def _agent(written: str | None) -> str | None:
    if written is None or written == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if written.lower() == "none":
        return None
    if written.startswith("$"):
        return os.environ.get(written[1:]) or None
    return _at_home(written)


def _files(line: str) -> list[str]:
    """The paths of a line in which `ssh -G` has lost the quotes: a new one begins at / or ~."""
    paths = re.split(r" (?=[/~])", line)
    return [_at_home(p) for p in paths if p and p.lower() != "none"]


def _expand(text: str, to: Destination, hop: Hop) -> str:
    """ProxyCommand and ProxyJump: %h %n %p %r %%."""
    tokens = {"h": hop.host, "n": to.name, "p": str(hop.port), "r": hop.user, "%": "%"}
    return re.sub(r"%([hnpr%])", lambda found: tokens[found[1]], text)
