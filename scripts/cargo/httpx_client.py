"""The second opinion: the same load through httpx, for TLS, proxies and remote endpoints.

In:  a RunState.
Out: the same exchanges, filled with user-space stamps (httpx gives no kernel ones).

httpx is imported here and nowhere else; a host without it can still use the epoll client. It loads
most of its modules with its first request, which takes half a second in which no loop turns: so a
request to a server of our own comes first, before any clock runs (`missing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import os
import socket
import ssl
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from cargo import route
from cargo.exchange import BROKEN, CLIENT, EOF, SERVER_GONE, TIMEOUT, WHOLE, Exchange, Read
from cargo.load import TICK_S, RunState

try:
    import httpx
except ImportError:  # said in full by `missing`
    httpx = None  # type: ignore[assignment,unused-ignore]

_GONE_CHECK_S = 0.15
_GONE_GRACE_S = 1.0  # once the server is gone: time for the other streams to end
_LINGER_S = 0.25  # after [DONE] or an error event: wait this long for the proper end
_ERROR_S = 2.0  # after bytes of a reply that is an error: for the rest of it
_WATCH_S = 0.05
_LOOK_S = 0.02  # before a limit is judged: what had come while we stood still is read
_LOOK_TURNS = 50  # of the loop; from a readable socket to a piece of the body it takes about ten
_PROBE_S = 1.0
_TRY_S = 5.0
_TRY_REPLY = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
# Begun, not complete: by the time that the loop says so the server may have had it for long.
_SENDING = "http11.send_request_body.started"
_CANCEL_S = 1.0
_KINDS = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "reset"}
_NOBODY = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)
_LOADED: List[bool] = []  # not empty: by this process, or by the one it was forked from
_CONNECTED = (
    "connection.connect_tcp.complete",
    "connection.start_tls.complete",
    "proxy.start_tls.complete",
)


def missing() -> Optional[str]:
    """Why this transport cannot be used here; None when it can."""
    if httpx is None:
        return "--http httpx: the package httpx is not installed for this Python (use --http epoll)"
    _load_all()
    return None


def _load_all() -> None:
    """Make httpx load all that a request needs, once in this process and those forked from it."""
    if not _LOADED:
        _LOADED.append(True)
        with contextlib.suppress(ImportError):
            importlib.import_module("anyio.streams.tls")
        # should it fail, the first request of the run finds out why
        with contextlib.suppress(OSError, httpx.HTTPError):
            asyncio.run(_try_out())


async def _try_out() -> None:
    """One request, as those of a run are made, to a server of our own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        writer.write(_TRY_REPLY)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        await asyncio.get_running_loop().getaddrinfo("localhost", port)
        async with httpx.AsyncClient(timeout=_TRY_S, verify=False, trust_env=False) as client:
            url = f"http://127.0.0.1:{port}/"
            request = client.build_request("POST", url, content=b"{}", headers={"Accept": "*/*"})
            response = await client.send(request, stream=True)
            async for _piece in response.aiter_raw():
                pass
            await response.aclose()
    finally:
        server.close()


