"""A load shared by several processes of one machine, where one core cannot hold it.

In:  a RunState whose warm-up is over, how many processes, and the client's class.
Out: request records by index, and the tally of all.

Each process is a fork with its part of the concurrency. Whose turn it is, is one file of indices that
all of them read through one shared offset, so no index is taken twice. All use CLOCK_MONOTONIC and the
run's one zero. A process that finds the server gone or stalled, or is told to stop, moves that offset
to the end: nobody begins another request. Whether the others still receive is seen by the bytes that
they read (pings count here, where one process alone would not count them).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import selectors
import signal
import struct
import sys
import time
from array import array
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from cargo.exchange import Exchange, request_record
from cargo.load import Load, RunState, shares
from cargo.self_check import Tally

_INDEX = struct.Struct("=I")
_SEEN = struct.Struct("=qq")  # of one process: last time that bytes came, requests done
STREAMS_A_PROCESS = (
    512  # one core holds twice as many at 40 events/s each (docs/client-fidelity.md)
)
MakeClient = Callable[[RunState], Any]


def best_number(concurrency: int) -> int:
    """Processes for so many requests at once, as far as there are cores."""
    wanted = -(-concurrency // STREAMS_A_PROCESS)
    return max(1, min(wanted, len(os.sched_getaffinity(0))))


class Turns:
    """The indices of the counted requests, each given out once over all processes."""

    def __init__(self, requests: int) -> None:
        self._fd = os.memfd_create("turns")
        os.write(self._fd, b"".join(_INDEX.pack(n) for n in range(requests)))
        os.lseek(self._fd, 0, os.SEEK_SET)

    def each(self, exchanges: List[Exchange]) -> Iterator[Exchange]:
        while True:
            found = os.read(self._fd, _INDEX.size)
            if len(found) < _INDEX.size:
                return
            yield exchanges[_INDEX.unpack(found)[0]]

    def close(self) -> None:
        """No more turns, for anybody."""
        os.lseek(self._fd, 0, os.SEEK_END)

    def taken(self) -> int:
        return os.lseek(self._fd, 0, os.SEEK_CUR) // _INDEX.size


class Shared(NamedTuple):
    entries: Dict[int, Dict[str, Any]]  # request records by index, of requests that were begun
    tally: Tally
    lost: int  # processes that ended without a word
    given_out: int  # indices

    def entry(self, index: int) -> Dict[str, Any]:
        """What is known of this request; {} where it was never begun."""
        if index in self.entries:
            return self.entries[index]
        if not self.lost or index >= self.given_out:
            return {}
        message = "the client's process that made this request ended without a word"
        return {
            "outcome": "client",
            "error": {"kind": "process_lost", "status": None, "message": message},
        }


class _Worker(NamedTuple):
    pid: int
    pipe: int
    said: bytearray


def run(
    state: RunState, processes: int, make_client: MakeClient, forced_tokens: Optional[int]
) -> Shared:
    """Make the counted requests of this run by so many forks. A first SIGTERM or SIGINT is passed on
    to them, a second ends this process at once.
    """
    state.schedule()
    turns = Turns(len(state.counted))
    seen = mmap.mmap(-1, _SEEN.size * processes)
    workers: List[_Worker] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def pass_on(number: int, _frame: Any) -> None:
        turns.close()
        for one, handler in before.items():
            signal.signal(one, handler)
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, number)

    signal.pthread_sigmask(signal.SIG_BLOCK, before)
    try:
        for number, load in enumerate(shares(state.load, processes)):
            workers.append(
                _fork(_Part(state, load, turns, seen, number, make_client, forced_tokens))
            )
        for one in before:
            signal.signal(one, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
        return _gather(workers, turns)
    finally:
        for worker in workers:
            os.close(worker.pipe)
        for one, handler in before.items():
            signal.signal(one, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
        seen.close()


class _Part(NamedTuple):
    """What one fork works with."""

    state: RunState
    load: Load
    turns: Turns
    seen: mmap.mmap  # by all processes: _SEEN of each
    number: int
    make_client: MakeClient
    forced_tokens: Optional[int]

    def of_others(self) -> List[Tuple[int, int]]:
        return [pair for n, pair in enumerate(_SEEN.iter_unpack(self.seen[:])) if n != self.number]


def _fork(part: _Part) -> _Worker:
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ours)
        return _Worker(pid, theirs, bytearray())
    code = 1
    try:
        os.close(theirs)
        answer = _work(part)
        with os.fdopen(ours, "wb") as out:
            out.write(answer)
        code = 0
    except BaseException as problem:  # a fork must never return into its parent's code
        print(f"decode_microbench.py: process {part.number}: {problem!r}", file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _work(part: _Part) -> bytes:
    """In the fork: make requests as turns come, then tell what was seen."""
    state, turns, parent = part.state, part.turns, os.getppid()
    state.load = part.load
    state.stages = [lambda: turns.each(state.counted)]
    state.late_ns = array("q")
    state.cpu_begin_s = time.process_time()
    state.others_read_ns = lambda: max((at for at, _ in part.of_others()), default=0)
    state.others_done = lambda: sum(done for _, done in part.of_others())
    client = part.make_client(state)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: client.interrupt())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))

    def each_tick() -> None:
        _SEEN.pack_into(part.seen, _SEEN.size * part.number, state.last_read_ns, state.done)
        if state.stopping:
            turns.close()
        if os.getppid() != parent:  # killed: nobody is left who wants this
            client.interrupt()

    state.each_tick = each_tick
    client.run()
    each_tick()
    state.close()
    begun = [one for one in state.counted if one.ended is not None]
    entries = {one.index: request_record(one, state.clock, part.forced_tokens) for one in begun}
    return pickle.dumps((entries, Tally.of(state, begun)))


def _gather(workers: List[_Worker], turns: Turns) -> Shared:
    """Wait for what every process has to say."""
    with selectors.DefaultSelector() as waiting:
        for worker in workers:
            waiting.register(worker.pipe, selectors.EVENT_READ, worker)
        while waiting.get_map():
            for key, _ in waiting.select():
                piece = os.read(key.fd, 1 << 20)
                key.data.said.extend(piece)
                if not piece:
                    waiting.unregister(key.fd)
    shared = Shared({}, Tally(), 0, 0)
    lost = 0
    for worker in workers:
        if os.waitpid(worker.pid, 0)[1]:
            lost += 1
            continue
        entries, tally = pickle.loads(bytes(worker.said))
        shared.entries.update(entries)
        shared.tally.add(tally)
    return shared._replace(lost=lost, given_out=turns.taken())
