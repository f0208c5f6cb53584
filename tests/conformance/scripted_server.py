"""A server that speaks a byte script with known times.

In:  scripts: lists of steps, played for the connections in the order in which they come, each after
     its request has been read whole.
Out: for each connection the request as it came, and the true time of each send that completes
     output (CLOCK_MONOTONIC just before and just after the send).

A thread for each connection, blocking sockets, no event loop: nothing between a step and the wire.
Requests are read by the one thread that accepts: threads would take their scripts in any order.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

PATIENCE_S = 10.0


@dataclass(frozen=True)
class Send:
    """Bytes put on the wire at once. `ends`: output-bearing events that they complete."""

    data: bytes
    ends: int = 0
    end: bool = False  # they complete the stream


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Reset:
    """Abort the connection (RST)."""


@dataclass(frozen=True)
class StopListening:
    """The process is dying: nothing accepts any more."""


@dataclass(frozen=True)
class Hold:
    """Keep the connection open, silently, until the client closes it."""


Step = Send | Wait | Reset | StopListening | Hold


@dataclass
class Truth:
    """What really happened on one connection."""

    request: bytes = b""
    output: list[tuple[float, float]] = field(default_factory=list)
    end: tuple[float, float] | None = None


class ScriptedServer:
    def __init__(self, scripts: Sequence[Sequence[Step]]) -> None:
        """Connection k that has a request plays scripts[k]; those past the end play the last one."""
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.01)
        self.port: int = self._listener.getsockname()[1]
        self.truths: list[Truth] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        self._stop.set()
        self._acceptor.join(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            connection.settimeout(PATIENCE_S)
            request = _read_request(connection)
            if request:
                self._begin(connection, Truth(request))
            else:
                connection.close()  # somebody only looked whether we listen

    def _begin(self, connection: socket.socket, truth: Truth) -> None:
        script = self._scripts[min(len(self.truths), len(self._scripts) - 1)]
        self.truths.append(truth)
        words = (connection, truth, script)
        thread = threading.Thread(target=self._serve, args=words, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, connection: socket.socket, truth: Truth, script: Sequence[Step]) -> None:
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for step in script:
                self._play(step, connection, truth)

    def _play(self, step: Step, connection: socket.socket, truth: Truth) -> None:
        if isinstance(step, Send):
            before = time.monotonic()
            connection.sendall(step.data)
            span = (before, time.monotonic())
            truth.output.extend([span] * step.ends)
            if step.end:
                truth.end = span
        elif isinstance(step, Wait):
            time.sleep(step.seconds)
        elif isinstance(step, Reset):
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
        elif isinstance(step, StopListening):
            self._stop.set()
            self._acceptor.join(PATIENCE_S)
            self._listener.close()
        else:
            while connection.recv(4096):
                pass


def _read_request(connection: socket.socket) -> bytes:
    """All of it, or nothing."""
    with contextlib.suppress(OSError):
        return _received(connection)
    return b""


def _received(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def serving(*scripts: Sequence[Step]) -> Iterator[ScriptedServer]:
    server = ScriptedServer(scripts)
    try:
        yield server
    finally:
        server.close()
