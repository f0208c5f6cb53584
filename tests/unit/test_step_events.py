"""The step profiler's files read: where the time goes, and when the answer is not to be believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import step_closure, step_events, step_expected, step_lines, step_table, step_twin
from tests.unit import step_files as made


def codes(profile: step_table.Profile) -> list[str]:
    return [problem.code for problem in profile.problems]


def regions(profile: step_table.Profile, phase: str = "decode") -> dict[str, step_table.Region]:
    table = profile.table(phase)
    assert table is not None
    return {region.region: region for region in table.regions}


def test_one_process_closes_and_every_region_has_its_time() -> None:
    profile = step_events.of_lines([made.one_process()])
    assert codes(profile) == [] and profile.states_shares and profile.ranks == 1
    table = profile.table()
    assert table is not None and table.steps == 39 and table.step_ms_mean == pytest.approx(4.9)
    assert table.closure == pytest.approx(0, abs=1e-9)
    found = regions(profile)
    for name, (calls, ms) in {**made.WORK, **made.ENGINE}.items():
        assert found[name].ms_mean == pytest.approx(ms, abs=1e-6), name
        assert found[name].calls_per_step == calls, name
    assert found["moe"].share == pytest.approx(1.4 / 4.9)
    assert found["moe"].ceiling == pytest.approx(4.9 / 3.5)
    assert found["unattributed"].ms_mean == pytest.approx(0, abs=1e-6)


def test_two_processes_are_joined_by_time() -> None:
    """The engine's handover holds the worker's step there: what is left of it is told."""
    workers = made.worker_steps()
    engine = made.engine_steps(workers)
    for one in engine:
        one["regions"]["handover"] = [1, made.ns(4.2), made.ns(4.2)]
    profile = step_events.of_lines(
        [
            made.lines(made.header(7), made.targets("scheduler", "handover", "output"), engine),
            made.lines(made.header(9, 7), made.targets(*made.WORK), made.model(), workers),
        ]
    )
    assert codes(profile) == []
    found = regions(profile)
    assert found["handover"].ms_mean == pytest.approx(0.2, abs=1e-6)
    assert found["scheduler"].ms_mean == pytest.approx(0.3, abs=1e-6)
    assert found["output"].ms_mean == pytest.approx(0.4, abs=1e-6)


def test_what_runs_beside_the_worker_costs_no_step() -> None:
    """Async scheduling: the engine schedules while the worker works."""
    workers = made.worker_steps(rest=0.0)
    engine = [
        made.step(
            w["i"],
            w["t0"] / made.MS + 0.5,
            w["t1"] / made.MS - 0.5,
            {"scheduler": (1, 3.0)},
            "engine",
        )
        for w in workers
    ]
    profile = step_events.of_lines(
        [made.lines(made.header(7), engine), made.lines(made.header(9, 7), made.model(), workers)]
    )
    assert codes(profile) == []
    assert "scheduler" not in regions(profile)


def ranks(n: int, slow: float = 1.0, told: int | None = None) -> list[list[str]]:
    """n ranks; the collective of rank 0 takes 0.5 ms, of the others as much less as they came later."""
    out = []
    for rank in range(n):
        wait = 0.1 * (n - 1 - rank)
        work = {**made.WORK, "collective": (2, 0.4 + wait)}
        work["moe"] = (2, 1.4 * (slow if rank else 1.0))
        work["forward"] = (1, 1.0 - wait)
        calls = [made.ns(0.2 + wait), made.ns(0.2)]
        steps = made.worker_steps(work=work, calls={"collective": calls})
        model = made.model(tp_size=told or n, tp_rank=rank)
        engine = made.engine_steps(steps) if rank == 0 else []
        out.append(made.lines(made.header(10 + rank), made.targets(*work), model, engine, steps))
    return out


def test_ranks_tell_transfer_from_waiting() -> None:
    profile = step_events.of_lines(ranks(2))
    assert profile.ranks == 2
    by_rank = {t.rank: t for t in profile.tables if t.phase == "decode"}
    assert set(by_rank) == {0, 1, None}
    first, last = ({r.region: r for r in by_rank[n].regions}["collective"] for n in (0, 1))
    assert (first.wait_ms, first.transfer_ms) == pytest.approx((0.1, 0.4))
    assert (last.wait_ms, last.transfer_ms) == pytest.approx((0.0, 0.4))
    assert regions(profile)["collective"].wait_ms == pytest.approx(0.05)


def test_a_rank_that_is_missing_and_ranks_that_disagree() -> None:
    missing = step_events.of_lines(ranks(2, told=4))
    problem = next(p for p in missing.problems if p.code == "rank_missing")
    assert problem.figures == {"expected": 4, "found": 2, "missing": [2, 3]}
    unlike = step_events.of_lines(ranks(2, slow=1.3))
    problem = next(p for p in unlike.problems if p.code == "ranks_disagree")
    assert problem.figures["spread"] == pytest.approx(0.3 / 1.15)


def test_a_hybrid_model_is_counted_by_its_kinds() -> None:
    work = {**made.WORK, "attention": (10, 0.6), "linear_attention": (30, 0.6), "moe": (40, 1.4)}
    good = made.one_process(model=made.model(made.HYBRID), workers=made.worker_steps(work=work))
    assert codes(step_events.of_lines([good])) == []
    work["linear_attention"] = (29, 0.6)
    bad = made.one_process(model=made.model(made.HYBRID), workers=made.worker_steps(work=work))
    (problem,) = step_events.of_lines([bad]).problems
    assert problem.code == "calls_unlike_config"
    wanted = {"region": "linear_attention", "expected": 30, "seen": 29, "steps": 39}
    assert wanted.items() <= problem.figures.items()


@pytest.mark.parametrize(
    ("config", "layers", "wanted"),
    [
        (made.DENSE, None, {"attention": 2, "moe": 0, "mlp": 2}),
        (made.HYBRID, None, {"attention": 10, "linear_attention": 30, "moe": 40, "mlp": 0}),
        (made.HYBRID, [0, 19], {"attention": 5, "linear_attention": 15, "moe": 20}),
        (
            {
                "num_hidden_layers": 6,
                "n_routed_experts": 64,
                "first_k_dense_replace": 1,
                "moe_layer_freq": 1,
            },
            None,
            {"attention": 6, "moe": 5, "mlp": 1},
        ),
        ({"num_hidden_layers": 4, "num_local_experts": 8}, None, {"moe": 4}),
        (
            {
                "num_hidden_layers": 6,
                "num_experts": 8,
                "decoder_sparse_step": 2,
                "mlp_only_layers": [1],
            },
            None,
            {"moe": 2, "mlp": 4},
        ),
        ({"num_hidden_layers": 3, "num_experts": 8, "moe_layer_freq": [0, 1, 1]}, None, {"moe": 2}),
        ({"num_hidden_layers": 8, "full_attention_interval": 4}, None, {"linear_attention": 6}),
        (
            {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"]},
            None,
            {"attention": None},
        ),
        ({}, None, {"attention": None, "moe": None, "forward": 1}),
    ],
)
def test_calls_by_the_config(config: Any, layers: Any, wanted: dict[str, int | None]) -> None:
    found = step_expected.calls({"config": config, "layers": layers})
    assert wanted.items() <= found.items()


def test_pipeline_ranks_whose_layers_nobody_tells_are_not_checked() -> None:
    assert step_expected.calls({"config": made.DENSE, "pp_size": 2})["attention"] is None


def test_graphs_hide_what_is_inside_the_forward() -> None:
    work = {name: told for name, told in made.WORK.items() if name not in ("attention", "moe")}
    graphed = made.model(enforce_eager=False, cudagraph_mode="FULL_AND_PIECEWISE")
    steps = made.worker_steps(work=work)
    (problem,) = step_events.of_lines([made.one_process(model=graphed, workers=steps)]).problems
    assert problem.code == "inner_not_seen"
    assert problem.figures == {"regions": ["attention", "moe"], "hint": "--enforce-eager"}
    eager = step_events.of_lines([made.one_process(workers=steps)])
    assert set(codes(eager)) == {"calls_unlike_config"}


def test_a_target_that_no_version_has_is_a_problem_where_the_step_needs_it() -> None:
    told = made.lines(
        made.header(7),
        made.targets("moe", found=False),
        made.targets("sync", found=False),
        made.targets("forward", "attention"),
        made.model(),
    )
    steps = made.worker_steps(work={k: v for k, v in made.WORK.items() if k != "moe"})
    profile = step_events.of_lines([told + made.lines(steps, made.engine_steps(steps))])
    assert [(p.code, p.figures) for p in profile.problems] == [
        ("target_missing", {"regions": ["moe"]})
    ]
    assert [(p.code, p.figures) for p in profile.doubts] == [
        ("targets_not_found", {"regions": ["sync"]})
    ]


def test_a_step_that_does_not_close_states_no_shares() -> None:
    workers = made.worker_steps(own=0.4)
    profile = step_events.of_lines([made.one_process(workers=workers)])
    (problem,) = profile.problems
    assert problem.code == "not_closed" and problem.figures["closure"] == pytest.approx(-0.4 / 5.3)
    assert all(
        region.share is None and region.ms_mean is not None for region in regions(profile).values()
    )


def test_sync_states_no_shares_and_is_valid() -> None:
    told = [json.dumps(made.header(7, mode="sync")), *made.one_process()[1:]]
    profile = step_events.of_lines([told])
    assert profile.valid and not profile.states_shares
    assert all(region.share is None for region in regions(profile).values())


def test_phases_warm_up_dummy_and_failed_steps_are_kept_apart() -> None:
    warm = made.worker_steps(5, begin=10.0, work={**made.WORK, "moe": (2, 90.0)})
    prefill = made.step(5, 900, 950, {"forward": (1, 50.0)}, phase="prefill")
    steps = made.worker_steps(30, first=6)
    steps[10]["failed"] = True
    steps[20]["phase"] = "dummy"
    told = made.one_process(workers=[*warm, prefill, *steps])
    profile = step_events.of_lines([told], told={"requests_begin_ns": made.ns(800)})
    table, first = profile.table(), profile.table("prefill")
    assert table is not None and table.steps == 30 - 1 - 4
    assert regions(profile)["moe"].ms_p90 == pytest.approx(1.4)
    assert first is not None and first.steps == 1 and first.step_ms_mean == pytest.approx(50)


def test_idle_time_and_another_batch_are_no_cycle() -> None:
    steps = made.worker_steps(3)
    late = made.worker_steps(3, first=3, begin=5000)
    for one in late[1:]:
        one["reqs"] = 2
    read = step_lines.read(made.lines(steps, late))
    assert [c.step.i for c in step_closure.cycles(read.of("worker"), None)] == [0, 1, 4]


def test_dropped_steps_too_few_and_none() -> None:
    dropped = made.one_process() + made.lines({"kind": "dropped", "steps": 3})
    assert codes(step_events.of_lines([dropped])) == ["dropped"]
    few = made.one_process(workers=made.worker_steps(5))
    assert codes(step_events.of_lines([few])) == ["too_few_steps"]
    assert codes(step_events.of_lines([])) == ["no_steps"]


def test_a_device_has_its_own_clock() -> None:
    """2 ms of kernels behind 0.5 ms of host; the host's launching is hidden behind them."""
    device = {"forward": [1, made.ns(2.0), made.ns(0.5)], "moe": [2, made.ns(1.5), made.ns(1.5)]}
    work = {"prepare": (1, 0.5), "forward": (1, 0.4), "moe": (2, 0.6), "sync": (1, 1.2)}
    steps = made.worker_steps(
        work=work, rest=0.0, device=device, device_span=[made.ns(0.5), made.ns(2.0)]
    )
    parts = step_closure.within(step_lines.read(made.lines(steps)).steps[0])
    assert {k: v / made.MS for k, v in parts.items()} == pytest.approx(
        {"prepare": 0.5, "forward": 0.5, "moe": 1.5, "sync": 0.2}
    )


