"""The load client's own floor: what it measures where the server costs next to nothing.

    python calibrate.py [--out F.json]

In:  nothing; it starts the null emitter as a process of its own and drives the real epoll client
     against it.
Out: an object, format `decodelab.client_floor/1` (`floor`): how far the recorded times lie behind the
     emitter's own, CPU time for an event, and the TTFT of a server that answers at once. What cannot
     be measured is {"schema", "problem"}: `floor` raises nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import record, self_check
from cargo.endpoint import Endpoint
from cargo.epoll_client import EpollClient
from cargo.exchange import Exchange, request_record
from cargo.load import Limits, Load, RunState

SCHEMA = "decodelab.client_floor/1"
EMITTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "null_emitter.py")
SINGLES = 15  # requests one after the other, for the TTFT
_SINGLE_RATE_HZ = 500.0
_TALK_S = 5.0  # for the emitter to say its port, and at the end its stamps
_PATIENCE_S = 10.0  # of one request beyond the time that its events take
_DIGITS = 7  # of a second: 0.1 microseconds


class Trouble(Exception):
    """Why there is no figure."""


class Steps(NamedTuple):
    """Streams that emit in step."""

    streams: int
    events: int  # of each stream
    rate_hz: float


def _emitter() -> List[str]:
    """How Python is told the emitter's code: by its file, or as it is where that is in a zip."""
    if os.path.isfile(EMITTER):
        return [EMITTER]
    source = pkgutil.get_data("cargo", os.path.basename(EMITTER))
    if source is None:
        raise Trouble("no %s beside the client" % os.path.basename(EMITTER))
    return ["-c", source.decode("utf-8")]


class Emitter:
    """The null emitter's process; it ends with this object, and with this process."""

    def __init__(self, life_s: float = 60.0) -> None:
        # isolated: no variable or package of the host's python slows its start
        argv = [sys.executable, "-I", "-S", *_emitter(), "--life", repr(float(life_s))]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            self.port = int(self._said(b"\n")["port"])
        except BaseException:
            self.end()
            raise

    def stamps(self) -> Dict[str, List[List[int]]]:
        """Ends it: when each event was sent, by group and stream."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        said: Dict[str, List[List[int]]] = self._said(None)["stamps"]
        return said

    def _said(self, until: Optional[bytes]) -> Dict[str, Any]:
        """The next JSON object of its stdout, up to `until` or the end."""
        assert self.process.stdout is not None
        fd, text, deadline = self.process.stdout.fileno(), b"", time.monotonic() + _TALK_S
        while until is None or until not in text:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([fd], [], [], left_s)[0]:
                raise Trouble("the null emitter said nothing within %g s" % _TALK_S)
            piece = os.read(fd, 1 << 16)
            if not piece:
                break
            text += piece
        try:
            found: Dict[str, Any] = json.loads(text)
        except ValueError:
            raise Trouble("the null emitter ended early") from None
        return found

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> "Emitter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()


# ---------------------------------------------------------------------- driving the client
def drive_together(port: int, group: str, steps: Steps) -> RunState:
    """All streams at once, in step: one group."""
    return _drive(port, steps, steps.streams, steps.streams, lambda one: (group, one.index))


def drive_singly(port: int, requests: int) -> RunState:
    """One request after the other, each answered at once; the first does not count."""
    steps = Steps(1, 1, _SINGLE_RATE_HZ)
    return _drive(port, steps, 1, requests, lambda one: ("%s%d" % (one.warmup, one.index), 0), 1)


def _drive(
    port: int, steps: Steps, concurrency: int, requests: int, place: Any, warmup: int = 0
) -> RunState:
    def body_of(exchange: Exchange) -> bytes:
        group, stream = place(exchange)
        wish = dict(steps._asdict(), group=group, stream=stream)
        return json.dumps({"stream": True, "null_emitter": wish}).encode()

    address = (socket.AF_INET, ("127.0.0.1", port))
    endpoint = Endpoint("http", "127.0.0.1", port, "/v1/chat/completions", address)
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    total_s = _PATIENCE_S + 2 * steps.events / steps.rate_hz
    limits = Limits(_PATIENCE_S, _PATIENCE_S, _PATIENCE_S, total_s)
    state = RunState(Load(endpoint, headers, body_of, concurrency, requests, warmup, limits))
    try:
        EpollClient(state).run()
    finally:
        state.close()
    return state


def _records(state: RunState) -> List[Dict[str, Any]]:
    """Of the counted requests; each one must have come to its end, the warm-up too."""
    found = [request_record(one, state.clock, None) for one in state.warmups + state.counted]
    for request in found:
        if request["outcome"] != "ok":
            error = request["error"] or {}
            words = (request["index"], request["outcome"], error.get("message") or state.ended)
            raise Trouble("request %d: %s: %s" % words)
    return found[len(state.warmups) :]


# ---------------------------------------------------------------------- the figures
def compare(state: RunState, sent: Sequence[Sequence[int]]) -> Dict[str, Any]:
    """Recorded times against the emitter's, event by event; streams are matched by their index."""
    lags: List[float] = []
    user_lags: List[float] = []
    lost = 0
    for request, stamps in zip(_records(state), sent):
        events = request["events"]
        rows = zip(events["t_s"], events["t_user_s"], events["kind"])
        times = [(t, user) for t, user, kind in rows if kind in record.OUTPUT_KINDS]
        if len(times) > len(stamps):
            words = (request["index"], len(times), len(stamps))
            raise Trouble("request %d: %d events recorded, %d sent" % words)
        lost += len(stamps) - len(times)
        if len(times) == len(stamps):  # else nobody knows which of them is missing
            for (t_s, user_s), sent_ns in zip(times, stamps):
                sent_s = (sent_ns - state.zero_ns) / 1e9
                lags.append(t_s - sent_s)
                user_lags.append(user_s - sent_s)
    if not lags:
        raise Trouble("no stream came whole")
    events_sent = sum(len(stamps) for stamps in sent)
    return {
        "events": events_sent,
        "lost": lost,
        "lag_p50_s": _percentile(lags, 50),
        "lag_p99_s": _percentile(lags, 99),
        "lag_max_s": _percentile(lags, 100),
        "user_lag_p50_s": _percentile(user_lags, 50),
        "user_lag_p99_s": _percentile(user_lags, 99),
        "cpu_us_per_event": round((state.cpu_s or 0.0) / events_sent * 1e6, 2),
    }


