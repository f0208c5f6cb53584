"""Traces whose truth is known, and real ones, as step profiles."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import step_table, step_trace
from decodelab.step_table import Profile, Region, Table
from decodelab.trace_stream import NotATrace
from tests.unit import gpu_traces
from tests.unit.gpu_traces import TOOK

REAL = Path(__file__).parents[1] / "golden/traces"


def profile(folder: Path, *traces: dict[str, Any]) -> Profile:
    files = []
    for n, trace in enumerate(traces):
        files.append(folder / f"t{n}.json")
        files[-1].write_text(gpu_traces.text(trace), encoding="utf-8")
    return step_trace.read(files)


def decode(told: Profile) -> Table:
    table = told.table("decode")
    assert table is not None
    return table


def regions(table: Table) -> dict[str, Region]:
    return {r.region: r for r in table.regions}


def codes(told: Profile) -> list[str]:
    return [doubt.code for doubt in told.doubts]


def test_regions_and_idle_time_of_a_decode_step(tmp_path: Path) -> None:
    told = profile(tmp_path, gpu_traces.decode_trace(steps=5))
    table = decode(told)
    found = regions(table)
    assert table.steps == 4 and table.rank == 0  # the last has no cycle
    for name in gpu_traces.LAYER:
        assert found[name].ms_mean == pytest.approx(2 * TOOK[name] / 1000)
        assert found[name].calls_per_step == 2
    assert found["engine"].ms_mean == pytest.approx(0.050)
    assert found["prepare"].ms_mean == pytest.approx(0.030)
    assert found["prepare"].calls_per_step is None
    work = (2 * sum(TOOK[name] for name in gpu_traces.LAYER) + TOOK["sampler"] + 1) / 1000
    cycle = work + 0.030 + 0.050 + 0.003  # 2 µs until the first kernel begins, 1 µs behind the last
    assert table.step_ms_p50 == pytest.approx(cycle)
    assert found["moe"].share == pytest.approx(0.120 / cycle)
    assert found["moe"].ceiling == pytest.approx(1 / (1 - 0.120 / cycle))
    assert table.closure == pytest.approx(0, abs=1e-9)
    assert told.gpu_busy_share == pytest.approx(work / cycle)
    assert told.gap_ms_per_step == pytest.approx(cycle - work)
    assert told.launches_per_step == 11  # the copy is no kernel
    assert told.kernels[0].name == "fused_moe_kernel" and told.kernels[0].calls_per_step == 2
    assert told.valid and told.states_shares and not told.doubts


def test_prefill_is_kept_apart(tmp_path: Path) -> None:
    told = profile(tmp_path, gpu_traces.decode_trace())
    (prefill,) = [t for t in told.tables if t.phase == "prefill"]
    assert prefill.steps == 1
    assert regions(prefill)["moe"].ms_mean == pytest.approx(1.2)


def test_idle_time_behind_a_wait_is_that_waits_and_a_late_launch_is_a_gap(tmp_path: Path) -> None:
    short = dict.fromkeys(TOOK, 1.0)  # the device is done long before the next launch
    launches = profile(tmp_path, gpu_traces.decode_trace(took=[short] * 5))
    gap = regions(decode(launches))["launch_gap"]
    # 11 kernels and the copy, one each 4 µs that takes 1; behind the first 11 the device idles 3 µs
    assert gap.ms_mean == pytest.approx(11 * 0.003)
    plain = regions(decode(profile(tmp_path, gpu_traces.decode_trace())))
    item = regions(decode(profile(tmp_path, gpu_traces.decode_trace(item=True))))
    assert "launch_gap" not in item
    # per layer: 1 µs until the host sees the end, 2 until the next kernel begins
    assert item["sync"].ms_mean == pytest.approx((plain["sync"].ms_mean or 0) + 2 * 0.003)


def test_waiting_and_transfer_over_ranks(tmp_path: Path) -> None:
    slow = [{**TOOK, "moe": 60.0, "collective": 15.0}] * 5
    fast = [{**TOOK, "moe": 40.0, "collective": 35.0}] * 5  # waits 20 µs for the other
    both = [gpu_traces.decode_trace(took=t, rank=n) for n, t in enumerate((slow, fast))]
    told = profile(tmp_path, *both)
    by_rank = {t.rank: regions(t)["collective"] for t in told.tables if t.phase == "decode"}
    assert told.ranks == 2 and set(by_rank) == {0, 1, None}
    assert by_rank[0].wait_ms == pytest.approx(0) and by_rank[1].wait_ms == pytest.approx(0.040)
    assert by_rank[0].transfer_ms == by_rank[1].transfer_ms == pytest.approx(0.030)
    assert by_rank[None].wait_ms == pytest.approx(0.020)
    assert decode(told).rank is None and decode(told).steps == 8


def test_unlike_collectives_are_not_parted(tmp_path: Path) -> None:
    one = gpu_traces.decode_trace(rank=0)
    told = profile(tmp_path, one, gpu_traces.decode_trace(rank=1, layers=3))
    assert codes(told) == ["collectives_unlike"]
    assert regions(decode(told))["collective"].wait_ms is None


def test_the_same_rank_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two traces of rank 0"):
        profile(tmp_path, gpu_traces.decode_trace(), gpu_traces.decode_trace())


def test_files_that_tell_no_rank_are_numbered(tmp_path: Path) -> None:
    told = profile(tmp_path, *[gpu_traces.decode_trace(rank=None)] * 2)
    assert {t.rank for t in told.tables} == {0, 1, None}


@pytest.mark.parametrize("keep", ["ac2g", "correlation"])
def test_a_launch_is_tied_by_its_number_or_by_its_arrow(tmp_path: Path, keep: str) -> None:
    trace = gpu_traces.decode_trace()
    whole = profile(tmp_path, trace)
    for event in trace["traceEvents"]:
        if keep == "ac2g":
            event.get("args", {}).pop("correlation", None)
    if keep == "correlation":
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "ac2g"]
    assert replace(profile(tmp_path, trace), files=()) == replace(whole, files=())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_order_of_the_events_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("order")
    trace = gpu_traces.decode_trace(steps=3)
    straight = profile(folder, trace)
    random.Random(seed).shuffle(trace["traceEvents"])
    assert profile(folder, trace) == straight


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1))
def test_a_trace_cut_anywhere_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, part: float
) -> None:
    path = tmp_path_factory.mktemp("cut") / "t.json"
    text = gpu_traces.text(gpu_traces.decode_trace(steps=6))
    path.write_text(text[: int(part * (len(text) - 1))], encoding="utf-8")
    try:
        told = step_trace.read([path])
    except NotATrace:
        assert part < 0.1
        return
    assert "trace_cut" in codes(told)
    if (table := told.table("decode")) and table.steps:
        moe = regions(table)["moe"]
        # of a step whose cycle is known all work was read: events stand in the order of time
        assert moe.ms_mean == pytest.approx(2 * TOOK["moe"] / 1000)


def test_overlapped_work_counts_once_and_hides_the_collective(tmp_path: Path) -> None:
    def kernel(name: str, stream: int, ts: float, dur: float) -> dict[str, Any]:
        place = {"pid": 0, "tid": stream, "args": {"device": 0, "stream": stream}}
        return {"ph": "X", "cat": "kernel", "name": name, **place, "ts": ts, "dur": dur}

    marks = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1}
        | {"ts": 1000.0 + 100 * n, "dur": 100.0}
        for n in range(2)
    ]
    work = [
        event
        for ts in (1000.0, 1100.0)
        for event in (
            kernel("ncclDevKernel_AllReduce", 20, ts + 10, 60),
            kernel("sm80_xmma_gemm_f16", 7, ts + 20, 30),
        )
    ]
    told = profile(tmp_path, gpu_traces.document([*marks, *work]))
    found = regions(told.tables[0])
    assert told.tables[0].phase == "all" and told.tables[0].steps == 2
    assert found["collective"].ms_mean == pytest.approx(0.030)
    assert found["gemm"].ms_mean == pytest.approx(0.030)
    assert told.gpu_busy_share == pytest.approx(0.6)
    assert found["unattributed"].ms_mean == pytest.approx(0.040)  # nothing tells why
    assert told.launches_per_step is None


def test_steps_without_annotations_are_seen_by_the_sampler(tmp_path: Path) -> None:
    trace = gpu_traces.decode_trace(steps=8)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "user_annotation"]
    told = profile(tmp_path, trace)
    (table,) = told.tables
    assert codes(told) == ["steps_by_sequence"]
    assert table.phase == "all" and table.steps == 8
    assert regions(table)["moe"].calls_per_step == 2
    assert regions(table)["moe"].ms_p50 == pytest.approx(0.120)


def test_the_layers_of_one_step_are_no_steps(tmp_path: Path) -> None:
    r = gpu_traces.Recorder()
    gpu_traces.step(r, "none", TOOK, layers=40)
    events = [e for e in r.events if e["cat"] != "user_annotation"]
    told = profile(tmp_path, gpu_traces.document(events))
    (table,) = told.tables
    assert codes(told) == ["steps_not_found"]
    assert table.steps is None and table.step_ms_p50 is None
    moe = regions(table)["moe"]
    assert moe.calls_per_step is None and moe.ms_p50 is None and moe.ms_mean is None
    assert moe.total_ms == pytest.approx(40 * 0.060) and moe.share is not None
    assert told.launches_per_step is None and told.gap_ms_per_step is None


def test_a_step_before_a_pause_has_no_cycle(tmp_path: Path) -> None:
    r = gpu_traces.Recorder()
    for n in range(6):
        gpu_traces.step(r, gpu_traces.DECODE, TOOK, engine=500_000.0 if n == 2 else 50.0)
    table = decode(profile(tmp_path, gpu_traces.document(r.events)))
    assert table.steps == 4  # neither the third nor the last
    assert table.step_ms_p90 == pytest.approx(table.step_ms_p50)
    assert regions(table)["engine"].ms_mean == pytest.approx(0.050)


def test_a_driver_call_within_a_runtime_call_is_one_launch(tmp_path: Path) -> None:
    trace = gpu_traces.decode_trace()
    nested = [
        {**e, "cat": "cuda_driver", "name": "cuLaunchKernel", "ts": e["ts"] + 1, "dur": 2.0}
        for e in trace["traceEvents"]
        if e["name"] == "cudaLaunchKernel"
    ]
    trace["traceEvents"] += nested
    assert profile(tmp_path, trace).launches_per_step == 11


def test_old_spellings_are_read(tmp_path: Path) -> None:
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime"}
    trace = gpu_traces.decode_trace()
    new = decode(profile(tmp_path, trace))
    for event in trace["traceEvents"]:
        event["cat"] = old.get(event.get("cat", ""), event.get("cat"))
    assert decode(profile(tmp_path, trace)) == new


def test_fences_of_corex_are_collectives(tmp_path: Path) -> None:
    trace = gpu_traces.decode_trace()
    for event in trace["traceEvents"]:
        if event["name"] == gpu_traces.KERNELS["collective"]:
            event["name"] = "fenceWaitE"
    assert regions(decode(profile(tmp_path, trace)))["collective"].calls_per_step == 2


def test_events_without_an_end_are_told(tmp_path: Path) -> None:
    trace = gpu_traces.decode_trace()
    gone = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"][-1]
    del gone["dur"]
    told = profile(tmp_path, trace)
    assert codes(told) == ["events_without_time"] and told.doubts[0].figures["events"] == 1


def test_a_trace_without_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotATrace, match=r"t0.json: neither kernels nor CPU ops in its 2 events"):
        profile(tmp_path, gpu_traces.document([]))


def test_a_process_without_a_model_beside_one_with(tmp_path: Path) -> None:
    told = profile(tmp_path, gpu_traces.document([], None), gpu_traces.decode_trace())
    assert codes(told) == ["nothing_timed"] and told.ranks == 1


def test_a_real_trace_of_torch_on_the_cpu() -> None:
    told = step_trace.read([REAL / "torch_2.13_cpu.pt.trace.json.gz"])
    table = decode(told)
    found = regions(table)
    assert table.steps == 4 and told.mode is None and told.gpu_busy_share is None
    assert found["attention"].calls_per_step == 2 and found["sampler"].calls_per_step == 1
    assert found["gemm"].calls_per_step == 9  # two layers of four, and the head
    assert table.closure == pytest.approx(0, abs=1e-9)
    assert not told.doubts


def test_a_real_trace_of_vllm_on_the_cpu() -> None:
    """Four tokens: a prefill and three decode steps, the last without a cycle; the model has two layers."""
    told = step_trace.read([REAL / "vllm_0.32_cpu_rank0.pt.trace.json.gz"])
    table = decode(told)
    found = regions(table)
    assert table.steps == 2 and table.rank == 0
    assert [t.steps for t in told.tables if t.phase == "prefill"] == [1]
    assert found["moe"].calls_per_step == 2
    for scope in ("prepare", "forward", "logits", "sampler", "sync", "output"):
        assert found[scope].ms_p50
    assert table.closure == pytest.approx(0, abs=1e-9) and not told.doubts


def test_what_is_told_is_plain_json(tmp_path: Path) -> None:
    told = profile(tmp_path, gpu_traces.decode_trace(), gpu_traces.decode_trace(rank=1))
    back = step_table.of_json(json.loads(json.dumps(step_table.to_json(told), allow_nan=False)))
    assert json.dumps(step_table.to_json(back)) == json.dumps(step_table.to_json(told))
