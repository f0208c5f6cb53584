"""What a smoke test showed: one start, one request, a few seconds of telemetry.

In:  the folders that the agent sealed, in a store of their own. Out: plain figures, and the lines
that a person reads. A figure that is not known is None.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from decodelab import telemetry
from decodelab.forecast import OneRequest
from decodelab.store import Attempt, Start

Facts = dict[str, Any]
SHOWN = ("util_pct", "mem_used_mib", "power_w", "temp_c")


def start_facts(start: Start) -> Facts:
    facts = start.facts
    identity = facts.get("identity") or {}
    return {
        "ready_s": facts.get("ready_s"),
        "stop_s": facts.get("stop_s"),
        "cause": facts.get("cause"),
        "setup": facts.get("setup"),
        "fingerprint": facts.get("fingerprint"),
        "identity_problem": facts.get("identity_problem"),
        "python": identity.get("python"),
        "executable": identity.get("executable"),
        "packages": identity.get("packages") or {},
        "version": (facts.get("version") or {}).get("version"),
        "models": [m.get("id") for m in (facts.get("models") or {}).get("data") or []],
    }


def request_facts(attempt: Attempt) -> Facts:
    """The one request: its outcome and figures."""
    try:
        record = json.loads((attempt.path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"outcome": "none", "error": "the client left no record"}
    request: Facts = next((r for r in record["requests"] if not r.get("warmup")), {})
    names = ("outcome", "error", "ttft_s", "decode_rate", "e2e_tps", "e2e_s", "completion_tokens")
    return {name: request.get(name) for name in names}


def telemetry_facts(file: Path) -> Facts | None:
    """The capture as the reports' own reader sees it; None if there is none."""
    if not file.is_file():
        return None
    capture = telemetry.read_capture(file)
    costs = [
        float(r["m1"]) - float(r["m0"])
        for r in capture.records
        if telemetry.number(r.get("m0")) is not None and telemetry.number(r.get("m1")) is not None
    ]
    stamps = [s.t for s in capture.samples if s.t is not None]
    return {
        "tool": capture.header.get("tool"),
        "interval_s": capture.interval_s,
        "calls": len(capture.records),
        "span_s": max(stamps) - min(stamps) if stamps else None,
        "call_median_s": statistics.median(costs) if costs else None,
        "call_max_s": max(costs, default=None),
        "samples": len(capture.samples),
        "accelerators": len(telemetry.by_accelerator(capture.samples)),
        "names": sorted({s.reading.name for s in capture.samples if s.reading.name}),
        "metrics": {name: _range(capture, name) for name in telemetry.METRICS},
        "rejected": len(capture.rejected),
        "messages": capture.messages[:5],
    }


def _range(capture: telemetry.Capture, metric: str) -> list[float] | None:
    values = [v for s in capture.samples if (v := s.reading.values[metric]) is not None]
    return [min(values), max(values)] if values else None


def pace(start: Mapping[str, Any], request: Mapping[str, Any]) -> OneRequest | None:
    """What a forecast can be made of, if the request went well."""
    rate = request.get("decode_rate") or request.get("e2e_tps")
    if start.get("ready_s") is None or not rate:
        return None
    both_s = float(start["ready_s"]) + float(start.get("stop_s") or 0)
    return OneRequest(both_s, float(request.get("ttft_s") or 0), float(rate))


def lines(start: Mapping[str, Any], request: Mapping[str, Any], smi: Facts | None) -> Iterator[str]:
    """What a person wants to see of it."""
    yield f"server     ready in {_s(start['ready_s'])}, stopped in {_s(start['stop_s'])}"
    yield (
        f"request    {request['outcome']}: {request.get('completion_tokens')} tokens, "
        f"TTFT {_s(request.get('ttft_s'))}, decode {_rate(request.get('decode_rate'))}"
    )
    yield from _telemetry_lines(smi)
    packages = ", ".join(f"{name} {version}" for name, version in start["packages"].items())
    told = [start["executable"], start["python"] and f"Python {start['python']}", packages]
    yield f"engine     {', '.join(filter(None, told)) or 'unknown'}"
    yield f"           /version {start['version'] or 'unknown'}; models {', '.join(start['models'])}"
    problem = f" ({start['identity_problem']})" if start["identity_problem"] else ""
    yield f"           fingerprint {start['fingerprint'] or 'none'}{problem}"
    if start["setup"]:
        names = ", ".join(start["setup"].get("set") or {}) or "nothing"
        yield f"setup      {start['setup'].get('path')} sets {names}"


def _telemetry_lines(smi: Facts | None) -> Iterator[str]:
    if smi is None:
        yield "telemetry  none: hosts.<name>.telemetry names no tool, or it gave nothing"
        return
    yield (
        f"telemetry  {smi['tool']}: {smi['calls']} calls over {_s(smi['span_s'])}, "
        f"{_s(smi['call_median_s'])} each (at most {_s(smi['call_max_s'])}), "
        f"{smi['samples']} samples of {smi['accelerators']} accelerators"
    )
    for name in SHOWN:
        unit = telemetry.METRICS[name][0]
        found = smi["metrics"][name]
        shown = f"{found[0]:g} to {found[1]:g} {unit}" if found else "not in the samples"
        yield f"           {name}: {shown}"
    if smi["rejected"]:
        yield f"           {smi['rejected']} values that cannot be true were left out"
    for message in smi["messages"]:
        yield f"           {message}"


def _s(seconds: Any) -> str:
    return "unknown" if seconds is None else f"{float(seconds):.3g} s"


def _rate(value: Any) -> str:
    return "unknown" if value is None else f"{float(value):.1f} tok/s"
