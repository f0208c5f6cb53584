"""A TCP proxy in front of a sshd: the network's bad moods without a namespace.

In:  the port behind it. Out: a port on loopback whose traffic can be slowed down, frozen (bytes
wait, nothing is refused) or cut (every connection reset).
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time

PIECE_BYTES = 4096


class Proxy:
    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.bytes_per_s: float | None = None
        self.delay_s = 0.0
        self.frozen = False
        self.passed_bytes = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset every connection, as a firewall does that forgot them."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close() alone leaves accept() waiting
        self._listener.close()
        self.frozen = False
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.behind), 5)
            except OSError:
                near.close()
                continue
            self._pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                if self.frozen or not select.select([one], [], [], 0.05)[0]:
                    time.sleep(0.02 if self.frozen else 0)
                    continue
                data = one.recv(PIECE_BYTES)
                if not data:
                    break
                time.sleep(self.delay_s)
                if self.bytes_per_s:
                    time.sleep(len(data) / self.bytes_per_s)
                other.sendall(data)
                self.passed_bytes += len(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        one.close()
