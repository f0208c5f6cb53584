"""A server that promises to keep connections alive and then closes them: no request is lost to it."""

from __future__ import annotations

import pytest

from .driving import run_client
from .scripted_server import Hold, serving
from .scripts_framing import KEEP_ALIVE
from .speech import plain_events, steps

WHOLE = steps(plain_events(), head=KEEP_ALIVE, first_s=0.005, gap_s=0.0005)


@pytest.mark.parametrize("http", ["epoll", "httpx"])
@pytest.mark.parametrize("held", [False, True], ids=["closed", "held"])
def test_each_request_has_a_connection_of_its_own(http: str, held: bool) -> None:
    """Sent on a connection that the server is just closing, a request would be lost."""
    script = [*WHOLE, Hold()] if held else WHOLE
    with serving(script) as server:
        found = run_client(server.port, f"--http={http}", requests=8, concurrency=2)
    assert [request["outcome"] for request in found["requests"]] == ["ok"] * 8
    assert len(server.truths) == 8
    assert all(b"\r\nconnection: close\r\n" in one.request.lower() for one in server.truths)
    assert all(request["connect_s"] is not None for request in found["requests"])