def test_regions_of_the_users_that_saw_no_call_and_troubles_are_told() -> None:
    """As an overridden method, or one inside a captured graph; a trouble is what became of another."""
    mine = [{**one, "era": "user"} for one in made.targets("norm", "moe")]
    trouble = {"kind": "trouble", "text": "region x: no target"}
    steps = made.worker_steps(30)
    untimed = made.worker_steps(3, first=30, begin=9000.0, untimed=True)
    told = made.lines(made.header(7), made.targets(*made.TARGETS), mine, made.model(), steps)
    profile = step_events.of_lines([told + made.lines(untimed, trouble, trouble)])
    doubts = {one.code: one.figures for one in profile.doubts}
    assert doubts["never_called"] == {"regions": ["norm"]}
    assert doubts["troubles"] == {"troubles": ["region x: no target"]}
    assert doubts["untimed"] == {"steps": 3}
    (table,) = profile.tables
    assert table.steps == 29


def test_a_timeline_of_a_few_steps_begins_at_nought() -> None:
    spans = [
        {
            "kind": "spans",
            "i": i,
            "role": "worker",
            "spans": [["forward", 0, made.ns(1000 + 4.9 * i), made.ns(1001 + 4.9 * i)]],
        }
        for i in range(12)
    ]
    profile = step_events.of_lines([made.one_process() + made.lines(spans)])
    assert len(profile.timeline) == step_events.TIMELINE_STEPS
    assert profile.timeline[1]["spans"] == [["forward", 0, pytest.approx(4.9), pytest.approx(5.9)]]


