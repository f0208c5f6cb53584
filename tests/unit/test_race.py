"""Races: who is out, what sets the bar, and that nothing changes without one."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sample_study import request, run_record
from small_config import SMALL

from cargo import race, record
from cargo import whole as whole_file
from decodelab import config, digest, plan
from decodelab.mistakes import ConfigError

REPO = Path(__file__).resolve().parents[2]

VALUES = st.floats(min_value=0.01, max_value=1e6)
WITHIN = st.floats(min_value=0.0, max_value=1.0)
METRIC = st.sampled_from(race.METRICS)


@given(st.lists(VALUES, min_size=1), WITHIN, METRIC)
def test_the_best_is_never_out(values: list[float], within: float, metric: str) -> None:
    """In whatever order the launches come: each is held against those before it."""
    worthy = (min if race.lower_is_better(metric) else max)(values)
    seen: list[race.Figure] = []
    for value in values:
        if value == worthy:
            assert not race.is_out(value, race.best(seen, metric), within, metric)
        seen.append(race.Figure(value, True))


@given(VALUES, VALUES, WITHIN, WITHIN, METRIC)
def test_a_wider_race_puts_nobody_out(a: float, b: float, x: float, y: float, metric: str) -> None:
    near, far = sorted((x, y))
    assert not race.is_out(a, b, far, metric) or race.is_out(a, b, near, metric)


@given(st.none() | VALUES, st.none() | VALUES, WITHIN, METRIC)
def test_what_is_not_known_puts_nobody_out(
    value: float | None, bar: float | None, within: float, metric: str
) -> None:
    if value is None or bar is None:
        assert not race.is_out(value, bar, within, metric)


def failed(index: int) -> dict[str, Any]:
    return {**record.blank_request(index), "outcome": "timeout", "t_start_s": 0.0}


def test_failed_requests_count_and_set_no_bar() -> None:
    whole = run_record([request(i, start=20.0 * i, rate=10.0) for i in range(4)])
    half = run_record([request(0, rate=30.0), failed(1), failed(2), request(3, start=9, rate=30.0)])
    assert race.figure(whole, "decode_rate").clean
    assert race.figure(whole, "decode_rate").value == pytest.approx(10.0)
    poor = race.figure(half, "decode_rate_p10")
    assert poor == race.Figure(0.0, False)
    assert race.best([poor, race.Figure(None, True)], "decode_rate_p10") is None
    endless = race.figure(half, "ttft_s_p90")
    assert endless == race.Figure(math.inf, False), "a failed request never came"
    assert race.is_out(endless.value, 100.0, 0.5, "ttft_s_p90")
    assert json.loads(whole_file.dump({"own": endless.value})) == {"own": math.inf}
    assert race.best([endless], "ttft_s_p90") is None
    with pytest.raises(KeyError):
        race.figure(whole, "speed")


@pytest.mark.parametrize("metric", race.METRICS)
def test_every_metric_has_a_value_where_all_went_well(metric: str) -> None:
    made = run_record([request(i, start=20.0 * i) for i in range(4)])
    value = race.figure(made, metric).value
    assert value is not None and math.isfinite(value) and value > 0


def test_a_run_of_several_races_is_left_out_by_all_of_them_only() -> None:
    screens = [{"then": ["a", "b"], "out": True}, {"then": ["b"], "out": False}]
    assert race.left_out(screens) == ["a"]
    assert race.left_out([]) == []


# ---------------------------------------------------------------------- the plan
def planned(change: dict[str, Any]) -> dict[str, Any]:
    data = yaml.safe_load(SMALL)
    data["workloads"] |= {"cheap": {"concurrency": 2, "requests": 2, "max_tokens": 8}}
    data["experiments"]["D"] = {"runs": {"base": ["cheap"], "fast": ["cheap"]}, **change}
    return plan.expand(config.fill(data), REPO)


def screened(**change: Any) -> dict[str, Any]:
    terms = {"workload": "cheap", "metric": "decode_rate", "within": "10%", "then": ["full"]}
    return {"screen": {**terms, **change}}


@pytest.fixture(autouse=True)
def with_full(monkeypatch: pytest.MonkeyPatch) -> None:
    text = SMALL.replace("  curve:", "  full: {requests: 2, max_tokens: 128}\n  curve:")
    monkeypatch.setitem(globals(), "SMALL", text)


def test_a_screen_that_is_off_changes_nothing() -> None:
    off = planned({})
    assert "races" not in off and all("screens" not in launch for launch in off["launches"])
    same = digest.launch("a", 1, ["x", "y"], [])
    assert same == digest.launch("a", 1, ["y", "x"])


def test_the_full_runs_hang_on_the_cheap_one() -> None:
    on = planned(screened())
    for launch in on["launches"]:
        (screen,) = launch["screens"]
        assert screen["within"] == 0.1 and len(screen["then"]) == 1
        assert launch["runs"].index(screen["run"]) < launch["runs"].index(screen["then"][0])
        assert launch["runs"][-1] == screen["then"][0]
    ((identity, contest),) = on["races"].items()
    assert [screen["race"] for x in on["launches"] for screen in x["screens"]] == [identity] * 2
    assert [member[0] for member in contest["members"]] == [x["server"] for x in on["launches"]]
    wider = planned(screened(within="20%"))
    assert list(wider["races"]) == [identity]  # the same race
    assert {x["digest"] for x in wider["launches"]}.isdisjoint(x["digest"] for x in on["launches"])


def test_a_run_that_is_wanted_in_any_case_hangs_on_nothing() -> None:
    runs = {"base": ["cheap", "full"], "fast": ["cheap"]}
    base, fast = planned({"runs": runs, **screened()})["launches"]
    assert "screens" not in base and len(fast["screens"]) == 1
    elsewhere = planned(screened(then=["short"]))  # experiment A runs it against both
    assert all("screens" not in launch for launch in elsewhere["launches"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workload": "curve"}, "2 points"),
        ({"workload": "nothing"}, "unknown workload"),
        ({"workload": "full"}, "no variant runs full"),
        ({"then": ["cheap"]}, "is the cheap run itself"),
        ({"metric": "util_pct_mean_all"}, "no metric of a race"),
        ({"within": "10"}, "within"),
    ],
)
def test_a_race_that_cannot_be_run_is_a_mistake(change: dict[str, Any], said: str) -> None:
    runs = {"runs": {"base": ["cheap", "curve"], "fast": ["cheap"]}}
    data = yaml.safe_load(SMALL)
    data["workloads"] |= {"cheap": {"concurrency": 2, "requests": 2, "max_tokens": 8}}
    data["experiments"]["D"] = {**runs, **screened(**change)}
    with pytest.raises(ConfigError) as caught:
        loaded(data)
    assert said in str(caught.value)


def loaded(data: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        return config.load(path, {}, REPO)
