"""Names for people: runs, captures, server logs and grid cells. One grammar, here only.

decode_<variant>_<scenario>_c<C>_t<T>_r<R>[_<suffix>][_start<k>]   k only from the second start on
ixsmi_<the same tail> (the telemetry tool's name in front)          server_<variant>[_start<k>]
grid cells: grid-mns1-mnbt4096-ecp0-nss4 (initials of the flag's words, then the value)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def start_tail(start: int) -> str:
    return f"_start{start}" if start > 1 else ""


def run_tail(
    variant: str,
    scenario: str,
    concurrency: int,
    max_tokens: int,
    requests: int,
    suffix: str | None,
    start: int,
) -> str:
    tail = f"{variant}_{scenario}_c{concurrency}_t{max_tokens}_r{requests}"
    return tail + (f"_{suffix}" if suffix else "") + start_tail(start)


def run_name(tail: str) -> str:
    return f"decode_{tail}"


def capture_name(tool: str, tail: str) -> str:
    return f"{tool}_{tail}"


def server_log(variant: str, start: int) -> str:
    return f"server_{variant}{start_tail(start)}.log"


def launch_label(launch: Mapping[str, Any]) -> str:
    """What people read of a launch (an entry of the plan)."""
    return f"{launch['variant']} start {launch['start']}"


def cell(grid: str, values: Mapping[str, Any]) -> str:
    """The name of one cell of a grid: `values` maps canonical flags to their values."""
    return "-".join([grid] + [f"{initials(flag)}{short(value)}" for flag, value in values.items()])


def initials(flag: str) -> str:
    return "".join(word[0] for word in re.split(r"[-_.]+", flag.strip("-")) if word)


def short(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    text = ".".join(map(str, value)) if isinstance(value, list) else str(value)
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_") or "_"
