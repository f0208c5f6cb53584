"""A grid's result: ranks with ties, the Pareto set, the best's lead, what each setting does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_study import Study, request

from decodelab import ranking


def grid(folder: Path, rates: dict[tuple[int, bool], float | None], **more: Any) -> dict[str, Any]:
    """A board of cells (--a, --b); a rate of None: never measured."""
    study = Study(experiments={"D": {"questions": [], "variants": [], **more}})
    for (a, b), rate in rates.items():
        name = f"grid-a{a}-b{int(b)}"
        cell = {"--a": a, "--b": b}
        study.plan["variants"][name] = {"flags": {}, "grid": "grid", "cell": cell, "server": name}
        made = None if rate is None else [request(i, 20.0 * i, rate=rate) for i in range(4)]
        study.add(name, made, variant=name, experiments=["D"])
    (board,) = ranking.boards(study.plan, study.tables(folder))
    return board


def test_ranks_count_what_can_be_told_apart(tmp_path: Path) -> None:
    rates = {(1, True): 10.0, (1, False): 9.8, (2, True): 9.5, (2, False): 5.0, (3, True): None}
    board = grid(tmp_path, rates)
    ranks = [(e["variant"], e["rank"], e["tie"]) for e in board["entries"]]
    assert ranks == [
        ("grid-a1-b1", 1, True),
        ("grid-a1-b0", 1, True),
        ("grid-a2-b1", 2, False),  # 5 % below the first, 3 % below the second
        ("grid-a2-b0", 4, False),
        ("grid-a3-b1", None, None),
    ]
    assert board["entries"][-1]["state"] == "pending"
    best = board["best"]
    assert best["variant"] == "grid-a1-b1" and best["ties"] == ["grid-a1-b0"]
    assert best["runner_up"]["margin"] == pytest.approx(10 / 9.8 - 1)
    assert best["runner_up"]["beyond_noise"] is False and best["among"] == 4
    assert board["entries"][3]["behind"] == pytest.approx(-0.5)


def test_effects_only_over_pairs_that_are_alike_in_the_rest(tmp_path: Path) -> None:
    board = grid(tmp_path, {(1, True): 10.0, (2, True): 12.0, (1, False): 5.0, (3, False): 20.0})
    told = {(e["key"], e["to"]): (e["pairs"], e["effect"]) for e in board["effects"]}
    assert told[("--a", 2)] == (1, pytest.approx(0.2))
    assert told[("--a", 3)] == (1, pytest.approx(3.0))
    assert told[("--b", True)] == (1, pytest.approx(1.0))


def test_the_baseline_is_found_by_its_server(tmp_path: Path) -> None:
    question = {"kind": "compare_variants", "metric": "decode_rate", "baseline": "grid-a2-b1"}
    board = grid(tmp_path, {(1, True): 10.0, (2, True): 8.0}, questions=[question])
    assert board["best"]["baseline"]["variant"] == "grid-a2-b1"
    assert board["best"]["baseline"]["beyond_noise"] is True


def test_nothing_measured_has_no_best(tmp_path: Path) -> None:
    board = grid(tmp_path, {(1, True): None})
    assert board["best"] is None and board["pareto"] == [] and board["effects"] == []


POINT = st.tuples(st.integers(1, 6), st.integers(1, 6))


@given(st.lists(POINT, min_size=1, max_size=12))
def test_the_pareto_set(points: list[tuple[int, int]]) -> None:
    """Never empty; nobody in it is beaten; whoever is not in it is beaten by one that is."""
    entries = [
        {"variant": str(n), "rate": rate, "ttft": ttft} for n, (rate, ttft) in enumerate(points)
    ]
    front = {entry["variant"] for entry in entries if entry["variant"] in ranking.pareto(entries)}

    def beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
        at_least = one["rate"] >= other["rate"] and one["ttft"] <= other["ttft"]
        return at_least and (one["rate"], one["ttft"]) != (other["rate"], other["ttft"])

    assert front
    for entry in entries:
        beaten = any(beats(o, entry) for o in entries if o["variant"] in front)
        assert beaten == (entry["variant"] not in front)
