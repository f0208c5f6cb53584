"""The simulated vLLM server: `python scripts/sim/server.py --model NAME --port N [vLLM's flags]`.

Starts or fails as vLLM 0.6.3 does (log, exit code), then serves the OpenAI API at the engine's pace
in real time. SIGTERM ends it with 0; during the start it has its default effect.
"""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import signal
import socket
import sys
import time
from typing import Any, Callable

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from sim import ixsmi, startup
from sim.chat import Chat, dump
from sim.engine import PARAMS, Engine

START_LINE_S = 0.018  # the start pauses after each of its log lines, about ten
STATE_S, LOG_EVERY = (
    0.1,
    50,
)  # how often the load is written for ixsmi, and one in so many is logged
MAX_LAG_S = 0.25  # what is lost beyond it is not caught up
GPU_REST_MIB = 653  # so much less than its share a card holds: BI-V100's 30477 MiB at 0.95


def log(text: str) -> None:
    print(f"INFO {time.strftime('%m-%d %H:%M:%S')} {text}", flush=True)


def uvicorn(text: str) -> None:
    print(f"INFO:     {text}", flush=True)


def reply(status: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Server:
    """Drives the engine in real time, answers requests and tells the load."""

    def __init__(self, c: Any) -> None:
        self.c, self.busy, self.work = c, 0.0, asyncio.Event()
        self.engine = Engine(c, os.environ.get("SIM_SEED") or f"{os.getpid()} {time.time_ns()}")
        card = {"id": c.model, "object": "model", "max_model_len": c.max_model_len}
        card["owned_by"] = "decodelab-simulator"
        models = {"object": "list", "data": [card]}
        self.pages: dict[str, Callable[[], bytes]] = {
            "/health": lambda: b"",
            "/version": lambda: dump({"version": startup.VERSION}),
            "/v1/models": lambda: dump(models),
            "/metrics": lambda: self.engine.metrics(c.model).encode(),
        }

    async def drive(self) -> None:
        """A step ends at an absolute time counted from the last one's: lateness does not add up."""
        engine, clock = self.engine, 0.0
        while True:
            for chat in [s for s in (*engine.running, *engine.waiting) if s.gone()]:
                engine.abort(chat)
                chat.tokens.put_nowait(0)
            step = engine.begin(time.monotonic())
            self.busy = step.busy if step else 0.0
            if step is None:
                self.work.clear()
                await self.work.wait()
                clock = time.monotonic()
                continue
            clock = max(clock, time.monotonic() - MAX_LAG_S) + step.seconds
            await asyncio.sleep(max(0.0, clock - time.monotonic()))
            for chat, n in engine.finish(step, time.monotonic()):
                chat.tokens.put_nowait(n)

    async def tell(self) -> None:
        """The load for ixsmi, and V0's throughput line."""
        e, used = self.engine, PARAMS["gpu_mib"] * self.c.gpu_memory_utilization - GPU_REST_MIB
        while True:
            t, prompt, output = time.monotonic(), e.prompt_tokens, e.generation_tokens
            for _ in range(LOG_EVERY):
                ixsmi.write_state(None, self.busy, round(used), self.c.tensor_parallel_size)
                await asyncio.sleep(STATE_S)
            t = time.monotonic() - t
            text = f"Avg prompt throughput: {(e.prompt_tokens - prompt) / t:.1f} tokens/s, Avg "
            text += f"generation throughput: {(e.generation_tokens - output) / t:.1f} tokens/s, "
            text += f"Running: {len(e.running)} reqs, Pending: {len(e.waiting)} reqs"
            log(f"metrics.py:351] {text}")

    async def connection(self, reader: Any, writer: Any) -> None:
        """HTTP/1.1, and no more of it than clients of this API use."""
        head = "connection: keep-alive"
        try:
            while "connection: close" not in head:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size = re.search(r"\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(size[1])) if size else b""
                method, path = head.split()[:2]
                uvicorn(f'"{method} {path}"')
                if (method, path) == ("post", "/v1/chat/completions"):
                    await self.chat(body, reader, writer)
                elif method == "get" and path in self.pages:
                    writer.write(reply("200 OK", self.pages[path]()))
                else:
                    writer.write(reply("404 Not Found", dump({"detail": "Not Found"})))
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # the client left, or does not speak HTTP
        finally:
            writer.close()

    async def chat(self, body: bytes, reader: Any, writer: Any) -> None:
        try:
            chat: Any = Chat(body, self.c)
        except Exception as e:
            error = {"object": "error", "message": str(e), "code": 400}
            return writer.write(reply("400 Bad Request", dump(error)))
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
    uvicorn("Shutting down")
    ixsmi.clear_state(None)
    uvicorn(f"Finished server process [{os.getpid()}]")
    os._exit(0)  # no wait for what the loop still holds


async def serve(c: Any, sock: socket.socket) -> None:
    server, loop = Server(c), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, stop)
    await asyncio.start_server(server.connection, sock=sock)
    uvicorn(f"Started server process [{os.getpid()}]")
    uvicorn("Application startup complete.")
    uvicorn(f"Uvicorn running on http://{c.host}:{c.port} (Press CTRL+C to quit)")
    await asyncio.gather(server.drive(), server.tell())


if __name__ == "__main__":
    config = startup.parse(sys.argv[1:])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((config.host, config.port))  # at once; it listens when ready, as vLLM does
    for line in startup.start(config, os.environ):
        log(line)
        time.sleep(START_LINE_S)
    # select() waits to the microsecond; epoll, asyncio's default, only to the millisecond.
    selector = selectors.SelectSelector()
    asyncio.SelectorEventLoop(selector).run_until_complete(serve(config, listener))
