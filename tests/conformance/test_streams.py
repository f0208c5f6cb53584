"""Every row of the table, by both transports, against the true times of the scripted server."""

from __future__ import annotations

from typing import Any

import pytest

from cargo import record

from .cases import CASES, Case
from .driving import run_client
from .scripted_server import Truth, serving

# The kernel stamps a packet inside the send that emits it, or a moment later: the bound only has
# to cover a busy machine, on which this server's own clock reading is what is late.
LATE_S = {"epoll": 0.05, "httpx": 1.0}
EARLY_S = 0.001  # error of the two clocks' offset


def _within(found: float, span: tuple[float, float], http: str) -> bool:
    return span[0] - EARLY_S <= found <= span[1] + LATE_S[http]


def _check_times(found: dict[str, Any], zero: float, truth: Truth, case: Case, http: str) -> None:
    """Each output event at the time at which the server sent its last byte.

    Where this client was kept waiting by the machine, one read brings several events and the kernel
    gives it the stamp of the last packet: then the last of them is what the time must fit.
    """
    events = found["events"] or {"t_s": [], "kind": []}
    pairs = zip(events["t_s"], events["kind"], strict=True)
    times = [t for t, kind in pairs if kind in record.OUTPUT_KINDS]
    if case.events >= 0:
        assert len(times) == len(truth.output) == case.events
    spans = list(zip(times, truth.output, strict=False))
    for t, (begin, _) in spans:
        last = max(span[1] for other, span in spans if other == t)
        assert _within(zero + t, (begin, last), http), (zero + t, begin, last)
    if times:
        assert found["t_first_s"] == times[0]
        assert found["t_last_s"] == times[-1]
    if truth.end is not None and case.outcome == "ok":
        assert _within(zero + found["t_end_s"], truth.end, http)


def _check_error(found: dict[str, Any], case: Case) -> None:
    if case.outcome == "ok":
        assert found["error"] is None
        return
    kind, part = case.error
    assert found["error"]["kind"] == kind
    assert part in found["error"]["message"]
    if case.status is not None:
        assert found["error"]["status"] == case.status


ROWS = [
    pytest.param(case, http, id=f"{case.name}-{http}")
    for case in CASES
    for http in ("epoll", "httpx")
    if http == "epoll" or not case.epoll_only
]


@pytest.mark.parametrize(("case", "http"), ROWS)
def test_stream(case: Case, http: str) -> None:
    with serving(case.script) as server:
        found = run_client(server.port, f"--http={http}", *case.options)
        truth = server.truths[0]
    assert len(server.truths) == 1, "one request, sent once: no retry, no redirect"
    request = found["requests"][0]
    assert request["outcome"] == case.outcome, request["error"]
    assert request["completion_tokens"] == case.tokens
    if case.events >= 0:
        assert request["n_events"] == case.events
    for name, value in case.expect.items():
        assert request[name] == value, name
    _check_error(request, case)
    _check_times(request, found["clock"]["t0_monotonic_s"], truth, case, http)
    if case.check is not None:
        assert case.check(request)
    if request["outcome"] == "ok":
        assert found["summary"]["n_ok"] == 1
        assert request["ttft_s"] > 0
    else:
        assert found["summary"]["n_ok"] == 0
        assert found["summary"]["success_rate"] == 0
        assert found["summary"]["ttft_s"] is None


def test_the_table_is_large_and_its_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert len(names) >= 40
    # every outcome that a single stream can have is in it
    assert {case.outcome for case in CASES} == set(record.OUTCOMES) - {"not_started"}
