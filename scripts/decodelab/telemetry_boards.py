"""Boards with several dies: whose draw is the board's, so that no board is summed twice.

In: the samples of each accelerator. Out: the silent dies, each with the die that carries its draw,
and the dies of which it cannot be told whose draw they show.

ixsmi lists the two dies of an MR-V100 DUO or a BI-V150 as two accelerators. Its table and CSV give
the board's draw and cap on one of them and `N/A / N/A` on the other, or the board's on both. (In the
XML log each die has a draw of its own, and the reader takes that one.) rocm-smi gives an MI250's on
its first die, npu-smi a card's on the first of its chips or on each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from decodelab.telemetry_reading import Sample, by_accelerator

DOUBT = "telemetry_unsure_board"
TWO_DIES = re.compile(r"\bDUO\b|\bBI-V150", re.IGNORECASE)
BUS_STEP = 3  # from one die's bus number to the other's: 35 and 38 (DUO), 26 and 29 (BI-V150S)
BOARD_CAP_W = 300.0  # a die of CoreX has a cap of at most 250 W, a board with two 350 or 450 W
ALIKE = 0.95  # share of the calls in which two dies that show one board's draw agree
LOOKS_APART = 0.02  # by how much it may have changed between the looks at one die and the other
_BUS = re.compile(r"(?:([0-9a-f]+):)?([0-9a-f]{2}):[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
ByGpu = Mapping[str, Sequence[Sample]]


def silent(by_gpu: ByGpu) -> dict[str, str]:
    """Key of each die whose draw another die of its board carries -> key of that one."""
    out: dict[str, str] = {}
    for board in _boards(by_gpu):
        carrier = _carrier(by_gpu, board)
        if carrier is not None:
            out.update({die: carrier for die in board if die != carrier})
    return out


def mark_unsure(samples: Sequence[Sample]) -> None:
    """A doubt on each sample of the dies that may show their own draw or the board's."""
    by_gpu = by_accelerator(samples)
    for die in unsure(by_gpu):
        for sample in by_gpu[die]:
            sample.reading.doubts += (DOUBT,)


def unsure(by_gpu: ByGpu) -> list[str]:
    """Keys of the dies that may show their own draw or the board's."""
    boards = list(_boards(by_gpu))
    out = [die for board in boards if _cannot_tell(by_gpu, board) for die in board]
    placed = {die for board in boards for die in board}
    for key, samples in by_gpu.items():
        if key not in placed and _has_two_dies(samples) and not _tells_own(samples):
            caps = _caps(samples)
            if not caps or max(caps) >= BOARD_CAP_W:
                out.append(key)
    return out


def _carrier(by_gpu: ByGpu, board: Sequence[str]) -> str | None:
    """The die that carries the draw of all; None where each has its own, or it cannot be told."""
    dies = [by_gpu[die] for die in board]
    loud = [die for die in board if not _says_nothing(by_gpu[die])]
    if any(map(_tells_own, dies)):
        return None
    if len(loud) == 1:
        return loud[0]
    slack = LOOKS_APART if all(map(_has_two_dies, dies)) else 0.0
    once = len(dies) == 2 and _has_board_cap(dies) and _alike(dies, slack)
    return board[0] if once else None


def _cannot_tell(by_gpu: ByGpu, board: Sequence[str]) -> bool:
    """Several dies show a draw and none carries it for all, but not all show one, or all the same,
    or it has the cap of a board.
    """
    dies = [by_gpu[die] for die in board]
    loud = [die for die in board if not _says_nothing(by_gpu[die])]
    if any(map(_tells_own, dies)) or len(loud) < 2 or _carrier(by_gpu, board) is not None:
        return False
    capped = all(map(_has_two_dies, dies)) and _has_board_cap(dies)
    return len(loud) < len(board) or capped or _alike(dies, 0.0)


def _boards(by_gpu: ByGpu) -> Iterator[list[str]]:
    """The dies of each board that has several: what the tool says they are parts of (serial, NPU id),
    else neighbours on the bus of a model that is known to have two.
    """
    named: dict[str, list[str]] = {}
    two_dies = []
    for key, samples in by_gpu.items():
        told = (s.reading.board or s.reading.serial for s in samples)
        board = next((name for name in told if name), None)
        if board is not None:
            named.setdefault(board, []).append(key)
        elif _has_two_dies(samples):
            two_dies.append(key)
    yield from (
        sorted(dies, key=lambda k: _index(by_gpu[k])) for dies in named.values() if dies[1:]
    )
    for chain in _chains({key: _bus(by_gpu[key]) for key in two_dies}):
        if len(chain) % 2 == 0:  # an odd one lacks a die, and nothing says which
            yield from ([one, other] for one, other in zip(chain[::2], chain[1::2], strict=True))


def _chains(places: Mapping[str, tuple[int, int] | None]) -> list[list[str]]:
    """Keys in the order of their buses, cut where the next is too far to be on the same board."""
    known = sorted((place, key) for key, place in places.items() if place is not None)
    out: list[list[str]] = []
    last: tuple[int, int] | None = None
    for place, key in known:
        near = last is not None and place[0] == last[0] and place[1] - last[1] <= BUS_STEP
        if near:
            out[-1].append(key)
        else:
            out.append([key])
        last = place
    return out


def _bus(samples: Sequence[Sample]) -> tuple[int, int] | None:
    """Domain and number of the bus; None where none is printed."""
    printed = (s.reading.bus for s in samples if s.reading.bus)
    found = _BUS.fullmatch(next(printed, ""))
    return None if found is None else (int(found[1] or "0", 16), int(found[2], 16))


def _index(samples: Sequence[Sample]) -> tuple[int, int]:
    first = samples[0].reading
    return (-1 if first.gpu is None else first.gpu, -1 if first.chip is None else first.chip)


def _has_two_dies(samples: Sequence[Sample]) -> bool:
    return any(TWO_DIES.search(s.reading.name or "") for s in samples)


def _tells_own(samples: Sequence[Sample]) -> bool:
    return any(s.reading.power_of == "die" for s in samples)


def _caps(samples: Sequence[Sample]) -> list[float]:
    caps = (s.reading.values["power_cap_w"] for s in samples)
    return [cap for cap in caps if cap is not None]


def _says_nothing(samples: Sequence[Sample]) -> bool:
    return not _caps(samples) and all(s.reading.values["power_w"] is None for s in samples)


def _has_board_cap(dies: Sequence[Sequence[Sample]]) -> bool:
    return max((cap for samples in dies for cap in _caps(samples)), default=0.0) >= BOARD_CAP_W


def _alike(dies: Sequence[Sequence[Sample]], slack: float) -> bool:
    """Whether all show one draw and one cap in nearly every call in which all show a draw; `slack`
    is the share by which the draws may differ, or 1 W.
    """
    shown = [{(s.record, s.t): s.reading.values for s in samples} for samples in dies]
    common = set(shown[0]).intersection(*shown[1:])
    told = same = 0
    for values in ([die[call] for die in shown] for call in common):
        draws = [draw for v in values if (draw := v["power_w"]) is not None]
        if len(draws) == len(dies):
            told += 1
            within = max(slack * max(draws), 1.0) if slack else 0.0
            caps = {v["power_cap_w"] for v in values}
            same += len(caps) == 1 and max(draws) - min(draws) <= within
    return told > 0 and same >= ALIKE * told
