"""Run records read: the published runs of a study, with every figure worked out again from times
where they are known.

In: the folder `results/<study>/runs/` (decode_*.json, ixsmi_*.json and the index) and the plan.
Out: one `Run` per published run. Nothing is guessed: a figure whose times are null keeps the number
that the file gives, or None."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cargo import record
from decodelab import declared, evaluator_told, telemetry

INDEXES = ("decode_runs.json", "ixsmi_capture.json", "index.json")
LATE_S = 0.05  # a client later than this at its own clock blurs gaps of a usual token (0.1 s)
# Fewer output events than tokens by this factor: several tokens came in one event, uncounted.
MANY_TOKENS = 1.5
STALL_S = 0.5  # a client that stood still for so long
STALL_SHARE = 0.05  # ... and for more than this share of the run
COALESCED_SHARE = 0.05  # of output events that late reads merged

# Which times a figure needs; where they are known the figure is worked out, even to None.
_NEEDS = {
    "ttft_s": ("t_start_s", "t_first_s"),
    "e2e_s": ("t_start_s", "t_end_s"),
    "e2e_tps": ("t_start_s", "t_end_s"),
    "input_tps": ("t_start_s", "t_first_s"),
    "decode_tps": ("t_first_s",),
    "decode_rate": ("t_first_s",),
    "tpot_s": ("t_first_s",),
    "decode_end": ("t_first_s",),
}


class UnreadableRecord(ValueError):
    """A published file that is not what its name says."""


@dataclass
class Run:
    planned: Mapping[str, Any]  # the plan's entry
    entry: Mapping[str, Any]  # the index's entry
    record: Mapping[str, Any]
    requests: list[dict[str, Any]]  # counted requests (no warm-up), figures worked out
    summary: dict[str, Any]
    capture: telemetry.Capture | None = None
    validity: str = "valid"
    reasons: list[str] = field(default_factory=list)
    second: Run | None = None  # the same load once more by another client, right after
    second_problem: str | None = None  # why there is no such record

    @property
    def ok(self) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["outcome"] == "ok"]


def load_index(folder: Path) -> dict[str, Any]:
    """runs, captures, starts and missing of a published folder, whichever index files hold them."""
    index: dict[str, Any] = {"runs": {}, "captures": {}, "starts": [], "missing": []}
    found = [folder / name for name in INDEXES if (folder / name).is_file()]
    if not found:
        raise UnreadableRecord(f"{folder}: no index: looked for {', '.join(INDEXES)}")
    for path in found:
        data = _json(path)
        index["runs"].update(data.get("runs") or {})
        index["captures"].update(data.get("captures") or {})
        index["starts"].extend(data.get("starts") or [])
        index["missing"].extend(data.get("missing") or [])
    return index


def load_runs(plan: Mapping[str, Any], folder: Path, index: Mapping[str, Any]) -> Iterator[Run]:
    """Every planned run whose record is published, in plan order. An attempt that ended before it
    left a record is an entry without a file: it holds no figures and counts as missing.
    """
    for planned in plan["runs"]:
        entry = index["runs"].get(planned["name"])
        if entry is not None and entry.get("file"):
            yield load_run(planned, entry, folder, index["captures"].get(planned.get("capture")))


def load_run(
    planned: Mapping[str, Any],
    entry: Mapping[str, Any],
    folder: Path,
    captured: Mapping[str, Any] | None,
) -> Run:
    run = make_run(planned, entry, read_record(folder / entry["file"]))
    if captured is not None and (folder / captured["file"]).is_file():
        run.capture = telemetry.read_capture(folder / captured["file"])
    _look_again(run, folder)
    judge_validity(run)
    return run


def _look_again(run: Run, folder: Path) -> None:
    """The cross-check of a run: a record of its own, or what kept it from being made. It says how
    far two clients agree and never spoils the run itself.
    """
    name = run.entry.get("cross_check")
    if not name:
        return
    try:
        data = _json(folder / name)
        if isinstance(data, Mapping) and data.get("problem"):
            run.second_problem = str(data["problem"])
        else:
            # It has no capture of its own: that samples are missing is no doubt about it.
            planned = {**run.planned, "telemetry": False}
            run.second = make_run(planned, {}, read_record(folder / name))
            judge_validity(run.second)
    except UnreadableRecord:
        run.second_problem = f"{name} is no run record"


def read_record(path: Path) -> dict[str, Any]:
    data = _json(path)
    wrong = record.problems(data)
    if wrong:
        raise UnreadableRecord(f"{path}: no run record: {'; '.join(wrong)}")
    whole: dict[str, Any] = data
    return whole


def make_run(planned: Mapping[str, Any], entry: Mapping[str, Any], data: Mapping[str, Any]) -> Run:
    """The run with its figures worked out, not yet judged."""
    requests = [worked_out(request) for request in data["requests"] if not request.get("warmup")]
    summary = record.summarise(requests, wall_s=telemetry.number(data["summary"].get("wall_s")))
    return Run(planned, entry, data, requests, summary)


def worked_out(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with its figures worked out from its times; given figures stand where times are
    null.
    """
    out = {name: request.get(name) for name in record.REQUEST_FIELDS}
    if out["n_first_delta"] == 1 and _uncounted(request):
        out["n_first_delta"] = (
            None  # an older client took every event without a count for one token
        )
    found = record.derive(
        out["t_start_s"],
        out["t_first_s"],
        out["t_last_s"],
        out["t_end_s"],
        out["prompt_tokens"],
        out["completion_tokens"],
        out["n_first_delta"],
    )
    ended = out["t_last_s"] is not None or out["t_end_s"] is not None
    for name, needs in _NEEDS.items():
        decode = needs == ("t_first_s",)
        if all(out[need] is not None for need in needs) and (ended or not decode):
            value = found[name]
            sane = not isinstance(value, float) or math.isfinite(value)
            out[name] = value if sane else None
    return out


