"""Kernel stamps as times on CLOCK_MONOTONIC: what is trusted, what is not, and how often the clocks
are compared.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from cargo import calibrate, stamps
from cargo.exchange import Read, RunClock

SECOND = 10**9
OFFSET = 1_700_000_000 * SECOND  # wall minus monotonic


def ancillary(wall_ns: int) -> bytes:
    return struct.pack("@ll", wall_ns // SECOND, wall_ns % SECOND)


def clocks(*points: tuple[int, int]) -> stamps.MonotonicOffset:
    """Measured so: (monotonic time, wall minus monotonic)."""
    found = stamps.MonotonicOffset()
    found._at = [at for at, _ in points]
    found._offset = [offset for _, offset in points]
    return found


@pytest.mark.parametrize(
    ("before_ns", "kernel"),
    [
        (0, True),
        (1, True),
        (59 * SECOND, True),
        (60 * SECOND, True),
        (60 * SECOND + 1, False),
        (3600 * SECOND, False),
        (-200_000, True),  # after the read, by less than the clocks' error
        (-200_001, False),
    ],
)
def test_how_old_a_stamp_may_be(before_ns: int, kernel: bool) -> None:
    user = 100 * SECOND
    found = clocks((0, OFFSET)).convert(ancillary(OFFSET + user - before_ns), user)
    assert found == stamps.Stamp(user - max(0, before_ns) if kernel else user, kernel)


def test_an_hour_old_stamp_of_another_machines_clock_makes_the_source_the_user() -> None:
    """A container whose stamps come from a clock of its own."""
    clock = RunClock(0, clocks((0, OFFSET)))
    other = ancillary(OFFSET + 5 * SECOND - 3600 * SECOND)
    assert clock.stamp(Read(5 * SECOND, other, b"x")) == stamps.Stamp(5 * SECOND, False)


@pytest.mark.parametrize("step_s", [-7200, -59, -1, 1, 59, 7200])
def test_a_step_of_the_wall_clock_between_two_reads(step_s: int) -> None:
    """Somewhere in the second between two measurements: the stamps on both sides keep their truth."""
    at = [0, SECOND, 2 * SECOND, 3 * SECOND]
    after = OFFSET + step_s * SECOND
    clock = clocks(*zip(at, [OFFSET, OFFSET, after, after], strict=True))
    step_at = SECOND + SECOND // 3
    for received in (SECOND // 2, SECOND + 1000, step_at - 1000, step_at + 1000, 2 * SECOND + 5000):
        wall = received + (OFFSET if received < step_at else after)
        found = clock.convert(ancillary(wall), received + 40_000)
        assert found == stamps.Stamp(received, True), received
    assert clock.steps == 1


def test_a_clock_that_is_slewed_is_followed() -> None:
    """ntpd slews by 500 ppm at most: 0.5 ms a second, which is no step."""
    clock = clocks(*((n * SECOND, OFFSET + n * 500_000) for n in range(5)))
    for received in range(SECOND // 4, 4 * SECOND, SECOND // 4):
        wall = received + OFFSET + received * 500_000 // SECOND
        found = clock.convert(ancillary(wall), received + 1000)
        assert found.kernel and abs(found.t_ns - received) <= 1
    assert clock.steps == 0


def test_outside_the_measurements_the_nearest_one_holds() -> None:
    clock = clocks((10 * SECOND, OFFSET), (11 * SECOND, OFFSET + 1000))
    early, late = 9 * SECOND, 12 * SECOND
    assert clock.convert(ancillary(OFFSET + early), early + 5) == stamps.Stamp(early, True)
    assert clock.convert(ancillary(OFFSET + 1000 + late), late + 5) == stamps.Stamp(late, True)


@pytest.mark.parametrize("given", [None, b"", b"short", bytes(16), bytes(15)])
def test_no_control_message_means_the_readers_own_time(given: bytes | None) -> None:
    assert clocks((0, OFFSET)).convert(given, 77) == stamps.Stamp(77, False)


def test_of_several_tries_the_narrowest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try in which the process was put aside between the two clocks says nothing."""
    mono = iter([0, 9_000_000, 10_000_000, 10_000_100, 20_000_000, 25_000_000])
    wall = iter([OFFSET + 8_999_999, OFFSET + 10_000_050, OFFSET + 20_000_001])
    clock = stamps.MonotonicOffset()
    monkeypatch.setattr(stamps.time, "monotonic_ns", lambda: next(mono))
    monkeypatch.setattr(stamps.time, "time_ns", lambda: next(wall))
    clock.measure(3)
    monkeypatch.undo()
    assert (clock._at[-1], clock._offset[-1]) == (10_000_050, OFFSET)


def test_the_clocks_are_compared_each_second_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    measure, at = stamps.MonotonicOffset.measure, []

    def noted(self: stamps.MonotonicOffset, tries: int = 20) -> None:
        measure(self, tries)
        at.append((self._at[-1], tries))

    monkeypatch.setattr(stamps.MonotonicOffset, "measure", noted)
    with calibrate.Emitter() as emitter:
        state = calibrate.drive_together(emitter.port, "g", calibrate.Steps(1, 50, 20.0))
    assert [one.ended for one in state.counted] == ["whole"]
    assert [tries for _, tries in (at[0], at[-1])] == [200, 200]  # with care at both ends
    times = [t for t, _ in at]
    between = [two - one for one, two in itertools.pairwise(times[:-1])]
    lasted_s = (times[-1] - times[0]) / SECOND
    assert len(between) >= max(1, int(lasted_s) - 1)
    assert min(between) >= 0.99 * SECOND


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]
    with near, far:
        yield near, far


def test_a_socket_that_refuses_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def recvmsg(self) -> None: ...

        def setsockopt(self, *_: Any) -> None:
            raise OSError(92, "Protocol not available")

    class Old:
        """No recvmsg on this platform."""

    assert stamps.ask_for_stamps(Refuses()) is False  # type: ignore[arg-type]
    assert stamps.ask_for_stamps(Old()) is False  # type: ignore[arg-type]
    monkeypatch.setattr(stamps, "_SO_TIMESTAMPNS", 9999)
    switch = stamps.StampSwitch()
    assert not switch.works
    switch.close()


def test_a_switch_that_cannot_be_made_is_off_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(stamps.socket, "create_connection", refuse)
    switch = stamps.StampSwitch()
    assert not switch.works
    switch.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_the_stamp_is_of_the_arrival_not_of_the_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """The bytes lie in the kernel's queue until somebody reads them: that wait is not in the stamp."""
    near, far = pair
    switch = stamps.StampSwitch()
    try:
        assert switch.works, (
            "this machine gives no kernel stamps: the client's figures are the users'"
        )
        assert stamps.ask_for_stamps(far)
        clock = stamps.MonotonicOffset()
        sent_ns = stamps.time.monotonic_ns()
        near.send(b"x")
        arrived_by_ns = stamps.time.monotonic_ns()
        stamps.time.sleep(0.05)
        ancillary_data = far.recvmsg(16, stamps.ANCILLARY_SPACE)[1]
        read_ns = stamps.time.monotonic_ns()
    finally:
        switch.close()
    found = clock.convert(ancillary_data[0][2], read_ns)
    assert found.kernel
    # on loopback the packet arrives within the call that sends it, as near as the clocks are known
    near_enough_ns = 200_000
    assert sent_ns - near_enough_ns <= found.t_ns <= arrived_by_ns + near_enough_ns
    assert read_ns - found.t_ns > 40_000_000
