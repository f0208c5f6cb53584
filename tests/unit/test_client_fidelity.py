"""The pure parts of benchmarks/client_fidelity.py, and its two emitters one beside the other: same
words on the wire, same stamp file.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from fidelity import peer_clis, peers, table
from fidelity.client_run import ClientRun, run_bare
from fidelity.emitter_process import Emitter, EmitterPlan, Spoken, command, read_stamps
from fidelity.lag import compare
from fidelity.others import Taken, others_share, taken
from fidelity.place import Place
from fidelity.rows import (
    CAPACITY_TARGET,
    LAG_TARGETS,
    BareRun,
    Load,
    Pair,
    Row,
    distrust,
    make_row,
    middle_cost,
    missed,
)

ZERO_S = 1000.0
MS = 1_000_000


def spoken(start_ms: float, *at_ms: float) -> Spoken:
    """A stream whose request was read and whose events were spoken so long after the run's zero."""
    times = [round((ZERO_S * 1e3 + t) * MS) for t in (start_ms, *at_ms)]
    return Spoken(times[0], 0, times[1:])


def request(number: int | None, start_ms: float, *at_ms: float, **other: Any) -> dict[str, Any]:
    """As the client records it: a role event first, usage and the end last."""
    kinds = ["role", *["content"] * len(at_ms), "usage", "done"]
    times = [at_ms[0], *at_ms, at_ms[-1], at_ms[-1]] if at_ms else [0.0] * 3
    entry: dict[str, Any] = {
        "index": 0,
        "outcome": "ok",
        "usage": None if number is None else {"stream": number},
        "n_events": len(at_ms),
        "t_start_s": start_ms / 1e3,
        "events": {
            "t_s": [t / 1e3 for t in times],
            "t_user_s": [t / 1e3 + 0.002 for t in times],
            "kind": kinds,
            "tokens": [None] * len(kinds),
        },
    }
    return {**entry, **other}


def record(*requests: dict[str, Any], **client: Any) -> dict[str, Any]:
    known = {
        "reads": 4,
        "coalesced_reads": 0,
        "cpu_s": 80e-6,
        "wall_s": 0.001,
        "stamp_source": "kernel",
        "loop_late_max_s": 0.001,
        "lag_p99_s": 0.001,
    }
    clock = {"t0_monotonic_s": ZERO_S}
    return {"clock": clock, "client": {**known, **client}, "requests": list(requests)}


# ---------------------------------------------------------------------- lag
def test_a_lag_is_receive_minus_emit_matched_by_the_number_in_the_usage() -> None:
    found = compare(
        record(request(1, 0, 11.5, 21.5), request(0, 0, 10.25, 20.25)),
        [spoken(1, 10, 20), spoken(1, 11, 21)],
    )
    assert [round(lag * 1e3, 3) for lag in found.lags_s] == [0.5, 0.5, 0.25, 0.25]
    assert round(max(found.user_lags_s) * 1e3, 3) == 2.5
    assert (found.emitted, found.received, found.lost, found.problems) == (4, 4, 0, [])
    assert round(found.t0_late_s * 1e3, 3) == -1


def test_events_that_are_in_no_record_are_lost() -> None:
    found = compare(record(request(0, 0, 10.1)), [spoken(1, 10, 20), spoken(1, 10, 20)])
    assert found.lost == 3


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (request(None, 0, 10.1), "stream None"),
        (request(7, 0, 10.1), "stream 7"),
        (request(0, 0, 10.1, n_events=2), "n_events 2, 1 times"),
        (request(0, 0, 10.1, 20.1, 30.1), "3 events of 2 spoken"),
        (request(0, 0, 9.9), "before it was spoken"),
        (request(0, 10.05, 10.1), "spoken to before it was sent"),
    ],
)
def test_a_match_that_cannot_be_right_is_told(entry: dict[str, Any], words: str) -> None:
    found = compare(record(entry), [spoken(1, 10, 20)])
    assert any(words in problem for problem in found.problems), found.problems


def test_two_requests_cannot_be_one_stream() -> None:
    one = request(0, 0, 10.1, 20.1)
    found = compare(record(one, one), [spoken(1, 10, 20)])
    assert (found.lost, len(found.problems)) == (0, 1)


# ---------------------------------------------------------------------- rows
def row(load: Load = LAG_TARGETS[0], http: str = "epoll", **other: Any) -> Row:
    client = {name: other.pop(name) for name in list(other) if name not in Row._fields}
    run = ClientRun(record(request(0, 0, 10.05, 30.05), **client), 0.2)
    found = compare(run.record, [spoken(1, 10, 30)])
    return make_row(http, load, run, found, span_s=0.0)._replace(**other)


