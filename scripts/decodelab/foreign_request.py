"""One request object of a foreign file -> one request of a run record.

In:  the object and the field map. Out: a request with cargo.record's fields, its figures computed
by cargo.record's formulas, and an `Account` of which key was read as what. What the object does
not say stays null.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cargo import record as run_record
from decodelab.fieldmap import FieldMap, Found, index

ABSOLUTE = ("t_start_s", "t_first_s", "t_last_s", "t_end_s")
DURATIONS = ("ttft_s", "e2e_s", "decode_s")
COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "n_first_delta",
)


@dataclass
class Account:
    """What was done with each key of a foreign file, for --explain."""

    read: dict[tuple[str, str], str] = field(
        default_factory=dict
    )  # (foreign key, our field) -> remark
    ignored: dict[str, str] = field(default_factory=dict)  # foreign key -> why
    notes: list[str] = field(default_factory=list)

    def take(self, prefix: str, found: Found, name: str, remark: str = "") -> None:
        self.read.setdefault((prefix + found.path, name), remark)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def number(value: Any) -> float | None:
    """A finite number, also from text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        result = float(value)
    except (TypeError, ValueError):
        return None
    return result if math.isfinite(result) else None


def moment(found: Found) -> float | None:
    """An absolute time in seconds: a number, an epoch of any usual fineness, or ISO text."""
    value = number(found.value)
    if value is None:
        try:
            text = str(found.value).strip().replace(",", ".").replace("Z", "+00:00")
            stamp = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    if found.factor is not None:
        return value * found.factor
    for limit, factor in ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)):
        if value >= limit:
            return value * factor
    return value


def read_request(
    position: int, row: Mapping[str, Any], mapping: FieldMap, account: Account
) -> dict[str, Any]:
    names = index(row, mapping.names("containers"))
    found = {}
    for name in mapping.fields("request"):
        hit = mapping.find(names, "request", name)
        if hit is not None:
            found[name] = hit
    values: dict[str, Any] = {}
    for name, hit in found.items():
        value = _value(name, hit)
        if value is None:
            if name != "http_status":
                account.ignored.setdefault(
                    f"requests[].{hit.path}", f"no usable value for {name}: {hit.value!r}"
                )
            continue
        values[name] = value
        account.take("requests[].", hit, name, _unit_remark(name, hit))
    request = run_record.blank_request(position, warmup=bool(values.get("warmup", False)))
    request.update({name: values.get(name) for name in (*ABSOLUTE, *COUNTS, "finish_reason")})
    _place_times(request, values, account)
    request["outcome"], request["error"] = _outcome(
        values, found.get("http_status"), request, mapping
    )
    return request


def _value(name: str, hit: Found) -> Any:
    if name in ABSOLUTE:
        return moment(hit)
    if name in DURATIONS:
        value = number(hit.value)
        # A time of exactly 0 (vllm bench serve writes it for failures) says that there was none.
        return value * (hit.factor or 1.0) if value is not None and value > 0 else None
    if name in COUNTS:
        value = number(hit.value)
        return int(value) if value is not None and value >= 0 and value == int(value) else None
    if name in ("gaps_s", "event_times_s"):
        values = [number(v) for v in hit.value] if isinstance(hit.value, list) else []
        return (
            [v * (hit.factor or 1.0) for v in values if v is not None]
            if values and None not in values
            else None
        )
    if name in ("success", "warmup"):
        text = str(hit.value).strip().lower()
        return (
            True
            if text in ("true", "1", "yes", "ok")
            else False
            if text in ("false", "0", "no")
            else None
        )
    if name == "http_status":
        status = number(hit.value)
        return int(status) if status is not None else None
    if name == "outcome":
        return hit.value if hit.value in run_record.OUTCOMES else None
    return hit.value


def _unit_remark(name: str, hit: Found) -> str:
    if name in (*DURATIONS, *ABSOLUTE, "gaps_s", "event_times_s"):
        if hit.factor is None:
            return "no unit in the name: read as seconds"
        if hit.factor != 1.0:
            return f"x {hit.factor:g}"
    return ""


