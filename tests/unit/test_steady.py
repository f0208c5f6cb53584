"""SteadyHost against a host that fails as often as it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from decodelab import steady
from decodelab.host import HostError, HostLost, Result
from decodelab.steady import SteadyHost


class Shaky:
    """Loses the connection at the next `losses` calls."""

    name, workdir, python, poll_s, patience_s = "far", "/w", "python3", 1.0, 0.0

    def __init__(self) -> None:
        self.losses, self.calls = 0, 0
        self.error: type[HostError] = HostLost
        self.closed = self.released = False

    def _call(self) -> None:
        self.calls += 1
        if self.losses:
            self.losses -= 1
            raise self.error("host far: the connection was lost.\nHint: see to the network.")

    def symbols(self) -> dict[str, str]:
        return {"{python}": self.python}

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 60) -> Result:
        self._call()
        return Result(0, " ".join(argv).encode() + stdin, str(timeout_s).encode())

    def tail(self, path: str, offset: int) -> bytes:
        self._call()
        return f"{path} {offset}".encode()

    def ship(self, folder: Path, target: str) -> None:
        self._call()

    @contextmanager
    def fetch(self, path: str, names: Sequence[str] | None = None) -> Iterator[Path]:
        self._call()
        try:
            yield Path(path, *(names or []))
        finally:
            self.released = True

    def close(self) -> None:
        self.closed = True


class Clock:
    """Time that passes only in sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.pauses = 100.0, []  # type: float, list[float]
        monkeypatch.setattr(steady.time, "monotonic", lambda: self.now)

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock, shaky = Clock(monkeypatch), Shaky()
    host = SteadyHost(shaky, clock.sleep)
    told: list[str] = []
    host.on_trouble = told.append
    return host, shaky, clock, told


def test_everything_is_passed_on(lab: Any) -> None:
    host, shaky, _, told = lab
    assert (host.name, host.workdir, host.python, host.poll_s) == ("far", "/w", "python3", 1.0)
    assert host.symbols() == {"{python}": "python3"}
    assert host.run(["a", "b"], b"!", 5) == Result(0, b"a b!", b"5")
    assert host.tail("x", 3) == b"x 3"
    host.ship(Path("a"), "b")
    with host.fetch("/x", ["n"]) as folder:
        assert folder == Path("/x/n") and not shaky.released
    assert shaky.released
    host.close()
    assert shaky.closed and told == []


def test_a_host_that_never_answered_is_not_waited_for(lab: Any) -> None:
    host, shaky, clock, told = lab
    shaky.losses = 1
    with pytest.raises(HostLost):
        host.run(["true"])
    assert (clock.pauses, told) == ([], [])


def test_a_loss_is_bridged_and_told_twice(lab: Any) -> None:
    host, shaky, clock, told = lab
    host.run(["true"])
    shaky.losses = 4
    assert host.tail("x", 1) == b"x 1"
    assert clock.pauses == [1, 2, 4, 8]
    assert told == [
        "host far: the connection was lost.\nWhat runs on the host goes on. Trying again for 60 s.",
        "host far: back after 15 s.",
    ]


def test_patience_ends_and_the_trouble_is_not_told_again(lab: Any) -> None:
    host, shaky, clock, told = lab
    host.run(["true"])
    shaky.losses = 1000
    for _ in range(2):
        with pytest.raises(HostLost):
            host.run(["true"])
    assert sum(clock.pauses) == 120 and len(told) == 1
    shaky.losses = 0
    host.run(["true"])
    assert told[1:] == ["host far: back after 2 min."]


def test_pauses_grow_to_half_a_minute(lab: Any) -> None:
    host, shaky, clock, _ = lab
    host.patience_s = 200.0
    shaky.losses = 1000
    with pytest.raises(HostLost):
        host.run(["true"])
    assert clock.pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 19]


def test_what_repeating_does_not_mend_is_raised_at_once(lab: Any) -> None:
    host, shaky, clock, told = lab
    host.patience_s = 200.0
    shaky.losses, shaky.error = 1, HostError
    with pytest.raises(HostError):
        host.ship(Path("a"), "b")
    assert (shaky.calls, clock.pauses, told) == (1, [], [])


def test_only_the_fetching_is_repeated_not_what_is_done_with_it(lab: Any) -> None:
    host, shaky, clock, _ = lab
    host.run(["true"])
    shaky.losses = 2
    with pytest.raises(HostLost, match="inside"), host.fetch("/x"):
        raise HostLost("inside")
    assert clock.pauses == [1, 2] and shaky.calls == 4 and shaky.released
