"""One request from its start to its end, as raw material; and the request record made of it.

In:  what a transport saw (`Exchange`): times, reads with their stamps, and how it ended.
Out: `request_record`: the request's entry in the run record, every field of record.REQUEST_FIELDS.

The transport stores bytes and stamps only; `StreamDecoder` reads them after the run, or earlier
where a transport must know (a deadline passed, or the stream ended in an odd way).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from cargo import deltas, record, wire
from cargo.sse import EventSplitter
from cargo.stamps import MonotonicOffset, Stamp

# How a transport ended an exchange.
WHOLE = "whole"  # the body is complete
EOF = "eof"  # the peer closed before the body was complete
BROKEN = "broken"  # reset, refused, unreachable
TIMEOUT = "timeout"
SERVER_GONE = "server_gone"
CLIENT = "client"

_BODY_LIMIT = 64 * 1024
_DIGITS = 7  # of a second: 0.1 microseconds
_BLANK = b" \t\r\n\xef\xbb\xbf"
_FIELDS = (b"data", b"event", b"id", b"retry")
_FIRST_LINE = re.compile(rb"(?::|(?:data|event|id|retry)(?:[:\r\n]|$))")


# A read as a transport keeps it while the run lasts: when the client saw it, the kernel's stamp as
# recvmsg gave it, the bytes, where in them the body begins if they are one whole chunk (0: they are the
# body), and a time at which nothing of it had come.
Kept = Tuple[int, Optional[bytes], bytes, int, int]


def _body_of(kept: Kept) -> bytes:
    _user_ns, _stamp, data, begin, _since_ns = kept
    return data[begin:-2] if begin else data


class Read(NamedTuple):
    user_ns: int
    ancillary: Optional[bytes]  # the kernel's stamp as recvmsg gave it
    body: bytes
    since_ns: int = 0  # nothing of it had come at this time


class Exchange:
    """Raw material of one request; filled by a transport, decoded afterwards."""

    def __init__(self, index: int, warmup: bool) -> None:
        self.index = index
        self.warmup = warmup
        self.due_ns: Optional[int] = None  # open loop: when the schedule wants it begun
        self.begun_ns: Optional[int] = None  # connecting begun
        self.connected_ns: Optional[int] = None
        self.sent_ns: Optional[int] = None  # t0
        self.status: Optional[int] = None
        self.headers: Dict[str, str] = {}
        self.reads: List[Read] = []
        self.kept: List[Kept] = []  # what came behind `reads`
        self.n_searched = 0  # of `reads` and `kept`: looked through for an end
        self.ended: Optional[str] = None  # None: never begun
        self.ended_ns: Optional[int] = None
        self.detail: Tuple[str, str] = ("", "")  # kind and message of an end that is an error
        self.decoder = StreamDecoder(self)

    def unpack(self) -> None:
        """Make reads of what was kept as it came; each is let go of as soon as it is one."""
        self.kept.reverse()
        while self.kept:
            one = user_ns, stamp, _data, _begin, since_ns = self.kept.pop()
            self.reads.append(Read(user_ns, stamp, _body_of(one), since_ns))

    @property
    def n_unsearched(self) -> int:
        return len(self.reads) + len(self.kept) - self.n_searched

    def unsearched(self) -> bytes:
        """The body as far as it was not looked through for an end; with this it was."""
        old = self.reads[self.n_searched :]  # decoded meanwhile
        new = self.kept[max(0, self.n_searched - len(self.reads)) :]
        self.n_searched += len(old) + len(new)
        return b"".join([read.body for read in old] + [_body_of(one) for one in new])

    @property
    def last_read_ns(self) -> int:
        """When the client saw the last bytes; 0 where none have come."""
        if self.kept:
            return self.kept[-1][0]
        return self.reads[-1].user_ns if self.reads else 0

    def end(self, how: str, now_ns: int, kind: str = "", message: str = "") -> None:
        self.ended = how
        self.ended_ns = now_ns
        self.detail = (kind, message)


class StreamDecoder:
    """Decodes an exchange's reads as far as there are any; can be asked again for more."""

    def __init__(self, exchange: Exchange) -> None:
        self.meaning = deltas.Meaning()
        self.read_of: List[int] = []  # for each event the index of the read that completed it
        self.body = b""  # its beginning, as long as no event has come
        self.unreadable: Optional[str] = None
        self._exchange = exchange
        self._splitter = EventSplitter()
        self._taken = 0
        self.coding: Optional[wire.Inflater] = None
        self._ready = False

    def catch_up(self) -> None:
        """Decode the reads that came since the last call."""
        exchange = self._exchange
        exchange.unpack()
        if exchange.status is None or self.unreadable is not None:
            return
        try:
            if not self._ready:
                coding = exchange.headers.get("content-encoding", "")
                self.coding = wire.content_decoder(coding)
                self._ready = True
            while self._taken < len(exchange.reads):
                index = self._taken
                self._taken += 1
                self._take(index, exchange.reads[index].body)
        except Exception as problem:  # zlib.error, WireError: the bytes are not what they say
            self.unreadable = f"{type(problem).__name__}: {problem}"

    def _take(self, index: int, body: bytes) -> None:
        if self.meaning.done:  # what comes behind [DONE] belongs to no answer
            return
        if self.coding is not None:
            body = self.coding.decompress(body)
        if not self.read_of and len(self.body) < _BODY_LIMIT:
            self.body += body[:_BODY_LIMIT]
        if not self._labelled:
            return
        for event in self._splitter.feed(body):
            self.meaning.take(event)
            self.read_of.append(index)
            self.body = b""
            if self.meaning.done:
                return

    @property
    def _labelled(self) -> bool:
        """Whether status and type allow an event stream."""
        exchange = self._exchange
        kind = exchange.headers.get("content-type", "").lower()
        return exchange.status == 200 and "application/json" not in kind

    @property
    def is_stream(self) -> bool:
        """Whether the reply is an event stream, as far as it has come."""
        if not self._labelled or self.read_of:
            return self._labelled
        text = self.body.lstrip(_BLANK)
        if "event-stream" in self._exchange.headers.get("content-type", "").lower():
            return text[:1] not in (b"{", b"[", b"<")
        begun = any(name.startswith(text) for name in _FIELDS)  # or nothing has come
        return begun or _FIRST_LINE.match(text) is not None

    @property
    def cut_short(self) -> bool:
        """The body has ended, and what it was coded as has not."""
        return self.coding is not None and not self.coding.whole and not self.meaning.done

    @property
    def finished(self) -> bool:
        """The stream itself said that nothing more comes."""
        return self.meaning.done or self.meaning.error is not None

    def last_output_ns(self) -> Optional[int]:
        """When the client saw the last output-bearing event (user time)."""
        for kind, read in zip(reversed(self.meaning.kinds), reversed(self.read_of)):
            if kind in record.OUTPUT_KINDS:
                return self._exchange.reads[read].user_ns
        return None


