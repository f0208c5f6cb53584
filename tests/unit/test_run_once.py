"""What works beside the server in a run: the load client (how long it may take for its record, and
the words it is called with), and the SMI sampler.
"""

from __future__ import annotations

import json
import os
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


# -- the sampler -------------------------------------------------------------------------------


class Sampled:
    """The sampler of one run, with a tool that is a line of shell."""

    def __init__(self, folder: Path, tool: str, number: int = 1) -> None:
        made: Any = RunOnce.__new__(RunOnce)
        made.launch_dir = str(folder)
        made.folder = made.scratch = str(folder / str(number))
        os.mkdir(made.folder)
        argv = ["/bin/sh", "-c", tool, "smi", "-q"]
        made.order = {"telemetry": {"tool": "ixsmi", "argv": argv, "interval_s": 600.0}}
        made.run, made.sampler = {"telemetry": True}, None
        made.watch = SimpleNamespace(pause=time.sleep)
        env = SimpleNamespace(sampler=lambda: dict(os.environ))
        made.server = SimpleNamespace(
            env=env, base_url="", start_id="s1", record={"source": "simulated"}
        )
        self.made: RunOnce = made

    def carry_out(self) -> tuple[float, float]:
        """When the requests of the run would begin and end."""
        self.made._start_sampler()
        begin = time.monotonic()
        time.sleep(0.05)
        end = time.monotonic()
        self.made._end_sampler()
        assert self.made.sampler is None
        return begin, end

    def capture(self) -> tuple[dict[str, Any], list[Any]]:
        text = Path(self.made.folder, "capture.jsonl").read_text()
        head, *records = [json.loads(line) for line in text.splitlines()]
        return head, records


def test_a_sample_lies_on_each_side_of_the_run_however_long_the_interval(tmp_path: Path) -> None:
    sampled = Sampled(tmp_path, "echo x")
    begin, end = sampled.carry_out()
    head, records = sampled.capture()
    assert head["interval_s"] == 600.0 and len(records) == 2
    assert records[0]["m1"] <= begin and end <= records[1]["m0"]


def test_a_tool_that_leaves_a_daemon_with_its_pipes_costs_nothing(tmp_path: Path) -> None:
    sampled = Sampled(tmp_path, f"sleep 300 & echo $! >>{tmp_path}/daemons; echo x")
    begin = time.monotonic()
    sampled.carry_out()
    assert time.monotonic() - begin < 10, "each call waited for the daemon"
    records = sampled.capture()[1]
    assert [record["out"] for record in records] == ["x\n", "x\n"]
    for pid in (tmp_path / "daemons").read_text().split():
        stat = Path("/proc", pid, "stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_how_the_tool_is_called_is_found_out_once_for_all_runs_of_a_start(tmp_path: Path) -> None:
    tool = f"echo x >>{tmp_path}/calls; echo x"
    calls = []
    for number in (1, 2):
        sampled = Sampled(tmp_path, tool, number)
        sampled.carry_out()
        calls.append(len((tmp_path / "calls").read_text().split()))
    assert calls[1] - calls[0] == 2 < calls[0]
    assert sampled.capture()[0]["tool"] == "ixsmi"


def test_a_tool_that_is_missing_or_none_is_no_trouble(tmp_path: Path) -> None:
    for number, name in enumerate(("ixsmi", "auto", "none")):
        (tmp_path / name).mkdir()
        sampled = Sampled(tmp_path / name, "", number)
        sampled.made.order["telemetry"].update(tool=name, argv=["no-such-smi"])
        sampled.carry_out()
    assert not Path(sampled.made.folder, "capture.jsonl").exists()


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
