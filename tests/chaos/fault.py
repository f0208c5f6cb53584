"""One fault and its trial: what is done to a running study, when, and what must hold afterwards.

In:  a Fault, a World. Out: a Row of the table; AssertionError with everything a reader needs.
Whatever the fault: every run is found, none lost, none measured twice, no process left, bystanders
untouched, and the words for the user are clear.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.study import Size
from tests.chaos.world import Calling, World

Act = Callable[[World], Any]
# Nobody helps himself with these.
UNCLEAR = ("Traceback (most recent call last)", "Exception ignored", "paramiko.")


def nothing(_: World) -> None:
    return


@dataclass(frozen=True)
class Fault:
    name: str
    when: Act
    do: Act
    heal: Act = nothing
    survives: bool | None = False  # the call that meets it ends well by itself; None: it may
    says: tuple[str, ...] = ()  # in the words of the call that met it, unless it survived
    calls: int = 1  # how many more may be needed
    outlives: bool = False  # the queue goes on alone: the next call starts nothing
    invalid: int = 0  # runs that are kept as what they are: spoilt by the server
    unclear: tuple[str, ...] = UNCLEAR
    size: Size = field(default_factory=Size)


@dataclass(frozen=True)
class Row:
    fault: str
    found: str
    lost: int
    twice: int
    left: int
    calls: int
    seconds: float


def try_fault(fault: Fault, world: World) -> Row:
    call = world.call()
    try:
        fault.when(world)
        fault.do(world)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{call.text[-4000:]}\n{world.host_log()}") from error
    if not fault.survives:
        ended = call.end()
        assert ended or fault.survives is None, f"it ended well:\n{call.text[-3000:]}"
    fault.heal(world)
    healed = time.monotonic()
    if fault.outlives:
        assert world.until_idle() == {}, "the queue ends by itself and stops its servers"
    starts = len(world.witness.all("start_begin"))
    _complete(fault, world, call)
    seconds = time.monotonic() - healed
    if fault.outlives:
        assert len(world.witness.all("start_begin")) == starts, "something was started again"
    for words in fault.says if call.end() else ():
        assert words in call.text, f"not told: {words!r}\n{call.text[-5000:]}"
    return judge(fault.name, world, seconds, fault.invalid, fault.unclear)


def _complete(fault: Fault, world: World, call: Calling) -> None:
    """Wait for the call, or make the next ones, until a call ends well."""
    for _ in range(fault.calls):
        if call.end() == 0:
            return
        assert not fault.survives, f"the call did not survive:\n{call.text[-5000:]}"
        world.unlock()
        call = world.call()
    assert call.end() == 0, f"no call ended well:\n{world.text[-6000:]}"


def judge(
    name: str, world: World, seconds: float, invalid: int = 0, unclear: tuple[str, ...] = UNCLEAR
) -> Row:
    left = world.until_idle(30)
    world.witness.look()
    found = f"{len(world.found())}/{len(world.wanted())}"
    if invalid:
        found += f", {len(world.found()) - world.good()} invalid"
    counts = len(world.lost()), len(world.twice()), len(left), len(world.calls)
    row = Row(name, found, *counts, round(seconds, 1))
    said = f"{row}\n{world.text[-4000:]}"
    assert left == {}, f"left: {left}\n{said}"
    assert set(world.found()) == world.wanted(), said
    assert world.good() == len(world.wanted()) - invalid, said
    assert not world.lost(), f"lost: {world.lost()}\n{said}"
    assert not world.twice(), f"measured twice: {world.twice()}\n{said}"
    assert all(b.poll() is None for b in world.bystanders), f"a bystander was killed\n{said}"
    for words in unclear:
        assert words not in world.text, f"unclear words: {words}\n{said}"
    return row
