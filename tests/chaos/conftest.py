"""Worlds for the chaos suite, and its table: fault, found, lost, twice, left over, seconds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.fault import Row
from tests.chaos.machine import Machine
from tests.chaos.world import World
from tests.ssh.sshd import Sshd, why_not

HEAD = ("fault", "found", "lost", "measured twice", "left over", "calls", "seconds to recover")
KEY = "chaos_row"
# The most telling ones run with every `make test`; the others are slow.
ALWAYS = (
    "sessions killed, first run",
    "kill -9 of the workflow, first run",
    "controller gone after launch 1 of 5",
    "test_the_jump_host_fails[sessions killed]",
)
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.chaos)
            if not any(name in item.name for name in ALWAYS):
                item.add_marker(pytest.mark.slow)


@pytest.fixture
def need_sshd(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    # The user's own agent plays no part unless a test sets one.
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def make_sshd(need_sshd: None, tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """A sshd that is no host of the study: a jump host."""
    made: list[Sshd] = []

    def make(name: str) -> Sshd:
        made.append(Sshd(tmp_path / name))
        made[-1].start()
        return made[-1]

    yield make
    for sshd in made:
        sshd.stop()


@pytest.fixture
def make_machine(need_sshd: None, tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    made: list[Machine] = []

    def make(name: str = "h", *options: str, root: Path = tmp_path, **way: Any) -> Machine:
        made.append(Machine(root, name, *options, **way))
        return made[-1]

    yield make
    for machine in made:
        machine.close()


@pytest.fixture
def make_world(
    tmp_path: Path, make_machine: Callable[..., Machine]
) -> Iterator[Callable[..., World]]:
    """`make_world(size)` -> a world of one host behind ssh; `machines=[…]` gives others."""
    made: list[World] = []

    def make(size: Any = None, machines: Any = None, root: Path = tmp_path, **more: Any) -> World:
        machines = [make_machine(root=root)] if machines is None else machines
        made.append(World(root, size, machines, **more))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[Row], None]:
    """Put a row into the table of the session, from whatever worker."""
    return lambda row: request.node.user_properties.append((KEY, dataclasses.astuple(row)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [r for each in terminalreporter.stats.values() for r in each]
    rows = [
        value
        for report in reports
        if getattr(report, "when", None) == "call"
        for key, value in report.user_properties
        if key == KEY
    ]
    if not rows:
        return
    lines = [HEAD, ("---",) * len(HEAD), *sorted(rows)]
    text = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
    terminalreporter.write_line("\n" + text)
    if os.environ.get("DECODELAB_CHAOS_TABLE"):
        Path(os.environ["DECODELAB_CHAOS_TABLE"]).write_text(text + "\n", encoding="utf-8")
