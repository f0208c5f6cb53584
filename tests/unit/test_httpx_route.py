"""Which way a request takes: straight or by a proxy; whose certificates are believed; both sides alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import route, server_http
from tests.conformance.driving import run_client
from tests.conformance.scripted_server import Hold, ScriptedServer, Send, serving
from tests.conformance.speech import plain_events, steps
from tests.e2e.tls import NAME, Authority, TlsFront, WebProxy, opened

WHOLE = steps(plain_events(), first_s=0.01, gap_s=0.001)
HELLO = [Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)


@pytest.fixture
def believed(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving(WHOLE) as made:
        yield made


@pytest.fixture
def front(server: ScriptedServer, authority: Authority) -> Iterator[TlsFront]:
    with opened(lambda: TlsFront(server.port, authority)) as made:
        yield made


def proxy(monkeypatch: pytest.MonkeyPatch, behind: int, scheme: str, user: str = "") -> WebProxy:
    made = WebProxy(behind)
    monkeypatch.setenv(f"{scheme}_proxy", f"http://{user}127.0.0.1:{made.port}")
    return made


def measured(url: str, **more: int) -> list[dict[str, Any]]:
    found = run_client(1, f"--base-url={url}", "--http=httpx", requests=2, **more)
    requests: list[dict[str, Any]] = found["requests"]
    return requests


# -- the rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment, address, expected",
    [
        ({}, ("https", "far", 443), None),
        ({"https_proxy": "http://p:3128"}, ("https", "far", 443), "http://p:3128"),
        ({"HTTPS_PROXY": "p:3128"}, ("https", "far", 443), "http://p:3128"),
        ({"https_proxy": "http://p:3128"}, ("http", "far", 80), None),
        ({"ALL_PROXY": "http://p:3128"}, ("http", "far", 80), "http://p:3128"),
        (
            {"http_proxy": "http://one", "ALL_PROXY": "http://two"},
            ("http", "far", 80),
            "http://one",
        ),
        ({"all_proxy": "http://p", "NO_PROXY": "x, far"}, ("https", "far", 443), None),
        ({"all_proxy": "http://p", "NO_PROXY": ".lan"}, ("https", "gpu.lan", 443), None),
        ({"all_proxy": "http://p", "NO_PROXY": "lan"}, ("https", "vlan", 443), "http://p"),
        ({"all_proxy": "http://p", "no_proxy": "*"}, ("https", "far", 443), None),
        ({"all_proxy": "http://p"}, ("http", "localhost", 80), None),
        ({"all_proxy": "http://p"}, ("http", "127.1.2.3", 80), None),
        ({"all_proxy": "http://p"}, ("http", "::1", 80), None),
    ],
)
def test_the_environment_names_the_proxy(
    environment: dict[str, str],
    address: tuple[str, str, int],
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = route.proxy_of(*address)
    assert (found.geturl() if found else None) == expected


@pytest.mark.parametrize("value", ["socks5://p:1", "https://p:1", "http://"])
def test_a_proxy_that_cannot_be_used_is_said_to_be_so(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(OSError, match="only http://HOST:PORT can be used"):
        route.proxy_of("https", "far", 443)
    with pytest.raises(server_http.ServerHttpError, match="only http://HOST:PORT can be used"):
        server_http.call("https://far", "GET", "/health")


# -- the load client ---------------------------------------------------------------------------


def test_the_client_measures_over_tls(front: TlsFront, believed: None) -> None:
    found = measured(f"https://localhost:{front.port}", concurrency=2)
    assert [request["outcome"] for request in found] == ["ok", "ok"]
    assert all(request["connect_s"] > 0 for request in found)


@pytest.mark.parametrize("names, said", [((), "issuer"), (("other.example",), "Hostname mismatch")])
def test_a_certificate_that_is_not_believed_is_named(
    names: tuple[str, ...],
    said: str,
    server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = Authority(tmp_path / "wrong", *names)
    if names:
        monkeypatch.setenv("SSL_CERT_FILE", str(wrong.file))
    with opened(lambda: TlsFront(server.port, wrong)) as front:
        for request in measured(f"https://localhost:{front.port}"):
            assert request["outcome"] == "connection"
            assert request["error"]["kind"] == "tls"
            assert "certificate verify failed" in request["error"]["message"]
            assert said in request["error"]["message"]
        url = f"https://localhost:{front.port}"
        with pytest.raises(server_http.ServerHttpError, match=f"certificate verify failed.*{said}"):
            server_http.call(url, "GET", "/health")
    assert server.truths == [], "nothing was sent to a stranger"


def test_the_client_goes_through_the_environments_proxy(
    front: TlsFront, believed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = proxy(monkeypatch, front.port, "https", user="me:p%40ss@")
    with opened(lambda: way):
        found = measured(f"https://{NAME}:8443/v1")
    assert [request["outcome"] for request in found] == ["ok", "ok"]
    assert way.lines == [f"CONNECT {NAME}:8443 HTTP/1.1"] * 2
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in way.asked[0]
    # the clock starts with our request, not with the proxy's
    assert all(request["ttft_s"] >= 0.01 for request in found)
    assert all(request["connect_s"] > 0 for request in found)


def test_plain_http_goes_through_the_proxy_as_well(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = proxy(monkeypatch, server.port, "http")
    with opened(lambda: way):
        found = measured(f"http://{NAME}:8000")
    assert [request["outcome"] for request in found] == ["ok", "ok"]
    assert way.lines == [f"POST http://{NAME}:8000/v1/chat/completions HTTP/1.1"] * 2


def test_a_proxy_that_refuses_is_told_from_the_server(
    front: TlsFront, believed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = proxy(monkeypatch, front.port, "https")
    way.behind = None
    with opened(lambda: way):
        (request, _) = measured(f"https://{NAME}")
        with pytest.raises(server_http.ServerHttpError, match="403 Not this way"):
            server_http.call(f"https://{NAME}", "GET", "/health")
    assert (request["outcome"], request["error"]["kind"]) == ("connection", "proxy")
    assert "403 Not this way" in request["error"]["message"]


def test_a_tunnel_that_stalls_is_a_timeout_of_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's own request is sent long before ours, so it must not start the wait for a token."""
    with serving([Hold()]) as deaf:
        way = proxy(monkeypatch, deaf.port, "https")
        with opened(lambda: way):
            found = run_client(
                1, f"--base-url=https://{NAME}", "--http=httpx", "--timeout-connect=0.3"
            )
    (request,) = found["requests"]
    assert (request["outcome"], request["error"]["kind"]) == ("timeout", "connect")