def judge_validity(run: Run) -> None:
    """The run-level reasons of METRICS: invalid outranks suspect outranks valid."""
    invalid: list[str] = list(run.entry.get("reasons") or [])
    suspect: list[str] = evaluator_told.doubted(run.record)
    planned = run.record["run"].get("requests") or run.planned.get("requests")
    outcomes = [request["outcome"] for request in run.requests]
    if not run.ok:
        # The host says the same of a run in which nothing succeeded, by another name.
        invalid = [*(code for code in invalid if code != "no_ok_request"), "no_success"]
    if "server_gone" in outcomes:
        invalid.append("server_died")
    invalid += evaluator_told.spoilt(run.record)
    if planned is not None and run.summary["n_attempted"] < planned:
        invalid.append("attempted_below_planned")
    if "client" in outcomes:
        invalid.append("client_failed")
    client = run.record.get("client") or {}
    if stamps_late(client):
        invalid.append("stamps_late")
    stall = telemetry.number(client.get("loop_late_max_s")) or 0.0
    if stall > STALL_S:
        # Kernel stamps keep their truth, but requests began late and the run's wall time holds the pause.
        wall = telemetry.number(client.get("wall_s")) or stall
        (invalid if stall > STALL_SHARE * wall else suspect).append("client_stalled")
    if any((r["completion_tokens"] or 0) > run.planned["max_tokens"] for r in run.ok):
        invalid.append("usage_impossible")
    if any(_disagrees(request) for request in run.ok):
        suspect.append("usage_and_events_disagree")
    suspect += declared.broken(run.record["run"], client, run.requests)
    if run.planned.get("telemetry") and not (
        run.capture and (run.capture.samples or run.capture.header.get("tool") == "none")
    ):  # "none": `telemetry: auto` looked for a tool, and the host has none
        suspect.append("telemetry_missing")
    if run.entry.get("status") == "invalid" and not invalid:
        invalid.append("marked_invalid")
    run.reasons = list(dict.fromkeys(invalid + suspect))
    run.validity = "invalid" if invalid else "suspect" if suspect else "valid"


