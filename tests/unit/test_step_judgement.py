"""What a step goes to: a class leads only by more than its spread, and what is not known ranks nothing."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_samples import DECODE, PREFILL, PROBLEMS, changed, event, sync, table, trace

from decodelab import step_judgement, step_trace
from decodelab.step_judgement import Judgement, judge
from decodelab.step_table import Profile
from tests.unit import gpu_traces

CASES = [
    ({"moe": 26.0}, "work"),
    ({"collective": 60.0}, "wait"),
    ({"sync": 70.0}, "sync"),
    ({"scheduler": 60.0}, "host"),
]


def names(judged: Judgement) -> list[str]:
    return [part.name for part in judged.leading]


@pytest.mark.parametrize(("ms", "leads"), CASES)
def test_the_class_with_the_most_time_leads(ms: dict[str, float], leads: str) -> None:
    wait = {"collective": (ms.get("collective", 9.0) - 2.0, 2.0)}
    judged = judge([event(table(changed(DECODE, **ms), wait=wait))])
    assert judged.state == "clear" and names(judged) == [leads]
    assert judged.leading[0].share == pytest.approx(judged.leading[0].ms / judged.step_ms)


def test_the_shares_of_all_classes_are_the_step() -> None:
    judged = judge([event()])
    assert sum(part.share for part in judged.classes) == pytest.approx(1.0)
    assert [part.name for part in judged.regions] == ["moe"]


def test_a_collective_that_nobody_split_is_one_class() -> None:
    judged = judge([event(table(changed(DECODE, collective=90.0), wait={}))])
    assert names(judged) == ["collective"]


@pytest.mark.parametrize(("lead_ms", "state"), [(1.4, "tie"), (1.6, "clear")])
def test_a_lead_within_the_spread_is_none(lead_ms: float, state: str) -> None:
    regions = {"moe": (40, 30.0, 1.5), "scheduler": (1, 30.0 - lead_ms, 0.1)}
    assert judge([event(table(regions, closure=0.0))]).state == state


def test_what_does_not_close_is_a_floor() -> None:
    """5 ms of lead are told; not where 8 % of the step might belong to either."""
    regions = {"moe": (40, 30.0, 0.1), "scheduler": (1, 25.0, 0.1)}
    assert judge([event(table(regions, closure=0.0))]).state == "clear"
    assert judge([event(table(regions, closure=-0.1))]).state == "tie"


def test_launches_that_disagree_rank_nothing() -> None:
    """One launch says work, the other host: the means differ, the launches more."""
    ahead = event(table({"moe": (40, 40.0, 0.1), "scheduler": (1, 20.0, 0.1)}))
    behind = event(table({"moe": (40, 20.0, 0.1), "scheduler": (1, 30.0, 0.1)}))
    judged = judge([ahead, behind])
    assert judged.state == "tie" and names(judged) == ["work", "host"]
    assert judge([ahead, ahead]).state == "clear"


def test_regions_inside_the_leading_class_may_be_level() -> None:
    judged = judge([event(table(changed(DECODE, linear_attention=25.9)))])
    assert names(judged) == ["work"]
    assert [part.name for part in judged.regions] == ["moe", "linear_attention"]


def test_a_trace_tells_its_gaps() -> None:
    judged = judge([trace()])
    told = {part.name: part.ms for part in judged.classes}
    assert told["gaps"] == 24.9 and told["unattributed"] == pytest.approx(1.5)
    by_cause = table({"gemm": (9, 10.0, 0.1), "launch_gap": (1, 30.0, 0.2)}, closure=0.0)
    judged = judge([dataclasses.replace(trace(), tables=(by_cause,), gap_ms_per_step=31.0)])
    assert {part.name: part.ms for part in judged.classes} == {"gaps": 30.0, "work": 10.0}


def test_idle_time_that_a_trace_tells_by_its_cause_is_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(gpu_traces.text(gpu_traces.decode_trace()), encoding="utf-8")
    told = step_trace.read([file])
    table_of = told.table()
    assert table_of is not None and told.gap_ms_per_step
    assert "launch_gap" not in {region.region for region in table_of.regions}
    judged = judge([told])
    assert sum(part.share for part in judged.classes) == pytest.approx(1.0)
    assert "gaps" not in {part.name for part in judged.classes}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.code)
def test_an_invalid_profile_ranks_nothing(problem: object) -> None:
    judged = judge([event(problems=(problem,))])
    assert judged == Judgement("unranked", "invalid")


def test_an_invalid_launch_leaves_the_others_their_word() -> None:
    assert judge([event(problems=PROBLEMS[:1]), event()]).state == "clear"


def test_a_sync_profile_gives_an_order_and_no_figure() -> None:
    judged = judge([sync()])
    assert judged.state == "order" and judged.order[0] == ("moe",)
    assert judged.step_ms is None and not judged.classes and not judged.leading
    level = next(group for group in judged.order if "attention" in group)
    assert "linear_attention" in level  # 13.0 and 13.3 ms, spread 0.5
    assert "unattributed" not in {name for group in judged.order for name in group}


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (event(PREFILL), "no_table"),
        (event(dataclasses.replace(table(DECODE), step_ms_mean=None)), "no_times"),
        (event(dataclasses.replace(table(DECODE), regions=())), "no_times"),
        (event(table(changed(DECODE, unattributed=99.0))), "unattributed"),
    ],
)
def test_what_is_not_known_ranks_nothing(profile: Profile, why: str) -> None:
    judged = judge([profile])
    assert (judged.state, judged.why) == ("unranked", why) and not judged.leading


def test_without_a_spread_nothing_is_ranked() -> None:
    bare = tuple(dataclasses.replace(r, ms_p50=None, ms_p90=None) for r in table(DECODE).regions)
    judged = judge([event(dataclasses.replace(table(DECODE), regions=bare))])
    assert (judged.state, judged.why) == ("unranked", "no_spread")


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 10.0)), min_size=2, max_size=7))
def test_an_order_claims_only_what_is_apart(times: list[tuple[float, float]]) -> None:
    regions = {f"r{n}": (1.0, ms, spread) for n, (ms, spread) in enumerate(times)}
    profile = event(table(regions, closure=0.0), mode="sync")
    order = judge([profile]).order
    assert sorted(name for group in order for name in group) == sorted(regions)
    for before, behind in itertools.combinations(order, 2):
        for one, other in itertools.product(before, behind):
            lead = regions[one][1] - regions[other][1]
            assert lead > max(regions[one][2], regions[other][2]) - 1e-9


def test_every_class_has_a_place() -> None:
    kinds = {step_judgement._class(name) for name in (*DECODE, "launch_gap", "my_own")}
    assert kinds <= set(step_judgement.CLASSES)
