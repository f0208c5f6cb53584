"""The second opinion: the same load through httpx, for TLS, proxies and remote endpoints.

In:  a RunState.
Out: the same exchanges, filled with user-space stamps (httpx gives no kernel ones).

httpx is imported here and nowhere else; a host without it can still use the epoll client.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Dict, List, Optional, Tuple

from cargo import route
from cargo.exchange import BROKEN, CLIENT, EOF, SERVER_GONE, TIMEOUT, WHOLE, Exchange, Read
from cargo.load import TICK_S, RunState, listens

try:
    import httpx
except ImportError:  # said in full by `missing`
    httpx = None  # type: ignore[assignment,unused-ignore]

_GONE_CHECK_S = 0.15
_GONE_GRACE_S = 1.0  # once the server is gone: time for the other streams to end
_LINGER_S = 0.25  # after [DONE] or an error event: wait this long for the proper end
_WATCH_S = 0.05
# Begun, not complete: by the time that the loop says so the server may have had it for long.
_SENDING = "http11.send_request_body.started"
_CANCEL_S = 1.0
_CONNECTED = (
    "connection.connect_tcp.complete",
    "connection.start_tls.complete",
    "proxy.start_tls.complete",
)


def missing() -> Optional[str]:
    """Why this transport cannot be used here; None when it can."""
    if httpx is None:
        return "--http httpx: the package httpx is not installed for this Python (use --http epoll)"
    return None


class HttpxClient:
    def __init__(self, state: RunState) -> None:
        self._state = state
        self._load = state.load
        self._tasks: List[Any] = []
        self._interrupted = False
        self._gone_ns: Optional[int] = None  # when the server was found gone
        endpoint = self._load.endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        # made once: loading certificates takes longer than some requests
        self._verify = route.trusted() if endpoint.scheme == "https" else False
        proxy = route.proxy_of(endpoint.scheme, endpoint.host, endpoint.port)
        self._proxy = None if proxy is None else proxy.geturl()
        self._url = f"{endpoint.scheme}://{host}:{endpoint.port}{endpoint.path}"

    def interrupt(self) -> None:
        """Called by a signal handler: end the run at the next tick."""
        self._interrupted = True

    def run(self) -> None:
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
        last_offset = time.monotonic()
        while True:
            due = time.monotonic_ns() + round(TICK_S * 1e9)
            await asyncio.sleep(TICK_S)
            self._state.late_ns.append(max(0, time.monotonic_ns() - due))
            self._state.each_tick()
            if time.monotonic() - last_offset >= 1:
                self._state.offset.measure()
                last_offset = time.monotonic()
            if self._interrupted and not self._state.stopping:
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
                if exchange is not None:
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
                return name
            await asyncio.wait([task], timeout=min(left_s, _WATCH_S))
            if task.done():
                return None

    def _next_limit(self, exchange: Exchange) -> Tuple[str, float]:
        limits, now = self._load.limits, time.monotonic_ns()
        begun_ns = exchange.begun_ns or now
        ends = [("total", begun_ns, limits.total)]
        if self._gone_ns is not None:
            ends.append(("gone", self._gone_ns, _GONE_GRACE_S))
        last_ns = exchange.decoder.last_output_ns()
        if exchange.decoder.finished:
            ends.append(("finished", exchange.reads[-1].user_ns, _LINGER_S))
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
            message = str(problem) or type(problem).__name__
            await self._broken(exchange, BROKEN, _kind(problem), message)
        else:
            raise problem

    async def _broken(self, exchange: Exchange, how: str, kind: str, message: str) -> None:
        """As in the epoll client: is anything still listening, now and a moment later?"""
        exchange.end(how, time.monotonic_ns(), kind, message)
        gone = not listens(self._load.endpoint)
        if not gone:
            await asyncio.sleep(_GONE_CHECK_S)
            gone = not listens(self._load.endpoint)
        if gone:
            self._gone_ns = self._gone_ns or time.monotonic_ns()
            self._state.stop("server_gone")
            if self._state.connected_once:
                text = f"nothing listens any more ({message})"
                exchange.end(SERVER_GONE, exchange.ended_ns or 0, "server_gone", text)

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


def _kind(problem: BaseException) -> str:
    """Which part of the way to the server failed."""
    if isinstance(problem, httpx.ProxyError):
        return "proxy"
    if "[SSL" in str(problem):
        return "tls"
    return "refused" if isinstance(problem, httpx.ConnectError) else "broken"
