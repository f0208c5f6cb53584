"""The network between a client and a server that is not on loopback: certificates, TLS, a proxy.

In:  a scratch folder, the port of a server on loopback. Out: an `Authority` that signs certificates,
a `TlsFront` that speaks HTTPS before the server, and a `WebProxy` that leads every name to it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

NAME = "llm.example"  # nobody resolves it: only the proxy knows the way


class Authority:
    """A certificate authority of its own, and one certificate that it signed."""

    def __init__(self, folder: Path, *names: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.certificate, self.key = (
            folder / n for n in ("ca.pem", "crt.pem", "key.pem")
        )
        ca_key, request, extra = (folder / n for n in ("ca.key", "req.pem", "ext.cnf"))
        told = ",".join(f"DNS:{name}" for name in names or (NAME, "localhost"))
        extra.write_text(f"subjectAltName={told}\nauthorityKeyIdentifier=keyid\n")
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        signs = ["-addext", "keyUsage=critical,keyCertSign", "-subj", "/CN=test authority"]
        _openssl("req", "-x509", *new, *signs, "-keyout", ca_key, "-out", self.file)
        _openssl("req", *new, "-keyout", self.key, "-out", request, "-subj", f"/CN={NAME}")
        by = ["-CA", self.file, "-CAkey", ca_key, "-CAcreateserial", "-extfile", extra]
        _openssl("x509", "-req", "-in", request, *by, "-out", self.certificate)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class _Listener:
    """Threads that serve each connection; all of them end with the block."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(near)
            threading.Thread(target=self._safely, args=(near,), daemon=True).start()

    def _safely(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near:
            self.serve(near)

    def serve(self, near: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for near in self._open:
            near.close()


class TlsFront(_Listener):
    """HTTPS on loopback before a server that speaks plain HTTP."""

    def __init__(self, behind: int, authority: Authority) -> None:
        self._behind = behind
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority.certificate, authority.key)
        super().__init__()

    def serve(self, near: socket.socket) -> None:
        with (
            self._context.wrap_socket(near, server_side=True) as plain,
            socket.create_connection(("127.0.0.1", self._behind), 10) as far,
        ):
            _join(plain, far)


class WebProxy(_Listener):
    """Leads CONNECT and absolute addresses to one port, whatever host they name; keeps what it was asked."""

    def __init__(self, behind: int) -> None:
        self.behind: int | None = behind  # None: refuses
        self.asked: list[bytes] = []  # request lines and headers
        super().__init__()

    def serve(self, near: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = near.recv(65536)
            if not piece:
                return
            head += piece
        self.asked.append(head.partition(b"\r\n\r\n")[0])
        if self.behind is None:
            near.sendall(b"HTTP/1.1 403 Not this way\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.behind), 10) as far:
            if head.startswith(b"CONNECT "):
                near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far.sendall(_without_host(head))
            _join(near, far)

    @property
    def lines(self) -> list[str]:
        return [head.partition(b"\r\n")[0].decode() for head in self.asked]


def _without_host(head: bytes) -> bytes:
    """POST http://host:1/path HTTP/1.1 -> POST /path HTTP/1.1"""
    method, _, rest = head.partition(b" ")
    _host, _, path = rest.partition(b"//")[2].partition(b"/")
    return method + b" /" + path


def _join(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until both directions have ended."""
    back = threading.Thread(target=_pass_on, args=(other, one), daemon=True)
    back.start()
    _pass_on(one, other)
    back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


L = TypeVar("L", bound=_Listener)


@contextlib.contextmanager
def opened(make: Callable[[], L]) -> Iterator[L]:
    made = make()
    try:
        yield made
    finally:
        made.close()
