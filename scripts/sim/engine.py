"""The simulated engine: FIFO queue, prefix cache, batches, and how long a step takes.

It knows no clock: the caller takes a step, lets its seconds pass and hands out what each sequence
got. Its numbers follow 4 x BI-V100, 35 times faster: a batch of two brings no more tokens/s than one
sequence, waiting requests slow the running ones, and the device mostly idles in decode.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import deque
from typing import Any, Optional

from sim.parts import Terms

PARAMS: dict[str, Any] = {
    # host: once per scheduling, so that num_scheduler_steps = k divides it by k
    "host_step_ms": 0.55,  # scheduling, input preparation, output processing
    "host_seq_ms": 0.35,  # more of the same for each running sequence
    "host_waiting_ms": 0.80,  # more of the same for each request in the queue
    "host_chunked_ms": 0.03,  # the chunked-prefill scheduler's extra work
    "tp_sync_ms": 0.30,  # device, every step; x log2(tensor parallel size)
    "device_fixed_ms": 1.20,  # a sequence's work that tensor parallelism does not split
    "device_split_ms": 2.40,  # / tensor parallel size
    "batch_exponent": 1.45,  # device time of n sequences = n ** this x that of one
    "prefill_fixed_ms": 20.0,  # on top of a step that carries prompts
    "prefill_token_ms": 0.10,
    "step_jitter": 0.03,  # standard deviation of one step: about 0.3 % over a request of 128 tokens
    "start_jitter": 0.012,  # one server start; cut at 2.5 %
    "decode_busy": 0.355,  # share of the device's time in which a kernel really runs
    "prefill_busy": 0.95,
    # the model and the cards
    "weights_mib": 16620.0,  # / tensor parallel size
    "activation_mib": 500.0,
    "kv_block_mib": 0.75,  # / tensor parallel size
    "gpu_mib": 32768,
}
BLOCK, TOKEN = 16, 4  # tokens, characters


def count_tokens(text: str) -> int:
    return -(-len(text) // TOKEN)


class Sequence:
    """One request in the engine. Times are the caller's."""

    arrived_s = admitted_s = first_s = last_s = 0.0
    cached = generated = 0  # tokens: of the prompt, of the output

    def __init__(self, prompt: str, output_tokens: int) -> None:
        self.prompt_tokens, self.output_tokens = count_tokens(prompt), output_tokens
        size = BLOCK * TOKEN
        ends = range(size, self.prompt_tokens // BLOCK * size + 1, size)
        blocks = (prompt[end - size : end] for end in ends)
        # one a full block: a chain of hashes, each over its block and the one before
        self.prefixes = list(itertools.accumulate(blocks, lambda *two: hash(two), initial=0))[1:]


class Engine:
    def __init__(self, config: Any, seed: object, params: dict = PARAMS) -> None:
        self.c, self.p = config, params
        self.waiting: deque = deque()
        self.running: list = []
        self.admitted: list = []  # all that ever were
        self.cache: set = set()  # prefixes
        self.terms: Optional[Terms] = None  # of the last step's cost
        self.prompts: list = []  # the sequences whose prompt it carried
        self.random = random.Random(f"decodelab {seed}")
        drift = self.random.gauss(0, params["start_jitter"])
        self.start_factor = 1 + max(-0.025, min(0.025, drift))

    def add(self, seq: Sequence, now: float) -> None:
        seq.arrived_s = now
        self.waiting.append(seq)

    def abort(self, seq: Sequence) -> None:
        (self.running if seq in self.running else self.waiting).remove(seq)

    def step(self, now: float) -> tuple:
        """The step that begins now: its seconds, the share of them in which the device works, and
        [(sequence, tokens it has got at the end)], which is empty when there is nothing to do."""
        self.running = [s for s in self.running if s.generated < s.output_tokens]
        decode, prefill = list(self.running), self._admit(now)
        if prefill and not self.c.chunked:
            decode = []  # without chunking a prompt goes alone, and decoding waits
        if not prefill and not decode:
            return 0.0, 0.0, []
        k = 1 if prefill else max(1, self.c.num_scheduler_steps)
        seconds, busy = self._cost(len(decode), k, prefill)
        self.prompts = prefill
        # Past its end a burst costs time and gives nothing.
        tokens = [(s, min(k, s.output_tokens - s.generated)) for s in decode + prefill]
        for seq, n in tokens:
            seq.last_s = now + seconds
            seq.first_s = seq.first_s or seq.last_s
            seq.generated += n
        return seconds, busy, tokens

    def _admit(self, now: float) -> list:
        """FIFO: the queue's head waits for a place and for token budget; none overtakes it."""
        new: list = []
        budget = self.c.max_num_batched_tokens
        while self.waiting and len(self.running) < self.c.max_num_seqs:
            seq = self.waiting[0]
            known = seq.prefixes[: (seq.prompt_tokens - 1) // BLOCK]  # the last token is always new
            seq.cached = BLOCK * sum(prefix in self.cache for prefix in known)
            budget -= seq.prompt_tokens - seq.cached
            if new and budget < 0:
                break
            seq.admitted_s = now
            new.append(self.waiting.popleft())
            self.running.append(seq)
        self.admitted += new
        if self.c.enable_prefix_caching:
            self.cache.update(*(s.prefixes for s in new))
        return new

    def _cost(self, n: int, k: int, prefill: list) -> tuple:
        """Seconds and busy share of a step: k tokens of n sequences each, and prompts."""
        p, tp = self.p, self.c.tensor_parallel_size
        host = p["host_step_ms"] + p["host_seq_ms"] * n + p["host_waiting_ms"] * len(self.waiting)
        host += p["host_chunked_ms"] if self.c.chunked else 0.0
        one = p["device_fixed_ms"] + p["device_split_ms"] / tp
        step = p["tp_sync_ms"] * math.log2(tp) + one * n ** p["batch_exponent"]
        decoding = k * step if n else 0.0
        prompts = p["prefill_token_ms"] * sum(s.prompt_tokens - s.cached for s in prefill)
        prompts += p["prefill_fixed_ms"] if prefill else 0.0
        total = host + decoding + prompts
        collectives = k * p["tp_sync_ms"] * math.log2(tp) if n else 0.0
        fixed, sequences = p["host_step_ms"], p["host_seq_ms"] * n
        self.terms = Terms(
            host=fixed,
            sequences=sequences,
            scheduling=host - fixed - sequences,
            collectives=collectives,
            device=decoding + prompts - collectives,
            worker_steps=k,
        )
        jitter = max(0.5, 1 + self.random.gauss(0, p["step_jitter"]))
        busy = (decoding * p["decode_busy"] + prompts * p["prefill_busy"]) / total
        return total * jitter * self.start_factor / 1000, busy

    def metrics(self, model: str) -> str:
        """The `/metrics` page, under vLLM's V0 names."""
        seen = [s for s in self.admitted if s.generated]
        ends = [s for s in seen if s.generated == s.output_tokens]
        first, later = len(seen), sum(s.generated - 1 for s in seen)  # tokens
        prompt, label = sum(s.prompt_tokens for s in seen), f"model_name={json.dumps(model)}"
        values: dict[str, float] = {
            "num_requests_running": len(self.running),
            "num_requests_waiting": len(self.waiting),
            "num_preemptions_total": 0,
            "prompt_tokens_total": prompt,
            "generation_tokens_total": first + later,
            "prefix_cache_queries_total": prompt * self.c.enable_prefix_caching,
            "prefix_cache_hits_total": sum(s.cached for s in seen),
        }
        for name, count, total_s in (
            ("request_queue_time", first, sum(s.admitted_s - s.arrived_s for s in seen)),
            ("time_to_first_token", first, sum(s.first_s - s.arrived_s for s in seen)),
            ("time_per_output_token", later, sum(s.last_s - s.first_s for s in seen)),
            ("e2e_request_latency", len(ends), sum(s.last_s - s.arrived_s for s in ends)),
        ):
            values[f"{name}_seconds_sum"] = total_s
            values[f"{name}_seconds_count"] = values[f'{name}_seconds_bucket{{le="+Inf"'] = count
        labelled = {name + ("," if "{" in name else "{") + label: v for name, v in values.items()}
        return "".join(f"vllm:{name}}} {float(value)}\n" for name, value in labelled.items())
