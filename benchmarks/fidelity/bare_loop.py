"""The least a client in Python must do: wait, receive with the kernel's stamp, keep the bytes.

    python bare_loop.py PORT STREAMS EVENTS

In:  the emitter's port; as many streams at once, as many events of each.
Out: `{"reads": n, "cpu_s": s}` on stdout: what this machine and this Python ask of any such client.

It looks at nothing: no framing, no deadlines, no user stamp, no errors. The collector is off, as in the client, and
it wakes up as often, for one that sleeps until bytes come does not learn that it was put aside. On a virtual machine
a wake-up costs some 100 us, which is most of what a read costs at a small load.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import sys
import time

SO_TIMESTAMPNS = 35  # the socket module does not name it
ANCILLARY_BYTES = socket.CMSG_SPACE(16)
READ_BYTES = 1 << 16
TICK_S = 0.010
LAST = b"0\r\n\r\n"
BODY = (
    b'{"model":"emitter","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"w"}]}'
)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: emitter\r\nContent-Length: %d\r\n\r\n"


def request(port: int, events: int) -> socket.socket:
    body = BODY % events
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.sendall(HEAD % len(body) + body)
    sock.setblocking(False)
    return sock


def receive_all(socks: list[socket.socket]) -> int:
    """Reads until every stream has said its last chunk; returns how many reads that took."""
    kept: list[tuple[int, bytes, list[tuple[int, int, bytes]]]] = []
    epoll = select.epoll()
    receivers = {}
    for sock in socks:
        receivers[sock.fileno()] = sock.recvmsg
        epoll.register(sock.fileno(), select.EPOLLIN)
    while receivers:
        for fd, _events in epoll.poll(TICK_S):
            data, ancillary, _flags, _address = receivers[fd](READ_BYTES, ANCILLARY_BYTES)
            kept.append((fd, data, ancillary))
            if data.endswith(LAST) or not data:
                epoll.unregister(fd)
                del receivers[fd]
    return len(kept)


def main(port: int, streams: int, events: int) -> None:
    gc.disable()
    socks = [request(port, events) for _ in range(streams)]
    before_s = time.process_time()
    reads = receive_all(socks)
    print(json.dumps({"reads": reads, "cpu_s": time.process_time() - before_s}))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))