def test_a_row_from_a_record() -> None:
    made = row()
    assert round((made.lag_p99_s or 0) * 1e6) == 50
    assert round((made.cpu_per_event_s or 0) * 1e6) == 40
    assert round((made.cpu_per_read_s or 0) * 1e6) == 20
    assert (made.process_cpu_per_event_s, made.cpu_share) == (0.1, 0.08)
    assert distrust(made) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lag_p99_s": 0.000101}, "P99 lag > 0.1 ms"),
        ({"lag_p99_s": None}, "P99 lag > 0.1 ms"),
        ({"lost": 2}, "2 events lost"),
        ({"coalesced_reads": 1}, "coalesced > 5%"),
        ({"stamp_source": "user", "lag_p99_s": 0.09, "late": True}, "self-check: late"),
        ({"t0_late_s": 0.003}, "t0 up to 3.0 ms"),
        ({"emitter_behind": True}, "did not keep the rate"),
        ({"problems": ["request 3"]}, "not matched: request 3"),
    ],
)
def test_what_makes_a_row_untrustworthy(change: dict[str, Any], words: str) -> None:
    assert words in "; ".join(distrust(row(**change)))


def test_targets_are_missed_by_the_epoll_client_only_and_by_what_was_run() -> None:
    assert missed([]) == []
    assert missed([row(lag_p99_s=0.2, http="httpx")]) == []
    cheap = {"read_cost_s": 19e-6, "bare_cost_s": 15e-6}
    assert missed([row(lag_p99_s=0.2, **cheap)]) == ["32 x 50/s sync: P99 lag > 0.1 ms"]
    assert missed([row(Load(7, 7, "sync"), lag_p99_s=0.2)]) == []


def test_a_read_may_cost_20_us_or_half_as_much_again_as_the_barest_loop() -> None:
    def found(cost_us: float | None, bare_us: float | None = 12.0) -> list[str]:
        read_cost_s, bare_cost_s = (v and v * 1e-6 for v in (cost_us, bare_us))
        return missed([row(CAPACITY_TARGET, read_cost_s=read_cost_s, bare_cost_s=bare_cost_s)])

    assert found(19) == [] == found(26, bare_us=18)
    assert found(21) == [
        "1024 x 40/s async: 21.0 us a read; wanted 20, or 1.5 times the 12.0 of the barest loop"
    ]
    assert found(None) == found(19, None) == ["1024 x 40/s async: no cost of a read"]


def test_the_cost_of_a_read_is_the_middle_slope() -> None:
    long = row(LAG_TARGETS[1], reads=1000)
    short = row(LAG_TARGETS[1], reads=200, cpu_s=0.010)
    bare = [BareRun(1000, cpu_s) for cpu_s in (0.020, 0.018, 0.022)]
    pairs = [
        Pair(long._replace(cpu_s=cpu_s), short, loop, BareRun(200, 0.010))
        for cpu_s, loop in zip((0.050, 0.026, 0.030), bare, strict=True)
    ]
    found = middle_cost(pairs)
    assert found.read_cost_s == pytest.approx(25e-6) and found.cpu_s == 0.030
    assert found.bare_cost_s == pytest.approx(12.5e-6)
    backwards = Pair(short, long, bare[0], bare[1])
    assert missed([middle_cost([backwards])])  # a longer run with fewer reads says nothing


def test_the_bare_loop_reads_what_the_emitter_says(tmp_path: Path) -> None:
    argv, _language = command(tmp_path)
    place = Place(frozenset())
    with Emitter(argv, tmp_path, EmitterPlan(100, 7, "async", 3, 0.05), place) as emitter:
        found = run_bare(emitter.base_url, tmp_path, 3, 7, 10, place)
        spoken = emitter.end()
    assert [len(one.stamps_ns) for one in spoken] == [7, 7, 7]
    assert found["reads"] >= 3 * 7 and found["cpu_s"] > 0


def test_what_others_took_of_the_cores() -> None:
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    stat = (
        "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 0 2 900 5 0 1 3 0 0\ncpu1 50 0 0 7 0 0 0 0 0 0\nintr 5\n"
    )
    assert taken({0}, stat).busy_s == pytest.approx(7 * tick_s)
    assert taken({0, 1}, stat).busy_s == pytest.approx(57 * tick_s)
    assert others_share(Taken(0, 0), Taken(2, 1.5), 1.0, 1) == 0.25
    assert others_share(Taken(0, 0), Taken(2, 0.5), 1.0, 1) == 0.0
    assert others_share(Taken(0, 0), Taken(0, 0), 0.0, 0) is None


# ---------------------------------------------------------------------- tables
def test_the_table_has_a_line_for_each_row() -> None:
    lines = table.lag_table([row(), row(lost=3, lag_p50_s=None)]).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {len(table.HEAD) + 1}
    assert lines[2].endswith("| good |")
    assert "3 events lost" in lines[3]


def test_a_block_of_a_page_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- /x -->\nafter\n")
    table.write_block(page, "x", "a \\1 b")
    assert page.read_text() == "before\n<!-- x -->\na \\1 b\n<!-- /x -->\nafter\n"
    with pytest.raises(SystemExit, match="0 blocks"):
        table.write_block(page, "y", "")


