"""A load shared by several processes of one machine, where one core cannot hold it.

In:  a RunState whose warm-up is over, how many processes, and the client's class.
Out: request records by index, and the tally of all.

Each process is a fork with its part of the concurrency; none begins before all are there. Whose turn it
is, is one file of indices that all of them read through one shared offset, so no index is taken twice.
All use CLOCK_MONOTONIC and the run's one zero. A process that finds the server gone or stalled, or is
told to stop, moves that offset to the end: nobody begins another request. Whether the others still
receive is seen by the bytes that they read (pings count here, where one process alone would not count
them).

A process that dies, or neither ticks nor computes for long (and is killed then), is lost: what it had
received is lost with it, the requests that it had begun say so, and nobody begins another one, since
what is left is no longer the load that was asked for.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import struct
import sys
import time
from array import array
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional

from cargo.exchange import Exchange, request_record
from cargo.load import Load, RunState, shares
from cargo.self_check import Tally
from cargo.shard_memory import Board, Slot, Turns

# One core holds twice as many at 40 events/s each (docs/client-fidelity.md).
STREAMS_A_PROCESS = 512
LOOK_S = 0.25  # between two looks of the parent at its processes
# The same in looks: where the parent could not run either, nobody is to blame for a silence.
QUIET_LOOKS = 120
_BEGIN = struct.Struct("=q")  # when all were there
_SIZE = struct.Struct("=Q")  # of a piece of an answer
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
MakeClient = Callable[[RunState], Any]


def best_number(concurrency: int) -> int:
    """Processes for so many requests at once, as far as there are cores."""
    wanted = -(-concurrency // STREAMS_A_PROCESS)
    return max(1, min(wanted, len(os.sched_getaffinity(0))))


class Shared(NamedTuple):
    entries: Dict[int, Dict[str, Any]]  # request records by index, as far as they came
    tally: Tally
    begun: bytes  # for each request 1 or 0

    def entry(self, index: int) -> Dict[str, Any]:
        """What is known of this request; {} where it was never begun."""
        if index in self.entries:
            return self.entries[index]
        if not self.begun[index]:
            return {}
        message = "the client's process that made this request was lost with all it had received"
        return {
            "outcome": "client",
            "error": {"kind": "process_lost", "status": None, "message": message},
        }


class _Worker:
    """A fork, as its parent sees it."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.said = bytearray()
        self.entries: List[Dict[str, Any]] = []
        self.tally: Optional[Tally] = None  # None: not at its end, or lost
        self._ticks = 0
        self._cpu = ""
        self._quiet_looks = 0

    def hear(self) -> None:
        """Take what it said; an answer that breaks off counts as far as it goes."""
        at = 0
        while at + _SIZE.size <= len(self.said):
            size = _SIZE.unpack_from(self.said, at)[0]
            at += _SIZE.size
            if at + size > len(self.said):
                return
            found = pickle.loads(memoryview(self.said)[at : at + size])
            at += size
            if isinstance(found, Tally):
                self.tally = found
            else:
                self.entries.append(found)

    def is_quiet(self, ticks: int) -> bool:
        """For many looks it neither ticked nor used the processor: stopped, or stuck in the kernel."""
        cpu = _cpu(self.pid)
        alive = ticks != self._ticks or cpu != self._cpu
        self._ticks, self._cpu = ticks, cpu
        self._quiet_looks = 0 if alive else self._quiet_looks + 1
        return self._quiet_looks >= QUIET_LOOKS

    def tell(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _cpu(pid: int) -> str:
    """Processor time that a process has used, as the kernel writes it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return " ".join(stat.read().rpartition(")")[2].split()[11:13])
    except OSError:
        return ""


def run(
    state: RunState, processes: int, make_client: MakeClient, forced_tokens: Optional[int]
) -> Shared:
    """Make the counted requests of this run by so many forks. A first SIGTERM or SIGINT is passed on
    to them, a second kills them and ends this process at once. OSError: they cannot be started.
    """
    state.schedule()
    crew = _Crew(state, processes, make_client, forced_tokens)
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler)

    def on_signal(number: int, _frame: Any) -> None:
        if not crew.told:
            crew.interrupt(number)
            return
        crew.kill()
        restore()
        os.kill(os.getpid(), number)

    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        crew.start()
        for one in _SIGNALS:
            signal.signal(one, on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return crew.gather()
    finally:
        restore()
        crew.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


class _Crew:
    """The forks of one run."""

    def __init__(
        self,
        state: RunState,
        processes: int,
        make_client: MakeClient,
        forced_tokens: Optional[int],
    ) -> None:
        self.told = False  # to stop
        self._state = state
        self._turns = Turns(len(state.counted))
        self._board = Board(processes, len(state.counted))
        self._workers: List[_Worker] = []
        self._parts = [
            _Part(state, load, self._turns, self._board, number, make_client, forced_tokens)
            for number, load in enumerate(shares(state.load, processes))
        ]
        self._done = 0

    def start(self) -> None:
        """All wait until the last is there, so that a fork that fails has nothing sent."""
        wait, go = os.pipe()
        begun_ns = time.monotonic_ns()
        try:
            for part in self._parts:
                self._workers.append(_fork(part, wait, [go, *(one.pipe for one in self._workers)]))
            delay = _BEGIN.pack(time.monotonic_ns() - begun_ns)
            os.write(go, delay * len(self._workers))
        except OSError as problem:
            self.kill()
            raise OSError(
                f"process {len(self._workers) + 1} of {len(self._parts)} cannot be started "
                f"({problem.strerror}): nothing was sent but the warm-up (fewer --processes?)"
            ) from problem
        finally:
            os.close(wait)
            os.close(go)

    def interrupt(self, number: int) -> None:
        self.told = True
        self._turns.end()
        for worker in self._workers:
            worker.tell(number)
            worker.tell(signal.SIGCONT)  # one that is stopped would not notice

    def kill(self) -> None:
        for worker in self._workers:
            worker.tell(signal.SIGKILL)

    def gather(self) -> Shared:
        """Wait for what every process has to say, and tell how far they are."""
        next_look_s = time.monotonic() + LOOK_S
        with selectors.DefaultSelector() as waiting:
            for worker in self._workers:
                waiting.register(worker.pipe, selectors.EVENT_READ, worker)
            while waiting.get_map():
                for key, _ in waiting.select(max(0.0, next_look_s - time.monotonic())):
                    piece = os.read(key.fd, 1 << 20)
                    key.data.said.extend(piece)
                    if not piece:
                        waiting.unregister(key.fd)
                        self._ended(key.data)
                if time.monotonic() >= next_look_s:
                    self._look([key.data for key in waiting.get_map().values()])
                    next_look_s = time.monotonic() + LOOK_S
        self._tell()
        return self._shared()

    def _ended(self, worker: _Worker) -> None:
        worker.hear()
        if worker.tally is None:
            self._turns.end()

    def _look(self, working: List[_Worker]) -> None:
        self._tell()
        for worker, slot in zip(self._workers, self._board.slots()):
            if worker in working and worker.is_quiet(slot.ticks):
                worker.tell(signal.SIGKILL)

    def _tell(self) -> None:
        done = sum(slot.done for slot in self._board.slots())
        if done > self._done:
            self._done = done
            self._state.tell(done)

    def _shared(self) -> Shared:
        shared = Shared({}, Tally(), self._board.begun())
        for worker in self._workers:
            shared.entries.update((entry["index"], entry) for entry in worker.entries)
            if worker.tally is not None:
                shared.tally.add(worker.tally)
        if any(worker.tally is None for worker in self._workers):
            shared.tally.ended = "process_lost"
        elif self.told and shared.tally.ended == "done" and 0 in shared.begun:
            shared.tally.ended = "signal"  # all were at their ends before they noticed
        return shared

    def close(self) -> None:
        self.kill()  # those that are still there: what they had to say has been heard
        for worker in self._workers:
            os.waitpid(worker.pid, 0)
            os.close(worker.pipe)
        self._turns.close()
        self._board.close()


class _Part(NamedTuple):
    """What one fork works with."""

    state: RunState
    load: Load
    turns: Turns
    board: Board
    number: int
    make_client: MakeClient
    forced_tokens: Optional[int]

    def of_others(self) -> List[Slot]:
        return [slot for n, slot in enumerate(self.board.slots()) if n != self.number]

    def body_of(self, exchange: Exchange) -> bytes:
        """A request's bytes are asked for when it is begun."""
        self.board.begin(exchange.index)
        return self.load.body_of(exchange)


def _fork(part: _Part, wait: int, foreign: List[int]) -> _Worker:
    """A process that begins when `wait` says so; `foreign`: what its parent has open for itself."""
    theirs, ours = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(theirs)
        os.close(ours)
        raise
    if pid:
        os.close(ours)
        return _Worker(pid, theirs)
    code = 1
    try:
        for fd in (theirs, *foreign):
            os.close(fd)
        with os.fdopen(ours, "wb") as out:
            _work(part, wait, out)
        code = 0
    except BaseException as problem:  # a fork must never return into its parent's code
        print(f"decode_microbench.py: process {part.number}: {problem!r}", file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _work(part: _Part, wait: int, out: BinaryIO) -> None:
    """In the fork: make requests as turns come, then tell what was seen, one request after the other."""
    state, parent = part.state, os.getppid()
    _take_part(part)
    client = part.make_client(state)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: client.interrupt())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    ticks = 0

    def each_tick() -> None:
        nonlocal ticks
        ticks += 1
        part.board.write(part.number, Slot(ticks, state.last_read_ns, state.done))
        if state.stopping:
            part.turns.end()
        if os.getppid() != parent:  # killed: nobody is left who wants this
            client.interrupt()

    state.each_tick = each_tick
    said = os.read(wait, _BEGIN.size)
    if not said:  # another could not be started
        return
    for one in state.counted:
        if one.due_ns is not None:
            one.due_ns += _BEGIN.unpack(said)[0]
    client.run()
    each_tick()
    state.close()
    begun = [one for one in state.counted if one.ended is not None]
    for one in begun:
        _say(out, request_record(one, state.clock, part.forced_tokens))
    _say(out, Tally.of(state, begun))


def _take_part(part: _Part) -> None:
    """Make the run's state this fork's own."""
    state = part.state
    state.load = part.load._replace(body_of=part.body_of)
    state.stages = [lambda: part.turns.each(state.counted)]
    state.late_ns = array("q")
    state.cpu_begin_s = time.process_time()
    state.others_read_ns = lambda: max((slot.read_ns for slot in part.of_others()), default=0)
    state.tell = lambda _done: None  # the parent does


def _say(out: BinaryIO, found: Any) -> None:
    piece = pickle.dumps(found)
    out.write(_SIZE.pack(len(piece)) + piece)
    out.flush()