def test_killed_while_writing_at_any_byte() -> None:
    """What is whole is read as it was, what is not is counted, and nothing is made up."""
    data = "\n".join(made.one_process(workers=made.worker_steps(3))).encode() + b"\n"
    whole = step_lines.read(data.split(b"\n"))
    for cut in range(len(data)):
        read = step_lines.read(data[:cut].split(b"\n"))
        assert read.steps == whole.steps[: len(read.steps)]
        assert read.damaged <= 1
        assert len(read.steps) >= data[:cut].count(b'"kind": "step"') - 1


KEYS = st.sampled_from(["kind", "step", "regions", "t0", "config"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=6,
)
LINES = st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode())


@given(st.lists(LINES, max_size=6))
@settings(max_examples=150, deadline=None)
def test_nonsense_is_no_step(files: list[bytes]) -> None:
    profile = step_events.of_lines([files])
    assert codes(profile) == ["no_steps"] and profile.tables == ()


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Steps of nested regions whose true exclusive times are known, in one process with an engine."""
    names = ["prepare", "forward", "attention", "sampler", "mine"]
    truth: dict[str, float] = {}
    now, told = 1_000_000, []
    count = draw(st.integers(2, 6))
    for i in range(count):
        head, tail = draw(st.integers(0, 9999)), draw(st.integers(0, 9999))
        handover, regions = draw(st.integers(0, 9999)), {}
        for name in names:
            inner, calls = draw(st.integers(0, 9999)), draw(st.integers(1, 3))
            regions[name] = [calls, inner * 2, inner]
        own = draw(st.integers(0, 9999))
        worker_ns = own + sum(row[2] for row in regions.values())
        begin = now
        t0 = begin + head + handover
        worker = {
            **made.step(i, 0, 0, {}),
            "t0": t0,
            "t1": t0 + worker_ns,
            "self": own,
            "regions": regions,
        }
        engine = {**made.step(i, 0, 0, {}, role="engine"), "t0": begin, "t1": t0 + worker_ns + tail}
        engine["regions"] = {
            "scheduler": [1, head, head],
            "handover": [1, handover + worker_ns, handover],
            "output": [1, tail, tail],
        }
        now = engine["t1"]
        told += [engine, worker]
        if i < count - 1:  # the last has no cycle
            for name, row in regions.items():
                truth[name] = truth.get(name, 0.0) + row[2]
            truth["output"] = truth.get("output", 0.0) + tail
            truth["own"] = truth.get("own", 0.0) + own
        if i:  # the first step's scheduler lies before the first cycle
            truth["scheduler"] = truth.get("scheduler", 0.0) + head
            truth["handover"] = truth.get("handover", 0.0) + handover
    return told, truth


@given(trees())
@settings(max_examples=150, deadline=None)
def test_random_trees_are_read_back_exactly(given_tree: Any) -> None:
    told, truth = given_tree
    read = step_lines.read(made.lines(told))
    engine = step_closure.engine(read.of("engine"), True)
    found: dict[str, float] = {}
    left = 0.0
    for cycle in step_closure.cycles(read.of("worker"), engine):
        left += cycle.ns - cycle.named
        for name, ns in cycle.parts.items():
            found[name] = found.get(name, 0.0) + ns
    own = truth.pop("own")
    assert {k: v for k, v in found.items() if v} == pytest.approx(
        {k: v for k, v in truth.items() if v}
    )
    assert left == pytest.approx(own, abs=1e-6)


def twin_run(
    name: str, tpot: float, outputs: dict[int, str | None], start: int = 1, **more: Any
) -> step_twin.Made:
    figures = {"tpot_s_p50": tpot, "decode_rate_median": 1 / tpot}
    given = {"valid": True, "greedy": True, "asked": ("a", "b"), **more}
    return step_twin.Made(name, start, figures=figures, outputs=outputs, **given)


def test_the_twin_shows_overhead_and_sameness() -> None:
    profile = step_events.of_lines([made.one_process()])
    mine, twin = twin_run("p", 0.0112, {0: "x", 1: "y"}), twin_run("t", 0.01, {0: "x", 1: "y"})
    good = step_twin.beside_twin(profile, mine, [mine], "t", [twin])
    assert good.states_shares and good.same_output == {"same": 2, "compared": 2, "differ": []}
    assert good.overhead is not None and good.overhead["overhead"] == pytest.approx(0.12)
    slow = twin_run("p", 0.012, {0: "x", 1: "z"})
    bad = step_twin.beside_twin(profile, slow, [slow], "t", [twin])
    assert codes(bad) == ["overhead", "output_differs"]
    assert all(region.share is None for region in regions(bad).values())
    alone = step_twin.beside_twin(profile, mine, [mine], "t", [])
    assert codes(alone) == ["no_twin", "output_not_compared"]


@pytest.mark.parametrize(
    ("more", "outputs", "why"),
    [
        ({"greedy": False}, {0: "x"}, "not_greedy"),
        ({"asked": ("a", "c")}, {0: "x"}, "prompts_differ"),
        ({}, {0: None}, "no_digest"),
    ],
)
def test_output_that_cannot_be_compared_says_why(more: Any, outputs: Any, why: str) -> None:
    assert step_twin.output(
        twin_run("p", 1.0, {0: "x"}), [twin_run("t", 1.0, outputs, **more)]
    ) == (None, why)


def test_a_sync_profile_is_told_its_overhead() -> None:
    profile = step_events.of_lines(
        [[json.dumps(made.header(7, mode="sync")), *made.one_process()[1:]]]
    )
    mine, twin = twin_run("p", 0.018, {0: "x"}), twin_run("t", 0.01, {0: "x"})
    found = step_twin.beside_twin(profile, mine, [mine], "t", [twin])
    assert found.valid and [d.code for d in found.doubts] == ["overhead_of_sync"]


def test_json_and_back() -> None:
    profile = step_events.of_lines(ranks(2))
    assert step_table.of_json(json.loads(json.dumps(step_table.to_json(profile)))) == profile
