"""An open way to a host: one login for each hop, each through the one before, and a watch over it.

In:  the hops (ssh_alias.py). Out: channels to run commands on; HostLost once the way is broken,
HostError when trying again does not help.

The only file that imports Fabric, which opens the connections. It verifies no host key by itself, so
each hop gets a policy that does, before it is opened. Opening has a deadline. Afterwards the watch
declares the way lost when the host says nothing for `silence_s` although it is asked every
`beat_s`; it closes the sockets, which ends every wait that anybody is in.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import paramiko
from fabric import Config, Connection  # type: ignore[import-untyped]

from decodelab.host import HostError, HostLost
from decodelab.known_hosts import HostKeyRefused, HostKeys, fingerprint
from decodelab.own_thread import in_own_thread
from decodelab.ssh_alias import Hop
from decodelab.ssh_auth import Identities
from decodelab.ssh_errors import explain

CHANNEL_S = 15.0  # to open a channel; paramiko's own limit is an hour
OPEN_S = 30.0  # for key exchange and login, after the TCP connection
LOOK_S = 0.25  # how often a wait looks whether the connection still lives
BUSY_S = 600.0  # waiting for a session of ours to end, where the host allows but few

# paramiko logs every broken connection with a traceback on stderr unless somebody takes it.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class Chain:
    """An open connection: hop by hop, each login through the one before."""

    def __init__(self, name: str, hops: tuple[Hop, ...], beat_s: float, silence_s: float) -> None:
        self.name, self.hops = name, hops
        self._why = ""  # why it is lost
        self._held, self._counting = 0, threading.Lock()
        self._door = threading.Lock()  # paramiko mixes up the refusals of two that open at once
        self._open: list[_OpenHop] = []
        for at, hop in enumerate(hops):
            gate = self._open[-1].connection if self._open else None
            step = _OpenHop(hop, gate, silence_s)
            self._open.append(step)
            try:
                in_own_thread(step.open, hop.connect_timeout_s + OPEN_S)
            except Exception as error:
                self.close("not open")
                raise explain(error, hops, at, step.notes()) from error
        self.transport = self._open[-1].transport()
        _Watch(self, self._open[-1].wire, beat_s, silence_s).start()

    @property
    def dead(self) -> bool:
        return bool(self._why) or not self.transport.is_active()

    def close(self, why: str) -> None:
        """From the outside in: with the first socket closed, nobody can hang in writing to it."""
        self._why = self._why or why
        for step in self._open:
            step.close()

    def channel(self) -> paramiko.Channel:
        """A new session on the host, to be given back. Where the host allows few at a time, this
        waits for one of ours to end.
        """
        now = time.monotonic()
        end, last = now + CHANNEL_S, now + BUSY_S
        while True:
            try:
                with self._door:
                    channel = self.transport.open_session(timeout=CHANNEL_S)
                self._count(1)
                return channel
            except paramiko.ChannelException as error:
                if self._held:
                    end = time.monotonic() + CHANNEL_S
                if time.monotonic() > min(end, last):
                    raise self._no_session(error) from error
            except paramiko.SSHException as error:
                if "Timeout" in str(error):
                    self.close(f"no new session in {CHANNEL_S:.0f} s")
                raise
            time.sleep(LOOK_S)

    def gave_back(self) -> None:
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._counting:
            self._held += change

    def _no_session(self, error: paramiko.ChannelException) -> HostError:
        return HostError(
            f"host {self.name}: the host refuses a session on the open connection "
            f"({error.text or error}).\n"
            "Hint: see MaxSessions in the host's sshd_config; one is enough, 0 is not."
        )

    def lost_error(self, error: BaseException | str | None = None) -> HostLost:
        words = self._why or str(error or "") or "the host closed the connection"
        return HostLost(
            f"host {self.name}: the connection was lost: {words}.\n"
            "Hint: see to the network, then call again; what runs on the host goes on."
        )


class _OpenHop:
    """One login of the chain."""

    def __init__(self, hop: Hop, gate: Connection | None, silence_s: float) -> None:
        self.hop, self.gate, self.silence_s = hop, gate, silence_s
        self.wire: _Wire
        self._transport: paramiko.Transport | None = None
        self._proxy: subprocess.Popen[bytes] | None = None
        self._identities = Identities(hop)
        self._keys = HostKeys.load(hop.known_hosts)
        self.connection = self._prepare()

    def _prepare(self) -> Connection:
        options: dict[str, Any] = {
            "auth_strategy": self._identities,
            "banner_timeout": OPEN_S / 2,
            "auth_timeout": OPEN_S / 2,
            "channel_timeout": CHANNEL_S,
            "disabled_algorithms": {"keys": self._keys.unwanted_for(self.hop.key_name)},
            "transport_factory": self._make_transport,
        }
        connection = Connection(
            self.hop.host,
            user=self.hop.user,
            port=self.hop.port,
            # An empty one given: else Fabric reads the user's file once more, in its own way.
            config=Config(ssh_config=paramiko.SSHConfig(), lazy=True),
            gateway=self.gate or False,
            forward_agent=False,
            connect_timeout=max(1, int(self.hop.connect_timeout_s)),
            connect_kwargs=options,
        )
        # Fabric accepts every key by itself; no key is loaded into paramiko, so this one is asked.
        connection.client.set_missing_host_key_policy(_Strict(self.hop, self._keys))
        return connection

    def open(self) -> None:
        if self.hop.proxy_command and self.gate is None:
            self.connection.connect_kwargs["sock"] = self._start_proxy(self.hop.proxy_command)
        self.connection.open()

    def transport(self) -> paramiko.Transport:
        assert self._transport is not None
        return self._transport

    def notes(self) -> list[str]:
        return [*self._identities.notes, *self._keys.notes(self.hop.key_name)]

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport.sock.close()  # close() leaves it open if the login failed
        self._identities.close()
        if self._proxy is not None:
            self._proxy.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._proxy.wait(2)

    def _make_transport(self, sock: Any, **options: Any) -> paramiko.Transport:
        if isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX:
            # Without it every command waits for a delayed acknowledgement, some 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                limit_ms = int(self.silence_s * 1000)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
        self.wire = _Wire(sock)
        self._transport = paramiko.Transport(self.wire, **options)  # type: ignore[arg-type]
        return self._transport

    def _start_proxy(self, command: str) -> socket.socket:
        # A real socket pair: paramiko's own ProxyCommand does not notice that the program ended.
        ours, its = socket.socketpair()
        with its:
            self._proxy = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=its.fileno(),
                stdout=its.fileno(),
                start_new_session=True,  # Ctrl-C is for us
            )
        return ours


class _Strict(paramiko.MissingHostKeyPolicy):
    """Lets a key pass that the user's known_hosts has, and no other unless the user's config says so."""

    def __init__(self, hop: Hop, keys: HostKeys) -> None:
        self.hop, self.keys = hop, keys

    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:
        name = self.hop.key_name
        verdict = self.keys.check(name, key)
        if verdict.state == "known":
            return
        if verdict.state == "unknown" and self.hop.strict in ("no", "accept-new"):
            print(
                f"{self.hop.alias}: unknown host key {fingerprint(key)} of {name} accepted, since "
                f"your ssh configuration says `StrictHostKeyChecking {self.hop.strict}`.",
                file=sys.stderr,
            )
            return
        raise HostKeyRefused(name, key, verdict)


class _Wire:
    """A socket that counts how often something came in: any packet is a sign of life, so that a
    full slow line is not taken for a dead one.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.heard = 0

    def recv(self, size: int) -> bytes:
        data: bytes = self._sock.recv(size)
        if data:
            self.heard += 1
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class _Watch(threading.Thread):
    """Declares a chain lost when nothing is heard for too long, and closes it.

    Two threads: the one that asks may itself hang in writing. Silence is summed up in small steps,
    so that a laptop that slept or a stopped process does not wake up to a verdict.
    """

    def __init__(self, chain: Chain, wire: _Wire, beat_s: float, silence_s: float) -> None:
        super().__init__(daemon=True, name=f"ssh watch of {chain.name}")
        self.chain, self.wire, self.beat_s, self.silence_s = chain, wire, beat_s, silence_s

    def run(self) -> None:
        threading.Thread(target=self._ask, daemon=True, name=self.name).start()
        heard, silent_s, before = self.wire.heard, 0.0, time.monotonic()
        while not self.chain.dead:
            time.sleep(LOOK_S)
            now = time.monotonic()
            silent_s += min(now - before, 2 * LOOK_S)
            before = now
            if self.wire.heard != heard:
                heard, silent_s = self.wire.heard, 0.0
            if silent_s > self.silence_s:
                self.chain.close(f"the host said nothing for {self.silence_s:.0f} s")
        self.chain.close("the host closed the connection")

    def _ask(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while not self.chain.dead:
                self.chain.transport.global_request("keepalive@openssh.com", wait=True)
                time.sleep(self.beat_s)