def _place_times(request: dict[str, Any], values: Mapping[str, Any], account: Account) -> None:
    """Fill the absolute times from whatever is known; bare spans wait in "_spans"."""
    start, end = request["t_start_s"], request["t_end_s"]
    if start is None and end is not None and values.get("e2e_s") is not None:
        start = request["t_start_s"] = end - values["e2e_s"]
    ttft = values.get("ttft_s", _minus(request["t_first_s"], start))
    e2e = values.get("e2e_s", _minus(end, start))
    span = _minus(request["t_last_s"], request["t_first_s"])
    if span is None and values.get("event_times_s"):
        ttft, span = _from_event_times(request, values["event_times_s"], start, ttft, account)
    if span is None and values.get("gaps_s"):
        span = sum(values["gaps_s"])
        if e2e is None:
            account.note("no end of the stream is given: e2e_s is TTFT + the token gaps")
        e2e = ttft + span if e2e is None and ttft is not None else e2e
    if span is None and values.get("decode_s") is not None:
        span = values["decode_s"]
    if ttft is not None and e2e is not None and ttft > e2e:
        account.note(
            f"request {request['index']}: TTFT {ttft:g} s is longer than the whole request "
            f"({e2e:g} s): is a unit missing in a name?"
        )
    request["_spans"] = (ttft, span, e2e)
    if start is None:
        return
    request["t_first_s"] = start + ttft if ttft is not None else request["t_first_s"]
    request["t_end_s"] = start + e2e if e2e is not None else end
    if request["t_first_s"] is not None and span is not None:
        request["t_last_s"] = request["t_first_s"] + span
    if values.get("gaps_s") and request["t_first_s"] is not None:
        times = [request["t_first_s"]]
        for gap in values["gaps_s"]:
            times.append(times[-1] + gap)
        request["events"] = _events(times)
        request["n_events"] = len(times)


def _from_event_times(
    request: dict[str, Any],
    times: list[float],
    start: float | None,
    ttft: float | None,
    account: Account,
) -> tuple[float | None, float | None]:
    """(ttft, decode span) from output event times, on the clock or since the request's start."""
    near = 0.005 + 0.02 * (ttft or 0.0)
    relative = ttft is not None and abs(times[0] - ttft) <= near
    absolute = start is not None and ttft is not None and abs(times[0] - start - ttft) <= near
    if not (relative or absolute):
        account.note(
            "output event times left aside: the first is not at the first token on either clock"
        )
        return ttft, None
    if start is not None:
        request["events"] = _events([t if absolute else start + t for t in times])
    request["n_events"] = len(times)
    return ttft, times[-1] - times[0]


def _events(times: list[float]) -> dict[str, Any]:
    """Output events of unknown kind and size: "content" stands for output of any kind."""
    return {
        "t_s": times,
        "kind": ["content"] * len(times),
        "tokens": [None] * len(times),
        "t_user_s": [],
    }


def _minus(end: float | None, begin: float | None) -> float | None:
    return None if end is None or begin is None else end - begin


def _outcome(
    values: Mapping[str, Any],
    status_hit: Found | None,
    request: Mapping[str, Any],
    mapping: FieldMap,
) -> tuple[str, dict[str, Any] | None]:
    status, error = values.get("http_status"), values.get("error")
    text = (
        error if isinstance(error, str) else json.dumps(error, ensure_ascii=False) if error else ""
    )
    word = str(status_hit.value).strip().lower() if status_hit and status is None else ""
    message = {"kind": "imported", "status": status, "message": text or None}
    if "outcome" in values:
        return values["outcome"], None if values["outcome"] == "ok" else message
    if status is not None and status >= 400:
        return "http_error", message
    if text or values.get("success") is False or word in ("error", "failed", "failure"):
        for pattern, outcome in mapping.tables["outcome_patterns"]:
            if re.search(pattern, text, re.IGNORECASE):
                return outcome, message
        return mapping.tables["outcome_default"], message
    if request["finish_reason"] == "abort":
        return "aborted", message
    known = bool(request["completion_tokens"]) or any(v is not None for v in request["_spans"])
    if not known:
        return mapping.tables["outcome_default"], {
            **message,
            "message": "nothing is recorded of this request",
        }
    return "ok", None


def derive_figures(request: dict[str, Any]) -> None:
    """The figures, from the spans that are known, by the one definition of cargo.record."""
    ttft, span, e2e = request.pop("_spans")
    last = None if ttft is None or span is None else ttft + span
    counts = (request["prompt_tokens"], request["completion_tokens"], request["n_first_delta"])
    if (
        ttft is None and span is not None
    ):  # a decode span without a TTFT still gives the decode rates
        rates = run_record.derive(None, 0.0, span, None, *counts)
        request.update(run_record.derive(0.0, None, None, e2e, *counts))
        request.update(
            {name: rates[name] for name in ("decode_tps", "decode_rate", "tpot_s", "decode_end")}
        )
    else:
        request.update(run_record.derive(0.0, ttft, last, e2e, *counts))
