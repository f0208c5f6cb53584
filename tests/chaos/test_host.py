"""The host itself is unwell: disk, file system, Python, clock."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.fault import Fault, Row, nothing, try_fault
from tests.chaos.machine import Machine
from tests.chaos.moments import at_once, in_first_run, in_second_run
from tests.chaos.network import need_namespaces
from tests.chaos.study import Size
from tests.chaos.world import World

DISK_BYTES = 6 << 20
CLOCK_STEP = Path(__file__).with_name("clock_step.c")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own under the host's working folder."""
    need_namespaces()
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """To the last byte."""
    with (disk / "filler").open("ab", buffering=0) as f:
        for piece in (1 << 16, 1 << 10, 1):
            try:
                while f.write(b"\\0" * piece):
                    pass
            except OSError:
                continue


@pytest.mark.parametrize("moment", ["before the call", "second run"])
def test_the_disk_is_full(
    moment: str, disk: Path, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    world = make_world(workdir=str(disk / "work"))
    world.watch(disk / "work")
    when = {"before the call": at_once, "second run": in_second_run}
    if moment == "before the call":
        fill(disk)

    def make_space(_: World) -> None:
        (disk / "filler").unlink()

    fault = Fault(
        f"disk full, {moment}",
        when[moment],
        lambda _: fill(disk),
        make_space,
        says=("No space left", "Hint"),
    )
    tell(try_fault(fault, world))


def test_the_working_folder_is_read_only(
    disk: Path, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    world = make_world(workdir=str(disk / "work"))
    world.watch(disk / "work")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

    def writable(_: World) -> None:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)

    says = ("Read-only file system", "Hint")
    tell(try_fault(Fault("working folder read-only", at_once, nothing, writable, says=says), world))


def test_there_is_no_python(
    tmp_path: Path, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    python = tmp_path / "python on the host"
    world = make_world(python=str(python))

    def install(_: World) -> None:
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)

    says = (str(python), "Hint")
    tell(
        try_fault(Fault("python missing on the host", at_once, nothing, install, says=says), world)
    )


def test_tmp_is_noexec(
    tmp_path: Path,
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    need_namespaces()
    mounts = 'mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp && exec "$@"'
    machine = make_machine(prefix=["unshare", "-m", "sh", "-c", mounts, "sh"])
    fault = Fault("/tmp is mounted noexec", at_once, nothing, survives=True)
    tell(try_fault(fault, make_world(machines=[machine])))


@pytest.mark.parametrize("step_s", [3600, -7200])
def test_the_clock_steps(
    step_s: int,
    tmp_path: Path,
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    """The host's wall clock jumps in a run; its monotonic clock does not."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for a wall clock that can be stepped")
    clock, library = tmp_path / "clock", tmp_path / "clock_step.so"
    clock.write_text("0")
    build = [compiler, "-shared", "-fPIC", "-o", str(library), str(CLOCK_STEP)]
    subprocess.run(build, check=True)
    settings = {"HOME": tmp_path, "LD_PRELOAD": library, "CLOCK_STEP_FILE": clock}
    words = " ".join(f"{key}={value}" for key, value in settings.items())
    machine = make_machine("h", f"SetEnv {words}")

    def step(_: World) -> None:
        clock.write_text(str(step_s))

    fault = Fault(f"clock steps {step_s:+d} s in a run", in_first_run, step, survives=True)
    world = make_world(Size(launches=1, tokens=500), machines=[machine])
    tell(try_fault(fault, world))
    steps = 0
    for file in (world.lab.root / "results/raw").glob("*/*/*/*/run.json"):
        record = world.json(file)
        told = record["summary"]
        ttft_s, e2e_s = told["ttft_s"]["p50"], told["e2e_s"]["p50"]
        assert 0 < ttft_s < e2e_s <= told["wall_s"] < 60, told
        assert record["client"]["lag_max_s"] < 60, record["client"]
        steps += record["client"]["clock_steps"]
    assert steps, "no client met it"