def test_the_truth_is_aggregated_as_the_peer_does_it() -> None:
    streams = [spoken(0, 100, 110, 130), spoken(0, 200, 210, 220)]
    pooled, means = peers.truth(streams, "all"), peers.truth(streams, "request means")
    assert (pooled.ok, pooled.tokens) == (2, 6)
    assert pooled.ttft_p50_s == pytest.approx(0.150)
    assert pooled.gap_p50_s == pytest.approx(0.010)
    assert means.gap_p50_s == pytest.approx(0.0125)


def test_a_peer_that_is_not_there_has_a_line() -> None:
    line = peers.line_of(peers.PeerRow("AIPerf", None, "not installed"))
    assert len(line) == len(peers.HEAD)
    assert line[:3] == ["AIPerf", "-", "not installed"]


def test_what_the_peers_write_is_read(tmp_path: Path) -> None:
    task = peer_clis.Task("http://h", 4, 8, 20, "t", tmp_path)
    files: dict[str, Any] = {
        "vllm.json": {
            "completed": 8,
            "total_output_tokens": 160,
            "p50_ttft_ms": 1,
            "p99_ttft_ms": 2,
            "p50_itl_ms": 3,
            "p99_itl_ms": 4,
        },
        "guidellm.json": {
            "benchmarks": [
                {
                    "metrics": {
                        "request_totals": {"successful": 8},
                        "output_token_count": {"successful": {"total_sum": 160.0}},
                        "time_to_first_token_ms": {
                            "successful": {"percentiles": {"p50": 1, "p99": 2}}
                        },
                        "inter_token_latency_ms": {
                            "successful": {"percentiles": {"p50": 3, "p99": 4}}
                        },
                    }
                }
            ]
        },
        "evalscope/p/benchmark_summary.json": {"Success Requests": 8, "Avg Output Tokens": 20.0},
        "evalscope/p/benchmark_percentile.json": [
            {"Percentiles": "50%", "TTFT (ms)": 1, "ITL (ms)": 3},
            {"Percentiles": "99%", "TTFT (ms)": 2, "ITL (ms)": 4},
        ],
        "aiperf/profile_export_aiperf.json": {
            "request_count": {"avg": 8.0},
            "total_output_tokens": {"avg": 160.0},
            "time_to_first_token": {"p50": 1, "p99": 2},
            "inter_chunk_latency": {"p50": 3, "p99": 4},
        },
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    wanted = peer_clis.Reported(8, 160, 0.001, 0.002, 0.003, 0.004)
    assert {name: cli.read(task) for name, cli in peer_clis.PEERS.items()} == dict.fromkeys(
        peer_clis.PEERS, wanted
    )
    for cli in peer_clis.PEERS.values():
        assert any("http://h" in word for word in cli.words(task))


# ---------------------------------------------------------------------- the emitters
def test_the_stamp_file() -> None:
    assert read_stamps("5 0 7 8\n6 1\n") == [Spoken(5, 0, [7, 8]), Spoken(6, 1, [])]


LANGUAGES = ["python", *(["c"] if shutil.which("cc") or shutil.which("gcc") else [])]


def ask(base_url: str, path: str, body: str = "") -> str:
    host, port = base_url.removeprefix("http://").split(":")
    method = "POST" if body else "GET"
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {len(body)}"
    )
    reply = b""
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(f"{head}\r\n\r\n{body}".encode())
        while data := sock.recv(65536):
            reply += data
    return reply.decode()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_emitter_speaks_and_knows_when(language: str, mode: str, tmp_path: Path) -> None:
    argv, made = command(tmp_path, language)
    assert made == language
    plan = EmitterPlan(200.0, 3, mode, 1, 0.01)
    with Emitter(argv, tmp_path, plan, Place(frozenset())) as emitter:
        assert '"id":"emitter"' in ask(emitter.base_url, "/v1/models")
        assert ask(emitter.base_url, "/health").startswith("HTTP/1.1 200")
        assert ask(emitter.base_url, "/else").startswith("HTTP/1.1 404")
        whole = ask(emitter.base_url, "/v1/chat/completions", '{"stream": false}')
        assert '"completion_tokens":1' in whole
        stream = ask(emitter.base_url, "/v1/chat/completions", '{"stream": true}')
        streams = emitter.end()
    assert len(streams) == 1
    assert len(streams[0].stamps_ns) == 3
    assert [streams[0].request_ns, *streams[0].stamps_ns] == sorted(
        [streams[0].request_ns, *streams[0].stamps_ns]
    )
    events = [line[6:] for line in stream.split("\r\n") if line.startswith("data: ")]
    assert events[-1].strip() == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    texts = [c["choices"][0]["delta"]["content"] for c in chunks[:-1]]
    assert texts == ["", " w00000", " w00001", " w00002"]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None, None, None, "length"]
    wanted = {"prompt_tokens": 16, "total_tokens": 19, "completion_tokens": 3, "stream": 0}
    assert chunks[-1]["usage"] == wanted