# -- the agent's own calls ---------------------------------------------------------------------


def test_the_agent_goes_the_same_way(
    authority: Authority, believed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000
    with serving(HELLO, [Send(long)], HELLO) as server:
        with opened(lambda: TlsFront(server.port, authority)) as front:
            url = f"https://localhost:{front.port}/v1/"
            assert server_http.call(url, "GET", "/v1/models") == (200, b"hi")
            assert server_http.call(url, "GET", "/metrics") == (200, b"x" * 300_000)
            way = proxy(monkeypatch, front.port, "https")
            with opened(lambda: way):
                assert server_http.call(f"https://{NAME}/gate", "GET", "/health") == (200, b"hi")
        heads = [truth.request.partition(b"\r\n")[0] for truth in server.truths]
    assert heads == [
        b"GET /v1/models HTTP/1.1",
        b"GET /metrics HTTP/1.1",
        b"GET /gate/health HTTP/1.1",
    ]
    assert way.lines[0].startswith(f"CONNECT {NAME}:443 ")


def test_the_agent_names_the_whole_address_to_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(HELLO) as server:
        way = proxy(monkeypatch, server.port, "http", user="me:secret@")
        with opened(lambda: way):
            assert server_http.call(f"http://{NAME}:81", "GET", "/health") == (200, b"hi")
    assert way.lines == [f"GET http://{NAME}:81/health HTTP/1.1"]
    assert b"\r\nHost: llm.example:81\r\n" in way.asked[0]
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0" in way.asked[0]


def test_a_wait_over_tls_can_be_interrupted(authority: Authority, believed: None) -> None:
    class Stop(Exception):
        pass

    calls = iter([None, None])

    def check() -> None:
        if next(calls, Stop) is Stop:
            raise Stop

    with serving([Hold()]) as deaf, opened(lambda: TlsFront(deaf.port, authority)) as front:
        with pytest.raises(Stop):
            server_http.call(f"https://localhost:{front.port}", "GET", "/", check=check)
        with pytest.raises(server_http.ServerHttpError, match=r"no full answer within 0\.3 s"):
            server_http.call(f"https://localhost:{front.port}", "GET", "/", timeout_s=0.3)