def _error(kind: str, status: Optional[int], message: str) -> Dict[str, Any]:
    return {"kind": kind, "status": status, "message": message}


Verdict = Tuple[str, Optional[Dict[str, Any]]]


def judge(exchange: Exchange, forced_tokens: Optional[int]) -> Verdict:
    """(outcome, error) of a decoded exchange. `forced_tokens`: the length ignore_eos forces."""
    if exchange.ended is None:
        return "not_started", None
    decoder, meaning, status = exchange.decoder, exchange.decoder.meaning, exchange.status
    if status is not None and status != 200:
        return "http_error", _http_error(exchange)
    if decoder.unreadable is not None:
        return "client", _error("unreadable", status, decoder.unreadable)
    if meaning.error is not None:
        error = meaning.error
        known = error.status if error.status is not None else status
        return "stream_error", _error(error.kind, known, error.message)
    if exchange.ended == WHOLE and status == 200 and not decoder.is_stream:
        return "stream_error", _no_stream(decoder.body)
    if exchange.ended != WHOLE and not (meaning.done and meaning.finish_reason):
        return _broken_off(exchange)
    if decoder.cut_short and decoder.coding is not None:
        text = f"the {decoder.coding.coding} body lacks its end, after {len(meaning.kinds)} events"
        return "truncated", _error("coding_cut", status, text)
    return _judge_complete(meaning, forced_tokens)


def _judge_complete(meaning: deltas.Meaning, forced_tokens: Optional[int]) -> Verdict:
    reason = meaning.finish_reason
    if reason is None:
        seen = len(meaning.kinds)
        message = f"the stream ended after {seen} events with no finish_reason"
        return "truncated", _error("no_finish_reason", 200, message)
    if reason == "abort":
        return "aborted", _error("abort", 200, 'finish_reason is "abort"')
    if reason == "error":
        return "stream_error", _error("finish_reason", 200, 'finish_reason is "error"')
    tokens = deltas.count_in(meaning.usage, "completion_tokens")
    if forced_tokens is not None and tokens is not None and tokens < forced_tokens:
        message = f"{tokens} tokens where {forced_tokens} were forced (finish_reason {reason})"
        return "short", _error("short", 200, message)
    return "ok", None


def _broken_off(exchange: Exchange) -> Verdict:
    kind, message = exchange.detail
    outcomes = {BROKEN: "connection", TIMEOUT: "timeout", SERVER_GONE: "server_gone"}
    if exchange.ended == EOF:
        if exchange.status is None:
            text = "the server closed the connection before any reply"
            return "connection", _error("closed_before_reply", None, text)
        seen = len(exchange.decoder.meaning.kinds)
        text = f"the connection closed after {seen} events, before the end of the body"
        return "truncated", _error("closed_early", exchange.status, text)
    outcome = outcomes.get(exchange.ended or "", "client")
    return outcome, _error(kind or outcome, exchange.status, message)


