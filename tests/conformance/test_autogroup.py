"""A client that gets no processor: kernel stamps keep their truth, and the run says what it is worth.

In:  the null emitter, whose own stamps are the true times; busy processes on the client's processor.
Out: recorded times against the true ones, and the verdict of the reading side.

Two ways to starve it, since not every kernel has scheduler autogroups: busy sessions beside the
client's own (as an engine is a session of its own), and busy processes that outrank a client of low
priority. All are held on one processor, so that it works however many there are.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cargo import calibrate, record
from decodelab import records

SCRIPTS = Path(calibrate.__file__).parent.parent
ONE_CORE = min(os.sched_getaffinity(0))
OTHERS = sorted(os.sched_getaffinity(0) - {ONE_CORE}) or [ONE_CORE]
FAR_APART = {"streams": 16, "events": 8, "rate_hz": 4.0}  # a late read still holds one event
CLOSE = {"streams": 16, "events": 90, "rate_hz": 50.0}
STALL_S = 0.5

# The client on the processor of its own while it drives; the emitter is held elsewhere.
DRIVER = """
import json, os, sys
scripts, core, others, nice, steps = json.loads(sys.argv[1])
everywhere = os.sched_getaffinity(0)
sys.path.insert(0, scripts)
from cargo import calibrate, record, self_check
with calibrate.Emitter() as emitter:
    os.sched_setaffinity(emitter.process.pid, others)
    os.sched_setaffinity(0, [core])
    os.nice(nice)
    print("driving", flush=True)
    state = calibrate.drive_together(emitter.port, "g", calibrate.Steps(**steps))
    os.sched_setaffinity(0, everywhere)
    sent = emitter.stamps()["g"]
found = calibrate.compare(state, sent)
alone = []  # (kernel's lag, reader's lag) of events that had a read to themselves
for one, stamps in zip(state.counted, sent):
    marked = zip(one.decoder.read_of, one.decoder.meaning.kinds)
    reads = [read for read, kind in marked if kind in record.OUTPUT_KINDS]
    for read, at_ns in zip(reads, stamps):
        if reads.count(read) == 1:
            kernel_ns, user_ns = state.clock.stamp(one.reads[read]).t_ns, one.reads[read].user_ns
            alone.append(((kernel_ns - at_ns) / 1e9, (user_ns - at_ns) / 1e9))
tally = self_check.Tally.of(state, state.counted)
print(json.dumps([found, self_check.figures(tally, state.wall_s, state.zero_ns), alone]))
"""
BURN = "import os; os.sched_setaffinity(0, [{}])\nwhile True: pass"


class Starved(NamedTuple):
    busy: int
    nice: int  # of the client
    apart: bool  # each busy process, and the client, in a session of its own


STARVED = {
    "busy sessions beside the client's": Starved(12, 0, True),
    "a client of low priority": Starved(6, 10, False),
}


@contextmanager
def burning(how: Starved) -> Iterator[None]:
    """Busy processes on the one processor; each is ended by its own handle."""
    argv = [sys.executable, "-I", "-S", "-c", BURN.format(ONE_CORE)]
    with ExitStack() as stack:
        for _ in range(how.busy):
            busy = subprocess.Popen(argv, start_new_session=how.apart)
            stack.callback(lambda busy=busy: (busy.kill(), busy.wait()))
        yield


@contextmanager
def client(
    steps: dict[str, Any], nice: int = 0, apart: bool = True
) -> Iterator[subprocess.Popen[str]]:
    """The client's process from the moment at which it drives."""
    told = json.dumps([str(SCRIPTS), ONE_CORE, OTHERS, nice, steps])
    argv = [sys.executable, "-S", "-c", DRIVER, told]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, start_new_session=apart
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "driving\n"
            yield process
        finally:
            process.kill()


class Result(NamedTuple):
    found: dict[str, Any]  # recorded against true times
    block: dict[str, Any]  # the client's, of the run record
    alone: list[tuple[float, float]]  # lags by the kernel and by the reader, where reads held one


def result(process: subprocess.Popen[str]) -> Result:
    return Result(*json.loads(process.communicate()[0]))


def median(values: list[float]) -> float:
    found = record.percentile(values, 50)
    assert found is not None
    return found


@pytest.mark.parametrize("case", STARVED)
def test_kernel_stamps_hold_where_the_client_is_starved(case: str) -> None:
    how = STARVED[case]
    with burning(how), client(FAR_APART, how.nice, how.apart) as process:
        found, block, alone = result(process)
    assert block["stamp_source"] == "kernel" and block["user_stamped_reads"] == 0
    assert (found["events"], found["lost"]) == (16 * 8, 0)
    late = records.stamps_late(block)
    merged = block["blurred_events"] / block["output_events"]
    assert not late or merged > records.COALESCED_SHARE, block
    assert late or found["lag_p50_s"] <= records.LATE_S  # whatever counts as timely is true
    assert alone or late, "each read held several events, and nobody said so"
    if alone:
        off = abs(median([kernel for kernel, _ in alone]))
        assert block["loop_late_max_s"] > 100 * off, block  # it did wait for its processor
        assert median([user for _, user in alone]) > 10 * off  # and its own stamps show that
        assert block["lag_p50_s"] > 10 * off, block  # as it says itself
    waited = max(block["loop_late_max_s"], block["lag_p99_s"]) > records.LATE_S
    assert records.stamps_late({**block, "stamp_source": "user"}) == waited


def test_a_client_that_stood_still_says_for_how_long() -> None:
    """Put aside for 0.5 s while events come: reads merge, and a merged read has the last one's stamp."""
    with client(CLOSE) as process:
        time.sleep(STALL_S)
        process.send_signal(signal.SIGSTOP)
        time.sleep(STALL_S)
        process.send_signal(signal.SIGCONT)
        found, block, _alone = result(process)
    assert found["lost"] == 0 and block["stamp_source"] == "kernel"
    assert block["loop_late_max_s"] > 0.9 * STALL_S
    assert records.stamps_late(block), "a quarter of the events bear the time of a later one"
    # no recorded time is further from the truth than the client says that it stood still
    assert found["lag_max_s"] <= block["loop_late_max_s"] + 2 / CLOSE["rate_hz"], (found, block)
