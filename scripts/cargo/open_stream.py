"""One exchange of the epoll client while it is open: its socket, and how far it has come.

In:  an exchange, its socket, the request's bytes. Out: what the loop must know of it; of each read,
whether the stream may be at its end though the connection is not.
"""

from __future__ import annotations

import re
import socket
from typing import Optional

from cargo import wire
from cargo.exchange import Exchange

FAR_NS = 1 << 62
_TAIL = 128  # bytes that are looked at again, with those that follow

# Inside JSON text these cannot occur: line ends and quotes are escaped there. A hit is only a hint,
# confirmed by decoding before anything follows from it.
_TERMINAL = re.compile(
    rb'(?:^|[\r\n])data: ?\[DONE\][\r\n]|"error"\s*:\s*[^n\s]|"object"\s*:\s*"error"|event: ?error'
)


# Where none of these is there is no hit: the word "error" in a text is none of them, and is left at once.
_WORDS = (b'"error"', b"data: [DONE]", b"data:[DONE]", b"event: error", b"event:error")


class Stream:
    __slots__ = (
        "connecting", "deadline_ns", "exchange", "filled", "keep", "lingering", "plain", "receive", "response",
        "since_ns", "sock", "tail", "unsent",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, sock: socket.socket, request: bytes) -> None:
        self.exchange = exchange
        self.sock = sock
        self.receive = sock.recvmsg
        self.keep = exchange.kept.append
        self.response = wire.Response()
        self.unsent: Optional[memoryview] = memoryview(request)
        self.connecting = True
        self.deadline_ns = FAR_NS  # when to look at the time limits next
        self.lingering = False
        self.plain = False  # what comes next is a whole chunk, most likely
        self.tail = b""  # of a body that did not end with a line
        self.filled = False  # the last read took all it may: the rest had come as well
        self.since_ns = 0  # nothing of the last read had come at this time

    def look_ahead(self) -> None:
        """Whether what comes next may be kept as it is, if it is a whole chunk."""
        exchange = self.exchange
        self.plain = (
            exchange.status == 200
            and "content-encoding" not in exchange.headers
            and self.response.between_chunks
            and not self.filled
        )

    def may_be_over(self) -> bool:
        """Whether the stream has said that nothing more comes, also where a read cut its last words."""
        body = self.exchange.unsearched()
        if self.tail or body[-1:] not in b"\r\n":
            body = self.tail + body
            self.tail = body[-_TAIL:] if body[-1:] not in b"\r\n" else b""
        if any(word in body for word in _WORDS) and _TERMINAL.search(body):
            return True
        if "content-encoding" not in self.exchange.headers:
            return False
        self.exchange.decoder.catch_up()
        return self.exchange.decoder.finished
