"""The words that a config, a plan, a table and a verdict share, each with one home.

Holds data only and imports nothing, so that both wings (measuring and reading) may use it.
"""

from __future__ import annotations

from typing import NamedTuple

PLAN_SCHEMA = "decodelab.plan/1"
DIGEST_RECIPE = 1  # part of every digest; raise it when the meaning of a digest changes

LANGUAGES = ("zh", "en")
ENGINES = ("vllm-v0", "vllm-v1", "other")
TRANSPORTS = ("local", "ssh")
TELEMETRY_TOOLS = ("auto", "ixsmi", "nvidia-smi", "npu-smi", "rocm-smi", "amd-smi", "none")
HTTP_CLIENTS = ("epoll", "httpx")
QUESTION_KINDS = ("compare_variants", "compare_workloads", "threshold", "scaling", "level")
VERDICTS = ("supported", "refuted", "inconclusive", "invalid", "not_possible")
# "A is not supported": what the verdict must be. An invalid experiment decides nothing.
NOT_SUPPORTED = ("refuted", "inconclusive", "not_possible")
DECIDING = ("supported", *NOT_SUPPORTED)
OPERATORS = (">=", "<=", ">", "<")

# The symbols a command or path of the config may hold. They stay symbolic in plans and digests.
SYMBOLS = {
    "this": "the Python that runs the workflow",
    "python": "the host's python",
    "repo": "this checkout",
    "simulator": "the simulated server shipped with this checkout",
}
SIMULATOR_PATH = "scripts/sim/server.py"
SIMULATOR_FOLDER = "{repo}/scripts/sim"  # all of its code

# Found by rule in the data; a suspect's evidence may name one.
ANOMALIES = {
    "rate_falls_at_equal_batch": "per-request rate falls though no more sequences run at once",
    "no_gain_from_concurrency": "the total rate does not rise with concurrency",
    "first_request_dominates_ttft": "TTFT P90 comes from the first request alone",
    "queueing_beyond_max_num_seqs": "requests waited for a slot of --max-num-seqs",
    "gpus_idle": "the accelerators were idle for a large share of the run",
    "several_tokens_per_event": "stream events carried several tokens",
}


class Metric(NamedTuple):
    """What a question or target may name."""

    unit: str
    direction: str | None  # which way is better; None where a question has to say it
    # "request" (one value a request; judged by its median), "run", "telemetry", "profile"
    level: str


_REQUEST = {
    "ttft_s": Metric("s", "lower", "request"),
    "e2e_s": Metric("s", "lower", "request"),
    "decode_tps": Metric("tok/s", "higher", "request"),
    "decode_rate": Metric("tok/s", "higher", "request"),
    "e2e_tps": Metric("tok/s", "higher", "request"),
    "tpot_s": Metric("s", "lower", "request"),
    "itl_s": Metric("s", "lower", "request"),
    "input_tps": Metric("tok/s", "higher", "request"),
}
_RUN = {
    "output_tps_total": Metric("tok/s", "higher", "run"),
    "success_rate": Metric("share", "higher", "run"),
    "cache_hit": Metric("share", "higher", "run"),
    "goodput": Metric("share", "higher", "run"),
    "queue_s": Metric("s", "lower", "run"),
    "wall_s": Metric("s", "lower", "run"),
}
_SMI = {"util_pct": "%", "mem_used_mib": "MiB", "power_w": "W"}


# The weighted score in its readings: Output TPS and Input TPS by the wall clock, as means over
# requests, or with Output TPS P10; Cache TPS by the wall clock, or (`_warm`) by the TTFTs of warm requests.
SCORES = (
    "platform_score",
    "weighted_wall",
    "weighted_wall_warm",
    "weighted_mean",
    "weighted_mean_warm",
    "weighted_p10",
    "weighted_p10_warm",
)


def _metrics() -> dict[str, Metric]:
    table = dict(_REQUEST)
    for name, metric in _REQUEST.items():
        for q in ("p10", "p50", "p90"):
            table[f"{name}_{q}"] = metric._replace(level="run")
    table.update(_RUN)
    table.update(dict.fromkeys(SCORES, Metric("", "higher", "run")))
    for name, unit in _SMI.items():
        for figure in ("mean_all", "max_all", "mean_window", "max_window"):
            table[f"{name}_{figure}"] = Metric(unit, None, "telemetry")
    table["energy_j_window"] = Metric("J", "lower", "telemetry")
    table["idle_share_window"] = Metric("share", "lower", "telemetry")
    for phase in ("prefill", "decode"):
        table[f"util_pct_mean_{phase}"] = Metric("%", None, "telemetry")
        table[f"power_w_mean_{phase}"] = Metric("W", None, "telemetry")
        table[f"energy_j_{phase}"] = Metric("J", "lower", "telemetry")
    table["cap_share_window"] = Metric("share", None, "telemetry")
    table["mem_headroom_mib_window"] = Metric("MiB", "higher", "telemetry")
    table["tokens_per_joule"] = Metric("tok/J", "higher", "telemetry")
    table["joules_per_token"] = Metric("J/tok", "lower", "telemetry")
    table["region_share"] = Metric("share", None, "profile")
    table["region_ms"] = Metric("ms", "lower", "profile")
    return table


METRICS = _metrics()
# Of a region of the decode step, as a question's `region` names it: of profiled runs only.
REGION_METRICS = tuple(name for name, metric in METRICS.items() if metric.level == "profile")
# They rest on when the events of a stream came, so on how many tokens each held.
EVENT_METRICS = tuple(
    name for name in METRICS if name.startswith(("decode_tps", "decode_rate", "tpot_s", "itl_s"))
)

# The contest's gates: what a study without its own `targets:` is held against.
DEFAULT_TARGETS = {
    "e2e_tps_p10": ">= 20",
    "ttft_s_p90": "<= 5",
    "cache_hit": ">= 0.5",
    "success_rate": ">= 0.99",
}
# Spellings of metrics that people use for the same thing.
METRIC_ALIASES = {
    f"{a}_{q}_s": f"{a}_s_{q}"
    for a in ("ttft", "e2e", "tpot", "itl")
    for q in ("p10", "p50", "p90")
}
