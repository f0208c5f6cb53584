"""The server's first model: its name, or in words why there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cargo import endpoint
from tests.conformance.driving import run_client
from tests.conformance.scripted_server import Send, Step, Wait, serving
from tests.conformance.scripts import error_reply, reply


def asked(script: list[Step], suffix: str = "") -> tuple[str, bytes]:
    """The name, or what OSError said; and the request."""
    with serving(script) as server:
        where = endpoint.resolve(f"http://127.0.0.1:{server.port}{suffix}", "epoll")
        try:
            found = endpoint.first_model(where, {"Authorization": "Bearer k"})
        except OSError as problem:
            found = f"OSError: {problem}"
    return found, server.truths[0].request


def answer(text: bytes) -> list[Step]:
    return reply("200 OK", text, "content-type: application/json")


@pytest.mark.parametrize("suffix", ["", "/v1", "/gate/v1/", "/gate"])
def test_it_is_asked_for_beside_the_chat(suffix: str) -> None:
    found, request = asked(
        answer(json.dumps({"data": [{"id": "glm"}, {"id": "x"}]}).encode()), suffix
    )
    assert found == "glm"
    before = b"/gate" if "gate" in suffix else b""
    assert request.startswith(b"GET %s/v1/models HTTP/1.1\r\n" % before)
    assert b"\r\nAuthorization: Bearer k\r\n" in request


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[" * 20_000, "nested too deep"),
        (b'{"data": [{"id": "m", "x": %s}]}' % (b"[" * 970 + b"]" * 970), "nested too deep"),
        (b"\xff", "UnicodeDecodeError"),
        (b"<html>", "JSONDecodeError"),
        (b"{}", "KeyError"),
        (b'{"data": []}', "IndexError"),
        (b'{"data": 7}', "TypeError"),
        (b'{"data": [{"id": 7}]}', "the first model's id is no text"),
        (b'{"data": [{"id": 1%s}]}' % (b"0" * 9000), "/v1/models"),
    ],
)
def test_an_answer_that_names_none(text: bytes, said: str) -> None:
    found, _ = asked(answer(text))
    assert found.startswith("OSError: GET /v1/models: ") and said in found
    assert len(found) < 400


def test_a_refusal_is_told_with_its_words() -> None:
    found, _ = asked(error_reply("401 Unauthorized", {"error": "Unauthorized"}))
    assert found == 'OSError: GET /v1/models: HTTP 401: {"error": "Unauthorized"}'
    assert asked(error_reply("404 Not Found", None))[0].endswith("/v1/models: HTTP 404: null")
    assert asked(reply("503 Busy", b""))[0] == "OSError: GET /v1/models: HTTP 503"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 20\xc2\xb2 OK", b"HTTP/1.1 200 OK\r\ncontent-length: \xc2\xb2"]
)
def test_what_is_no_http_is_told_too(head: bytes) -> None:
    assert asked([Send(head + b"\r\n\r\n{}")])[0].startswith("OSError: GET /v1/models: ")


def test_an_answer_that_drips_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_MODELS_TIMEOUT_S", 0.5)
    drip: list[Step] = [Send(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n")]
    drip += [Send(b" "), Wait(0.05)] * 100
    assert asked(drip)[0] == "OSError: GET /v1/models: no full answer within 0.5 s"


def test_none_of_it_costs_the_record(tmp_path: Path) -> None:
    with serving(answer(b"[" * 20_000)) as server:
        found = run_client(server.port, "--model=auto", requests=2)
    assert [one["outcome"] for one in found["requests"]] == ["connection", "not_started"]
    assert "nested too deep" in found["requests"][0]["error"]["message"]
