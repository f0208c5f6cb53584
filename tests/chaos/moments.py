"""When a fault strikes: the phases of a launch, as they are seen on the host.

In:  a World whose call runs. Out: these return at the moment, or fail after a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.chaos.witness import wait_until
from tests.chaos.world import World


def at_once(_: World) -> None:
    return


def connected(world: World) -> None:
    wait_until(lambda: world.machine.sshd.logins() > 0, "a login")


def shipping(world: World) -> None:
    wait_until(lambda: (world.workdir / "cargo").exists(), "the agent is being shipped")


def starting(world: World) -> None:
    world.witness.until("start_begin")


def in_first_run(world: World) -> None:
    world.witness.until("run_begin")
    time.sleep(0.5)  # well into it: the client has its stream


def first_run_ended(world: World) -> None:
    world.witness.until("run_end")


def in_second_run(world: World) -> None:
    world.witness.until("run_begin", 2)
    time.sleep(0.3)


def stopping(world: World) -> None:
    world.witness.until("stop_begin")


def between_launches(world: World) -> None:
    world.witness.until("launch_end")


PHASES: dict[str, Callable[[World], Any]] = {
    "ship": shipping,
    "server starts": starting,
    "first run": in_first_run,
    "second run": in_second_run,
    "server stops": stopping,
    "between launches": between_launches,
}
