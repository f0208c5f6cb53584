"""Of what kind each metric is, and how that kind is written: unit, fixed digits, factor.

In: a metric's base name (`ttft_s`, `decode_rate`, ...). Out: its `Style`. What is made of it is in
numbers.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from decodelab.vocabulary import SCORES


@dataclass(frozen=True)
class Style:
    unit: str  # as printed, with its space
    digits: int  # after the point, in tables
    coarse: int  # after the point, in a sentence
    factor: float = 1.0  # from the column's unit to the printed one
    peak: int | None = None  # after the point for a maximum (an instrument's own reading)
    significant: bool = False  # small values keep two significant digits


STYLES = {
    "seconds": Style("s", 2, 1, significant=True),
    "milliseconds": Style(" ms", 2, 1, significant=True),
    "rate": Style(" tok/s", 2, 1),
    "share": Style("%", 1, 1, factor=100.0),
    "percent": Style("%", 2, 1, peak=0),
    "memory": Style(" MiB", 0, 0, peak=0),
    "power": Style(" W", 2, 1, peak=0),
    "energy": Style(" J", 0, 0),
    "tokens per joule": Style(" tok/J", 3, 2, significant=True),
    "joules per token": Style(" J/tok", 2, 1, significant=True),
    "temperature": Style(" °C", 1, 0, peak=0),
    "clock": Style(" MHz", 0, 0, peak=0),
    "tokens": Style("", 0, 0),
    "score": Style("", 1, 0),
    "number": Style("", 2, 2),
}
_KINDS = {
    "ttft_s": "seconds",
    "e2e_s": "seconds",
    "tpot_s": "seconds",
    "itl_s": "seconds",
    "step_s": "seconds",
    "queue_s": "seconds",
    "region_ms": "milliseconds",
    "region_share": "share",
    "server_ttft_s": "seconds",
    "server_itl_s": "seconds",
    "client_lag_s": "seconds",
    "loop_late_s": "seconds",
    "loop_late_max_s": "seconds",
    "schedule_late_s": "seconds",
    "schedule_late_max_s": "seconds",
    "cross_ttft_s": "seconds",
    "cross_itl_s": "seconds",
    "cross_decode_rate": "rate",
    "server_cache_hit": "share",
    "cpu_share": "share",
    "coalesced_share": "share",
    "blurred_share": "share",
    "itl_counted_share": "share",
    "itl_single_share": "share",
    "multi_token_share": "share",
    "wall_s": "seconds",
    "smi_interval_s": "seconds",
    "smi_wanted_interval_s": "seconds",
    "smi_cost_s": "seconds",
    "ready_s": "seconds",
    "decode_tps": "rate",
    "decode_rate": "rate",
    "e2e_tps": "rate",
    "input_tps": "rate",
    "output_tps_total": "rate",
    "batch_wall_s": "seconds",
    "output_tps_wall": "rate",
    "input_tps_wall": "rate",
    "cache_tps_wall": "rate",
    "cache_tps_warm": "rate",
    "e2e_tps_mean": "rate",
    "input_tps_mean": "rate",
    **dict.fromkeys(SCORES, "score"),
    "success_rate": "share",
    "cache_hit": "share",
    "goodput": "share",
    "idle_share_window": "share",
    "cap_share_window": "share",
    "cap_share_window_in_use": "share",
    "time_share_prefill": "share",
    "time_share_decode": "share",
    "util_pct": "percent",
    "mem_used_mib": "memory",
    "mem_total_mib": "memory",
    "power_w": "power",
    "power_cap_w": "power",
    "energy_j_window": "energy",
    "energy_j_window_in_use": "energy",
    "energy_j_prefill": "energy",
    "energy_j_decode": "energy",
    "tokens_per_joule": "tokens per joule",
    "tokens_per_joule_in_use": "tokens per joule",
    "joules_per_token": "joules per token",
    "joules_per_token_in_use": "joules per token",
    "mem_headroom_mib_all": "memory",
    "mem_headroom_mib_window": "memory",
    "temp_c": "temperature",
    "sm_mhz": "clock",
    "mem_mhz": "clock",
}
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_COUNTED = (
    "n_",
    "smi_",
    "cross_n_",
    "cross_completion",
    "sent_",
    "server_prompt",
    "server_gen",
    "server_pre",
)


def style_of(base: str) -> Style:
    counted = base in TOKENS or base.startswith(_COUNTED)
    return STYLES[_KINDS.get(base, "tokens" if counted else "number")]


def is_metric(name: str) -> bool:
    """Whether a name is a metric as it stands, whatever statistic its end looks like."""
    return name in _KINDS
