"""How late were the client's stamps?  What it recorded beside what the emitter did.

In:  a run record (decodelab.run/1) and the emitter's `Spoken`, on one CLOCK_MONOTONIC.
Out: a `Comparison`: for each event its receive stamp minus its emit stamp, and what was lost.

A request is matched to its stream by the number that the emitter put into the usage. That the match
is right is checked by times: no event is seen before it was spoken, none spoken before its request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cargo.record import OUTPUT_KINDS
from fidelity.emitter_process import Spoken

KERNEL_EARLY_S = (
    20e-6  # the kernel's stamp comes by way of a clock conversion, good to some microseconds
)
ROUNDING_S = 2e-7  # the record keeps 0.1 microseconds


class Comparison(NamedTuple):
    emitted: int
    received: int
    lost: int  # spoken and not in the record, whatever the reason
    lags_s: list[float]
    user_lags_s: list[float]
    blocked_s: float  # for which full sockets kept the emitter from sending
    t0_late_s: float  # how far a t0 lies behind the request's arrival; <= 0: as it must be
    problems: list[str]  # why the match cannot be right; []: it is


def compare(record: Mapping[str, Any], spoken: Sequence[Spoken]) -> Comparison:
    zero_s = record["clock"]["t0_monotonic_s"]
    lags: list[float] = []
    user_lags: list[float] = []
    problems: list[str] = []
    seen: set[int] = set()
    received = 0
    t0_late_s = float("-inf")
    for request in record["requests"]:
        number = (request.get("usage") or {}).get("stream")
        if number is None or number in seen or not 0 <= number < len(spoken):
            problems.append(f"request {request['index']} ({request['outcome']}): stream {number}")
            continue
        seen.add(number)
        stream = spoken[number]
        times, users = output_times(request, zero_s)
        received += len(times)
        problems += mismatch(request, stream, len(times), zero_s)
        if request["t_start_s"] is not None:
            t0_late_s = max(t0_late_s, zero_s + request["t_start_s"] - stream.request_ns / 1e9)
        for seen_s, user_s, said_ns in zip(times, users, stream.stamps_ns, strict=False):
            lags.append(seen_s - said_ns / 1e9)
            user_lags.append(user_s - said_ns / 1e9)
    if lags and min(lags) < -KERNEL_EARLY_S:
        problems.append(f"an event was stamped {-min(lags) * 1e6:.0f} us before it was spoken")
    if user_lags and min(user_lags) < -ROUNDING_S:
        problems.append(f"an event was seen {-min(user_lags) * 1e6:.1f} us before it was spoken")
    emitted = sum(len(stream.stamps_ns) for stream in spoken)
    blocked_s = sum(stream.blocked_ns for stream in spoken) / 1e9
    lost = emitted - received
    return Comparison(emitted, received, lost, lags, user_lags, blocked_s, t0_late_s, problems)


def output_times(request: Mapping[str, Any], zero_s: float) -> tuple[list[float], list[float]]:
    """(receive stamps, user stamps) of the events that carry output, on the common clock."""
    events = request.get("events") or {"t_s": [], "kind": [], "t_user_s": []}
    chosen = [i for i, kind in enumerate(events["kind"]) if kind in OUTPUT_KINDS]
    stamps = [zero_s + events["t_s"][i] for i in chosen]
    users = [zero_s + events["t_user_s"][i] for i in chosen]
    return stamps, users


def mismatch(request: Mapping[str, Any], stream: Spoken, events: int, zero_s: float) -> list[str]:
    found = []
    index = request["index"]
    if request["n_events"] != events:
        found.append(f"request {index}: n_events {request['n_events']}, {events} times")
    if events > len(stream.stamps_ns):
        found.append(f"request {index}: {events} events of {len(stream.stamps_ns)} spoken")
    if request["t_start_s"] is None:
        found.append(f"request {index}: no t_start_s")
    elif stream.stamps_ns and zero_s + request["t_start_s"] > stream.stamps_ns[0] / 1e9:
        found.append(f"request {index}: spoken to before it was sent")
    return found
