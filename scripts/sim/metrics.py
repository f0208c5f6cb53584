"""The `/metrics` page: events in; Prometheus text under vLLM's V0 and V1 names out."""

from __future__ import annotations

from typing import Any

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
HISTOGRAMS = (
    *("time_to_first_token", "time_per_output_token", "inter_token_latency"),
    *("request_time_per_output_token", "e2e_request_latency", "request_queue_time"),
    *("request_prefill_time", "request_decode_time", "request_inference_time"),
)


class Metrics:
    def __init__(self, model: str) -> None:
        escaped = model.replace("\\", "\\\\").replace('"', '\\"')
        self.label = f'model_name="{escaped}"'
        self.prompt_tokens = self.cached_tokens = self.generation_tokens = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0}
        self.histograms: dict[str, list] = {name: [0, 0.0, [0] * len(EDGES)] for name in HISTOGRAMS}

    def observe(self, name: str, value: float, times: int = 1) -> None:
        h = self.histograms[name]
        h[0] += times
        h[1] += value * times
        h[2] = [n + times * (value <= edge) for n, edge in zip(h[2], EDGES)]

    def tokens(self, seq: Any, n: int, now: float) -> None:
        """`seq` got n tokens at `now`; brings its times up to date."""
        self.generation_tokens += n
        if seq.generated == n:
            seq.first_s = now
            self.prompt_tokens += seq.prompt_tokens
            self.cached_tokens += seq.cached
            self.observe("time_to_first_token", now - seq.arrived_s)
            self.observe("request_queue_time", seq.admitted_s - seq.arrived_s)
        else:
            for name in ("time_per_output_token", "inter_token_latency"):
                self.observe(name, (now - seq.last_s) / n, n)
        seq.last_s = now

    def done(self, seq: Any, reason: str) -> None:
        self.finished[reason] += 1
        decode_s = seq.last_s - seq.first_s
        self.observe("e2e_request_latency", seq.last_s - seq.arrived_s)
        self.observe("request_prefill_time", seq.first_s - seq.admitted_s)
        self.observe("request_decode_time", decode_s)
        self.observe("request_inference_time", seq.last_s - seq.admitted_s)
        if seq.generated > 1:
            self.observe("request_time_per_output_token", decode_s / (seq.generated - 1))

    def render(self, engine: Any) -> str:
        used, queried = engine.usage(), engine.queried
        values = {
            "num_requests_running": len(engine.running),
            "num_requests_waiting": len(engine.waiting),
            "num_requests_swapped": 0,
            "gpu_cache_usage_perc": used,
            "kv_cache_usage_perc": used,
            "gpu_prefix_cache_hit_rate": engine.hit / queried if queried else -1.0,
            "num_preemptions_total": 0,  # see engine.py: a sequence reserves its whole length
            "prompt_tokens_total": self.prompt_tokens,
            "prompt_tokens_cached_total": self.cached_tokens,
            "generation_tokens_total": self.generation_tokens,
            "prefix_cache_queries_total": queried,
            "prefix_cache_hits_total": engine.hit,
        }
        out = []
        for name, value in values.items():
            out.append(f"# TYPE vllm:{name} {'counter' if name.endswith('_total') else 'gauge'}")
            out.append(f"vllm:{name}{{{self.label}}} {float(value)}")
        out.append("# TYPE vllm:request_success_total counter")
        for reason, n in self.finished.items():
            label = f'finished_reason="{reason}",{self.label}'
            out.append(f"vllm:request_success_total{{{label}}} {float(n)}")
        for name, (count, total, below) in self.histograms.items():
            name = f"vllm:{name}_seconds"
            out.append(f"# TYPE {name} histogram")
            for edge, n in [*zip(EDGES, below), ("+Inf", count)]:
                out.append(f'{name}_bucket{{le="{edge}",{self.label}}} {float(n)}')
            out.append(f"{name}_count{{{self.label}}} {float(count)}")
            out.append(f"{name}_sum{{{self.label}}} {total}")
        return "\n".join(out) + "\n"
