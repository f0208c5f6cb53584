"""The connection dies, falls silent, or crawls, at every phase of a launch on a host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.chaos.fault import Fault, Row, nothing, try_fault
from tests.chaos.machine import Machine
from tests.chaos.moments import (
    PHASES,
    at_once,
    connected,
    first_run_ended,
    in_first_run,
    shipping,
)
from tests.chaos.study import Size
from tests.chaos.witness import wait_until
from tests.chaos.world import World

BEAT_S = 0.2


def kill_sessions(world: World) -> None:
    """For a second: a reconnect within the phase is hit as well."""
    for _ in range(5):
        world.machine.sshd.kill_sessions()
        time.sleep(BEAT_S)


def host_gone_for_6_s(world: World) -> None:
    world.machine.sshd.stop()
    time.sleep(6)
    world.machine.sshd.start()


def sessions_stopped(world: World) -> None:
    world.machine.sshd.pause()


def sshd_stopped_for_8_s(world: World) -> None:
    world.machine.sshd.pause(listener=True)
    time.sleep(8)
    world.machine.sshd.resume()


def sessions_resumed(world: World) -> None:
    """Not before the queue is done: the call must not need them."""
    wait_until(lambda: len(world.witness.all("launch_end")) == world.size.launches, "the end")
    world.calls[-1].end()
    world.machine.sshd.resume()


# A host that never let us in is rather a mistake than a trouble: told at once.
EARLY: dict[str, tuple[Callable[[World], None], bool | None]] = {
    "login": (connected, None),
    "ship": (shipping, True),
}
LATER = {name: when for name, when in PHASES.items() if name not in (*EARLY, "second run")}
LOST = ("connection was lost",)

ON_SSHD = [
    *(
        Fault(f"sessions killed, {name}", when, kill_sessions, survives=survives, says=LOST)
        for name, (when, survives) in EARLY.items()
    ),
    *(
        Fault(f"sessions killed, {name}", when, kill_sessions, survives=True)
        for name, when in {**LATER, "fetch": first_run_ended}.items()
    ),
    Fault("sshd and sessions gone for 6 s", in_first_run, host_gone_for_6_s, survives=True),
    Fault("sessions SIGSTOPped", in_first_run, sessions_stopped, sessions_resumed, survives=True),
    Fault("sshd SIGSTOPped for 8 s", in_first_run, sshd_stopped_for_8_s, survives=True),
]


@pytest.mark.parametrize("fault", [pytest.param(f, id=f.name) for f in ON_SSHD])
def test_the_sshd_fails(
    fault: Fault, make_world: Callable[..., World], tell: Callable[[Row], None]
) -> None:
    tell(try_fault(fault, make_world(fault.size)))


# ---------------------------------------------------------------------- a proxy in between
def cut_while_shipping(world: World) -> None:
    proxy = world.machine.proxy
    assert proxy is not None
    passed = proxy.passed_bytes
    wait_until(lambda: proxy.passed_bytes > passed + 30_000, "half a shipment")
    assert not list(world.workdir.glob("cargo/*/cargo")), "nothing half-shipped has its name"
    proxy.cut()


def full_speed(world: World) -> None:
    assert world.machine.proxy is not None
    world.machine.proxy.bytes_per_s = None


def crawl(world: World) -> None:
    proxy = world.machine.proxy
    assert proxy is not None
    proxy.bytes_per_s = 40_000


def cut_while_fetching(world: World) -> None:
    proxy = world.machine.proxy
    assert proxy is not None
    proxy.bytes_per_s = 4_000
    for _ in range(3):
        time.sleep(1.5)
        proxy.cut()
    proxy.bytes_per_s = None


def flap(world: World) -> None:
    """A connection that never lives longer than three seconds."""
    proxy = world.machine.proxy
    assert proxy is not None

    def cut_again() -> None:
        while world.calls[-1].process.poll() is None:
            time.sleep(3)
            proxy.cut()

    threading.Thread(target=cut_again, daemon=True).start()


def frozen_for_20_s(world: World) -> None:
    proxy = world.machine.proxy
    assert proxy is not None
    proxy.frozen = True
    time.sleep(20)
    proxy.frozen = False


CUT = Fault(
    "slow line, cut while shipping",
    connected,
    cut_while_shipping,
    full_speed,
    survives=None,
    says=LOST,
)
BEHIND_PROXY = [
    (crawl, CUT),
    (crawl, Fault("slow line, 40 kB/s", at_once, nothing, survives=True)),
    (
        nothing,
        Fault(
            "line cut three times while fetching",
            first_run_ended,
            cut_while_fetching,
            survives=True,
        ),
    ),
    (nothing, Fault("connection reset every 3 s", in_first_run, flap, survives=True)),
    (nothing, Fault("line frozen for 20 s", in_first_run, frozen_for_20_s, survives=True)),
]


@pytest.mark.parametrize(
    ("before", "fault"), [pytest.param(*p, id=p[1].name) for p in BEHIND_PROXY]
)
def test_the_line_fails(
    before: Callable[[World], None],
    fault: Fault,
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    world = make_world(fault.size, machines=[make_machine(proxied=True)])
    before(world)
    tell(try_fault(fault, world))


# ---------------------------------------------------------------------- a jump host
@pytest.mark.parametrize("fault", ["gone for 5 s", "sessions killed", "SIGSTOPped"])
def test_the_jump_host_fails(
    fault: str,
    make_sshd: Callable,
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    jump = make_sshd("jump")

    def gone(_: World) -> None:
        jump.stop()
        time.sleep(5)
        jump.start()

    def stopped(_: World) -> None:
        jump.pause()

    acts = {
        "gone for 5 s": gone,
        "sessions killed": lambda _: jump.kill_sessions(),
        "SIGSTOPped": stopped,
    }
    world = make_world(Size(), machines=[make_machine(jump=jump)])
    tell(try_fault(Fault(f"jump host {fault}", in_first_run, acts[fault], survives=True), world))
    assert jump.logins() >= 1, "the way went over it"
