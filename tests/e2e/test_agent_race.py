"""The host agent's races: a cheap run first, the full run only for those close to the best."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fakes.agent_lab import Lab, digest

RACE = digest(0xACE)
CHEAP, FULL = digest(0xC4EA9), digest(0xF011)
SLOW, FAST = ("--token-s", "0.03"), ("--token-s", "0.003")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")
    yield lab
    assert lab.close() == []


def racer(lab: Lab, number: int, *flags: str, **screen: Any) -> dict[str, Any]:
    """A launch of a cheap run and a full one that hangs on it; `runs`: other runs instead."""
    runs = screen.pop("runs", [lab.run(1, digest=CHEAP), lab.run(2, digest=FULL, max_tokens=6)])
    terms = {
        "race": RACE,
        "experiment": "D",
        "metric": "output_tps_total",
        "within": 0.5,
        "run": CHEAP,
        "then": [FULL],
        "best": None,
        "own": None,
    }
    return {**lab.order(number, *flags, runs=runs), "screens": [{**terms, **screen}]}


def outcome(lab: Lab, number: int) -> dict[str, Any]:
    found = lab.outcome(number)
    assert found is not None
    return found


def states(lab: Lab, number: int) -> dict[str, str]:
    return {run: result["status"] for run, result in outcome(lab, number)["runs"].items()}


def test_the_slow_one_is_out_and_says_by_what(lab: Lab) -> None:
    lab.submit(racer(lab, 1, *FAST), racer(lab, 2, *SLOW), racer(lab, 3, *FAST))
    lab.until_idle()
    assert states(lab, 1) == states(lab, 3) == {CHEAP: "done", FULL: "done"}  # the first runs whole
    assert "screened_out" not in outcome(lab, 1)
    assert outcome(lab, 2)["status"] == "done"
    assert states(lab, 2) == {CHEAP: "done", FULL: "screened_out"}
    (told,) = outcome(lab, 2)["screened_out"]
    assert told["runs"] == [FULL] and told["within"] == 0.5
    assert 0 < told["value"] < told["best"] * 0.5
    (event,) = [e for e in lab.events(2) if e["event"] == "screened_out"]
    assert (event["value"], event["best"]) == (told["value"], told["best"])


def test_the_best_at_home_counts_and_a_run_that_others_want_is_made(lab: Lab) -> None:
    wanted = {**racer(lab, 2, *SLOW, best=1e6), "screens": []}
    lab.submit(racer(lab, 1, *SLOW, best=1e6), wanted)
    lab.until_idle()
    assert states(lab, 1)[FULL] == "screened_out" and states(lab, 2)[FULL] == "done"
    (told,) = outcome(lab, 1)["screened_out"]
    assert told["best"] == 1e6


def test_two_races_that_disagree_make_the_run(lab: Lab) -> None:
    order = racer(lab, 1, *SLOW, best=1e6)
    other = {**order["screens"][0], "race": digest(0xACF), "best": None}
    lab.submit({**order, "screens": [*order["screens"], other]})
    lab.until_idle()
    assert states(lab, 1)[FULL] == "done"


def test_a_cheap_run_that_failed_puts_nobody_out_and_sets_no_bar(lab: Lab) -> None:
    hopeless = lab.run(1, digest=CHEAP, client={"extra_body": {}, "timeout_s": {"total": 0.001}})
    runs = [hopeless, lab.run(2, digest=FULL)]
    lab.submit(racer(lab, 1, *SLOW, best=1e6, runs=runs), racer(lab, 2, *SLOW))
    lab.until_idle()
    assert states(lab, 1) == {CHEAP: "invalid", FULL: "done"}
    assert states(lab, 2) == {CHEAP: "done", FULL: "done"}


def test_a_launch_that_is_out_by_its_known_value_starts_no_server(lab: Lab) -> None:
    full = [lab.run(2, digest=FULL)]
    lab.submit(
        racer(lab, 1, *SLOW, best=100.0, own=20.0, runs=full),
        racer(lab, 2, *SLOW, best=100.0, own=20.0, within=0.9, runs=full),
        racer(lab, 3, *SLOW, best=100.0, own=None, runs=full),  # its cheap run was of no use
    )
    lab.until_idle()
    assert "start_begin" not in lab.names(1) and outcome(lab, 1)["status"] == "done"
    assert states(lab, 1) == {FULL: "screened_out"}
    assert states(lab, 2) == states(lab, 3) == {FULL: "done"}  # the first needs no cheap run again


def test_killed_between_the_cheap_and_the_full_run(lab: Lab) -> None:
    """The agent that takes over decides by the same files, and knows the bar of those before."""
    lasting = lab.run(2, digest=FULL, max_tokens=3000)
    runs = [lab.run(1, digest=CHEAP), lab.run(3, max_tokens=1000), lasting]
    orders = [racer(lab, 1, *FAST), racer(lab, 2, *SLOW, runs=runs), racer(lab, 3, *SLOW)]
    lab.submit(*orders)
    lab.until(lambda: any(e["event"] == "screened_out" for e in lab.events(2)))
    lab.kill(lab.agent_pid(), lab.keeper_pid())
    orders[1]["runs"][1]["max_tokens"] = 4
    time.sleep(0.1)
    lab.submit(*orders)
    lab.until(lambda: len([e for e in lab.events(2) if e["event"] == "launch_begin"]) == 2)
    lab.call("stop", "--wait", "30")
    lab.until_idle()
    assert states(lab, 2)[FULL] == "screened_out"
    (told,) = outcome(lab, 2)["screened_out"]
    record = json.loads(next(lab.folder(1).glob(f"runs/{CHEAP}/*/run.json")).read_text())
    assert told["best"] == record["summary"]["output_tps_total"]


def test_without_a_race_nothing_changes(lab: Lab) -> None:
    order = lab.order(1, *SLOW, runs=[lab.run(1), lab.run(2)])
    lab.submit(order)
    lab.until_idle()
    assert set(states(lab, 1).values()) == {"done"}
    assert "screened_out" not in lab.names(1) and "screened_out" not in outcome(lab, 1)


def test_a_race_that_cannot_be_carried_out_is_refused(lab: Lab) -> None:
    for change in ({"metric": "speed"}, {"run": "../x"}, {"within": "10%"}, {"best": "8"}):
        assert "screens needs" in lab.refused(
            "submit", stdin={"owner": "me", "orders": [racer(lab, 1, **change)]}
        )