def _percentile(values: Sequence[float], q: float) -> Optional[float]:
    found = record.percentile(values, q)
    return None if found is None else round(found, _DIGITS)


def _measure(steps: Steps) -> Dict[str, Any]:
    with Emitter() as emitter:
        singles = _records(drive_singly(emitter.port, SINGLES))
        state = drive_together(emitter.port, "together", steps)
        found = compare(state, emitter.stamps()["together"])
    found["ttft_floor_s"] = _percentile([one["ttft_s"] for one in singles], 50)
    tally = self_check.Tally.of(state, state.counted)
    check = self_check.figures(tally, state.wall_s or 0.0, state.zero_ns)
    for name in ("stamp_source", "loop_late_p99_s", "reads", "coalesced_reads"):
        found[name] = check[name]
    return found


def which_client() -> Dict[str, str]:
    """Version and digest of the client whose floor it is, and the Python under it."""
    from cargo import decode_microbench  # which imports this file

    digest = decode_microbench.own_digest()
    found = {"version": decode_microbench.VERSION, "digest": digest}
    return dict(found, python=platform.python_version())


def floor(streams: int = 32, rate_hz: float = 50, seconds: float = 2.0) -> Dict[str, Any]:
    """The client's floor on this host at this moment, in about `seconds` + 0.5 s."""
    try:
        steps = Steps(streams, round(rate_hz * seconds), float(rate_hz))
        if min(steps) <= 0:
            raise Trouble("nothing to measure: %d streams of %d events" % steps[:2])
        found: Dict[str, Any] = {"schema": SCHEMA, "streams": streams, "rate_hz": rate_hz}
        found.update(t_wall=time.time())
        found.update(_measure(steps))
        found["client"] = which_client()
        return found
    except Trouble as trouble:
        return {"schema": SCHEMA, "problem": str(trouble)}
    except Exception as error:  # a broken host must not cost a launch
        return {"schema": SCHEMA, "problem": "%s: %s" % (type(error).__name__, error)}


def headline(found: Dict[str, Any]) -> str:
    """One line for the person who asked."""
    if found.get("problem"):
        return "client floor not measured: %s" % found["problem"]
    return (
        "client floor, %d streams x %g/s in step: lag P50 %.3f ms, P99 %.3f ms, max %.3f ms (%s stamps); "
        "user stamps P99 %.3f ms; %.1f us of CPU an event; TTFT %.3f ms; %d of %d events lost"
        % (
            found["streams"],
            found["rate_hz"],
            1e3 * found["lag_p50_s"],
            1e3 * found["lag_p99_s"],
            1e3 * found["lag_max_s"],
            found["stamp_source"],
            1e3 * found["user_lag_p99_s"],
            found["cpu_us_per_event"],
            1e3 * found["ttft_floor_s"],
            found["lost"],
            found["events"],
        )
    )


def main(argv: Optional[List[str]] = None) -> int:
    """Exit code: 0 when the object is out, whatever it says; 1 when it could not be written."""
    parser = argparse.ArgumentParser(description="Measure the load client's own floor.")
    parser.add_argument("--out", metavar="F.json", help="(default: stdout)")
    out = parser.parse_args(argv).out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and the emitter ends
    found = floor()
    if out is None:
        print(json.dumps(found, indent=1))
        return 0
    from cargo.decode_microbench import write_whole

    try:
        write_whole(out, found)
    except (OSError, ValueError) as error:
        print("calibrate.py: --out %s: %s" % (out, error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
