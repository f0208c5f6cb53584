"""Two hosts measure at once under `--cores 1`; one host never runs two launches at once."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.chaos.fault import Row, judge
from tests.chaos.machine import Machine
from tests.chaos.study import Size
from tests.chaos.world import World

Span = tuple[float, float]


def served(world: World, machine: Machine) -> list[Span]:
    """From each server's spawning to its end, as the kept start.json has it (one wall clock)."""
    found = []
    for digest, launch in world.study.launches.items():
        if launch["host"] != machine.name:
            continue
        folder = world.lab.root / "results/raw" / launch["server"] / f"start{launch['start']}"
        starts = list(folder.glob("start-*/start.json"))
        assert len(starts) == 1, f"launch {digest}: {starts}"
        facts = world.json(starts[0])
        found.append((facts["t_spawned"], facts["t_end"]))
    return sorted(found)


def overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_two_hosts_measure_in_parallel_on_one_core(
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    a, b = make_machine("a"), make_machine("b")
    world = make_world(Size(runs=1), machines=[a, b])
    begin = time.monotonic()
    call = world.call("--cores", "1")
    assert call.end() == 0, call.text
    tell(judge("two hosts under --cores 1", world, time.monotonic() - begin))
    ours, others = served(world, a), served(world, b)
    assert len(ours) == len(others) == 2
    assert any(overlap(one, other) for one in ours for other in others), (ours, others)
    assert not overlap(*ours) and not overlap(*others)


def test_one_host_never_runs_two_launches_at_once(
    world: World, tell: Callable[[Row], None]
) -> None:
    begin = time.monotonic()
    call = world.call("--cores", "8", "--resources", "host_h=99")
    assert call.end() == 0, call.text
    tell(judge("one host under --cores 8 --resources host_h=99", world, time.monotonic() - begin))
    assert not overlap(*served(world, world.machine))
