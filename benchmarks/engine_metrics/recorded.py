"""Recorded replies of a real engine: what came and when; and what our client makes of one.

A file of streams/ is {"engine", "what", "options", "sent_s", "chunks": [[t_s, text], ...]}: `sent_s` is
when the request was written, each chunk one read of the reply's body, all in seconds of one clock.
Times are decimal fractions with six digits, so that both sides compute from the same numbers.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cargo.exchange import WHOLE, Exchange, Read, RunClock, request_record

FOLDER = Path(__file__).resolve().parent / "streams"
_DIGITS = 6


@dataclass(frozen=True)
class Stream:
    engine: str
    what: str
    options: dict[str, Any]  # the request's body but for its messages
    sent_s: float
    chunks: list[tuple[float, str]]

    def write(self, path: Path) -> None:
        text = json.dumps(asdict(self), ensure_ascii=False, indent=0)
        path.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> Stream:
    found = json.loads(path.read_text(encoding="utf-8"))
    found["chunks"] = [(t_s, text) for t_s, text in found["chunks"]]
    return Stream(**found)


def all_streams() -> Iterator[tuple[str, Stream]]:
    """(name, stream) of every recorded file, by name."""
    for path in sorted(FOLDER.glob("*.json")):
        yield path.stem, read(path)


def record(base_url: str, engine: str, what: str, body: dict[str, Any]) -> Stream:
    """Ask a server once and keep its reply, read by read."""
    place = urlsplit(base_url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    headers = {"Content-Type": "application/json"}
    data = json.dumps(body).encode()
    zero_s = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", data, headers)
    sent_s = time.perf_counter() - zero_s
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(f"status {reply.status}: {reply.read()[:500]!r}")
    chunks = []
    while data := reply.read1(1 << 16):
        chunks.append((round(time.perf_counter() - zero_s, _DIGITS), data.decode()))
    connection.close()
    options = {key: value for key, value in body.items() if key != "messages"}
    return Stream(engine, what, options, round(sent_s, _DIGITS), chunks)


def ours(stream: Stream) -> dict[str, Any]:
    """The request's entry in our run record, by the client's own decoding of these bytes and times."""
    exchange = Exchange(0, False)
    exchange.begun_ns = exchange.connected_ns = exchange.sent_ns = _ns(stream.sent_s)
    exchange.status = 200
    exchange.headers = {"content-type": "text/event-stream; charset=utf-8"}
    exchange.reads = [Read(_ns(t_s), None, text.encode()) for t_s, text in stream.chunks]
    exchange.end(WHOLE, exchange.reads[-1].user_ns)
    return request_record(exchange, RunClock(0, None), None)


def _ns(t_s: float) -> int:
    return round(t_s * 1e9)
