"""The `/metrics` page: the engine's state in; Prometheus text under vLLM's V0 names out."""

from __future__ import annotations

from sim.engine import Engine

HISTOGRAMS = {
    "first": "time_to_first_token_seconds",
    "between": "time_per_output_token_seconds",
    "whole": "e2e_request_latency_seconds",
    "queue": "request_queue_time_seconds",
}


def page(model: str, e: Engine) -> str:
    label = 'model_name="' + model.replace("\\", "\\\\").replace('"', '\\"') + '"'
    values = {
        "num_requests_running": len(e.running),
        "num_requests_waiting": len(e.waiting),
        "num_preemptions_total": 0,
        "prompt_tokens_total": e.prompt_tokens,
        "generation_tokens_total": e.generation_tokens,
        "prefix_cache_queries_total": e.queried,
        "prefix_cache_hits_total": e.hit,
    }
    lines = [f"vllm:{name}{{{label}}} {float(value)}" for name, value in values.items()]
    for key, name in HISTOGRAMS.items():
        count, total = e.histograms[key]
        lines.append(f'vllm:{name}_bucket{{le="+Inf",{label}}} {float(count)}')
        lines.append(f"vllm:{name}_count{{{label}}} {float(count)}")
        lines.append(f"vllm:{name}_sum{{{label}}} {total}")
    return "\n".join(lines) + "\n"