def _http_error(exchange: Exchange) -> Dict[str, Any]:
    message = deltas.error_message(exchange.decoder.body)
    error = _error("http", exchange.status, message)
    for header in ("retry-after", "location"):
        if header in exchange.headers:
            error["message"] = f"{error['message']} ({header}: {exchange.headers[header]})".strip()
    return error


def _no_stream(body: bytes) -> Dict[str, Any]:
    event = deltas.Meaning()
    event.take(deltas.Event("", body))
    if event.error is not None and event.error.kind != "not_json":
        known = event.error.status if event.error.status is not None else 200
        return _error(event.error.kind, known, event.error.message)
    text = body[:200].decode("utf-8", "replace")
    return _error("not_a_stream", 200, f"the reply is no event stream: {text}")


class RunClock:
    """Turns times of the run into seconds since its zero."""

    def __init__(self, zero_ns: int, offset: Optional[MonotonicOffset]) -> None:
        self.zero_ns = zero_ns
        self._offset = offset

    def seconds(self, t_ns: Optional[int]) -> Optional[float]:
        return None if t_ns is None else round((t_ns - self.zero_ns) / 1e9, _DIGITS)

    def stamp(self, read: Read) -> Stamp:
        if self._offset is None:
            return Stamp(read.user_ns, False)
        return self._offset.convert(read.ancillary, read.user_ns)


def request_record(
    exchange: Exchange, clock: RunClock, forced_tokens: Optional[int]
) -> Dict[str, Any]:
    """The request's entry in the run record. Whatever one reply holds, the others keep theirs."""
    try:
        return _entry(exchange, clock, forced_tokens)
    except Exception as problem:
        entry = record.blank_request(exchange.index, exchange.warmup)
        text = f"{type(problem).__name__}: {problem}"
        entry.update(
            outcome="client",
            error=_error("unreadable", exchange.status, text),
            t_start_s=clock.seconds(exchange.sent_ns),
            t_end_s=clock.seconds(exchange.ended_ns),
        )
        return entry


def _entry(exchange: Exchange, clock: RunClock, forced_tokens: Optional[int]) -> Dict[str, Any]:
    entry = record.blank_request(exchange.index, exchange.warmup)
    if exchange.ended is None:
        return entry
    exchange.decoder.catch_up()
    meaning = exchange.decoder.meaning
    entry["outcome"], entry["error"] = judge(exchange, forced_tokens)
    stamps = [clock.stamp(read).t_ns for read in exchange.reads]
    completion_tokens = deltas.count_in(meaning.usage, "completion_tokens")
    times = [clock.seconds(stamps[read]) for read in exchange.decoder.read_of]
    users = [clock.seconds(exchange.reads[read].user_ns) for read in exchange.decoder.read_of]
    output = [t for t, kind in zip(times, meaning.kinds) if kind in record.OUTPUT_KINDS]
    entry.update(
        finish_reason=meaning.finish_reason,
        t_due_s=clock.seconds(exchange.due_ns),
        late_s=_span_s(exchange.due_ns, exchange.begun_ns),
        t_start_s=clock.seconds(exchange.sent_ns),
        t_first_s=output[0] if output else None,
        t_last_s=output[-1] if output else None,
        t_end_s=_end_of_stream(exchange, clock, times, stamps),
        n_first_delta=meaning.first_delta(completion_tokens),
        n_events=meaning.n_output,
        usage=meaning.usage,
        prompt_tokens=deltas.count_in(meaning.usage, "prompt_tokens"),
        completion_tokens=completion_tokens,
        cached_tokens=deltas.count_in(meaning.usage, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=deltas.count_in(
            meaning.usage, "completion_tokens_details", "reasoning_tokens"
        ),
        text=meaning.texts.facts(),
        output_sha256=meaning.texts.digest(),
        connect_s=_span_s(exchange.begun_ns, exchange.connected_ns),
    )
    if meaning.kinds:
        entry["events"] = {
            "t_s": times,
            "kind": list(meaning.kinds),
            "tokens": list(meaning.tokens),
            "t_user_s": users,
        }
    entry.update(
        record.derive(
            entry["t_start_s"],
            entry["t_first_s"],
            entry["t_last_s"],
            entry["t_end_s"],
            entry["prompt_tokens"],
            entry["completion_tokens"],
            entry["n_first_delta"],
        )
    )
    return entry


def _span_s(begin_ns: Optional[int], end_ns: Optional[int]) -> Optional[float]:
    if begin_ns is None or end_ns is None:
        return None
    return round((end_ns - begin_ns) / 1e9, _DIGITS)


def _end_of_stream(
    exchange: Exchange, clock: RunClock, times: List[Optional[float]], stamps: List[int]
) -> Optional[float]:
    """tE: [DONE]; else the read that completed the body; else when the transport gave up."""
    kinds = exchange.decoder.meaning.kinds
    if "done" in kinds:
        return times[kinds.index("done")]
    if exchange.ended == WHOLE and stamps and exchange.ended_ns == exchange.reads[-1].user_ns:
        return clock.seconds(stamps[-1])
    return clock.seconds(exchange.ended_ns)
