"""The cable between the workflow and the host is pulled: nothing passes and nobody says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.fault import Fault, Row, nothing, try_fault
from tests.chaos.machine import Machine
from tests.chaos.moments import at_once, in_first_run
from tests.chaos.network import Cable, need_namespaces
from tests.chaos.test_workflow import ctrl_c
from tests.chaos.witness import wait_until
from tests.chaos.world import World


@pytest.fixture
def cable() -> Iterator[Cable]:
    need_namespaces()
    made = Cable()
    yield made
    made.close()


@pytest.fixture
def world(
    cable: Cable, make_machine: Callable[..., Machine], make_world: Callable[..., World]
) -> World:
    """Its host is in the namespace, agent and servers included."""
    return make_world(machines=[make_machine(address=cable.far, prefix=cable.inside)])


def test_cut_for_20_s(world: World, cable: Cable, tell: Callable[[Row], None]) -> None:
    def cut(_: World) -> None:
        cable.pull()
        time.sleep(20)
        cable.plug()

    tell(try_fault(Fault("network cut for 20 s", in_first_run, cut, survives=True), world))


def test_cut_for_longer_than_the_queue_takes(
    world: World, cable: Cable, tell: Callable[[Row], None]
) -> None:
    def cut(world: World) -> None:
        cable.pull()
        wait_until(lambda: len(world.witness.all("launch_end")) == 2, "the queue's end")
        time.sleep(16)  # the call must have noticed
        cable.plug()

    fault = Fault("network cut until the queue was over", in_first_run, cut, survives=True)
    tell(try_fault(fault, world))
    assert "connection" in world.text.lower()


def test_cut_for_ever_and_the_next_call_fetches(
    world: World, cable: Cable, tell: Callable[[Row], None]
) -> None:
    def cut(world: World) -> None:
        cable.pull()
        time.sleep(3)
        ctrl_c(world)

    def plug(world: World) -> None:
        assert world.until_idle() == {}, "the queue ends without us"
        cable.plug()

    fault = Fault(
        "network cut, then Ctrl-C", in_first_run, cut, plug, outlives=True, says=("goes on",)
    )
    tell(try_fault(fault, world))


def test_a_slow_link(world: World, cable: Cable, tell: Callable[[Row], None]) -> None:
    cable.slow(400)
    tell(try_fault(Fault("link of 400 kbit/s", at_once, nothing, survives=True), world))
