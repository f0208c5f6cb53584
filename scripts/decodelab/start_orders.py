"""What the host agent is told about bringing a server up: its limits, and the check of the devices.

In:  a plan and one of its launches. Out: the order's "limits" and "device_check". The study's
limits are overridden by the host's, those by the variant's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cargo import start_stages
from decodelab import flags

ANY = "any"
CHECK_PHASES = 4  # of device_probe.py, each with the deadline: import, count, devices, all-reduce


def limits(plan: Mapping[str, Any], launch: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds, by name; "stages" holds limits of single stages. A context over
    start_stages.CONTEXT_TOKENS gives the whole start the time that its slowest stage gains by it.
    """
    variant = plan["variants"][launch["variant"]]
    layers = [plan["hosts"][launch["host"]].get("limits"), variant.get("limits")]
    merged = {**plan["limits"]}
    for layer in layers:
        stages = {**merged.get("stages", {}), **((layer or {}).get("stages") or {})}
        merged = {**merged, **(layer or {}), "stages": stages}
    asked = start_stages.tokens_asked(variant["canonical"].get("--max-model-len"))
    merged["start_s"] += start_stages.longer_s(asked, merged["stages"])
    return merged


def device_check(plan: Mapping[str, Any], launch: Mapping[str, Any]) -> dict[str, Any] | None:
    """Which devices must compute before the server is started; None: nothing is checked."""
    block = plan["hosts"][launch["host"]]
    wanted, devices = block.get("device_check"), block.get("devices")
    if block.get("simulated") or wanted is False:
        return None
    need = needed(plan["variants"][launch["variant"]])
    if isinstance(devices, int):
        devices = list(range(devices))
    choose = devices == ANY
    return {
        "mode": "on" if wanted else "auto",
        "devices": None if choose else devices or list(range(need)),
        "need": len(devices) if devices and not choose else need,
        "choose": choose,
        "deadline_s": plan["limits"]["device_check_s"],
    }


def needed(variant: Mapping[str, Any]) -> int:
    """How many devices the server spreads over, by its flags."""
    product = 1
    for flag in flags.PARALLEL:
        told = str(variant["canonical"].get(flag) or "1")
        product *= int(told) if told.isdigit() and int(told) else 1
    return product
