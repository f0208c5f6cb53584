"""What only an evaluator's own account says of a run whose requests do not carry it.

In: a run record (its `evaluator` part, see evaluator_rows). Out: figures by the name of our column.
They are another program's word, so they stay apart from what is computed (column `told`), and every
place that shows one says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from decodelab import telemetry

# Our column -> the account's name, the factor of its unit, and the field of a request that would give it.
# Same definitions on both sides.
NAMES = {
    "ttft_s_p50": ("ttft_p50_ms", 1e-3, "ttft_s"),
    "ttft_s_p90": ("ttft_p90_ms", 1e-3, "ttft_s"),
    "ttft_s_p99": ("ttft_p99_ms", 1e-3, "ttft_s"),
    "cached_tokens": ("total_cached_tokens", 1, "cached_tokens"),
    "cache_hit": ("cache_hit_rate", 1, "cached_tokens"),
    "input_tps_mean": ("input_tps_mean", 1, "input_tps"),
}


def figures(record: Mapping[str, Any]) -> dict[str, float]:
    """Of a run without successes nothing is told, whatever the account says; nor is what every success
    says itself.
    """
    account = (record.get("evaluator") or {}).get("metrics") or {}
    ok = [request for request in record["requests"] if request["outcome"] == "ok"]
    found = {}
    for ours, (name, factor, carrier) in NAMES.items():
        value = telemetry.number(account.get(name))
        if value is not None and any(request.get(carrier) is None for request in ok):
            found[ours] = value * factor
    return found


def as_json(record: Mapping[str, Any]) -> str | None:
    """The cell of `told`."""
    found = figures(record)
    return json.dumps(found) if found else None


def of_row(row: Mapping[str, Any]) -> dict[str, float]:
    """The cell read back."""
    return dict(json.loads(row["told"])) if row.get("told") else {}


def doubted(record: Mapping[str, Any]) -> list[str]:
    """Rows and account that do not say the same are not both whole."""
    return ["evaluator_disagrees"] if (record.get("evaluator") or {}).get("disagrees") else []


def spoilt(record: Mapping[str, Any]) -> list[str]:
    """A server that refused every connection up to the end is gone, whatever the account calls it."""
    gone = (record.get("evaluator") or {}).get("server_gone_after")
    return [] if gone is None else ["server_died"]
