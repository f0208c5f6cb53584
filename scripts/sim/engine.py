"""The simulated engine: FIFO queue, prefix cache, batches, and how long a step takes.

It knows no clock and no network: the caller takes a step with `begin`, lets its seconds pass, and
calls `finish`, which returns what each sequence got. Its numbers follow what was seen on 4 x
BI-V100, about 35 times faster: a batch of two brings no more tokens per second than one sequence,
waiting requests slow the running ones, multi-step scheduling saves the host's share of a step, and
the device is idle for most of a decode step.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Any, Optional

PARAMS: dict[str, Any] = {
    # host: once per scheduling, so that num_scheduler_steps = k divides it by k
    "host_step_ms": 0.55,  # scheduling, input preparation, output processing
    "host_seq_ms": 0.35,  # more of the same for each running sequence
    "host_waiting_ms": 0.80,  # more of the same for each request in the queue
    "host_chunked_ms": 0.03,  # the chunked-prefill scheduler's extra work
    # device: every step
    "tp_sync_ms": 0.30,  # x log2(tensor parallel size)
    "device_fixed_ms": 1.20,  # a sequence's work that tensor parallelism does not split
    "device_split_ms": 2.40,  # / tensor parallel size
    "batch_exponent": 1.45,  # device time of n sequences = n ** this x that of one
    # prefill: on top of the step that carries it
    "prefill_fixed_ms": 20.0,
    "prefill_token_ms": 0.10,
    # noise, as standard deviations
    "step_jitter": 0.03,  # one step: about 0.3 % over a request of 128 tokens
    "start_jitter": 0.012,  # one server start; cut at 2.5 %
    # share of the device's time in which a kernel really runs
    "decode_busy": 0.355,
    "prefill_busy": 0.95,
    # the model and the cards
    "think_tokens": 512,  # then </think>, then the answer, then EOS (unless ignore_eos)
    "answer_tokens": 160,
    "chars_per_token": 4,
    "weights_mib": 16620.0,  # / tensor parallel size
    "activation_mib": 500.0,
    "kv_block_mib": 0.75,  # 16 tokens; / tensor parallel size
    "gpu_mib": 32768,
}
BLOCK = 16  # tokens
HISTOGRAMS = "time_to_first_token time_per_output_token e2e_request_latency request_queue_time"


class Sequence:
    """One request in the engine. Times are the caller's."""

    arrived_s = admitted_s = last_s = 0.0
    cached = generated = 0  # tokens: of the prompt, of the output

    def __init__(self, prompt: str, output_tokens: int) -> None:
        size = PARAMS["chars_per_token"]
        self.prompt_tokens, self.output_tokens = -(-len(prompt) // size), output_tokens
        ends = range(BLOCK, self.prompt_tokens + 1, BLOCK)
        self.prefixes = [hash(prompt[: end * size]) for end in ends]  # one a full block


@dataclass
class Step:
    prefill: list  # sequences; they get their first token
    decode: list
    tokens: int  # for each decoding sequence: num_scheduler_steps
    seconds: float = 0.0
    busy: float = 0.0  # share of the step in which the device works


class Engine:
    def __init__(self, config: Any, seed: object, params: dict = PARAMS) -> None:
        self.c, self.p = config, params
        self.waiting: deque = deque()
        self.running: list = []
        self.cache: set = set()  # prefixes
        self.random = random.Random(f"decodelab {seed}")
        drift = self.random.gauss(0, params["start_jitter"])
        self.start_factor = 1 + max(-0.025, min(0.025, drift))
        # For /metrics: counters in tokens, and (count, sum in s) of each histogram.
        self.prompt_tokens = self.generation_tokens = self.queried = self.hit = 0
        self.histograms = dict.fromkeys(HISTOGRAMS.split(), (0, 0.0))

    def add(self, seq: Sequence, now: float) -> None:
        seq.arrived_s = now
        self.waiting.append(seq)

    def abort(self, seq: Sequence) -> None:
        """Between two steps only."""
        (self.running if seq in self.running else self.waiting).remove(seq)

    def begin(self, now: float) -> Optional[Step]:
        """Schedules one step; None when there is nothing to do."""
        decode = list(self.running)
        prefill = self._admit(now)
        if prefill and not self.c.chunked:
            decode = []  # without chunking a prompt goes alone, and decoding waits
        if not prefill and not decode:
            return None
        step = Step(prefill, decode, 1 if prefill else self.c.num_scheduler_steps)
        self._cost(step)
        return step

    def _admit(self, now: float) -> list:
        """FIFO: the queue's head waits for a place and for token budget; none overtakes it."""
        admitted: list = []
        budget = self.c.max_num_batched_tokens
        while self.waiting and len(self.running) < self.c.max_num_seqs:
            seq = self.waiting[0]
            known = seq.prefixes[: (seq.prompt_tokens - 1) // BLOCK]  # the last token is always new
            seq.cached = BLOCK * sum(prefix in self.cache for prefix in known)
            budget -= seq.prompt_tokens - seq.cached
            if admitted and budget < 0:
                break
            seq.admitted_s = now
            admitted.append(self.waiting.popleft())
            self.running.append(seq)
            self.queried, self.hit = self.queried + seq.prompt_tokens, self.hit + seq.cached
        return admitted

    def _cost(self, step: Step) -> None:
        p, tp, n = self.p, self.c.tensor_parallel_size, len(step.decode)
        host = p["host_step_ms"] + p["host_seq_ms"] * n + p["host_waiting_ms"] * len(self.waiting)
        host += p["host_chunked_ms"] if self.c.chunked else 0.0
        one = p["device_fixed_ms"] + p["device_split_ms"] / tp
        device = p["tp_sync_ms"] * math.log2(tp) + one * n ** p["batch_exponent"]
        device *= step.tokens if n else 0
        prefill = p["prefill_token_ms"] * sum(s.prompt_tokens - s.cached for s in step.prefill)
        prefill += p["prefill_fixed_ms"] if step.prefill else 0.0
        total = host + device + prefill
        jitter = max(0.5, 1 + self.random.gauss(0, p["step_jitter"]))
        step.busy = (device * p["decode_busy"] + prefill * p["prefill_busy"]) / total
        step.seconds = total * jitter * self.start_factor / 1000

    def finish(self, step: Step, now: float) -> list:
        """[(sequence, tokens it got)]. Past its end a burst costs time and gives nothing."""
        out = [(s, min(step.tokens, s.output_tokens - s.generated)) for s in step.decode]
        out += [(s, 1) for s in step.prefill]
        if self.c.enable_prefix_caching:
            self.cache.update(*(s.prefixes for s in step.prefill))
        for seq, n in out:
            self._count(seq, n, now)
            if seq.generated >= seq.output_tokens:
                self.running.remove(seq)
        return out

    def _count(self, seq: Sequence, n: int, now: float) -> None:
        if seq.generated:
            self._observe("time_per_output_token", (now - seq.last_s) / n, n)
        else:
            self.prompt_tokens += seq.prompt_tokens
            self._observe("time_to_first_token", now - seq.arrived_s)
            self._observe("request_queue_time", seq.admitted_s - seq.arrived_s)
        self.generation_tokens += n
        seq.generated, seq.last_s = seq.generated + n, now
        if seq.generated >= seq.output_tokens:
            self._observe("e2e_request_latency", now - seq.arrived_s)

    def _observe(self, name: str, value_s: float, times: int = 1) -> None:
        count, total = self.histograms[name]
        self.histograms[name] = count + times, total + value_s * times

    def metrics(self, model: str) -> str:
        """The `/metrics` page under vLLM's V0 names."""
        label = 'model_name="' + model.replace("\\", "\\\\").replace('"', '\\"') + '"'
        values = {
            "num_requests_running": len(self.running),
            "num_requests_waiting": len(self.waiting),
            "num_preemptions_total": 0,
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generation_tokens,
            "prefix_cache_queries_total": self.queried,
            "prefix_cache_hits_total": self.hit,
        }
        lines = [f"vllm:{name}{{{label}}} {float(value)}" for name, value in values.items()]
        for name, (count, total) in self.histograms.items():
            lines.append(f'vllm:{name}_seconds_bucket{{le="+Inf",{label}}} {float(count)}')
            lines.append(f"vllm:{name}_seconds_count{{{label}}} {float(count)}")
            lines.append(f"vllm:{name}_seconds_sum{{{label}}} {total}")
        return "\n".join(lines) + "\n"
