"""Short HTTP calls to the server, each with a deadline and interruptible while it waits.

In: base URL (http or https, by the environment's proxy where it is not on this host), method, path,
body, seconds; `check` is called while waiting and may raise to end it; headers that the server
wants to see (its key).
Out: (status, body). Any failure of the transport is a ServerHttpError with its reason in words.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import select
import socket
import ssl
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from cargo import route

TICK_S = 0.1
DEEPEST = 50  # levels of JSON; what follows would end in a recursion error somewhere
CONNECT_S = 5.0  # for each step of connecting, in which nobody is asked whether to go on
LIMIT_BYTES = 64 << 20
INFO = re.compile(r"vllm:\w+_info\{")
INFO_LINES, INFO_CHARS = 16, 8000
SPOKEN = ("content", "reasoning", "reasoning_content", "tool_calls", "refusal")  # of a message
NO_HEADERS: Mapping[str, str] = {}


class ServerHttpError(Exception):
    pass


class _Answer(io.BytesIO):
    """Bytes that look like a socket to http.client."""

    def makefile(self, *_: Any, **__: Any) -> "_Answer":
        return self


class Address(NamedTuple):
    scheme: str
    host: str
    port: int
    prefix: str  # of every path


def address_of(base_url: str) -> Address:
    """With or without the /v1 that clients are often told."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServerHttpError("only http(s)://host:port is supported, found %s" % base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = parts.path.rstrip("/")
    prefix = path[: -len("/v1")] if path.endswith("/v1") else path
    return Address(parts.scheme, parts.hostname, port, prefix)


def call(
    base_url: str,
    method: str,
    path: str,
    body: Optional[Dict[str, Any]] = None,
    timeout_s: float = 5.0,
    check: Callable[[], None] = lambda: None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Tuple[int, bytes]:
    return ask(address_of(base_url), method, path, body, timeout_s, check, headers)


def ask(
    address: Address,
    method: str,
    path: str,
    body: Optional[Dict[str, Any]] = None,
    timeout_s: float = 5.0,
    check: Callable[[], None] = lambda: None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Tuple[int, bytes]:
    """As `call`, where the address is known."""
    end = time.monotonic() + timeout_s
    sent = {"Connection": "close", "Accept": "*/*", **headers}
    data = None
    if body is not None:
        data = json.dumps(body).encode("utf-8")
        sent["Content-Type"] = "application/json"
    try:
        way = route.find(*address[:3], min(timeout_s, CONNECT_S))
        with contextlib.closing(way.connection) as conn:
            conn.connect()
            conn.sock.settimeout(max(TICK_S, end - time.monotonic()))  # a long body takes a while
            conn.request(method, way.prefix + address.prefix + path, data, {**sent, **way.headers})
            conn.sock.setblocking(False)
            raw = _read_all(conn.sock, end, timeout_s, check)
        return _parse(raw, method)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServerHttpError("%s %s: %s" % (method, path, str(error) or repr(error))) from error


def _read_all(
    conn: socket.socket, end: float, timeout_s: float, check: Callable[[], None]
) -> bytes:
    """Up to the end of the answer: by its own length where it says one, else by end of stream."""
    got = bytearray()
    while True:
        check()
        left = end - time.monotonic()
        if left <= 0:
            raise OSError("no full answer within %g s" % timeout_s)
        try:
            chunk = conn.recv(65536)  # first of all: TLS may hold what select does not see
        except (BlockingIOError, ssl.SSLWantReadError):
            select.select([conn], [], [], min(TICK_S, left))
            continue
        if not chunk:
            return bytes(got)
        got += chunk
        if _complete(got):
            return bytes(got)
        if len(got) > LIMIT_BYTES:
            raise OSError("the answer is larger than %d bytes" % LIMIT_BYTES)


def _complete(got: bytearray) -> bool:
    cut = got.find(b"\r\n\r\n")
    if cut < 0:
        return False
    head = bytes(got[:cut]).lower()
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return len(got) >= cut + 4 + int(value)
    return b"chunked" in head and got.endswith(b"0\r\n\r\n")


def _parse(raw: bytes, method: str) -> Tuple[int, bytes]:
    answer = http.client.HTTPResponse(_Answer(raw), method=method)  # type: ignore[arg-type]
    answer.begin()
    return answer.status, answer.read()


def parsed(body: bytes) -> Any:
    """The JSON value of an answer. Raises ValueError for any other bytes, and for a nest of brackets."""
    try:
        found = json.loads(body.decode("utf-8"))
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [child for one in level for child in _children(one)]
        if not level:
            return found
    raise ValueError("JSON that is nested too deep")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def get_json(
    base_url: str,
    path: str,
    timeout_s: float,
    check: Callable[[], None],
    headers: Mapping[str, str] = NO_HEADERS,
) -> Any:
    """The parsed answer, or None when it is not a 200 with JSON."""
    try:
        status, body = call(base_url, "GET", path, None, timeout_s, check, headers)
        return parsed(body) if status == 200 else None
    except (ServerHttpError, ValueError):
        return None


def info_gauges(
    base_url: str,
    timeout_s: float,
    check: Callable[[], None],
    headers: Mapping[str, str] = NO_HEADERS,
) -> List[str]:
    """Lines of /metrics that tell a configuration by their labels, as they are printed."""
    try:
        status, body = call(base_url, "GET", "/metrics", None, timeout_s, check, headers)
    except ServerHttpError:
        return []
    lines = body.decode("utf-8", "replace").splitlines() if status == 200 else []
    info = [line[:INFO_CHARS] for line in lines if INFO.match(line)]
    return info[:INFO_LINES]


def healthy(
    base_url: str,
    timeout_s: float,
    check: Callable[[], None],
    headers: Mapping[str, str] = NO_HEADERS,
) -> bool:
    try:
        return call(base_url, "GET", "/health", None, timeout_s, check, headers)[0] == 200
    except ServerHttpError:
        return False


def one_token(
    base_url: str,
    model: str,
    timeout_s: float,
    check: Callable[[], None],
    headers: Mapping[str, str] = NO_HEADERS,
) -> Optional[str]:
    """Ask for a single token: the only proof that an engine lives behind the port.

    Returns None when it came, else why not.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "1"}],
        "max_tokens": 1,
        "temperature": 0,
        "stream": False,
    }
    try:
        status, raw = call(
            base_url, "POST", "/v1/chat/completions", body, timeout_s, check, headers
        )
    except ServerHttpError as error:
        return str(error)
    text = raw.decode("utf-8", "replace")
    if status != 200:
        return "HTTP %d: %s" % (status, text[:300])
    try:
        answer = parsed(raw)
        choice = answer["choices"][0]
        said = choice.get("message") or {}
        came = choice.get("text") or any(said.get(key) for key in SPOKEN) or _counted(answer)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return "not a completion: %s" % text[:300]
    return None if came else "an answer without a token: %s" % text[:300]


def _counted(answer: Mapping[str, Any]) -> bool:
    """Whether the server counts a token: one that prints nothing leaves the text empty."""
    count = (answer.get("usage") or {}).get("completion_tokens")
    return isinstance(count, int) and count >= 1
