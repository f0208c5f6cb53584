"""The client's hot path: one thread, one epoll loop, kernel receive stamps.

In:  a RunState (load, exchanges to fill).
Out: the same exchanges, filled with reads and stamps; nothing is decoded while the run lasts,
     except where an end is odd or a time limit has passed.

Closed loop: `concurrency` requests are open at any time until none is left. Open loop: a request is
begun when it is due, as long as no more than `concurrency` are open. Each request has its own
connection, opened before its clock starts: t0 is read just before the send that hands over the
request's last byte, so neither our own queue nor connecting is in any figure.

Ends that concern the whole run: a connection that breaks while nothing listens any more means the
server is gone; a time limit that passes while no stream receives a byte means it has stalled. In
both cases no further request is begun.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import socket
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from cargo import stamps, wire
from cargo.exchange import BROKEN, CLIENT, EOF, SERVER_GONE, TIMEOUT, WHOLE, Exchange
from cargo.load import TICK_S, Load, RunState, listens
from cargo.open_stream import FAR_NS, Stream

_READ_SIZE = 64 * 1024
_STAMP_SIZE = stamps.ANCILLARY_SPACE
_LINGER_NS = 250_000_000  # after [DONE] or an error event: wait this long for the proper end
_GONE_CHECK_NS = 150_000_000  # after a broken connection: look again whether anything listens
_GONE_GRACE_NS = 1_000_000_000  # once the server is gone: time for the other streams to end
_SEARCH_NS = 100_000_000  # between two searches for an end in what was kept
_SEARCH_MOST_NS = 2_000_000  # that one search may hold up the loop
_ERROR_NS = 2_000_000_000  # for the rest of a reply that is an error
_TICK_NS = round(TICK_S * 1e9)
_OFFSET_NS = 1_000_000_000
_POLL_LATE_NS = 2_000_000  # epoll counts in milliseconds, rounded up


class _Broken(NamedTuple):
    """A broken connection: whether the server still listens is asked at this time."""

    at_ns: int
    again: bool
    exchange: Exchange


class EpollClient:
    def __init__(self, state: RunState) -> None:
        load: Load = state.load
        self._state = state
        self._load = load
        limits = load.limits
        self._connect_ns = round(limits.connect * 1e9)
        self._first_ns = round(limits.first_token * 1e9)
        self._between_ns = round(limits.between_tokens * 1e9)
        self._total_ns = round(limits.total * 1e9)
        self._epoll = select.epoll()
        self._streams: Dict[int, Stream] = {}
        self._checks: List[_Broken] = []
        self._next_deadline_ns = FAR_NS
        self._gone_ns = FAR_NS
        self._search_ns = 0
        self._looked_ns = time.monotonic_ns()  # what had come by then has been read
        self._stop_signal = False

    def interrupt(self) -> None:
        """Called by a signal handler: end the run at the next tick."""
        self._stop_signal = True

    def run(self) -> None:
        switch = stamps.StampSwitch()
        self._state.kernel_stamps = switch.works
        # Every read stays until the end: the collector would go through millions of them, again
        # and again, and the loop would stand still meanwhile. Nothing here makes cycles.
        collected = gc.isenabled()
        gc.disable()
        try:
            for _phase in self._state.phases():
                self._run_phase()
        finally:
            for stream in list(self._streams.values()):
                self._end(stream, CLIENT, "internal", "the client failed", settle=False)
            self._epoll.close()
            switch.close()
            if collected:
                gc.enable()

    def _run_phase(self) -> None:
        self._fill_slots()
        now = time.monotonic_ns()
        tick_ns = now + _TICK_NS
        offset_ns = now + _OFFSET_NS
        poll, most = self._epoll.poll, self._load.concurrency + 1
        open_loop = self._load.due_s is not None
        while self._streams or self._checks or self._state.next_due_ns is not None:
            until_ns = self._next_turn_ns(tick_ns) if open_loop else tick_ns
            ready = poll(max(0, until_ns - now) / 1e9, most)
            # one that came back late was put aside meanwhile, and may not have looked again
            looked_ns = time.monotonic_ns()
            if looked_ns > until_ns + _POLL_LATE_NS:
                looked_ns = now
            self._serve(ready)
            self._looked_ns = looked_ns
            now = time.monotonic_ns()
            if open_loop:
                self._fill_slots()
            if now >= tick_ns:
                self._state.late_ns.append(now - tick_ns)
                self._tick(now)
                if now >= offset_ns:
                    self._state.offset.measure()
                    offset_ns = now + _OFFSET_NS
                now = time.monotonic_ns()
                tick_ns = now + _TICK_NS

    def _serve(self, ready: List[Tuple[int, int]]) -> None:
        """The hot path: whoever has bytes to read, or room to send.

        A whole chunk is kept as it came: what is not done here is done when the run is over, and
        does not hold up the stream that is next.
        """
        find, clock = self._streams.get, time.monotonic_ns
        ordinary, line = wire.ORDINARY, wire.SIZE_LINE
        looked_ns, read_ns = self._looked_ns, 0
        for fd, mask in ready:
            stream = find(fd)
            if stream is None:
                continue
            if not stream.plain:
                self._serve_other(stream, mask)
                continue
            try:
                data, ancillary, _flags, _address = stream.receive(_READ_SIZE, _STAMP_SIZE)
            except OSError as problem:
                self._cannot_read(stream, problem)
                continue
            now = clock()
            stamp = ancillary[0][2] if ancillary else None
            end = data.find(b"\r\n", 0, line)
            if ordinary.get(data[:end]) == len(data) - end - 4:
                stream.keep((now, stamp, data, end + 2, looked_ns))
                read_ns = now
            else:
                self._take(stream, data, stamp, now)
        self._state.last_read_ns = max(self._state.last_read_ns, read_ns)

    def _serve_other(self, stream: Stream, mask: int) -> None:
        if stream.unsent is None:
            self._read(stream)
        elif mask & select.EPOLLIN and not stream.connecting:
            self._read_early(stream)
        else:
            self._write(stream)

    def _next_turn_ns(self, tick_ns: int) -> int:
        """The next tick, or when a request is due for which there is room."""
        due_ns = self._state.next_due_ns
        return min(tick_ns, due_ns) if due_ns is not None and self._has_room() else tick_ns

    # -- opening ----------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return len(self._streams) + len(self._checks) < self._load.concurrency

    def _fill_slots(self) -> None:
        while self._has_room():
            exchange = self._state.take(time.monotonic_ns())
            if exchange is None:
                return
            self._open(exchange)

    def _open(self, exchange: Exchange) -> None:
        assert self._load.endpoint.address is not None
        family, address = self._load.endpoint.address
        request = self._request(exchange)
        exchange.begun_ns = time.monotonic_ns()
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as problem:  # out of file descriptors: ours, not the server's
            exchange.end(CLIENT, exchange.begun_ns, "socket", str(problem))
            self._state.finished(exchange)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._state.kernel_stamps:
            stamps.ask_for_stamps(sock)
        stream = Stream(exchange, sock, request)
        code = sock.connect_ex(address)
        self._streams[sock.fileno()] = stream
        self._epoll.register(sock.fileno(), select.EPOLLOUT | select.EPOLLIN)
        if code not in (0, errno.EINPROGRESS):
            self._break(stream, code)
            return
        total = exchange.begun_ns + min(self._connect_ns, self._total_ns)
        self._set_deadline(stream, total)

    def _request(self, exchange: Exchange) -> bytes:
        endpoint = self._load.endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return wire.request_bytes(
            "POST",
            f"{host}:{endpoint.port}",
            endpoint.path,
            self._load.headers,
            self._load.body_of(exchange),
        )

    def _write(self, stream: Stream) -> None:
        """Connected, or room to send: send on; when all is handed over the clock has started."""
        exchange = stream.exchange
        if stream.connecting:
            code = stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._break(stream, code)
                return
            stream.connecting = False
            exchange.connected_ns = time.monotonic_ns()
            self._state.connected_once = True
        assert stream.unsent is not None
        while stream.unsent:
            before_ns = time.monotonic_ns()
            try:
                sent = stream.sock.send(stream.unsent)
            except BlockingIOError:
                return
            except OSError as problem:
                # the reply to a request that was not wanted whole may be there all the same
                stream.unsent = None
                exchange.sent_ns = before_ns
                self._epoll.modify(stream.sock.fileno(), select.EPOLLIN)
                self._read(stream, problem.errno or errno.EPIPE)
                return
            exchange.sent_ns = before_ns
            stream.unsent = stream.unsent[sent:]
        stream.unsent = None
        assert exchange.sent_ns is not None
        self._epoll.modify(stream.sock.fileno(), select.EPOLLIN)
        soonest = exchange.sent_ns + min(self._first_ns, self._between_ns)
        self._set_deadline(stream, min(soonest, self._total_deadline(stream)))

    def _read_early(self, stream: Stream) -> None:
        """A reply before the request is sent whole: no more of it is wanted."""
        stream.unsent = None
        stream.exchange.sent_ns = stream.exchange.sent_ns or time.monotonic_ns()
        self._epoll.modify(stream.sock.fileno(), select.EPOLLIN)
        self._read(stream)

    # -- reading ----------------------------------------------------------------------------

    def _read(self, stream: Stream, failed: int = 0) -> bool:
        """One read; False where nothing more is to be read, now or ever."""
        try:
            data, ancillary, _flags, _address = stream.receive(_READ_SIZE, _STAMP_SIZE)
        except OSError as problem:
            self._cannot_read(stream, problem, failed)
            return False
        now = time.monotonic_ns()
        self._take(stream, data, ancillary[0][2] if ancillary else None, now)
        if failed and stream.exchange.ended is None:
            return self._read(stream, failed)
        return stream.exchange.ended is None

    def _cannot_read(self, stream: Stream, problem: OSError, failed: int = 0) -> None:
        """Nothing is there now; or the connection is broken, as it is where sending has failed."""
        if not isinstance(problem, BlockingIOError):
            self._break(stream, problem.errno or 0)
        elif failed:
            self._break(stream, failed)

    def _take(self, stream: Stream, data: bytes, stamp: Optional[bytes], now: int) -> None:
        """Keep what was read, and look whether the stream is at its end."""
        if not data:
            self._at_eof(stream, now)
            return
        self._state.last_read_ns = now
        exchange, response = stream.exchange, stream.response
        try:
            body = response.feed(data)
        except wire.WireError as problem:
            self._end(stream, BROKEN, "bad_http", str(problem))
            return
        if not stream.filled:
            stream.since_ns = self._looked_ns
        stream.filled = len(data) == _READ_SIZE
        stream.keep((now, stamp, body, 0, stream.since_ns))
        if exchange.status is None and response.status is not None:
            exchange.status, exchange.headers = response.status, response.headers
        if response.whole:
            self._end(stream, WHOLE, now_ns=now)
        elif exchange.status != 200 and exchange.status is not None:
            self._linger(stream, now + _ERROR_NS)
        elif stream.may_be_over():
            self._linger(stream, now + _LINGER_NS)
        stream.look_ahead()

    def _linger(self, stream: Stream, until_ns: int) -> None:
        stream.lingering = True
        self._set_deadline(stream, min(until_ns, stream.deadline_ns))

    def _at_eof(self, stream: Stream, now: int) -> None:
        """The peer closed: the end of a body without a length, or the end came too early."""
        decoder = stream.exchange.decoder
        decoder.catch_up()
        whole = stream.response.feed_end()
        if whole and decoder.is_stream:
            whole = decoder.meaning.finish_reason is not None
        if whole or decoder.finished:
            self._end(stream, WHOLE, now_ns=now)
        else:
            self._check_gone(stream, EOF)

    # -- ending -----------------------------------------------------------------------------

    def _end(
        self,
        stream: Stream,
        how: str,
        kind: str = "",
        message: str = "",
        now_ns: Optional[int] = None,
        settle: bool = True,
    ) -> None:
        """Close the stream; `settle` also hands its slot to the next request."""
        fd = stream.sock.fileno()
        del self._streams[fd]
        self._epoll.unregister(fd)
        stream.sock.close()
        stream.exchange.end(how, now_ns or time.monotonic_ns(), kind, message)
        if settle:
            self._state.finished(stream.exchange)
            self._fill_slots()

    def _break(self, stream: Stream, code: int) -> None:
        names = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "reset"}
        kind = names.get(code, "broken")
        self._check_gone(stream, BROKEN, kind, os.strerror(code) if code else "connection broke")

    def _check_gone(self, stream: Stream, how: str, kind: str = "", message: str = "") -> None:
        """A connection broke: does the server still listen? Its slot waits for the answer.

        That is asked at the next tick, once for all that broke meanwhile. A dying process closes its
        sockets one after the other, so a server that still listens is asked again a moment later.
        """
        self._end(stream, how, kind, message, settle=False)
        self._checks.append(_Broken(time.monotonic_ns(), False, stream.exchange))

    def _mark_gone(self, exchange: Exchange) -> None:
        if self._gone_ns == FAR_NS:
            self._gone_ns = time.monotonic_ns()
        self._state.stop("server_gone")
        exchange.decoder.catch_up()
        if self._state.connected_once and not exchange.decoder.finished:
            kind, message = exchange.detail
            text = f"nothing listens any more ({message or kind or 'connection closed'})"
            exchange.end(SERVER_GONE, exchange.ended_ns or 0, "server_gone", text)

    def _settle(self, exchange: Exchange) -> None:
        self._state.finished(exchange)
        self._fill_slots()

    # -- ticks: time limits, late verdicts, signals -------------------------------------------

    def _tick(self, now: int) -> None:
        self._state.each_tick()
        if self._stop_signal:
            self._state.stop("signal")
            for stream in list(self._streams.values()):
                self._end(stream, CLIENT, "interrupted", "the client was told to stop")
        self._look_for_server(now)
        if now >= self._gone_ns + _GONE_GRACE_NS:
            for stream in list(self._streams.values()):
                if now >= stream.exchange.last_read_ns + _GONE_GRACE_NS:
                    self._end(stream, SERVER_GONE, "server_gone", "nothing listens any more")
        if now >= self._search_ns:
            self._search_ns = now + (_SEARCH_NS if self._search_kept(now) else 0)
        if now >= self._next_deadline_ns:
            self._next_deadline_ns = FAR_NS
            for stream in list(self._streams.values()):
                if now >= stream.deadline_ns:
                    self._past_deadline(stream, now)
                else:
                    self._set_deadline(stream, stream.deadline_ns)

    def _search_kept(self, now: int) -> bool:
        """Events were kept unread: the stream may have said in them that nothing more comes.

        Only one that is silent is searched: nothing that goes on is held up by it. A reply that is an
        HTTP error has its own time to be read in. False: there is more to search than the loop may be
        held up for.
        """
        until_ns = time.monotonic_ns() + _SEARCH_MOST_NS
        for stream in self._streams.values():
            exchange = stream.exchange
            if exchange.status != 200 or not exchange.n_unsearched:
                continue
            if now >= exchange.last_read_ns + _LINGER_NS:
                if stream.may_be_over():
                    self._linger(stream, now)
                if time.monotonic_ns() > until_ns:
                    return False
        return True

    def _look_for_server(self, now: int) -> None:
        due = [one for one in self._checks if now >= one.at_ns or self._state.stopping]
        if not due:
            return
        self._checks = [one for one in self._checks if one not in due]
        gone = not listens(self._load.endpoint)
        for one in due:
            if gone:
                self._mark_gone(one.exchange)
            elif not one.again and not self._state.stopping:
                self._checks.append(_Broken(now + _GONE_CHECK_NS, True, one.exchange))
                continue
            self._settle(one.exchange)

    def _set_deadline(self, stream: Stream, at_ns: int) -> None:
        stream.deadline_ns = at_ns
        self._next_deadline_ns = min(self._next_deadline_ns, at_ns)

    def _total_deadline(self, stream: Stream) -> int:
        return (stream.exchange.begun_ns or 0) + self._total_ns

    def _past_deadline(self, stream: Stream, now: int) -> None:
        """Decode what there is, and see which limit really applies (pings are no progress)."""
        exchange, limits = stream.exchange, self._load.limits
        decoder = exchange.decoder
        if not self._read_up(stream):
            return
        decoder.catch_up()
        if stream.lingering and (decoder.finished or exchange.status != 200):
            self._end(stream, WHOLE, now_ns=exchange.reads[-1].user_ns)
            return
        stream.lingering = False
        if now >= self._total_deadline(stream):
            self._time_out(stream, "total", limits.total, now)
            return
        if stream.unsent is not None:
            self._time_out(stream, "connect", limits.connect, now)
            return
        last_ns = decoder.last_output_ns()
        since_ns = exchange.sent_ns or now
        kind, limit_s, at_ns = "first_token", limits.first_token, since_ns + self._first_ns
        if last_ns is not None:
            kind, limit_s, at_ns = "between_tokens", limits.between_tokens, last_ns
            at_ns += self._between_ns
        if now >= at_ns:
            if decoder.finished:
                self._end(stream, WHOLE, now_ns=now)
            else:
                self._time_out(stream, kind, limit_s, now)
            return
        self._set_deadline(stream, min(at_ns, self._total_deadline(stream)))

    def _read_up(self, stream: Stream) -> bool:
        """What lies in the socket has come in time, however late we look; False: that was the end."""
        fd = stream.sock.fileno()
        while stream.unsent is None and self._read(stream):
            pass
        return self._streams.get(fd) is stream

    def _time_out(self, stream: Stream, kind: str, limit_s: float, now: int) -> None:
        if kind != "total" and self._state.stalled(stream.exchange):
            self._state.stop("stalled")
        self._end(stream, TIMEOUT, kind, f"{kind}: nothing within {limit_s:g} s", now_ns=now)
