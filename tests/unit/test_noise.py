"""The A/A arm's floor, the drift check, guards and the population of a verdict, through the judge."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from sample_study import Study, compare, request

from decodelab import guards, judge, proportions
from decodelab.effects import quantile

RATES = {("base", 1): 10.0, ("base", 2): 10.2, ("base", 3): 10.1, ("base", 4): 9.9}


def requests(rate: float, n: int = 4, **more: Any) -> list[dict[str, Any]]:
    return [request(i, start=20.0 * i, rate=rate, **more) for i in range(n)]


class Lab(Study):
    """A study of starts: each with its rate and the time at which it began."""

    def start(self, variant: str, start: int, rate: float, **more: Any) -> str:
        workload, at = more.pop("workload", "short"), more.pop("at", None)
        concurrency = more.pop("concurrency", 1)
        name = f"{variant}_{workload}_c{concurrency}_{start}"
        self.add(
            name,
            requests(rate, **more),
            variant=variant,
            start=start,
            workload=workload,
            concurrency=concurrency,
        )
        facts = {"t_begin": at} if at is not None else {}
        entry = {"variant": variant, "server": variant, "start": start, "status": "stopped"}
        self.index["starts"].append(
            {**entry, "start_id": f"{variant}-{start}", "start_json": facts}
        )
        return name

    def judged(self, folder: Path) -> dict[str, Any]:
        return judge.judge(self.plan, self.tables(folder))


def lab(**variants: dict[str, Any]) -> Lab:
    study = Lab()
    study.plan["variants"] = {"base": {}, "cand": {}, **variants}
    return study


def question(base: list[str], cand: list[str], **more: Any) -> dict[str, Any]:
    kind = {"kind": "compare_variants", "metric": "decode_rate", "smallest_effect": 0.05}
    return {**kind, "points": [compare(base, cand)], **more}


def codes(verdict: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in verdict["reasons"]}


# the measured floor -------------------------------------------------------------------------------


def with_aa(cand: float = 11.0, **more: Any) -> Lab:
    """Experiment F measures the floor with four starts of base; E asks with one start an arm."""
    study = lab()
    base = [study.start(*key, rate) for key, rate in RATES.items()]
    one = [study.start("cand", 1, cand)]
    study.ask("F", runs=base, aa="base", repeats=2)
    study.ask("E", question(base[:1], one, **more), runs=[base[0], *one])
    return study


def test_one_launch_an_arm_uses_the_floor_that_the_study_measured(tmp_path: Path) -> None:
    (verdict,) = with_aa().judged(tmp_path)["verdicts"]
    logs = [math.log(rate) for rate in RATES.values()]
    mean = sum(logs) / 4
    s = math.sqrt(sum((x - mean) ** 2 for x in logs) / 3)
    half = quantile(3) * s * math.sqrt(2)
    assert verdict["floor"] == pytest.approx(math.expm1(half), rel=1e-6)
    assert verdict["floor_source"] == "measured" and verdict["method"] == "aa_floor"
    assert verdict["interval"] == pytest.approx([1.1 * math.exp(x) - 1 for x in (-half, half)])
    basis = verdict["floor_basis"]
    assert (basis["df"], basis["variants"]) == (3, ["base"]) and len(basis["starts"]) == 4
    assert "floor_measured" in codes(verdict) and "one_launch" not in codes(verdict)


def test_the_floor_is_of_the_question_s_own_metric(tmp_path: Path) -> None:
    """TTFT is the same in all starts here: no scatter of it was seen, so none is claimed."""
    study = with_aa(metric="ttft_s", direction="lower")
    (verdict,) = study.judged(tmp_path)["verdicts"]
    assert (verdict["floor"], verdict["floor_source"]) == (0.30, "field")


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "long"},
        {"concurrency": 2},
    ],
)
def test_a_floor_of_another_load_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    study = with_aa()
    base, cand = study.start("base", 1, 10.0, **change), study.start("cand", 1, 11.0, **change)
    study.plan["experiments"].pop("E")
    study.ask("E", question([base], [cand]), runs=[base, cand])
    (verdict,) = study.judged(tmp_path)["verdicts"]
    assert (verdict["floor"], verdict["floor_source"]) == (0.04, "field")


def test_a_floor_of_another_host_is_none(tmp_path: Path) -> None:
    study = with_aa()
    study.plan["variants"]["cand"]["host"] = "elsewhere"
    (verdict,) = study.judged(tmp_path)["verdicts"]
    assert verdict["floor_source"] == "field"


def test_an_invalid_start_is_left_out_of_the_floor_and_named(tmp_path: Path) -> None:
    study = with_aa()
    spoilt = {"status": "invalid", "reasons": ["server_died"]}
    study.index["runs"]["base_short_c1_3"].update(spoilt)
    (verdict,) = study.judged(tmp_path / "one")["verdicts"]
    assert (verdict["floor_source"], verdict["floor_basis"]["df"]) == ("measured", 2)
    assert verdict["floor_basis"]["starts"] == ["base-1", "base-2", "base-4"]
    assert "aa_starts_left_out" in codes(verdict)
    for start in (2, 4):
        study.index["runs"][f"base_short_c1_{start}"].update(spoilt)
    (verdict,) = study.judged(tmp_path / "all")["verdicts"]
    assert verdict["floor_source"] == "field" and "aa_floor_lost" in codes(verdict)
    told = next(r["en"] for r in verdict["reasons"] if r["code"] == "aa_floor_lost")
    assert all(f"base-{start}" in told for start in (2, 3, 4))


def test_two_workloads_of_a_start_have_the_scatter_of_their_difference(tmp_path: Path) -> None:
    """Starts differ by percents, the two workloads of a start by next to nothing."""
    study = lab()
    runs = {"short": [], "tool": []}  # type: dict[str, list[str]]
    for (variant, start), rate in RATES.items():
        for load, factor in (("short", 1.0), ("tool", 1.06 + 0.001 * start)):
            runs[load].append(study.start(variant, start, rate * factor, workload=load))
    both = [study.start("cand", 1, 10.0), study.start("cand", 1, 10.7, workload="tool")]
    study.ask("F", runs=[*runs["short"], *runs["tool"]], aa="base", repeats=2)
    point = compare(both[:1], both[1:], base="cand", cand="cand")
    study.ask("E", {**question([], []), "kind": "compare_workloads", "points": [point]}, runs=both)
    (verdict,) = study.judged(tmp_path)["verdicts"]
    assert verdict["floor_source"] == "measured" and verdict["floor"] < 0.005
    assert verdict["verdict"] == "supported"


def test_the_aa_comparison_is_on_record(tmp_path: Path) -> None:
    study = lab()
    base = [study.start(*key, rate) for key, rate in RATES.items()]
    cand = [study.start("cand", k, 11.0 + 0.1 * k) for k in (1, 2)]
    study.ask("E", question(base, cand), runs=[*base, *cand], aa="base", repeats=2)
    found = study.judged(tmp_path)
    (aa,) = found["experiments"]["E"]["aa"]
    assert aa["n_launches"] == [2, 2] and aa["differs"] is False
    assert aa["effect"] == pytest.approx(math.sqrt(10.1 * 9.9 / (10.0 * 10.2)) - 1)
    assert aa["floor_source"] == "measured"
    assert found["verdicts"][0]["n_launches"] == [4, 2]  # the A/A starts are starts of the arm


def test_a_server_that_differs_from_itself_is_a_doubt(tmp_path: Path) -> None:
    study = lab()
    rates = {1: 10.0, 2: 10.01, 3: 10.9, 4: 10.91}
    base = [study.start("base", k, rate) for k, rate in rates.items()]
    cand = [study.start("cand", k, 13.0 + 0.1 * k) for k in (1, 2)]
    study.ask("E", question(base, cand), runs=[*base, *cand], aa="base", repeats=2)
    found = study.judged(tmp_path)
    assert found["experiments"]["E"]["aa"][0]["differs"] is True
    assert "aa_differs" in codes(found["verdicts"][0])


# drift --------------------------------------------------------------------------------------------


def drifting(times: list[float | None], last: float = 10.6) -> Lab:
    study = lab()
    rates = [10.0, 10.3, last]
    base = [
        study.start("base", k, rate, at=at)
        for k, (rate, at) in enumerate(zip(rates, times, strict=True), 1)
    ]
    cand = [study.start("cand", k, 12.0 + 0.1 * k) for k in (1, 2, 3)]
    study.ask("E", question(base, cand), runs=[*base, *cand])
    return study


def test_drift_is_the_last_start_against_the_first(tmp_path: Path) -> None:
    found = drifting([100.0, 200.0, 400.0]).judged(tmp_path)
    (drift,) = found["experiments"]["E"]["drift"]
    assert drift["effect"] == pytest.approx(0.06) and drift["span_s"] == 300.0
    assert drift["exceeds"] is True and drift["floor_source"] == "field"
    (verdict,) = found["verdicts"]
    assert verdict["verdict"] == "supported" and "drift" in codes(verdict)  # a doubt, no fault


def test_an_invalid_start_of_another_experiment_is_no_drift(tmp_path: Path) -> None:
    study = drifting([100.0, 200.0, 300.0], last=10.1)
    study.ask("F", runs=[study.start("base", 4, 5.0, at=900.0)])
    (verdict,) = study.judged(tmp_path / "valid")["verdicts"]
    assert verdict["drift"]["last"] == "base-4" and "drift" in codes(verdict)
    spoilt = {"status": "invalid", "reasons": ["server_died"]}
    study.index["runs"]["base_short_c1_4"].update(spoilt)
    (verdict,) = study.judged(tmp_path / "invalid")["verdicts"]
    assert verdict["drift"]["last"] == "base-3" and "drift" not in codes(verdict)


def test_drift_goes_by_the_clock_and_not_by_the_number(tmp_path: Path) -> None:
    """Start 1 was made again at the end of the day."""
    (verdict,) = drifting([900.0, 200.0, 400.0]).judged(tmp_path)["verdicts"]
    assert verdict["drift"]["first"] == "base-2" and verdict["drift"]["last"] == "base-1"
    assert verdict["drift"]["effect"] == pytest.approx(10.0 / 10.3 - 1)
    assert "drift" not in codes(verdict)


@pytest.mark.parametrize("times", [[None, None, None], [100.0, None, None]])
def test_without_times_there_is_no_drift_check(tmp_path: Path, times: list[float | None]) -> None:
    found = drifting(times).judged(tmp_path)
    assert found["experiments"]["E"]["drift"] == [] and found["verdicts"][0]["drift"] is None


def test_a_slow_drift_of_quiet_starts_exceeds_the_scatter_between_neighbours(
    tmp_path: Path,
) -> None:
    """3 % over six starts is below the field's floor; the starts themselves say that it is real."""
    study = lab()
    base = [study.start("base", k, 10.0 * 1.006**k, at=100.0 * k) for k in range(1, 7)]
    cand = [study.start("cand", k, 12.0 + 0.1 * k) for k in (1, 2)]
    study.ask("E", question(base, cand), runs=[*base, *cand])
    drift = study.judged(tmp_path)["verdicts"][0]["drift"]
    assert drift["floor_source"] == "measured" and drift["exceeds"] is True
    assert drift["effect"] == pytest.approx(1.006**5 - 1)


