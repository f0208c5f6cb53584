"""The simulated vLLM server: `python scripts/sim/server.py --model NAME --port N [vLLM's flags]`.

Starts or fails as vLLM 0.6.3 does (log, exit code), then serves the OpenAI API at the engine's pace
in real time. SIGTERM ends it with 0; during the start it has its default effect, as there is
nothing to clean up.
"""

from __future__ import annotations

import asyncio
import http
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any, Optional

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from sim import flags, ixsmi, startup
from sim.chat import ApiError, Chat, dump
from sim.engine import Engine, Sequence
from sim.metrics import Metrics
from sim.params import PARAMS, VERSION
from sim.startup import log, uvicorn

ROUTES = {
    "/health": "GET",
    "/version": "GET",
    "/metrics": "GET",
    "/v1/models": "GET",
    "/v1/chat/completions": "POST",
}
STATE_S = 0.1  # how often the load is written for ixsmi, at most
MAX_LAG_S = 0.25  # what is lost beyond it is not caught up


class Server:
    """Drives the engine in real time, hands out its tokens and tells its load."""

    def __init__(self, c: Any) -> None:
        self.c, self.metrics = c, Metrics(c.names[0])
        seed = os.environ.get("SIM_SEED") or f"{os.getpid()} {time.time_ns()}"
        self.engine = Engine(c, c.blocks, seed)
        self.work = asyncio.Event()
        self.busy = 0.0
        self.connections: set = set()

    async def drive(self) -> None:
        """A step ends at an absolute time counted from the last one's: lateness does not add up."""
        loop = asyncio.get_running_loop()
        clock = 0.0
        while True:
            step = self.engine.begin(loop.time())
            self.busy = step.busy if step else 0.0
            if step is None:
                self.work.clear()
                await self.work.wait()
                clock = loop.time()
                continue
            clock = max(clock, loop.time() - MAX_LAG_S) + step.seconds
            await asyncio.sleep(max(0.0, clock - loop.time()))
            now = loop.time()
            for seq, n in self.engine.finish(step):
                last = seq.generated >= seq.output_tokens
                self.metrics.tokens(seq, n, now)
                if last:
                    self.metrics.done(seq, seq.owner.chat.reason)
                seq.owner.tokens(n, last)

    async def tell(self) -> None:
        """The load for ixsmi, when it changed or each second; V0's throughput line each 5 s."""
        used = PARAMS["gpu_mib"] * self.c.gpu_memory_utilization - PARAMS["gpu_rest_mib"]
        shown, t_shown, t, prompt, generation = -1.0, 0.0, time.monotonic(), 0, 0
        while True:
            now = time.monotonic()
            if self.busy != shown or now - t_shown > 1:
                shown, t_shown = self.busy, now
                cards = self.c.tensor_parallel_size
                ixsmi.write_state(self.c.sim_state, self.busy, round(used), cards)
            if now - t > 5:
                m = self.metrics
                rates = (
                    (m.prompt_tokens - prompt) / (now - t),
                    (m.generation_tokens - generation) / (now - t),
                )
                t, prompt, generation = now, m.prompt_tokens, m.generation_tokens
                self._log_load(*rates)
            await asyncio.sleep(STATE_S)

    def _log_load(self, prompt: float, generation: float) -> None:
        e = self.engine
        text = f"Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: "
        text += f"{generation:.1f} tokens/s, Running: {len(e.running)} reqs, Swapped: 0 reqs, "
        text += f"Pending: {len(e.waiting)} reqs, GPU KV cache usage: {e.usage():.1%}, "
        log("metrics.py:351", text + "CPU KV cache usage: 0.0%.")
        if e.queried:
            log(
                "metrics.py:367", f"Prefix cache hit rate: GPU: {e.hit / e.queried:.2%}, CPU: 0.00%"
            )


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection with keep-alive; a client that goes away aborts its request."""

    def __init__(self, server: Server) -> None:
        self.server, self.buffer, self.close = server, b"", False
        self.seq: Optional[Sequence] = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server.connections.add(self)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.server.connections.discard(self)
        if self.seq is not None:
            self.server.engine.abort(self.seq)
            self.server.metrics.finished["abort"] += 1
            log("engine.py:300", f"Aborted request {self.chat.id}.")

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while self.seq is None and b"\r\n\r\n" in self.buffer:
            head, _, rest = self.buffer.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            pairs = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            size = headers.get("content-length", "0")
            self.request = first
            if not size.isdigit() or "transfer-encoding" in headers or first.count(" ") != 2:
                self.close = True
                return self.send(400, b"Invalid HTTP request received.", "text/plain")
            if len(rest) < int(size):
                if "expect" in headers and not rest:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return None
            self.buffer = rest[int(size) :]
            self.close = headers.get("connection", "").lower() == "close"
            method, target, _ = first.split(" ")
            self.handle(method, target.partition("?")[0], headers, rest[: int(size)])
        return None

    def handle(self, method: str, path: str, headers: dict, body: bytes) -> None:
        c, key = self.server.c, self.server.c.api_key or os.environ.get("VLLM_API_KEY")
        if method != ROUTES.get(path):
            known = path in ROUTES
            words = "Method Not Allowed" if known else "Not Found"
            self.send(405 if known else 404, dump({"detail": words}))
        elif key and path.startswith("/v1") and headers.get("authorization") != f"Bearer {key}":
            self.send(401, dump({"error": "Unauthorized"}))
        elif path == "/version":
            self.send(200, dump({"version": VERSION}))
        elif path == "/metrics":
            page = self.server.metrics.render(self.server.engine)
            self.send(200, page.encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/v1/models":
            card = {"object": "model", "created": int(time.time()), "root": c.model}
            card.update(owned_by="decodelab-simulator", parent=None, max_model_len=c.max_model_len)
            data = [{"id": name, **card} for name in c.names]
            self.send(200, dump({"object": "list", "data": data}))
        else:
            self.start_chat(body) if method == "POST" else self.send(200, b"")

    def start_chat(self, body: bytes) -> None:
        try:
            chat = self.chat = Chat(body, self.server.c)
        except ApiError as e:
            return self.send(e.status, dump(e.body))
        self.seq = Sequence(chat.prompt, chat.prompt_tokens, chat.output_tokens, owner=self)
        self.server.engine.add(self.seq, asyncio.get_running_loop().time())
        self.server.work.set()
        log("engine.py:290", f"Added request {chat.id}.")
        if chat.stream:
            self.head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked")
        return None

    def tokens(self, n: int, last: bool) -> None:
        """The engine made n tokens for this connection's request."""
        assert self.seq is not None
        self.chat.cached = self.seq.cached
        if last:
            self.seq = None
        if self.chat.stream:
            for event in self.chat.events(n, last):
                self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
        if last and self.chat.stream:
            self.transport.write(b"0\r\n\r\n")
            self.end()
        elif last:
            self.send(200, self.chat.whole())

    def head(self, status: int, kind: str, extra: str) -> None:
        phrase = http.HTTPStatus(status).phrase
        peer = self.transport.get_extra_info("peername") or ("-", 0)
        uvicorn(f'{peer[0]}:{peer[1]} - "{self.request}" {status} {phrase}')
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        lines = [f"HTTP/1.1 {status} {phrase}", f"date: {date}", "server: uvicorn"]
        lines += [f"content-type: {kind}", extra] + ["connection: close"] * self.close
        self.transport.write("\r\n".join([*lines, "", ""]).encode())

    def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.head(status, kind, f"content-length: {len(body)}")
        self.transport.write(body)
        self.end()

    def end(self) -> None:
        if self.close:
            self.transport.close()
        elif self.buffer:  # the next request came early
            asyncio.get_running_loop().call_soon(self.data_received, b"")


