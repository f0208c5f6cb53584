"""The emitter where no C compiler is: the same words, the same protocol, the same stamp file.

    python emitter.py STAMPS RATE EVENTS sync|async GATE DELAY_S

In:  requests on 127.0.0.1 (the port is printed); the arguments mean what emitter.c says.
Out: the end of stdin ends it and writes STAMPS: `request_ns blocked_ns stamp_ns ...`, a line a stream.

Some five times slower than the one in C: good for some 20,000 events/s, and the stamps are as true.
"""

from __future__ import annotations

import heapq
import os
import re
import resource
import select
import socket
import struct
import sys
import time
from array import array
from typing import NamedTuple

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
CHOICE = '{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s,"stop_reason":null,"token_ids":null}'
ROLE = CHOICE % ('"role":"assistant","content":""', "null")
REPLIES = {
    b"GET /v1/models ": '{"object":"list","data":[{"id":"emitter","object":"model","created":1764460800,'
    '"owned_by":"benchmark","max_model_len":131072}]}',
    b"GET /health ": "{}",
    b"POST /v1/chat/completions ": '{"id":"chatcmpl-0","object":"chat.completion","created":1764460800,'
    '"model":"emitter","choices":[{"index":0,"message":{"role":"assistant","content":"w"},'
    '"finish_reason":"length"}],"usage":{"prompt_tokens":16,"total_tokens":17,"completion_tokens":1}}',
}
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
CLOSE = re.compile(rb"\r\nConnection: close", re.IGNORECASE)
STREAM = re.compile(rb'"stream": ?true')
TIMESPEC = struct.Struct("@ll")
STAMP_SPACE = socket.CMSG_SPACE(TIMESPEC.size)
SO_TIMESTAMPNS = 35  # the socket module does not name it
GOLDEN = 0.6180339887498949
SPIN_NS = 30_000
PATIENCE_S = 20.0


class Plan(NamedTuple):
    period_ns: int
    events: int
    in_step: bool
    gate: int
    delay_ns: int


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.held = b""
        self.closes = False
        self.number = -1  # of the stream that is being spoken
        self.arrived_ns = 0  # what was read last
        self.events: list[bytes] = []  # made before they are due, the last first


class Stream:
    def __init__(self, request_ns: int) -> None:
        self.request_ns = request_ns
        self.blocked_ns = 0
        self.stamps = array("q")


def arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """When the bytes just read arrived, by the kernel's stamp, on the monotonic clock."""
    now_ns = time.monotonic_ns()
    if not ancillary:
        return now_ns
    seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
    age_ns = time.time_ns() - seconds * 10**9 - nanoseconds
    return now_ns - age_ns if 0 < age_ns < 60 * 10**9 else now_ns


def chunk(text: str) -> bytes:
    return b"%x\r\n%s\r\n" % (len(text), text.encode())