class HttpxClient:
    def __init__(self, state: RunState) -> None:
        self._state = state
        self._load = state.load
        self._tasks: List[Any] = []
        self._interrupted = False
        self._gone_ns: Optional[int] = None  # when the server was found gone
        endpoint = self._load.endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        # made once: loading certificates takes longer than some requests, and so does an empty
        # context (2 ms) where many requests begin together
        plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._verify = route.trusted() if endpoint.scheme == "https" else plain
        proxy = route.proxy_of(endpoint.scheme, endpoint.host, endpoint.port)
        self._proxy = None if proxy is None else proxy.geturl()
        self._url = f"{endpoint.scheme}://{host}:{endpoint.port}{endpoint.path}"

    def interrupt(self) -> None:
        """Called by a signal handler: end the run at the next tick."""
        self._interrupted = True

    def run(self) -> None:
        _load_all()
        asyncio.run(self._run())

    async def _run(self) -> None:
        ticker = asyncio.ensure_future(self._tick())
        try:
            for _phase in self._state.phases():
                width = self._load.concurrency
                self._tasks = [asyncio.ensure_future(self._work()) for _ in range(width)]
                await asyncio.gather(*self._tasks)
        finally:
            ticker.cancel()

    async def _tick(self) -> None:
        """Measures the loop's lateness and the clocks' offset, and sees the stop signal."""
        last_offset, told = time.monotonic(), False
        while True:
            due = time.monotonic_ns() + round(TICK_S * 1e9)
            await asyncio.sleep(TICK_S)
            self._state.late_ns.append(max(0, time.monotonic_ns() - due))
            self._state.each_tick()
            if time.monotonic() - last_offset >= 1:
                self._state.offset.measure()
                last_offset = time.monotonic()
            if self._interrupted and not told:
                told = True  # once: a task must not be cancelled again while it ends
                self._state.stop("signal")
                for task in self._tasks:
                    task.cancel()

    async def _work(self) -> None:
        """One slot: a request when its turn has come, then the next."""
        while (due_ns := self._state.next_due_ns) is not None:
            exchange = self._state.take(time.monotonic_ns())
            try:
                if exchange is None:
                    left_s = max(0, due_ns - time.monotonic_ns()) / 1e9
                    await asyncio.sleep(min(left_s, _WATCH_S))
                else:
                    await self._request(exchange)
            except asyncio.CancelledError:
                if exchange is not None and exchange.ended is None:
                    now = time.monotonic_ns()
                    exchange.end(CLIENT, now, "interrupted", "the client was told to stop")
            if exchange is not None:
                self._state.finished(exchange)

    async def _request(self, exchange: Exchange) -> None:
        """One request, and beside it the watch over its time limits.

        Never `wait_for`: when cancelled just as its inner task is done, it swallows the cancelling.
        """
        exchange.begun_ns = time.monotonic_ns()
        task = asyncio.ensure_future(self._exchange(exchange))
        try:
            passed = await self._watch(task, exchange)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_CANCEL_S)
        now = time.monotonic_ns()
        if passed == "finished":
            exchange.end(WHOLE, exchange.reads[-1].user_ns)
        elif passed == "gone":
            exchange.end(SERVER_GONE, now, "server_gone", "nothing listens any more")
        elif passed is not None:
            limit_s = getattr(self._load.limits, passed)
            exchange.end(TIMEOUT, now, passed, f"{passed}: nothing within {limit_s:g} s")
            if passed != "total" and self._state.stalled(exchange):
                self._state.stop("stalled")
        else:
            await self._conclude(task, exchange, now)

    async def _watch(self, task: Any, exchange: Exchange) -> Optional[str]:
        """Until the request is over (None) or a limit has passed (the limit's name)."""
        while True:
            name, left_s = self._next_limit(exchange)
            if left_s <= 0:
                await self._look(task)
                name, left_s = self._next_limit(exchange)
                if left_s <= 0 and not task.done():
                    return name
            await asyncio.wait([task], timeout=max(0.0, min(left_s, _WATCH_S)))
            if task.done():
                return None

    @staticmethod
    async def _look(task: Any) -> None:
        """This process may have been frozen: what lies in the socket has come all the same."""
        await asyncio.wait([task], timeout=_LOOK_S)
        for _turn in range(_LOOK_TURNS):
            if not task.done():
                await asyncio.sleep(0)

    def _next_limit(self, exchange: Exchange) -> Tuple[str, float]:
        limits, now = self._load.limits, time.monotonic_ns()
        begun_ns = exchange.begun_ns or now
        ends = [("total", begun_ns, limits.total)]
        last_read_ns = exchange.last_read_ns
        if self._gone_ns is not None:
            # one that still has bytes is served on: only the listener was closed
            ends.append(("gone", max(self._gone_ns, last_read_ns), _GONE_GRACE_S))
        last_ns = exchange.decoder.last_output_ns()
        refused = exchange.status not in (None, 200)
        if exchange.decoder.finished or (refused and last_read_ns):
            ends.append(("finished", last_read_ns, _ERROR_S if refused else _LINGER_S))
        elif exchange.sent_ns is None:
            ends.append(("connect", begun_ns, limits.connect))
        elif last_ns is None:
            ends.append(("first_token", exchange.sent_ns, limits.first_token))
        else:
            ends.append(("between_tokens", last_ns, limits.between_tokens))
        left = [(name, limit_s - (now - since) / 1e9) for name, since, limit_s in ends]
        return min(left, key=lambda pair: pair[1])

    async def _conclude(self, task: Any, exchange: Exchange, now: int) -> None:
        """The request ended by itself: properly, early, or with an error."""
        problem = task.exception()
        decoder = exchange.decoder
        decoder.catch_up()
        cut = decoder.is_stream and not decoder.meaning.finish_reason
        if decoder.finished or (problem is None and not cut):
            exchange.end(WHOLE, now)
        elif problem is None:
            await self._broken(exchange, EOF, "", "the stream ended early")
        elif isinstance(problem, httpx.RemoteProtocolError):
            closed = "closed" in str(problem) or "disconnected" in str(problem)
            await self._broken(exchange, EOF if closed else BROKEN, "bad_http", str(problem))
        elif isinstance(problem, (httpx.TransportError, OSError)):
            await self._broken(exchange, BROKEN, _kind(problem), _words(problem))
        else:
            raise problem

    async def _broken(self, exchange: Exchange, how: str, kind: str, message: str) -> None:
        """As in the epoll client: is anything still listening, now and a moment later?"""
        exchange.end(how, time.monotonic_ns(), kind, message)
        gone = not await self._listens()
        if not gone:
            await asyncio.sleep(_GONE_CHECK_S)
            gone = not await self._listens()
        if gone:
            self._gone_ns = self._gone_ns or time.monotonic_ns()
            self._state.stop("server_gone")
            if self._state.connected_once:
                text = f"nothing listens any more ({message})"
                exchange.end(SERVER_GONE, exchange.ended_ns or 0, "server_gone", text)

    async def _listens(self) -> bool:
        """Whether anything accepts connections at the endpoint: a no at all its addresses is a no.

        Never in the way of the loop. Behind a proxy nobody can tell.
        """
        endpoint = self._load.endpoint
        if self._proxy is not None:
            return True
        places = [endpoint.address]
        if endpoint.address is None:
            find = asyncio.get_running_loop().getaddrinfo
            try:
                infos = await find(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            except OSError:
                return True
            places = [(info[0], info[4]) for info in infos]
        for place in places:
            if place is None or not await _nobody_at(*place):
                return True
        return False

    def _new_client(self) -> Any:
        # what the environment says is read in `route`, so that the agent goes the same way
        return httpx.AsyncClient(
            timeout=None, verify=self._verify, proxy=self._proxy, trust_env=False
        )

    async def _exchange(self, exchange: Exchange) -> None:
        # a client for each request: its own connection, as the epoll client does it
        async with self._new_client() as client:
            request = client.build_request(
                "POST",
                self._url,
                content=self._load.body_of(exchange),
                headers=dict(self._load.headers, Connection="close"),
                extensions={"trace": self._tracer(exchange)},
            )
            response = await client.send(request, stream=True)
            try:
                exchange.status = response.status_code
                exchange.headers = {k.lower(): v for k, v in response.headers.items()}
                async for piece in response.aiter_raw():
                    now = self._state.last_read_ns = time.monotonic_ns()
                    exchange.reads.append(Read(now, None, piece))
                    exchange.decoder.catch_up()
            finally:
                await response.aclose()

    def _tracer(self, exchange: Exchange) -> Any:
        async def trace(event: str, info: Dict[str, Any]) -> None:
            now = time.monotonic_ns()
            if event in _CONNECTED:
                exchange.connected_ns = now  # of TCP, then of TLS
                self._state.connected_once = True
            elif event == _SENDING and info["request"].method == b"POST":
                exchange.sent_ns = now  # a proxy's CONNECT, which comes before it, is one as well

        return trace


async def _nobody_at(family: int, address: Any) -> bool:
    """Whether a connection is refused there, or the host cannot be reached."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return False
    with sock:
        sock.setblocking(False)
        connecting = asyncio.get_running_loop().sock_connect(sock, address)
        task = asyncio.ensure_future(connecting)
        try:
            await asyncio.wait([task], timeout=_PROBE_S)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_CANCEL_S)
        problem = None if task.cancelled() else task.exception()
    return isinstance(problem, OSError) and problem.errno in _NOBODY


def _causes(problem: Optional[BaseException], depth: int = 10) -> Iterator[BaseException]:
    """The problem and all that led to it; of several addresses each has failed in its own way."""
    if problem is None or not depth:
        return
    yield problem
    for one in (problem.__cause__ or problem.__context__, *getattr(problem, "exceptions", ())):
        yield from _causes(one, depth - 1)


def _number(problem: BaseException) -> Optional[int]:
    """The system's own number of what went wrong, where it is one that has a kind."""
    numbers = (one.errno for one in _causes(problem) if isinstance(one, OSError))
    return next((number for number in numbers if number in _KINDS), None)


def _kind(problem: BaseException) -> str:
    """Which part of the way to the server failed, and how; as the epoll client names it."""
    if isinstance(problem, httpx.ProxyError):
        return "proxy"
    if "[SSL" in str(problem):
        return "tls"
    return _KINDS.get(_number(problem) or 0, "broken")


def _words(problem: BaseException) -> str:
    number = _number(problem)
    return str(problem) or (os.strerror(number) if number else type(problem).__name__)
