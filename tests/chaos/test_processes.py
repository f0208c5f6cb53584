"""The agent, its keeper, the server or the whole host dies; the server is of the worst kind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cargo import ports
from tests.chaos.fault import Fault, Row, nothing, try_fault
from tests.chaos.moments import at_once, between_launches, in_first_run, in_second_run, starting
from tests.chaos.moody_server import FAKE
from tests.chaos.study import Size, mood_file
from tests.chaos.witness import wait_until
from tests.chaos.world import World

FAKES = Size(fake=True)
PATIENT = Size(fake=True, limits=(("probe_s", 3.0),))


def kill_agent(world: World) -> None:
    os.kill(world.agent(), signal.SIGKILL)


def kill_keeper(world: World) -> None:
    wait_until(lambda: list((world.workdir / "live").glob("*.json")), "a live file")
    os.kill(world.keeper(), signal.SIGKILL)


def kill_both(world: World) -> None:
    wait_until(lambda: list((world.workdir / "live").glob("*.json")), "a live file")
    keeper = world.keeper()
    os.kill(world.agent(), signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)


def kill_server(world: World) -> None:
    os.kill(world.until_served(), signal.SIGKILL)


AGENT_DIED = ("agent", "died", "Hint")
FAULTS = [
    Fault("kill -9 of the agent, server starts", starting, kill_agent, says=AGENT_DIED),
    Fault("kill -9 of the agent, second run", in_second_run, kill_agent, says=AGENT_DIED),
    Fault("kill -9 of the keeper, first run", in_first_run, kill_keeper, survives=True, invalid=1),
    Fault("kill -9 of agent and keeper, first run", in_first_run, kill_both, says=AGENT_DIED),
    Fault("kill -9 of the server, first run", in_first_run, kill_server, survives=True, invalid=1),
]


@pytest.mark.parametrize("fault", [pytest.param(f, id=f.name) for f in FAULTS])
def test_a_part_dies(
    fault: Fault, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    tell(try_fault(fault, make_world(fault.size)))


def test_agent_and_keeper_die_over_deaf_children(
    make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    """The worst orphans: own sessions, no environment, no output, TERM ignored."""
    world = make_world(FAKES)
    world.mood("--ignore-term", "--children", "3")

    def kill(world: World) -> None:
        time.sleep(1.2)  # one refresh of the live file
        kill_both(world)

    name = "kill -9 of agent and keeper, deaf children"
    tell(try_fault(Fault(name, in_first_run, kill, says=AGENT_DIED), world))


# ---------------------------------------------------------------------- the server
def mended(world: World) -> None:
    mood_file(world.root).unlink()


MOODS: list[tuple[Sequence[str], Fault]] = [
    (
        ("--die-at-start", "RuntimeError: the driver is not loaded"),
        Fault(
            "server dies at once",
            at_once,
            nothing,
            mended,
            size=FAKES,
            says=("driver is not loaded",),
        ),
    ),
    (
        ("--dead-engine",),
        Fault(
            "server healthy, engine dead", at_once, nothing, mended, size=PATIENT, says=("Hint",)
        ),
    ),
    (
        ("--ignore-term", "--children", "4"),
        Fault(
            "children deaf to TERM in other sessions", at_once, nothing, survives=True, size=FAKES
        ),
    ),
    (
        ("--die-at-request", "1", "--deaths", "DEATHS", "--max-deaths", "1"),
        Fault("server dies in a run", at_once, nothing, survives=True, size=FAKES, invalid=1),
    ),
]


@pytest.mark.parametrize(("mood", "fault"), [pytest.param(*p, id=p[1].name) for p in MOODS])
def test_a_bad_server(
    mood: Sequence[str],
    fault: Fault,
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    world = make_world(fault.size)
    world.mood(*[str(world.root / "deaths") if word == "DEATHS" else word for word in mood])
    tell(try_fault(fault, world))


def test_the_port_is_somebody_elses(
    make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-S", str(FAKE), "--port", str(port)]
    stranger = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: ports.listeners(port), "it listens")
        world = make_world(FAKES, port=port)

        def leave(_: World) -> None:
            assert stranger.poll() is None, "somebody else's server was ended"
            stranger.kill()
            stranger.wait()

        says = (f"port {port} is held by pid {stranger.pid}", "Hint")
        fault = Fault("port of somebody else's server", at_once, nothing, leave, says=says)
        tell(try_fault(fault, world))
    finally:
        stranger.kill()
        stranger.wait()


# ---------------------------------------------------------------------- the host
def power_off(world: World) -> None:
    """All that runs on the host dies at once, and it comes up as another boot."""
    sshd = world.machine.sshd
    agent, keeper = world.agent(), world.keeper()
    sshd.stop()
    os.kill(agent, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    for pid in [pid for pid, words in world.processes().items() if not _ours(words)]:
        os.kill(pid, signal.SIGKILL)
    _other_boot(world)
    sshd.start()


def _ours(words: str) -> bool:
    return "snakemake" in words or "launch.py" in words or "stop_queue.py" in words


def _other_boot(world: World) -> None:
    """The records are those of a boot before; a pid in them belongs to somebody else by now."""
    bystander = world.bystanders[0].pid
    stat = Path(f"/proc/{bystander}/stat").read_text()
    start = int(stat.rpartition(")")[2].split()[19])
    for file in [world.workdir / "agent.json", *(world.workdir / "live").glob("*.json")]:
        record = json.loads(file.read_text())
        record["boot_id"] = "00000000-0000-0000-0000-000000000000"
        if "members" in record:
            record["members"].append([bystander, start])
        else:
            record.update(pid=bystander, start_time=start)
        file.write_text(json.dumps(record))


@pytest.mark.parametrize("moment", ["in_first_run", "between_launches"])
def test_the_host_is_rebooted(
    moment: str, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    when = {"in_first_run": in_first_run, "between_launches": between_launches}[moment]

    def off(world: World) -> None:
        if moment == "between_launches":
            world.witness.until("start_begin", 2)
            time.sleep(0.3)
        power_off(world)

    name = f"host rebooted, {moment.replace('_', ' ')}"
    fault = Fault(name, when, off, survives=None, says=("Hint",))
    tell(try_fault(fault, make_world()))
