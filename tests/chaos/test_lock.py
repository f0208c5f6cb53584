"""Somebody else is on the host, or seems to be."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.fault import Fault, Row, judge, nothing, try_fault
from tests.chaos.machine import Machine
from tests.chaos.moments import at_once
from tests.chaos.study import Size
from tests.chaos.witness import wait_until
from tests.chaos.world import World

HOLD = """
import fcntl, json, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, json.dumps({"owner": "bob:his-study:0", "pid": os.getpid(), "doing": "a launch"}).encode())
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "host.lock"


@pytest.fixture
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another user, whose launch holds the host's lock."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def real(lock: Path) -> dict[str, object]:
    """Only hosts with real accelerators share a lock."""
    return {"simulated": False, "lock": str(lock)}


def test_a_stale_lock_file(
    lock: Path, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    lock.write_text(json.dumps({"owner": "bob:his-study:0", "pid": 1, "since": 1.0}))
    world = make_world(Size(fake=True, launches=1), **real(lock))
    tell(try_fault(Fault("stale lock file", at_once, nothing, survives=True), world))


def test_a_live_lock_that_is_released(
    lock: Path,
    holder: subprocess.Popen[str],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    world = make_world(Size(fake=True, launches=1), **real(lock))

    def told(world: World) -> None:
        world.witness.until("lock_wait")
        wait_until(lambda: "bob" in world.text, "the second user is told who holds the host")

    def release(world: World) -> None:
        assert not world.witness.all("start_begin"), "it waits"
        holder.kill()

    tell(try_fault(Fault("host in use, then free", told, nothing, release, survives=True), world))


def test_a_live_lock_for_longer_than_declared(
    lock: Path,
    holder: subprocess.Popen[str],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    size = Size(fake=True, launches=1, limits=(("lock_wait_s", 3.0),))
    world = make_world(size, **real(lock))

    def leave(world: World) -> None:
        assert holder.poll() is None, "another user's process was ended"
        assert not world.witness.all("start_begin")
        holder.kill()

    says = ("bob", "busy for 3 s", "Hint")
    tell(try_fault(Fault("host in use for too long", at_once, nothing, leave, says=says), world))


def test_two_users_contend_for_one_host(
    lock: Path,
    tmp_path: Path,
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    """Two checkouts, two working folders, one machine: turn by turn."""
    worlds = []
    for name in ("a", "b"):
        root = tmp_path / name
        size = Size(fake=True, tokens=100 if name == "a" else 120)
        worlds.append(make_world(size, [make_machine(root=root)], root=root, **real(lock)))
    begin = time.monotonic()
    calls = [world.call() for world in worlds]
    for call in calls:
        assert call.end() == 0, call.text
    for world, name in zip(worlds, "ab", strict=True):
        tell(judge(f"two users, one host: user {name}", world, time.monotonic() - begin))
    spans = sorted(span for world in worlds for span in served(world))
    assert len(spans) == 4
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), spans


def served(world: World) -> list[tuple[float, float]]:
    """From each server's start to its end, in the machine's monotonic time."""
    begins = [e["m"] for e in world.witness.all("start_begin")]
    ends = [e["m"] for e in world.witness.all("stop_end")]
    return list(zip(sorted(begins), sorted(ends), strict=True))


def test_two_checkouts_with_the_same_study_in_one_working_folder(
    tmp_path: Path,
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    """The same launches by digest: each checkout gets its whole study, measured once for both."""
    machine = make_machine()
    size = Size(fake=True, tokens=100)
    worlds = [make_world(size, [machine], root=tmp_path / name, tag=tmp_path) for name in "ab"]
    assert worlds[0].wanted() == worlds[1].wanted()
    begin = time.monotonic()
    for world in worlds:
        world.call()
    for world in worlds:
        if world.calls[-1].end() != 0:
            world.call()
        assert world.calls[-1].end() == 0, world.text
    seconds = time.monotonic() - begin
    left = worlds[0].until_idle() | worlds[1].until_idle()
    assert left == {}
    spans = served(worlds[0])
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), spans
    twice = worlds[0].twice()
    for world, name in zip(worlds, "ab", strict=True):
        assert set(world.found()) == world.wanted()
        found = f"{world.good()}/{len(world.wanted())}"
        row = f"two checkouts, one working folder: {name}"
        tell(Row(row, found, 0, len(twice), len(left), len(world.calls), round(seconds, 1)))
    assert not twice, "measured for one, and again for the other"
