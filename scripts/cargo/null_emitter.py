"""The null emitter: a server that costs next to nothing, to measure the load client itself.

    python null_emitter.py [--life S]

In:  chat completion requests on loopback whose body holds {"null_emitter": {"group", "streams",
     "stream", "events", "rate_hz"}}; stdin, held open by whoever started it.
Out: one line {"port": N} on stdout. When all `streams` requests of a group are there: a stream for
     each, one event a step, all streams in step, as an engine's step has it; a group of one is
     answered at once. When stdin ends: {"stamps": {group: [[ns, ...], ...]}} on stdout, the time on
     CLOCK_MONOTONIC just before each event was sent, by stream; then the process ends.

It cannot outlive its starter: stdin ends with that one, every wait looks at stdin, and an alarm ends
the process after its life in any case.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

LIFE_S = 60.0
_STDIN = 0
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_READ_SIZE = 64 * 1024


class StarterGone(Exception):
    """stdin has ended: say what was sent, and end."""


class Wish(NamedTuple):
    """What one request asks for."""

    group: str
    streams: int
    stream: int  # which of them, from 0
    events: int
    rate_hz: float


def wish_of(request: bytes) -> Optional[Wish]:
    """None while the request is not whole. Raises ValueError or KeyError for any other request."""
    head, blank, body = request.partition(b"\r\n\r\n")
    if not blank:
        return None
    fields = dict(line.lower().partition(b":")[::2] for line in head.split(b"\r\n")[1:])
    if len(body) < int(fields[b"content-length"]):
        return None
    asked = json.loads(body)["null_emitter"]
    return Wish(*(asked[name] for name in Wish._fields))


def _chunk(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    text = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(text), text)


def _event(delta: Dict[str, str], finish_reason: Optional[str]) -> Dict[str, Any]:
    """About as long as an event of a real engine."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-00000000000000000000000000000000",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "null",
        "choices": [dict(choice, token_ids=None)],
    }


def last_bytes(events: int) -> bytes:
    usage = {"prompt_tokens": 1, "completion_tokens": events, "total_tokens": 1 + events}
    counts = dict(_event({}, None), choices=[], usage=usage)
    ended = _chunk(_event({}, "length"))
    return ended + _chunk(counts) + _chunk(b"[DONE]") + b"0\r\n\r\n"


class NullEmitter:
    def __init__(self) -> None:
        self.stamps: Dict[str, List[List[int]]] = {}
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(_STDIN, select.POLLIN | select.POLLHUP)
        self._asking: Dict[int, socket.socket] = {}
        self._heard: Dict[int, bytes] = {}
        self._groups: Dict[str, Dict[int, socket.socket]] = {}

    def serve(self) -> None:
        """Until stdin ends: raises StarterGone."""
        while True:
            for fd, _mask in self._poll.poll():
                if fd == _STDIN:
                    _check_stdin()
                elif fd == self._listener.fileno():
                    self._accept()
                else:
                    self._hear(fd)

    def _accept(self) -> None:
        try:
            sock = self._listener.accept()[0]
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asking[sock.fileno()] = sock
        self._heard[sock.fileno()] = b""
        self._poll.register(sock, select.POLLIN)

    def _hear(self, fd: int) -> None:
        """More of a request; the last one of a group sets the group off."""
        sock = self._asking[fd]
        try:
            data = sock.recv(_READ_SIZE)
            wish = wish_of(self._heard[fd] + data)
        except (OSError, ValueError, KeyError, TypeError):
            data, wish = b"", None
        if data and wish is None:
            self._heard[fd] += data
            return
        self._poll.unregister(fd)
        del self._asking[fd], self._heard[fd]
        if wish is None:  # closed, or nothing that this server answers
            sock.close()
            return
        group = self._groups.setdefault(wish.group, {})
        group[wish.stream] = sock
        if len(group) == wish.streams:
            del self._groups[wish.group]
            self._emit(wish, [group[stream] for stream in sorted(group)])

    def _emit(self, wish: Wish, socks: List[socket.socket]) -> None:
        """Every stream's events, in step; a late step moves those after it, never bunches them."""
        stamps: List[List[int]] = [[] for _ in socks]
        self.stamps[wish.group] = stamps
        later = _chunk(_event({"content": " token"}, None))
        gap_ns = round(1e9 / wish.rate_hz)
        due_ns = time.monotonic_ns()
        for number in range(wish.events):
            data = later if number else _HEAD + later
            _wait_until(due_ns)
            for sock, sent in zip(socks, stamps):
                at_ns = time.monotonic_ns()
                if _send(sock, data):
                    sent.append(at_ns)
            now_ns = time.monotonic_ns()
            due_ns += gap_ns
            if due_ns < now_ns + gap_ns // 2:
                due_ns = now_ns + gap_ns // 2
        _wait_until(due_ns)  # a step of its own, so that the last event is read alone
        for sock in socks:
            _send(sock, last_bytes(wish.events))
            sock.close()


def _send(sock: socket.socket, data: bytes) -> bool:
    """A client that is gone or takes nothing in for long loses the rest of its stream."""
    try:
        if sock.send(data) == len(data):
            return True
    except OSError:
        pass
    sock.close()
    return False


def _check_stdin() -> None:
    if not os.read(_STDIN, 4096):
        raise StarterGone


def _wait_until(due_ns: int) -> None:
    while True:
        left_ns = due_ns - time.monotonic_ns()
        if select.select([_STDIN], [], [], max(0, left_ns) / 1e9)[0]:
            _check_stdin()
        elif left_ns <= 0:
            return


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="A server that only sends: see its docstring.")
    parser.add_argument("--life", type=float, default=LIFE_S, metavar="S", help="at most so long")
    life_s = parser.parse_args(argv).life
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, life_s)
    gc.disable()  # nothing here makes cycles, and a collection would come between stamp and send
    emitter = NullEmitter()
    try:
        print(json.dumps({"port": emitter.port}), flush=True)
        emitter.serve()
    except StarterGone:
        print(json.dumps({"stamps": emitter.stamps}), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # nobody is left who would read it
        os._exit(0)
