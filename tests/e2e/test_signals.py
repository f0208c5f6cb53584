"""Ctrl-C, SIGTERM and kill -9 of the workflow, at several moments: no server left, nothing lost, the
next call goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study

DEADLINE_S = 60


def long_study() -> dict[str, object]:
    """Runs of a few seconds, so that a signal meets them on their way."""
    config = study()
    for workload in config["workloads"].values():
        workload["max_tokens"] = 400
    return config


def wait_until(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end, f"never: {why}"
        time.sleep(0.05)


def events_text(lab: Lab) -> str:
    files = sorted((lab.workdir() / "done").glob("*/events.jsonl"))
    return "\n".join(f.read_text(encoding="utf-8") for f in files)


MOMENTS: dict[str, Callable[[Lab], bool]] = {
    "while the server starts": lambda lab: '"start_begin"' in events_text(lab),
    "in the first run": lambda lab: '"run_begin"' in events_text(lab),
    "in a later run": lambda lab: lab.count().runs >= 1,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_stops_the_server_and_keeps_what_is_finished(lab: Lab, moment: str) -> None:
    lab.write_config(long_study())
    call = lab.start("report")
    wait_until(lambda: MOMENTS[moment](lab), moment)
    kept = lab.count()
    os.killpg(call.pid, signal.SIGINT)
    call.communicate(timeout=DEADLINE_S)
    assert call.returncode != 0
    assert lab.wait_for_no_process() == {}
    assert lab.count().runs >= kept.runs
    after = lab.count()
    finish(lab)
    assert lab.count().runs == 3
    assert (lab.count() - after).runs == 3 - after.runs


@contextmanager
def nothing_ends(lab: Lab) -> Iterator[None]:
    """The host's agent stands still: no run and no launch comes to its end meanwhile."""
    agent = int(lab.json(".decodelab/embedded/agent.json")["pid"])
    os.kill(agent, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(agent, signal.SIGCONT)


@pytest.mark.parametrize("under", [(), ("nohup",)], ids=["plain", "nohup"])
def test_kill_9_loses_nothing_and_leaves_no_server(lab: Lab, under: Sequence[str]) -> None:
    """The job dies with its workflow, though its launch runs on: nobody fetches any more."""
    lab.write_config(long_study())
    call = lab.start("report", under=under)
    wait_until(lambda: MOMENTS["in the first run"](lab), "a run began")
    with nothing_ends(lab):
        call.kill()
        call.communicate(timeout=DEADLINE_S)  # to the end of the pipe, which the job holds as well
    kept = lab.count()
    assert lab.wait_for_no_process(DEADLINE_S) == {}, (
        "the queue ends by itself and stops its servers"
    )
    assert lab.count() == kept, "nobody has fetched since"
    refused = lab.run("report")
    if "LockException" in refused.text:
        assert "--unlock" in refused.text
        assert lab.run("--unlock").exit_code == 0
    finish(lab)
    assert lab.count() == Count(2, 3), (
        "all was measured once, by the queue that outlived the workflow"
    )


def test_sigterm_drains(lab: Lab) -> None:
    lab.write_config(long_study())
    call = lab.start("report")
    wait_until(lambda: MOMENTS["in the first run"](lab), "a run began")
    call.terminate()
    call.communicate(timeout=DEADLINE_S)
    assert call.returncode != 0
    assert lab.wait_for_no_process() == {}
    assert lab.count() == Count(1, 1), (
        "the running launch was finished and kept, the next not started"
    )
    finish(lab)
    assert lab.count() == Count(2, 3)


def finish(lab: Lab) -> None:
    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert (lab.root / "report" / "small" / "report.en.md").is_file()


def test_a_killed_agent_is_noticed_and_cleaned_up_after(lab: Lab) -> None:
    lab.write_config(long_study())
    call = lab.start("report")
    wait_until(lambda: MOMENTS["in the first run"](lab), "a run began")
    agent = int(lab.json(".decodelab/embedded/agent.json")["pid"])
    os.kill(agent, signal.SIGKILL)
    text, _ = call.communicate(timeout=DEADLINE_S)
    assert call.returncode != 0
    assert "agent" in text and "Hint" in text, text
    assert lab.wait_for_no_process() == {}
    finish(lab)


def test_two_workflows_in_one_checkout_do_not_measure_twice(lab: Lab) -> None:
    lab.write_config(long_study())
    first = lab.start("report")
    wait_until(lambda: MOMENTS["in the first run"](lab), "a run began")
    second = subprocess.run(
        lab.command("report"), cwd=lab.root, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert second.returncode != 0 and "lock" in (second.stdout + second.stderr).lower()
    text, _ = first.communicate(timeout=4 * DEADLINE_S)
    assert first.returncode == 0, text
    assert lab.count() == Count(2, 3)
