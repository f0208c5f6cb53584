"""How a request leaves this host: straight, or through the proxy that the environment names.

In:  an address, the environment. Out: an http.client connection that is not connected yet, and what
its requests need in front of their path and among their headers.

The agent and the httpx client ask here, so that both go the same way: `http_proxy`, `https_proxy`,
`all_proxy` and `no_proxy` in either case; never a proxy to loopback. Certificates are checked
against the system's, or against those of SSL_CERT_FILE or SSL_CERT_DIR.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import ssl
from typing import Dict, NamedTuple, Optional
from urllib.parse import SplitResult, unquote, urlsplit


class Route(NamedTuple):
    connection: http.client.HTTPConnection
    prefix: str  # goes before the path
    headers: Dict[str, str]  # what the proxy wants to see with each request


def is_loopback(host: str) -> bool:
    """By its name alone: what a name of the network leads to is the resolver's matter."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def trusted() -> ssl.SSLContext:
    """Whose certificates are believed. OpenSSL itself looks at SSL_CERT_FILE and SSL_CERT_DIR."""
    return ssl.create_default_context()


def proxy_of(scheme: str, host: str, port: int) -> Optional[SplitResult]:
    """The proxy on the way to an address, or None. Raises OSError for one that cannot be used."""
    if is_loopback(host):
        return None
    # slow to import, and most requests go to loopback
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    found = proxies.get(scheme) or proxies.get("all")
    if not found or proxy_bypass("%s:%d" % (host, port)):
        return None
    proxy = urlsplit(found if "://" in found else "http://" + found)
    if proxy.scheme != "http" or not proxy.hostname:
        raise OSError(
            "the environment's proxy %s://%s: only http://HOST:PORT can be used"
            % (proxy.scheme, proxy.hostname)
        )
    return proxy


def find(scheme: str, host: str, port: int, timeout_s: float) -> Route:
    """The way to an address; nothing is connected yet. Raises OSError as `proxy_of` does."""
    proxy = proxy_of(scheme, host, port)
    if proxy is None:
        return Route(_straight(scheme, host, port, timeout_s), "", {})
    assert proxy.hostname is not None
    headers = _credentials(proxy)
    connection = _straight(scheme, proxy.hostname, proxy.port or 80, timeout_s)
    if scheme == "https":
        connection.set_tunnel(host, port, headers)
        return Route(connection, "", {})
    shown = "[%s]" % host if ":" in host else host
    return Route(connection, "http://%s:%d" % (shown, port), headers)


def _straight(scheme: str, host: str, port: int, timeout_s: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=trusted())
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _credentials(proxy: SplitResult) -> Dict[str, str]:
    if proxy.username is None:
        return {}
    pair = "%s:%s" % (unquote(proxy.username), unquote(proxy.password or ""))
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}
