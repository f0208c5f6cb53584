"""A grid's result: ranks with ties, the Pareto set, the best's lead, what each setting does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_study import Study, request

from decodelab import effects, judge, ranking
from decodelab.arms import Arm
from decodelab.ranking_pairs import Pairs
from decodelab.tables import Tables

Requests = list[dict[str, Any]]


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
    rates = {(1, True): 10.0, (1, False): 9.5, (2, True): 9.0, (2, False): 5.0, (3, True): None}
    board = grid(tmp_path, rates)
    ranks = [(e["variant"], e["rank"], e["tie"]) for e in board["entries"]]
    assert ranks == [
        ("grid-a1-b1", 1, True),
        ("grid-a1-b0", 1, True),
        ("grid-a2-b1", 2, False),  # 11 % below the first, 6 % below the second
        ("grid-a2-b0", 4, False),
        ("grid-a3-b1", None, None),
    ]
    assert board["entries"][-1]["state"] == "pending"
    best = board["best"]
    assert best["variant"] == "grid-a1-b1" and best["ties"] == ["grid-a1-b0"]
    assert best["runner_up"]["margin"] == pytest.approx(10 / 9.5 - 1)
    assert best["runner_up"]["beyond_noise"] is False and best["among"] == 4
    assert board["entries"][3]["behind"] == pytest.approx(-0.5)


def test_effects_only_over_pairs_that_are_alike_in_the_rest(tmp_path: Path) -> None:
    board = grid(tmp_path, {(1, True): 10.0, (2, True): 12.0, (1, False): 5.0, (3, False): 20.0})
    told = {(e["key"], e["to"]): (e["pairs"], e["effect"]) for e in board["effects"]}
    assert told[("--a", 2)] == (1, pytest.approx(0.2))
    assert told[("--a", 3)] == (1, pytest.approx(3.0))
    assert told[("--b", True)] == (1, pytest.approx(1.0))


def test_an_effect_of_single_starts_must_exceed_floor_and_drift(tmp_path: Path) -> None:
    (effect,) = grid(tmp_path, {(1, True): 10.0, (2, True): 10.6})["effects"]
    assert effect["effect"] == pytest.approx(0.06) and effect["floor"] == pytest.approx(0.08)


def test_the_baseline_is_found_by_its_server(tmp_path: Path) -> None:
    question = {"kind": "compare_variants", "metric": "decode_rate", "baseline": "grid-a2-b1"}
    board = grid(tmp_path, {(1, True): 10.0, (2, True): 8.0}, questions=[question])
    assert board["best"]["baseline"]["variant"] == "grid-a2-b1"
    assert board["best"]["baseline"]["beyond_noise"] is True


def test_nothing_measured_has_no_best(tmp_path: Path) -> None:
    board = grid(tmp_path, {(1, True): None})
    assert board["best"] is None and board["pareto"] == [] and board["effects"] == []


# what a rank may claim ----------------------------------------------------------------------------
def served(*cells: tuple[float, Callable[[Requests], Requests] | None], **more: Any) -> Study:
    """A study of cells `grid-0`, `grid-1` ... with one start each: rate, and an edit of the requests."""
    study = Study(experiments={"D": {"questions": [], "variants": [], **more}})
    for n, (rate, edit) in enumerate(cells):
        name = f"grid-{n}"
        cell = {"--a": n}
        study.plan["variants"][name] = {"flags": {}, "grid": "grid", "cell": cell, "server": name}
        made = [request(i, 20.0 * i, rate=rate) for i in range(8)]
        study.add(name, edit(made) if edit else made, variant=name, experiments=["D"])
    return study


def board_of(study: Study, folder: Path) -> dict[str, Any]:
    return ranking.boards(study.plan, study.tables(folder))[0]


def failed(requests: Requests) -> Requests:
    return [{**r, "outcome": "http_error"} for r in requests]


def shorter_and_warm(requests: Requests) -> Requests:
    made = [request(r["index"], r["t_start_s"], 0.1, 20.0, tokens=31) for r in requests]
    return [{**r, "cached_tokens": 39} for r in made]


def asks(metric: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": "Q", "kind": "compare_variants", "metric": metric, "direction": None, **more}]


@pytest.mark.parametrize("metric", ["goodput", "success_rate"])
def test_nothing_at_all_is_no_tie_with_the_best(tmp_path: Path, metric: str) -> None:
    slow = [(30.0, None), (30.0, None), (5.0, None) if metric == "goodput" else (30.0, failed)]
    board = board_of(served(*slow, questions=asks(metric)), tmp_path)  # type: ignore[arg-type]
    told = [(e["variant"], e["value"], e["rank"], e["tie"]) for e in board["entries"]]
    assert told == [
        ("grid-0", 1.0, 1, True),
        ("grid-1", 1.0, 1, True),
        ("grid-2", 0.0, 3, False),
    ]
    assert board["best"]["ties"] == ["grid-1"]
    ends = [entry["interval"] for entry in board["entries"]]
    assert all(0 < high - low < 1 for low, high in ends), (
        "by its requests: neither sure nor anything"
    )


def test_a_share_is_ranked_by_its_counts(tmp_path: Path) -> None:
    """7 of 8 against 8 of 8 is no difference."""

    def one_lost(requests: Requests) -> Requests:
        return [*failed(requests[:1]), *requests[1:]]

    board = board_of(
        served((30.0, None), (30.0, one_lost), questions=asks("success_rate")), tmp_path
    )
    assert [(e["value"], e["rank"]) for e in board["entries"]] == [(1.0, 1), (0.875, 1)]


@pytest.mark.parametrize(("lower", "first"), [(False, True), (True, False)])
def test_a_rate_of_zero_is_apart(lower: bool, first: bool) -> None:
    pairs = of_values([{"a": 5.0}, {"b": 0.0}], lower=lower)
    assert pairs.lead("1", "0").apart is first and pairs.lead("0", "1").apart is not first
    assert pairs.lead("1", "0").margin is None


@pytest.mark.parametrize(("lead", "apart"), [(10.55, False), (10.85, True)])
def test_two_cells_are_judged_as_a_question_judges_them(
    tmp_path: Path, lead: float, apart: bool
) -> None:
    question = {"points": [{"baseline": ["grid-1"], "candidate": ["grid-0"]}]}
    question["points"][0] |= {"baseline_variant": "grid-1", "candidate_variant": "grid-0"}  # type: ignore[dict-item]
    (asked,) = asks("decode_rate", baseline="grid-1", **question)
    study = served((lead, None), (10.0, None), questions=[asked])
    board = board_of(study, tmp_path)
    assert board["best"]["runner_up"]["beyond_noise"] is apart
    assert board["best"]["baseline"]["beyond_noise"] is apart
    assert board["best"]["runner_up"]["needed"] == pytest.approx(0.08)
    (verdict,) = judge.answer("D", asked, study.plan, study.tables(tmp_path / "again"))
    assert (verdict["verdict"] == "supported") is apart


def of_values(cells: list[dict[str, float]], lower: bool = False) -> Pairs:
    metric = "ttft_s_p90" if lower else "decode_rate"
    arms = {
        str(n): Arm(str(n), [], [], [], launches=values, metric=metric)
        for n, values in enumerate(cells)
    }
    return Pairs(arms, metric, lower, {"runs": [], "variants": {}}, Tables({}, {}, []))


@pytest.mark.parametrize(("cells", "starts"), [(12, 1), (24, 1), (2, 3), (12, 2), (12, 3), (24, 3)])
def test_of_equal_cells_hardly_ever_one_is_called_better(cells: int, starts: int) -> None:
    """A scatter of 2 % a start: that is what a floor of 4 % for single starts means. Any claim of a
    board counts, the largest against the smallest is the likeliest.
    """
    draw = np.random.default_rng(1)
    times, wrong = 400, 0
    for _ in range(times):
        values = 10 * np.exp(draw.normal(0, 0.02, (cells, starts)))
        pairs = of_values(
            [{f"{c}_{k}": v for k, v in enumerate(of)} for c, of in enumerate(values)]
        )
        means = np.log(values).mean(axis=1)
        wrong += pairs.lead(str(means.argmin()), str(means.argmax())).apart
    assert wrong / times <= 0.05


@pytest.mark.parametrize("cells", [12, 24])
def test_of_equal_shares_hardly_ever_one_is_called_better(cells: int) -> None:
    draw = np.random.default_rng(3)
    times, wrong = 300, 0
    for _ in range(times):
        good = draw.binomial(20, 0.8, cells)
        pairs = of_shares([float(n) / 20 for n in good], attempted=20)
        wrong += pairs.lead(str(good.argmin()), str(good.argmax())).apart
    assert wrong / times <= 0.05


def of_shares(shares: list[float], attempted: int) -> Pairs:
    rows = [{"success_rate": share, "n_attempted": attempted} for share in shares]
    arms = {
        str(n): Arm(
            str(n), [], [row], [], launches={str(n): row["success_rate"]}, metric="success_rate"
        )
        for n, row in enumerate(rows)
    }
    empty = Tables({}, {}, [])
    return Pairs(arms, "success_rate", False, {"runs": [], "variants": {}}, empty)


def test_a_true_lead_is_still_found() -> None:
    draw = np.random.default_rng(2)
    found = 0
    for _ in range(100):
        values = 10 * np.exp(draw.normal(0, 0.02, (12, 3)))
        values[0] *= 1.15
        pairs = of_values(
            [{f"{c}_{k}": v for k, v in enumerate(of)} for c, of in enumerate(values)]
        )
        found += all(pairs.lead(str(n), "0").apart for n in range(1, 12))
    assert found >= 80


def test_floor_and_confidence_widen_with_the_pairs() -> None:
    singles = [of_values([{str(c): 10.0 + c} for c in range(n)]) for n in (2, 12, 24)]
    needed = [pairs.lead("0", "1").needed for pairs in singles]
    assert [pairs.n for pairs in singles] == [1, 66, 276]
    assert needed == pytest.approx([0.08, 0.1096, 0.1175], abs=5e-4)
    assert singles[1].confidence ** 66 == pytest.approx(effects.CONFIDENCE)


def test_a_measured_floor_stands_in(tmp_path: Path) -> None:
    """Four A/A starts of the first cell that scatter widely: a lead of 20 % is no lead."""
    study = served((12.0, None), (10.0, None))
    assert board_of(study, tmp_path)["best"]["runner_up"]["beyond_noise"] is True
    study.plan["experiments"]["AA"] = {"aa": "grid-1", "questions": []}
    for start, rate in enumerate((9.0, 10.5, 12.0), start=2):
        made = [request(i, 20.0 * i, rate=rate) for i in range(8)]
        study.add(f"aa{start}", made, variant="grid-1", start=start, experiments=["AA"])
    ahead = board_of(study, tmp_path / "aa")["best"]["runner_up"]
    assert ahead["beyond_noise"] is False and ahead["needed"] > 0.4


# cells that were not measured alike ---------------------------------------------------------------
def test_an_unlike_cell_is_not_ranked(tmp_path: Path) -> None:
    board = board_of(served((20.0, shorter_and_warm), (15.0, None), (14.9, None)), tmp_path)
    assert board["best"]["variant"] == "grid-1" and board["best"]["among"] == 2
    odd = board["entries"][-1]
    assert (odd["variant"], odd["state"], odd["rank"]) == ("grid-0", "unlike", None)
    assert odd["value"] == pytest.approx(20.0)
    assert [r["code"] for r in odd["reasons"]] == ["tokens_differ", "cache_state_differs"]
    assert board["pareto"] == ["grid-1"]
    assert [(e["from"], e["to"]) for e in board["effects"]] == [(1, 2)]


@pytest.mark.parametrize(
    ("baseline", "ranked"), [("grid-0", ["grid-0"]), ("grid-1", ["grid-1"]), (None, [])]
)
def test_where_no_kind_is_the_most_frequent_the_baseline_tells(
    tmp_path: Path, baseline: str | None, ranked: list[str]
) -> None:
    asked = asks("decode_rate", baseline=baseline) if baseline else []
    board = board_of(served((20.0, shorter_and_warm), (15.0, None), questions=asked), tmp_path)
    assert [e["variant"] for e in board["entries"] if e["state"] == "measured"] == ranked
    assert (board["best"] is None) is (not ranked)
    assert all(e["reasons"] for e in board["entries"] if e["state"] == "unlike")


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
