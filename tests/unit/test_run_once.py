"""The agent's load client: how long it may take for its record, and the words it is called with."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cargo import client_call, client_options, run_once, schedule
from cargo.run_once import ClientEnd, RunOnce, decoding_s
from cargo.watch import StopNow

# Needs a while for its record after it was told to end, as with many tokens to decode.
DECODES = """\
import signal, sys, time
def told(*_):
    open("told", "w").close()
    time.sleep({seconds})
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
open("ready", "w").close()
time.sleep(60)
"""


class Driven:
    """One client beside a server that lives, or does not any more."""

    def __init__(self, folder: Path, alive: bool = True, **run: Any) -> None:
        self.folder, self.stop_when = folder, lambda: False
        made: Any = RunOnce.__new__(RunOnce)
        made.folder = made.scratch = str(folder)
        made.run = {"limit_s": 0.0, "requests": 1000, "max_tokens": 100, **run}
        made.watch = SimpleNamespace(pause=self.pause)
        made.server_died, made.client, made.sampler = False, None, None
        env = SimpleNamespace(client=dict)
        made.server = SimpleNamespace(
            env=env, base_url="", start_id="s", alive=lambda: alive or not self.told("ready")
        )
        self.made: RunOnce = made

    def told(self, name: str) -> bool:
        return (self.folder / name).exists()

    def pause(self, seconds: float) -> None:
        if self.stop_when():
            raise StopNow
        time.sleep(seconds)

    def drive(self, seconds: float) -> ClientEnd:
        argv = [sys.executable, "-S", "-c", DECODES.format(seconds=seconds)]
        return self.made._drive(argv, "log", lambda: None)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what the tokens of a run are worth: 30 s here."""
    monkeypatch.setattr(run_once, "CLIENT_GRACE_S", 0.1)
    monkeypatch.setattr(run_once, "AFTER_DEATH_S", 0.1)
    monkeypatch.setattr(run_once, "TOKEN_S", 3e-4)


def test_a_client_that_still_decodes_is_waited_for(short_grace: None, tmp_path: Path) -> None:
    driven = Driven(tmp_path, limit_s=1.0)
    assert driven.drive(seconds=1.0) == ClientEnd(0, True)


def test_so_it_is_after_the_servers_death(
    short_grace: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_once, "TOKEN_S", 1e-5)
    driven = Driven(tmp_path, alive=False, limit_s=60.0)
    assert driven.drive(seconds=0.3) == ClientEnd(0, False)
    assert driven.told("told"), "it did not end by itself"


def test_one_that_hangs_is_killed(
    short_grace: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_once, "TOKEN_S", 0.0)
    driven = Driven(tmp_path, limit_s=1.0)
    assert driven.drive(seconds=60) == ClientEnd(-9, True)


def test_a_stop_does_not_wait_for_the_record(short_grace: None, tmp_path: Path) -> None:
    driven = Driven(tmp_path, limit_s=1.0)
    driven.stop_when = lambda: driven.told("told")
    begin = time.monotonic()
    with pytest.raises(StopNow):
        driven.drive(seconds=25)
    driven.made._end_children()
    assert time.monotonic() - begin < 20, "it takes the client 25 s"


@pytest.mark.parametrize(
    ("run", "seconds"),
    [
        ({"requests": 50, "max_tokens": 6000}, 30.0),
        ({"requests": 40, "warmup": 10, "max_tokens": 6000}, 30.0),
        ({"requests": 2, "max_tokens": 4}, 0.0008),
        ({"requests": 10**6, "max_tokens": 10**6}, 600.0),
    ],
)
def test_the_time_is_that_of_the_tokens(run: dict[str, Any], seconds: float) -> None:
    assert decoding_s(run) == pytest.approx(seconds)


# -- the command line --------------------------------------------------------------------------


@pytest.fixture
def arguments(tmp_path: Path) -> Callable[..., Any]:
    """What the client reads out of the words that the agent calls it with."""
    target = client_call.Target("http://127.0.0.1:1", "m", "simulated", None)
    run = {"name": "r", "scenario": {"messages": []}, "seed": "-7", "concurrency": 1}
    run.update(requests=20, max_tokens=4)

    def read(seed: str, **client: Any) -> Any:
        words = client_call.options({**run, "client": client}, target, str(tmp_path), seed)
        return client_options.read([*words, "--out=o.json"])

    return read


@pytest.mark.parametrize("client", [{}, {"arrivals_seed": "-7-start1"}])
def test_the_second_opinion_is_asked_in_the_same_moments(
    client: dict[str, str], arguments: Callable[..., Any]
) -> None:
    drawn = []
    for seed in ("-7", "-7-httpx"):
        found = arguments(seed, rate=5.0, **client)
        assert found.seed == seed
        drawn.append(found.arrivals_seed)
    assert drawn == [client.get("arrivals_seed", "-7")] * 2
    assert schedule.due_times(5.0, "poisson", 20, drawn[0]) != schedule.due_times(
        5.0, "poisson", 20, "-7-httpx"
    ), "the seed matters"


def test_a_closed_loop_has_no_arrivals(arguments: Callable[..., Any]) -> None:
    assert arguments("-7").arrivals_seed is None
