"""How the accelerators of a run were sampled, and why there is no sample where there is none.

In: a run's capture. Out: columns of runs.csv. The interval held is what the sampler promised in the
header of the capture: longer than wanted where a call takes too long, as measured when it chose how
to call the tool.
"""

from __future__ import annotations

from typing import Any

from decodelab import telemetry

PROBLEM_CHARS = 400


def columns(capture: telemetry.Capture) -> dict[str, Any]:
    header = capture.header
    costs = header.get("cost_s")
    known = [c for c in map(telemetry.number, costs if isinstance(costs, list) else []) if c]
    return {
        "smi_tool": _text(header.get("tool")),
        "smi_form": _text(header.get("form")),
        "smi_loop": ("yes" if header["loop"] else "no") if "loop" in header else None,
        "smi_interval_s": capture.interval_s,
        "smi_wanted_interval_s": telemetry.number(header.get("wanted_interval_s")),
        "smi_cost_s": min(known, default=None),
        "smi_problem": None if capture.samples else _problem(capture),
    }


def _problem(capture: telemetry.Capture) -> str | None:
    """What the tool or its reader said, else what the sampler tried in vain."""
    tried = capture.header.get("tried")
    words = [*capture.messages[:1], *(tried if isinstance(tried, list) else [])]
    return "; ".join(map(str, words))[:PROBLEM_CHARS] or None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