def stamps_late(client: Mapping[str, Any]) -> bool:
    """Were the client's stamps late? Kernel stamps survive a late loop unless late reads merged
    events: the client counts those whose time is unknown by 15 ms or more; an older one counted
    merged reads alone.
    """
    events, blurred = (telemetry.number(client.get(n)) for n in ("output_events", "blurred_events"))
    if client.get("stamp_source") == "kernel" and events and blurred is not None:
        return blurred / events > COALESCED_SHARE
    late = max(
        telemetry.number(client.get(name)) or 0.0 for name in ("loop_late_max_s", "lag_p99_s")
    )
    if late <= LATE_S:
        return False
    reads = telemetry.number(client.get("reads")) or 0.0
    merged = telemetry.number(client.get("coalesced_reads")) or 0.0
    return client.get("stamp_source") != "kernel" or (
        reads > 0 and merged / reads > COALESCED_SHARE
    )


def _disagrees(request: Mapping[str, Any]) -> bool:
    """More output events than tokens, token counts on events above usage's, or far fewer events
    than tokens without a count on any of them.
    """
    total, seen = request.get("completion_tokens"), request.get("n_events")
    if total is None:
        return False
    tokens = declared.counts(request)
    known = [count for count in tokens if count is not None]
    if known and len(known) == len(tokens) and sum(known) > total:
        return True
    return (seen is not None and seen > total) or _uncounted(request)


def _uncounted(request: Mapping[str, Any]) -> bool:
    """Far fewer events than tokens, and no count on any of them: how many an event held is unknown."""
    total, seen = request.get("completion_tokens"), request.get("n_events")
    if total is None or seen is None:
        return False
    counted = any(count is not None for count in declared.counts(request))
    return not counted and bool(seen * MANY_TOKENS < total)


def window(run: Run) -> tuple[float, float] | None:
    """[first t0, last tL] of the run on its capture's clock, over every request that was sent,
    whatever came of it: the accelerators worked for those that failed, too. None where the times
    do not say.
    """
    sent = [request for request in run.requests if was_sent(request)]
    starts = [request["t_start_s"] for request in sent]
    ends = [end for request in sent if (end := _last_output(request)) is not None]
    zero = zero_of(run) if run.capture is not None else None
    if zero is None or None in starts or not ends:
        return None
    last = max(ends)
    unsure = [
        r for r in sent if _last_output(r) is None and (r["outcome"] == "ok" or gave_output(r))
    ]
    if any(r["t_end_s"] is None or r["t_end_s"] > last for r in unsure):
        return None  # it may have given output after all others
    return zero + min(starts), zero + last


def was_sent(request: Mapping[str, Any]) -> bool:
    """Not so: those never started, and those that got no connection."""
    return request["outcome"] == "ok" or request["t_start_s"] is not None or gave_output(request)


def gave_output(request: Mapping[str, Any]) -> bool:
    return request["t_first_s"] is not None or request["t_last_s"] is not None


def _last_output(request: Mapping[str, Any]) -> float | None:
    """tL; of a success in a log that has no last delta the end of its stream. (A failed one may
    have been silent for long before it ended.)
    """
    last, end = request["t_last_s"], request["t_end_s"]
    found: float | None = end if last is None and request["outcome"] == "ok" else last
    return found


def zero_of(run: Run) -> float | None:
    """The run's zero on the capture's clock: 0 if both are relative, None if only one is."""
    clock = run.record.get("clock")
    base = telemetry.number(clock.get("t0_monotonic_s")) if isinstance(clock, Mapping) else None
    monotonic = run.capture is not None and run.capture.monotonic
    if base is None:
        return None if monotonic else 0.0
    return base if monotonic else None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableRecord(f"{path}: {error}") from error
