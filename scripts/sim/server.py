"""The simulated vLLM server: `python scripts/sim/server.py --model NAME --port N [vLLM's flags]`.

Starts or fails as vLLM 0.6.3 does, then serves the OpenAI API at the engine's pace in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import selectors
import signal
import socket
import sys
import time
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from sim import ixsmi, startup
from sim.chat import Chat, dump, tokenized
from sim.core import EngineCore
from sim.engine import PARAMS, Engine

START_LINE_S = 0.018  # the start pauses after each of its log lines, about ten
STATE_S = 0.1  # how often the load is written for ixsmi; it is logged once in 50 times
GPU_REST_MIB = 653  # so much less than its share a card holds: BI-V100's 30477 MiB at 0.95


def log(text: str) -> None:
    print(f"INFO {time.strftime('%m-%d %H:%M:%S')} {text}")


def reply(status: str, body: bytes) -> bytes:
    kind = "application/json" if body[:1] == b"{" else "text/plain"
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def refusal(e: Exception) -> bytes:
    return reply("400 Bad Request", dump({"object": "error", "message": str(e), "code": 400}))


class Server:
    """Drives the engine in real time, answers requests and tells the load."""

    def __init__(self, c: Any) -> None:
        self.c, self.work = c, asyncio.Event()
        self.engine = Engine(c, os.environ.get("SIM_SEED") or f"{os.getpid()} {time.time_ns()}")
        self.core = EngineCore(c, self.engine)

    async def drive(self) -> None:
        while True:
            if not await self.core.step():
                self.work.clear()
                await self.work.wait()
                self.core.scheduler.rest()

    async def tell(self) -> None:
        """The load for ixsmi, and V0's throughput line."""
        e, used = self.engine, PARAMS["gpu_mib"] * self.c.gpu_memory_utilization - GPU_REST_MIB
        while True:
            t, made = time.monotonic(), sum(s.generated for s in e.admitted)
            for _ in range(50):
                ixsmi.write_state(
                    None, self.core.scheduler.busy, round(used), self.c.tensor_parallel_size
                )
                await asyncio.sleep(STATE_S)
            rate = (sum(s.generated for s in e.admitted) - made) / (time.monotonic() - t)
            text = f"Avg generation throughput: {rate:.1f} tokens/s, Running: {len(e.running)} reqs"
            log(f"metrics.py:351] {text}, Pending: {len(e.waiting)} reqs")

    async def connection(self, reader: Any, writer: Any) -> None:
        """HTTP/1.1 with keep-alive, and no more of it than clients of this API use."""
        head = ""
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):  # it left
            while "connection: close" not in head:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size = re.search(r"\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(size[1])) if size else b""
                request = " ".join(head.split()[:2])
                print(f'INFO:     "{request}"')
                if request == "post /v1/chat/completions":
                    await self.chat(body, reader, writer)
                else:
                    writer.write(self.page(request, body))

    def page(self, request: str, body: bytes) -> bytes:
        if request == "post /tokenize":
            try:
                return reply("200 OK", dump(tokenized(body, self.c)))
            except Exception as e:
                return refusal(e)
        model = {"id": self.c.model, "max_model_len": self.c.max_model_len}
        pages = {
            "get /health": b"",
            "get /version": dump({"version": startup.VERSION}),
            "get /v1/models": dump({"data": [{**model, "owned_by": "decodelab-simulator"}]}),
            "get /metrics": self.engine.metrics(self.c.model).encode(),
        }
        found = request in pages
        return reply("200 OK" if found else "404 Not Found", pages.get(request, b""))

    async def chat(self, body: bytes, reader: Any, writer: Any) -> None:
        try:
            chat: Any = Chat(body, self.c)
        except Exception as e:
            return writer.write(refusal(e))
        chat.tokens = asyncio.Queue()  # numbers of new ones; 0: aborted
        chat.gone = lambda: reader.at_eof() or writer.is_closing()
        self.engine.add(chat, time.monotonic())
        self.work.set()
        if chat.stream:
            kind = "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked"
            writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n".encode())
        while chat.sent < chat.output_tokens:
            n = await chat.tokens.get()
            if not n:
                return log(f"engine.py:300] Aborted request {chat.head['id']}.")
            for event in chat.events(n):
                if chat.stream:
                    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n" if chat.stream else reply("200 OK", chat.whole()))


def stop() -> None:
    ixsmi.clear_state(None)
    print(f"INFO:     Shutting down\nINFO:     Finished server process [{os.getpid()}]")
    os._exit(0)  # no wait for what the loop still holds


async def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    c, sock = startup.parse(sys.argv[1:]), socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((c.host, c.port))  # at once; it listens when ready, as vLLM does
    for line in startup.start(c, os.environ):
        log(line)
        time.sleep(START_LINE_S)
    server, loop = Server(c), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, stop)
    await asyncio.start_server(server.connection, sock=sock)
    print(f"INFO:     Started server process [{os.getpid()}]")
    print("INFO:     Application startup complete.")
    print(f"INFO:     Uvicorn running on http://{c.host}:{c.port} (Press CTRL+C to quit)")
    await asyncio.gather(server.drive(), server.tell())


if __name__ == "__main__":
    # select() waits to the microsecond; epoll, asyncio's default, only to the millisecond.
    asyncio.SelectorEventLoop(selectors.SelectSelector()).run_until_complete(main())