# guards -------------------------------------------------------------------------------------------


def guarded(tmp_path: Path, guard: dict[str, Any], cand: dict[str, Any]) -> dict[str, Any]:
    study = lab()
    base = [study.start("base", k, 10.0 + 0.01 * k) for k in (1, 2, 3)]
    other = [study.start("cand", k, 11.0 + 0.01 * k, **cand) for k in (1, 2, 3)]
    study.ask("E", question(base, other, guard=[guard]), runs=[*base, *other])
    (verdict,) = study.judged(tmp_path)["verdicts"]
    return verdict


TTFT = {"metric": "ttft_s", "worse_by": 0.1}


def test_a_guard_that_got_worse_refutes(tmp_path: Path) -> None:
    verdict = guarded(tmp_path, TTFT, {"ttft": 0.8})
    assert verdict["verdict"] == "refuted" and verdict["guarded"] == ["ttft_s"]
    (guard,) = verdict["guards"]
    assert guard["outcome"] == "worse" and guard["effect"] == pytest.approx(-0.6)
    assert "guard_worse" in codes(verdict) and verdict["effect"] > 0.09


def test_a_guard_that_loses_less_than_it_may_is_kept(tmp_path: Path) -> None:
    verdict = guarded(tmp_path, TTFT, {"ttft": 0.54})
    assert verdict["verdict"] == "supported" and verdict["guards"][0]["outcome"] == "kept"
    assert verdict["guarded"] is None


