"""The controller dies, is stopped or told to end, at every phase of a launch on a host."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.chaos.fault import Fault, Row, try_fault
from tests.chaos.moments import PHASES, between_launches, in_first_run, starting
from tests.chaos.study import Size
from tests.chaos.world import World

FIVE = Size(launches=5, runs=1, tokens=150)
SOME = Size(runs=2, fake=True)


def kill_9(world: World) -> None:
    world.calls[-1].signal(signal.SIGKILL)


def ctrl_c(world: World) -> None:
    world.calls[-1].signal(signal.SIGINT)


def ctrl_c_twice(world: World) -> None:
    """The impatient user."""
    ctrl_c(world)
    world.witness.until("stop_begin")
    ctrl_c(world)


def terminate(world: World) -> None:
    world.calls[-1].process.terminate()


def everything_stopped(world: World) -> None:
    assert world.until_idle() == {}, "Ctrl-C stops the server"
    assert world.lost() == set(), "what was finished is kept"


KILLED = [
    Fault(f"kill -9 of the workflow, {name}", PHASES[name], kill_9, outlives=name != "ship")
    for name in ("ship", "server starts", "first run", "server stops", "between launches")
]
STOPPED = [
    Fault(f"Ctrl-C, {name}", PHASES[name], ctrl_c, everything_stopped)
    for name in ("ship", "server starts", "second run", "server stops")
]
FAULTS = [
    *KILLED,
    *STOPPED,
    # At the second one Snakemake itself prints how its event loop went down.
    Fault("Ctrl-C twice", in_first_run, ctrl_c_twice, everything_stopped, unclear=()),
    Fault("SIGTERM of the workflow, first run", in_first_run, terminate),
    Fault(
        "controller gone after launch 1 of 5", between_launches, kill_9, outlives=True, size=FIVE
    ),
]


@pytest.mark.parametrize("fault", [pytest.param(f, id=f.name) for f in FAULTS])
def test_the_workflow_ends_early(
    fault: Fault, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    tell(try_fault(fault, make_world(fault.size)))


@pytest.mark.parametrize("when", ["server starts", "first run"])
def test_ctrl_c_with_a_server_that_is_deaf_to_it(
    when: str, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    world = make_world(SOME)
    world.mood("--ignore-term", "--children", "3", "--start-s", "1")
    moment = {"server starts": starting, "first run": in_first_run}[when]
    fault = Fault(f"Ctrl-C, {when}, server deaf to TERM", moment, ctrl_c, everything_stopped)
    tell(try_fault(fault, world))
