"""Keys: the host's that nobody knows or that changed, the user's agent that is dead. Nothing starts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.fault import Fault, Row, nothing, try_fault
from tests.chaos.machine import Machine
from tests.chaos.moments import at_once
from tests.chaos.study import Size
from tests.chaos.world import World

ONE = Size(launches=1, runs=1)


def nothing_started(world: World) -> None:
    assert not world.workdir.exists(), "something was brought to a host that is not known"


def test_an_unknown_host_key(
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    machine = make_machine()
    machine.sshd.known_hosts.write_text("")

    def learn(world: World) -> None:
        nothing_started(world)
        machine.sshd.learn()

    says = ("SHA256:", "ssh-keyscan", "Hint")
    fault = Fault("host key unknown", at_once, nothing, learn, says=says, size=ONE)
    tell(try_fault(fault, make_world(ONE, machines=[machine])))


def test_a_changed_host_key(
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    machine = make_machine()
    machine.sshd.stop()
    machine.sshd.change_host_keys()
    machine.sshd.start()

    def learn(world: World) -> None:
        nothing_started(world)
        machine.sshd.learn()

    says = ("another host key", f"{machine.sshd.known_hosts} line 1", "Hint")
    fault = Fault("host key changed", at_once, nothing, learn, says=says, size=ONE)
    tell(try_fault(fault, make_world(ONE, machines=[machine])))


def test_an_unknown_key_on_the_jump_host(
    make_sshd: Callable,
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    jump = make_sshd("jump")
    machine = make_machine(jump=jump)
    jump.known_hosts.write_text("")

    def learn(world: World) -> None:
        nothing_started(world)
        assert machine.sshd.logins() == 0
        jump.learn()

    says = ("jump", "SHA256:", "ssh-keyscan", "Hint")
    fault = Fault("jump host's key unknown", at_once, nothing, learn, says=says, size=ONE)
    tell(try_fault(fault, make_world(ONE, machines=[machine])))


@pytest.fixture(params=["stale", "silent"])
def socket_of_an_agent(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, Path]]:
    """Left by an agent that is gone, or of one that takes the question and never answers."""
    path = tmp_path / "agent.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    taken: list[socket.socket] = []

    def take() -> None:
        try:
            while True:
                taken.append(listener.accept()[0])
        except OSError:
            return

    if request.param == "silent":
        listener.listen()
        threading.Thread(target=take, daemon=True).start()
    else:
        listener.close()
    yield request.param, path
    if request.param == "silent":
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for each in taken:
        each.close()


def test_a_dead_ssh_agent(
    socket_of_an_agent: tuple[str, Path],
    make_machine: Callable[..., Machine],
    make_world: Callable[..., World],
    tell: Callable[[Row], None],
) -> None:
    kind, path = socket_of_an_agent
    machine = make_machine(keys={"IdentityAgent": None, "IdentitiesOnly": None})
    world = make_world(ONE, machines=[machine])
    world.environment["SSH_AUTH_SOCK"] = str(path)
    fault = Fault(f"{kind} socket of an SSH agent", at_once, nothing, survives=True, size=ONE)
    tell(try_fault(fault, world))