def test_a_guard_without_a_value_in_one_arm_is_named(tmp_path: Path) -> None:
    verdict = guarded(tmp_path, {"metric": "queue_s", "worse_by": 0.05}, {})
    assert verdict["verdict"] == "supported" and codes(verdict) >= {"guard_no_value"}
    assert verdict["guards"][0]["outcome"] == "open" and verdict["guards"][0]["effect"] is None


def test_a_few_successes_do_not_prove_a_success_rate(tmp_path: Path) -> None:
    verdict = guarded(tmp_path, {"metric": "success_rate", "worse_by": 0.01}, {})
    (guard,) = verdict["guards"]
    low, high = guard["interval"]
    assert verdict["verdict"] == "supported" and guard["outcome"] == "open"
    assert guard["effect"] == 0.0 and -0.3 < low < 0 < high < 0.3
    assert "guard_open" in codes(verdict)


def test_failures_refute_a_faster_arm(tmp_path: Path) -> None:
    study = lab()
    base = [study.start("base", k, 10.0 + 0.01 * k, n=8) for k in (1, 2)]
    cand = [study.start("cand", k, 11.0 + 0.01 * k, n=8) for k in (1, 2)]
    for name in cand:
        for r in study.files[f"{name}.json"]["requests"][4:]:
            r.update(outcome="timeout", completion_tokens=None, t_last_s=None)
    guard = {"metric": "success_rate", "worse_by": 0.01}
    study.ask("E", question(base, cand, guard=[guard]), runs=[*base, *cand])
    (verdict,) = study.judged(tmp_path)["verdicts"]
    assert verdict["population"] == [
        {"attempted": 16, "ok": 16, "success_rate": 1.0},
        {"attempted": 16, "ok": 8, "success_rate": 0.5},
    ]
    assert verdict["guards"][0]["effect"] == -0.5
    assert (verdict["verdict"], verdict["guarded"]) == ("refuted", ["success_rate"])


@pytest.mark.parametrize(
    ("effect", "interval", "limit", "expected"),
    [
        (-0.2, (-0.3, -0.1), 0.1, "worse"),
        (-0.2, (-0.5, 0.1), 0.1, "open"),  # beyond the limit, and it may be noise
        (-0.05, (-0.08, -0.02), 0.1, "kept"),  # a loss for certain, and a small one
        (-0.05, (-0.15, 0.05), 0.1, "open"),
        (0.3, (0.2, 0.4), 0.0, "kept"),
        (-0.01, (-0.02, -0.001), 0.0, "worse"),
    ],
)
def test_outcomes(
    effect: float, interval: tuple[float, float], limit: float, expected: str
) -> None:
    assert guards.outcome(effect, interval, limit) == expected


def test_newcombe_against_the_published_example() -> None:
    """Newcombe 1998, table II, method 10: 56/70 against 48/80."""
    low, high = proportions.newcombe(48, 80, 56, 70)
    assert (low, high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
