"""Forecasts: a first guess, what measured launches say, what one request says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_config import SMALL

from decodelab import config, forecast, plan
from decodelab.forecast import OneRequest, Pace
from decodelab.store import Store

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return plan.expand(config.fill(yaml.safe_load(SMALL)), REPO)


def put_start(store: Store, launch: Any, name: str, runs: list[str], **facts: Any) -> None:
    """A start with its attempts, as the agent would have sealed them."""
    root = store.start_root(launch["server"], launch["start"])
    for folder, start_facts in (
        (root / f"start-{name}", facts),
        *((root / r / f"{name}-1", None) for r in runs),
    ):
        folder.mkdir(parents=True)
        done = {"files": {}, "status": facts.get("status", "done"), "start_id": name, "reasons": []}
        (folder / "DONE.json").write_text(json.dumps(done))
        if start_facts is not None:
            (folder / "start.json").write_text(json.dumps({"start_id": name, **start_facts}))


TIMES = {"ready_s": 30.0, "stop_s": 10.0, "t_ready": 100.0, "t_stop": 200.0}


def test_the_first_guess_is_the_configs(document: dict[str, Any]) -> None:
    pace = forecast.guess(document, "here")
    assert pace == Pace(300.0, 8.0)
    launch = document["launches"][0]
    tokens = 3 * 64 + 2 * 3 * 32
    assert pace.launch_s(document, launch) == pytest.approx(300 + tokens / 8)
    assert pace.launch_s(document, launch, []) == 300


def test_measured_launches_correct_it(document: dict[str, Any], tmp_path: Path) -> None:
    store, launch = Store(tmp_path), document["launches"][0]
    assert forecast.measured(document, "here", store) == forecast.guess(document, "here")
    put_start(store, launch, "a", launch["runs"], **TIMES)
    pace = forecast.measured(document, "here", store)
    assert pace.start_s == 40.0 and pace.starts == 1 and pace.runs == len(launch["runs"])
    assert pace.output_tps == pytest.approx((3 * 64 + 2 * 3 * 32) / 100.0)


@pytest.mark.parametrize(
    ("runs", "facts"),
    [
        (["f" * 16], TIMES),  # another study's run
        ([], TIMES),
        (None, {**TIMES, "status": "invalid"}),
        (None, {**TIMES, "t_stop": None}),
        (None, {**TIMES, "t_stop": 50.0}),  # the clock was set back
    ],
)
def test_what_says_nothing_about_the_rate(
    document: dict[str, Any], tmp_path: Path, runs: list[str] | None, facts: dict[str, Any]
) -> None:
    store, launch = Store(tmp_path), document["launches"][0]
    put_start(store, launch, "a", launch["runs"] if runs is None else runs, **facts)
    pace = forecast.measured(document, "here", store)
    assert pace.output_tps == 8.0 and pace.start_s == 40.0


def test_a_start_that_failed_says_nothing(document: dict[str, Any], tmp_path: Path) -> None:
    store, launch = Store(tmp_path), document["launches"][0]
    put_start(store, launch, "a", [], ready_s=None, stop_s=1.0, t_ready=None, t_stop=3.0)
    assert forecast.measured(document, "here", store) == forecast.guess(document, "here")


def test_one_request_gives_two_ends(document: dict[str, Any]) -> None:
    launch = document["launches"][0]
    low, high = OneRequest(10.0, 1.0, 32.0).launch_s(document, launch)
    # short: 3 x (1 + 2) s one by one; curve: 3 x (1 + 1) s, then two at once: 2 x 2 s or 3 x 2 s
    assert low == pytest.approx(10 + 9 + 6 + 4)
    assert high == pytest.approx(10 + 9 + 6 + 6)


def test_requests_that_the_server_would_queue_are_not_at_once(document: dict[str, Any]) -> None:
    launch = document["launches"][0]
    one = json.loads(json.dumps(document))
    one["variants"][launch["variant"]]["canonical"]["--max-num-seqs"] = "1"
    low, high = OneRequest(10.0, 1.0, 32.0).launch_s(one, launch)
    assert low == high


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3, "3 s"), (89.6, "90 s"), (600, "10 min"), (5400, "1 h 30 min"), (11100, "3 h 05 min")],
)
def test_words(seconds: float, said: str) -> None:
    assert forecast.words(seconds) == said
