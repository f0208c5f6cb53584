"""The `/metrics` page: the engine's state in; Prometheus text under vLLM's V0 names out."""

from __future__ import annotations

from sim.engine import Engine


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
    for name, (count, total) in e.histograms.items():
        lines.append(f'vllm:{name}_seconds_bucket{{le="+Inf",{label}}} {float(count)}')
        lines.append(f"vllm:{name}_seconds_count{{{label}}} {float(count)}")
        lines.append(f"vllm:{name}_seconds_sum{{{label}}} {total}")
    return "\n".join(lines) + "\n"
