"""The endpoint that is measured: its address, the headers sent to it, and its model's name.

In:  a base URL and the name of the variable that holds a key.
Out: an `Endpoint`, headers, the first model of /v1/models.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import urllib.parse
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from cargo import server_http

_MODELS_TIMEOUT_S = 10.0
_SAID = 300  # characters of what the server said


class UsageError(ValueError):
    """Arguments that cannot be used."""


class Endpoint(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str  # of the chat completions
    address: Optional[Tuple[Any, ...]]  # (family, sockaddr) of a resolved host; None if unresolved


def resolve(base_url: str, http_choice: str) -> Endpoint:
    """The endpoint behind a base URL; the epoll client takes plain HTTP on loopback only."""
    parts = urllib.parse.urlsplit(base_url)
    try:
        port = parts.port
    except ValueError as problem:
        raise UsageError(f"--base-url {base_url!r}: {problem}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise UsageError(f"--base-url {base_url!r}: http://HOST:PORT expected")
    if parts.username or parts.password:
        raise UsageError("--base-url: no user or password in it, please (use --api-key-env)")
    port = port or (443 if parts.scheme == "https" else 80)
    prefix = parts.path.rstrip("/")
    prefix = prefix if prefix.endswith("/v1") else prefix + "/v1"
    endpoint = Endpoint(parts.scheme, parts.hostname, port, prefix + "/chat/completions", None)
    if http_choice == "httpx":
        return endpoint._replace(address=_first_address(endpoint, required=False))
    if parts.scheme != "http":
        raise UsageError(
            f"--base-url {base_url!r}: --http epoll speaks plain HTTP (use --http httpx)"
        )
    return endpoint._replace(address=_first_address(endpoint, required=True))


def _first_address(endpoint: Endpoint, required: bool) -> Optional[Tuple[Any, ...]]:
    """(family, address) on loopback; where the host has two, the one that listens."""
    try:
        infos = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        if required:
            raise UsageError(f"--base-url: host {endpoint.host!r}: {problem}") from None
        return None
    local = [(info[0], info[4]) for info in infos if ipaddress.ip_address(info[4][0]).is_loopback]
    if not local:
        if required:
            raise UsageError(
                f"--base-url: {endpoint.host!r} is not on loopback: --http epoll measures on the "
                "server's own machine (use --http httpx)"
            )
        return None
    for family, address in local if len(local) > 1 else []:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(1.0)
            if sock.connect_ex(address) == 0:
                return family, address
    return local[0]


def request_headers(api_key_env: Optional[str], version: str) -> Dict[str, str]:
    found = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "User-Agent": f"decodelab/{version}",
    }
    if api_key_env is not None:
        key = os.environ.get(api_key_env, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise UsageError(f"--api-key-env {api_key_env}: no usable key in that variable")
        found["Authorization"] = f"Bearer {key}"
    return found


def ask(
    endpoint: Endpoint,
    headers: Mapping[str, str],
    method: str,
    path: str,
    timeout_s: float,
    body: Optional[Dict[str, Any]] = None,
) -> Tuple[int, bytes]:
    """One short call beside the measured ones: `path` stands where /v1 does. Raises OSError."""
    root = endpoint.path[: -len("/v1/chat/completions")]
    address = server_http.Address(endpoint.scheme, endpoint.host, endpoint.port, root)
    wanted = {**headers, "Accept": "application/json"}
    try:
        return server_http.ask(address, method, path, body, timeout_s, headers=wanted)
    except server_http.ServerHttpError as problem:
        raise OSError(str(problem)) from None


def first_model(endpoint: Endpoint, headers: Dict[str, str]) -> str:
    """The first model that GET /v1/models names. Raises OSError with the reason."""
    path = "/v1/models"
    status, text = ask(endpoint, headers, "GET", path, _MODELS_TIMEOUT_S)
    if status != 200:
        said = " ".join(text[:_SAID].decode("utf-8", "replace").split())
        raise OSError(f"GET {path}: HTTP {status}: {said}".rstrip(": "))
    try:
        name = server_http.parsed(text)["data"][0]["id"]
    except (ValueError, KeyError, IndexError, TypeError) as problem:
        raise OSError(f"GET {path}: {type(problem).__name__}: {problem}"[:_SAID]) from None
    if not isinstance(name, str):
        raise OSError(f"GET {path}: the first model's id is no text")
    return name
