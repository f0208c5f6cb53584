"""Proving who we are: the keys of one hop, in an order that a server's patience allows.

In:  a `Hop` (key files, agent socket, IdentitiesOnly).
Out: an `AuthStrategy` for paramiko's `connect(auth_strategy=…)`, and `notes` that say why a key did not
     come to the trial. No passphrase is ever asked for: an encrypted key works through the agent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import paramiko
from paramiko.auth_strategy import AuthFailure, AuthResult, AuthStrategy, PrivateKey, SourceResult
from paramiko.pkey import PublicBlob

from decodelab import ssh_agent, ssh_keyfile
from decodelab.known_hosts import fingerprint
from decodelab.ssh_alias import Hop

# A server hangs up at its MaxAuthTries-th refusal: 6, unless it says otherwise.
MOST_OTHER_KEYS = 5
TOO_MANY = "Too many authentication failures"


class Trial(PrivateKey):
    """One key that is offered; `label` is what the user knows it by."""

    def __init__(self, username: str, label: str, pkey: paramiko.PKey) -> None:
        super().__init__(username=username)
        self.label = label
        self.pkey = pkey

    def __repr__(self) -> str:
        return self.label


class Identities(AuthStrategy):
    """The keys of one hop. `notes` and `allowed` fill while it is used."""

    def __init__(self, hop: Hop, agent_timeout_s: float = 5.0) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())  # it is Identities that knows
        self.hop = hop
        self.agent_timeout_s = agent_timeout_s
        self.allowed: list[str] = []  # what the server says it accepts: publickey, password …
        self.notes: list[str] = []

    def close(self) -> None:
        """Nothing is held: each question to the agent is a connection of its own."""

    def get_sources(self) -> Iterator[Trial]:
        """Agent keys that are named by a file, key files, other agent keys."""
        self.notes += [f"key file {p} is not there" for p in self.hop.missing_identity_files]
        in_agent = {key.blob: key for key in self._agent_keys()}
        public = {path: ssh_keyfile.public_blob(path) for path in self.hop.identity_files}
        certificates = [f"{p}-cert.pub" for p in public] + list(self.hop.certificate_files)
        signed: set[bytes] = set()
        for path, blob in public.items():
            if blob in in_agent and blob not in signed:
                key = in_agent[blob]
                label = f"key {path} (by the agent)"
                yield from self._with_certificates(label, key, blob, certificates)
                if not self._refused(key, label):
                    signed.add(blob)
        for path, blob in public.items():
            if blob not in signed or blob is None:
                yield from self._file(path, certificates)
        if not self.hop.identities_only:
            named = {blob for blob in public.values() if blob is not None}
            yield from self._others([k for b, k in in_agent.items() if b not in named])

    def authenticate(self, transport: paramiko.Transport) -> AuthResult:
        """Offer one key after the other. Raises AuthFailure, or what ended the connection."""
        result = AuthResult(strategy=self)
        farewell = _listen_for_farewell(transport)
        if self._greet(transport):
            return result
        if "publickey" not in self.allowed:
            self.notes.append(f"it accepts no keys, only {', '.join(self.allowed)}")
            raise AuthFailure(result=result)
        for source in self.get_sources():
            if not self._is_signable(transport, source):
                continue
            try:
                left = source.authenticate(transport)
            except Exception as error:
                result.append(SourceResult(source, error))
                if not transport.is_active():
                    if TOO_MANY in "".join(farewell) or len(result) >= MOST_OTHER_KEYS:
                        self.notes.append(f"it hung up after {len(result)} keys: {TOO_MANY}")
                        break
                    raise
                if str(error) == "Authentication timeout.":
                    raise
                if "rsa" in source.pkey.get_name() and not _signatures_of(transport):
                    self.notes.append(
                        f"{source.label}: it may take RSA with SHA-1 only, which is out of use"
                    )
                continue
            result.append(SourceResult(source, left))
            if not left:
                return result
            self.allowed = list(left)
            if "publickey" not in left:
                self.notes.append(
                    f"it took the {source.label}, and then wants {' or '.join(left)} as well"
                )
                break
        raise AuthFailure(result=result)

    def _greet(self, transport: paramiko.Transport) -> bool:
        """Ask what the server accepts, which costs no try. True if it lets us in as we are."""
        try:
            self.allowed = list(transport.auth_none(self.hop.user))
            return not self.allowed
        except paramiko.BadAuthenticationType as error:
            self.allowed = list(error.allowed_types)
        except paramiko.AuthenticationException:
            if not transport.is_active():
                raise
            self.allowed = ["publickey"]
        return False

    def _agent_keys(self) -> list[ssh_agent.AgentKey]:
        path = self.hop.identity_agent
        if path is None:
            return []
        try:
            return ssh_agent.keys(path, self.agent_timeout_s)
        except ssh_agent.AgentError as error:
            self.notes.append(f"the ssh-agent at {path} is of no use: {error}")
            return []

    def _file(self, path: str, certificates: list[str]) -> Iterator[Trial]:
        try:
            key = ssh_keyfile.load(path)
        except ssh_keyfile.KeyFileError as error:
            self.notes.append(f"key file {path} cannot be used: {error}" + _remedy(path, error))
            return
        yield from self._with_certificates(f"key file {path}", key, key.asbytes(), certificates)

    def _others(self, keys: list[ssh_agent.AgentKey]) -> Iterator[Trial]:
        for key in keys[:MOST_OTHER_KEYS]:
            label = f"agent key {key.comment or fingerprint(key)}"
            yield Trial(self.hop.user, label, key)
            self._refused(key, label)
        if len(keys) > MOST_OTHER_KEYS:
            self.notes.append(
                f"the agent holds {len(keys)} keys that no IdentityFile names;"
                f" only the first {MOST_OTHER_KEYS} were offered"
            )

    def _with_certificates(
        self, label: str, key: paramiko.PKey, blob: bytes, files: list[str]
    ) -> Iterator[Trial]:
        """The key's certificates, then the key alone."""
        for file in dict.fromkeys(files):
            found = ssh_keyfile.certificate(file, blob)
            if found is not None:
                signed = copy.copy(key)
                signed.public_blob = PublicBlob(*found)
                yield Trial(self.hop.user, f"{label} with certificate {file}", signed)
        yield Trial(self.hop.user, label, key)

    def _refused(self, key: ssh_agent.AgentKey, label: str) -> bool:
        """Whether the agent, asked to sign with the key, did not."""
        if key.trouble:
            self.notes.append(f"{label}: the agent was asked to sign, but {key.trouble}")
        return bool(key.trouble)

    def _is_signable(self, transport: paramiko.Transport, source: Trial) -> bool:
        """An RSA key that the server takes with SHA-1 only would end paramiko's transport."""
        accepted = _signatures_of(transport)
        if not accepted or "rsa" not in source.pkey.get_name():
            return True
        if any(algorithm in accepted for algorithm in ssh_agent.RSA_FLAGS):
            return True
        self.notes.append(f"{source.label} was not offered: it takes RSA with SHA-1 only, or not")
        return False


def _signatures_of(transport: paramiko.Transport) -> list[str]:
    """The signature algorithms that the server says it takes; old servers say nothing."""
    listed = getattr(transport, "server_extensions", {}).get("server-sig-algs", b"")
    return [word for word in listed.decode("ascii", "replace").split(",") if word]


def _remedy(path: str, error: ssh_keyfile.KeyFileError) -> str:
    return f"; `ssh-add {path}` gives it to the agent" if error.encrypted else ""


def _listen_for_farewell(transport: paramiko.Transport) -> list[str]:
    """The server's reason for hanging up comes into the list: paramiko only logs it."""
    heard: list[str] = []
    parse = getattr(transport, "_parse_disconnect", None)

    def listen(message: Any) -> None:
        heard.append(message.asbytes().decode("utf-8", "replace"))
        parse(message)  # type: ignore[misc]

    if parse is not None:
        setattr(transport, "_parse_disconnect", listen)  # noqa: B010
    return heard
