"""What processes that share a load know of each other, in memory that all of them see.

In:  how many requests and processes. Out: `Turns` (whose turn it is) and `Board` (what each has done).
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Iterator, List, NamedTuple

from cargo.exchange import Exchange

_INDEX = struct.Struct("=I")
_SLOT = struct.Struct("=qqq")  # of one process: see Slot


class Turns:
    """The indices of the counted requests, each given out once over all processes."""

    def __init__(self, requests: int) -> None:
        made = os.memfd_create("turns")
        os.write(made, b"".join(_INDEX.pack(n) for n in range(requests)))
        # Linux locks the offset of a file that was opened by its name; with the one that memfd_create
        # returns, two processes that read at once may get the same turn.
        self._fd = os.open(f"/proc/self/fd/{made}", os.O_RDONLY)
        os.close(made)

    def each(self, exchanges: List[Exchange]) -> Iterator[Exchange]:
        while True:
            found = os.read(self._fd, _INDEX.size)
            if len(found) < _INDEX.size:
                return
            yield exchanges[_INDEX.unpack(found)[0]]

    def end(self) -> None:
        """No more turns, for anybody."""
        os.lseek(self._fd, 0, os.SEEK_END)

    def close(self) -> None:
        os.close(self._fd)


class Slot(NamedTuple):
    ticks: int
    read_ns: int  # last time that bytes came
    done: int  # requests


class Board:
    """Memory that all processes share: a slot for each, and which requests were begun."""

    def __init__(self, processes: int, requests: int) -> None:
        self._at = _SLOT.size * processes
        self._memory = mmap.mmap(-1, self._at + requests)

    def slots(self) -> List[Slot]:
        return [Slot(*found) for found in _SLOT.iter_unpack(self._memory[: self._at])]

    def write(self, number: int, slot: Slot) -> None:
        _SLOT.pack_into(self._memory, _SLOT.size * number, *slot)

    def begin(self, index: int) -> None:
        self._memory[self._at + index] = 1

    def begun(self) -> bytes:
        """For each request 1 or 0; outlives its process."""
        return self._memory[self._at :]

    def close(self) -> None:
        self._memory.close()