async def serve(c: Any) -> int:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((c.host, c.port))  # bound at once, listened on when ready, as vLLM does
        for line in startup.lines(c, dict(os.environ)):
            log(*line)
            await asyncio.sleep(PARAMS["start_line_s"])
    except OSError as e:
        error = f"OSError: [Errno {e.errno}] {os.strerror(e.errno or 0)}"
        raise flags.Refused(error, "entrypoints/openai/api_server.py") from e
    log("launcher.py:19", "Available routes are:")
    for path, method in ROUTES.items():
        log("launcher.py:27", f"Route: {path}, Methods: {method}")
    server, stop = Server(c), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    uvicorn(f"Started server process [{os.getpid()}]")
    uvicorn("Waiting for application startup.")
    uvicorn("Application startup complete.")
    await asyncio.get_running_loop().create_server(lambda: Connection(server), sock=sock)
    uvicorn(f"Uvicorn running on http://{c.host}:{c.port} (Press CTRL+C to quit)")
    tasks = [asyncio.ensure_future(t) for t in (server.drive(), server.tell(), stop.wait())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    uvicorn("Shutting down")
    for connection in list(server.connections):
        connection.transport.abort()
    ixsmi.clear_state(c.sim_state)
    for task in done:
        task.result()  # a dead driver ends the server with its traceback
    uvicorn(f"Finished server process [{os.getpid()}]")
    return 0


def main() -> int:
    # select() waits to the microsecond; epoll, asyncio's default, only to the millisecond.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(serve(flags.parse(sys.argv[1:])))
    except flags.Refused as e:
        sys.stderr.write(startup.traceback_of(e))
        return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # no wait for the loop's leftovers