class Emitter:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.streams: list[Stream] = []
        self.connections: dict[int, Connection] = {}
        self.turns: list[tuple[int, int]] = []  # (due, file descriptor)
        self.gated: list[int] = []
        self.grid_ns = time.monotonic_ns()
        self.epoll = select.epoll()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.listener.setsockopt(
            socket.SOL_SOCKET, SO_TIMESTAMPNS, 1
        )  # what it accepts inherits it
        print(self.listener.getsockname()[1], flush=True)
        for fd in (self.listener.fileno(), sys.stdin.fileno()):
            self.epoll.register(fd, select.EPOLLIN)

    def run(self) -> None:
        while True:
            for fd, _mask in self.wait():
                if fd == self.listener.fileno():
                    self.take_connections()
                elif fd == sys.stdin.fileno():
                    if not os.read(fd, 1):
                        return
                elif fd in self.connections:
                    self.readable(fd)
            for _ in range(len(self.turns)):
                if not self.turns or self.turns[0][0] > time.monotonic_ns():
                    break
                self.speak(*heapq.heappop(self.turns))

    def wait(self) -> list[tuple[int, int]]:
        left_ns = self.turns[0][0] - time.monotonic_ns() if self.turns else 100_000_000
        rest_s = max(0, left_ns - SPIN_NS) / 1e9
        return self.epoll.poll(rest_s if rest_s > 0.001 else 0)

    def take_connections(self) -> None:
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:  # nobody else waits
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections[sock.fileno()] = Connection(sock)
            self.epoll.register(sock.fileno(), select.EPOLLIN)

    def readable(self, fd: int) -> None:
        connection = self.connections[fd]
        try:
            data, ancillary = connection.sock.recvmsg(1 << 16, STAMP_SPACE)[:2]
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            connection.arrived_ns = arrival_ns(ancillary)
            connection.held += data
            if connection.number < 0:
                self.request_at_end(fd)
        elif connection.number < 0:
            self.drop(fd)
        else:
            self.epoll.unregister(fd)  # the next send finds out whether anybody reads

    def drop(self, fd: int) -> None:
        self.connections.pop(fd).sock.close()

    def send(self, fd: int, data: bytes) -> bool:
        """All of it; False when nobody reads there any more."""
        connection, rest = self.connections[fd], memoryview(data)
        while rest:
            try:
                rest = rest[connection.sock.send(rest) :]
            except BlockingIOError:
                begin = time.monotonic_ns()
                ready = select.select([], [fd], [], PATIENCE_S)[1]
                if connection.number >= 0:
                    self.streams[connection.number].blocked_ns += time.monotonic_ns() - begin
                if not ready:
                    return False
            except OSError:
                return False
        return True

    def request_at_end(self, fd: int) -> None:
        """Serve the request that is whole, if there is one."""
        connection = self.connections[fd]
        head, blank, rest = connection.held.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not blank or len(rest) < size:
            return
        body, connection.held = rest[:size], rest[size:]
        connection.closes = CLOSE.search(head) is not None
        if head.startswith(b"POST /v1/chat/completions ") and STREAM.search(body):
            self.begin_stream(fd)
            return
        known = next((text for begin, text in REPLIES.items() if head.startswith(begin)), None)
        status = "404 Not Found" if known is None else "200 OK"
        text = known or "{}"
        reply = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        if not self.send(fd, reply.encode()) or connection.closes:
            self.drop(fd)

    def begin_stream(self, fd: int) -> None:
        connection = self.connections[fd]
        connection.number = len(self.streams)
        self.streams.append(Stream(connection.arrived_ns))
        connection.events = self.events_of(connection.number)[::-1]
        plan = self.plan
        if not self.send(fd, HEAD):
            self.drop(fd)
        elif not plan.gate or len(self.gated) >= plan.gate:
            self.turn(fd, time.monotonic_ns() + plan.delay_ns)
        else:
            self.gated.append(fd)
            if len(self.gated) == plan.gate:
                self.grid_ns = time.monotonic_ns() + plan.delay_ns
                for one in self.gated:
                    self.turn(one, self.grid_ns)

    def turn(self, fd: int, from_ns: int) -> None:
        period_ns = self.plan.period_ns
        golden = 0.0 if self.plan.in_step else self.connections[fd].number * GOLDEN % 1
        steps = -((self.grid_ns - from_ns) // period_ns)
        due_ns = self.grid_ns + steps * period_ns + int(golden * period_ns)
        heapq.heappush(self.turns, (due_ns, fd))

    def event(self, number: int, choices: str, rest: str = "") -> bytes:
        return chunk(
            f'data: {{"id":"chatcmpl-{number:032d}","object":"chat.completion.chunk",'
            f'"created":1764460800,"model":"emitter","system_fingerprint":"vllm-0.32.0-emitter",'
            f'"choices":[{choices}]{rest}}}\n\n'
        )

    def events_of(self, number: int) -> list[bytes]:
        count = self.plan.events
        made = []
        for n in range(count):
            reason = '"length"' if n + 1 == count else "null"
            made.append(self.event(number, CHOICE % (f'"content":" w{n:05d}"', reason)))
        return made

    def speak(self, due_ns: int, fd: int) -> None:
        connection = self.connections[fd]
        number = connection.number
        stream, going = self.streams[number], True
        if not stream.stamps:
            going = self.send(fd, self.event(number, ROLE))
        if going:
            data = connection.events.pop()
            stream.stamps.append(time.monotonic_ns())
            going = self.send(fd, data)
        if going and connection.events:
            heapq.heappush(self.turns, (due_ns + self.plan.period_ns, fd))
            return
        going = going and self.speak_end(fd, number)
        connection.number = -1
        if not going or connection.closes:
            self.drop(fd)
        else:
            self.request_at_end(fd)

    def speak_end(self, fd: int, number: int) -> bool:
        count = self.plan.events
        usage = f'"prompt_tokens":16,"total_tokens":{16 + count},"completion_tokens":{count}'
        last = self.event(number, "", f',"usage":{{{usage},"stream":{number}}}')
        return all(self.send(fd, part) for part in (last, chunk("data: [DONE]\n\n"), b"0\r\n\r\n"))


def main(words: list[str]) -> int:
    path, rate, events, mode, gate, delay_s = words
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    period_ns = round(1e9 / float(rate))
    plan = Plan(period_ns, int(events), mode == "sync", int(gate), round(float(delay_s) * 1e9))
    emitter = Emitter(plan)
    emitter.run()
    with open(path, "w", encoding="ascii") as out:
        for stream in emitter.streams:
            times = " ".join(map(str, stream.stamps))
            out.write(f"{stream.request_ns} {stream.blocked_ns} {times}".rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
