"""Streaming a trace: every form, and files that end too early."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import trace_stream
from decodelab.trace_stream import NotATrace, TraceFile
from tests.unit import gpu_traces

TRACE = gpu_traces.text(gpu_traces.decode_trace(steps=1)).encode()
EVENTS = json.loads(TRACE)["traceEvents"]


def events_of(path: Path, data: bytes) -> tuple[list[dict[str, Any]], TraceFile]:
    path.write_bytes(data)
    file = TraceFile(path)
    return list(file), file


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces") / "t.json"


@pytest.mark.parametrize(
    "data",
    [
        TRACE,
        gzip.compress(TRACE),
        gzip.compress(TRACE[:999]) + gzip.compress(TRACE[999:]),
        json.dumps(EVENTS).encode(),
        b"\xef\xbb\xbf" + TRACE,
        json.dumps({"traceEvents": EVENTS, "displayTimeUnit": "ms"}).encode(),
    ],
    ids=["plain", "gzip", "two members", "array", "BOM", "one line"],
)
def test_every_form_gives_the_same_events(path: Path, data: bytes) -> None:
    events, file = events_of(path, data)
    assert events == EVENTS and file.damage is None and file.events == len(EVENTS)


def test_what_stands_around_the_events_is_told(path: Path) -> None:
    _events, file = events_of(path, TRACE)
    assert file.head["distributedInfo"]["rank"] == 0
    assert file.head["traceName"] == "rank0.pt.trace.json"  # behind the events


def test_what_profilers_write_beyond_json_is_read(path: Path) -> None:
    odd = b'{"a": NaN, "n": 12345, "traceEvents": [{"name": "a\tb\xff", "dur": Infinity},,]}'
    events, file = events_of(path, odd)
    assert events[0]["name"] == "a\tb\ufffd" and file.damage is None and file.head["n"] == 12345


@pytest.mark.parametrize("data", [b"", b"12", b'"text"', b"name,share\na,1\n", b'{"shares": {}}'])
def test_what_is_no_trace_says_so(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    file = TraceFile(path)
    try:
        assert list(file) == [] and file.damage
    except NotATrace as error:
        assert "traceEvents" in str(error)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, len(TRACE) - 1), st.booleans())
def test_a_file_cut_anywhere_gives_its_whole_events_and_says_so(
    tmp_path_factory: pytest.TempPathFactory, cut: int, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("cut") / "t.json"
    whole = gzip.compress(TRACE, mtime=0) if packed else TRACE
    data = whole[: max(2, cut * len(whole) // len(TRACE))]  # of less nobody knows that it is gzip
    events, file = events_of(path, data)
    assert events == EVENTS[: len(events)]
    assert file.damage or (packed and events == EVENTS)  # only gzip's own end is gone
    if not packed:
        behind = data.partition(b'"traceEvents"')[2]
        closed = behind.count(b"\n    },") + (b"\n    }\n  ]" in behind)
        assert len(events) in (closed, closed + 1)  # the last one is whole without its comma


@given(st.integers(1, 64))
def test_a_value_may_lie_across_reads(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("across") / "t.json"
    usual = trace_stream.CHUNK
    try:
        trace_stream.CHUNK = size
        events, file = events_of(
            path, b'{"n": 123456, "s": "\xe4\xbd\xa0", "traceEvents": [{"ts": 1.25}, {}]}'
        )
    finally:
        trace_stream.CHUNK = usual
    assert events == [{"ts": 1.25}, {}] and file.head == {"n": 123456, "s": "你"}


def test_a_damaged_value_does_not_take_the_rest_of_the_file_into_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_stream, "LONGEST", 1000)
    monkeypatch.setattr(trace_stream, "CHUNK", 100)
    events, file = events_of(path, b'[{"a": 1}, {"b": ' + b'"x" "y", ' * 100_000 + b"]")
    assert events == [{"a": 1}]
    assert file.damage == "damaged at character 11"
