"""A job and the death of the Snakemake that began it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from decodelab import lifetime

SCRIPTS = Path(lifetime.__file__).parents[1]
WAIT_S = 60
LIFE_S = 4 * WAIT_S
JOB = """
import sys, time
from decodelab import lifetime
lifetime.end_with_workflow()
print("at work", flush=True)
time.sleep(float(sys.argv[1]))
"""
WORKFLOW = f"""
import subprocess, sys
from decodelab import lifetime
lifetime.begin()
subprocess.run([sys.executable, "-c", {JOB!r}, "{LIFE_S}"])
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != lifetime.VARIABLE}
    return {**kept, "PYTHONPATH": str(SCRIPTS), **more}


def job(**more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", JOB, "0"]
    return subprocess.run(
        words, env=environment(**more), capture_output=True, text=True, timeout=WAIT_S
    )


@pytest.mark.parametrize("under", [[], ["nohup"]], ids=["plain", "nohup"])
def test_a_job_dies_with_its_workflow(under: list[str]) -> None:
    """Also where nobody hears a SIGHUP. The job holds the pipe: its end is the job's end."""
    words = [*under, sys.executable, "-c", WORKFLOW]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE) as workflow:
        assert workflow.stdout is not None
        assert workflow.stdout.readline() == b"at work\n"
        workflow.kill()
        assert workflow.communicate(timeout=WAIT_S) == (b"", None)


def test_a_job_whose_workflow_died_before_it_was_up_does_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = job(**{lifetime.VARIABLE: str(gone.pid)})
    assert (done.returncode, done.stdout) == (1, "")
    assert "is gone" in done.stderr


def test_a_step_run_by_hand_is_tied_to_nobody() -> None:
    done = job()
    assert (done.returncode, done.stdout, done.stderr) == (0, "at work\n", "")
