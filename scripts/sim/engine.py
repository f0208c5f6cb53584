"""The simulated engine: FIFO queue, prefix cache, batches, and how long a step takes.

It knows no clock and no network: the caller takes a step with `begin`, lets its seconds pass, and
calls `finish`, which returns what each sequence got. A sequence reserves KV blocks for its whole
length when it is admitted, so nothing is ever preempted.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Optional

from sim.params import PARAMS

BLOCK = 16


@dataclass(eq=False)
class Sequence:
    """One request in the engine. Times are the caller's."""

    prompt: str  # a token is a fixed number of its characters
    prompt_tokens: int
    output_tokens: int
    owner: Any = None
    arrived_s: float = 0.0
    admitted_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    cached: int = 0
    computed: int = 0  # of the prompt, cached tokens included
    generated: int = 0
    aborted: bool = False
    blocks: list = field(default_factory=list)  # of the prompt, as chained hashes

    def reserved(self) -> int:
        return -(-(self.prompt_tokens + self.output_tokens) // BLOCK)


@dataclass
class Step:
    seconds: float
    busy: float  # share of the step in which the device works
    prefill: list  # (sequence, tokens)
    decode: list
    tokens: int  # for each decoding sequence: num_scheduler_steps


class Engine:
    def __init__(self, config: Any, blocks: int, seed: object, params: dict = PARAMS) -> None:
        self.c, self.p, self.total_blocks = config, params, blocks
        self.waiting: deque = deque()
        self.running: list = []
        self.cache: OrderedDict = OrderedDict()  # block hash -> None, oldest use first
        self.random = random.Random(f"decodelab {seed}")
        drift = self.random.gauss(0, params["start_jitter"])
        self.start_factor = 1 + max(-0.025, min(0.025, drift))
        self.queried = self.hit = 0  # prompt tokens looked up in the prefix cache, and found

    def add(self, seq: Sequence, now: float) -> None:
        size = BLOCK * self.p["chars_per_token"]
        chain = 0
        for i in range(seq.prompt_tokens // BLOCK):
            chain = hash((chain, seq.prompt[i * size : (i + 1) * size]))
            seq.blocks.append(chain)
        seq.arrived_s = now
        self.waiting.append(seq)

    def abort(self, seq: Sequence) -> None:
        seq.aborted = True
        for queue in (self.waiting, self.running):
            if seq in queue:
                queue.remove(seq)

    def usage(self) -> float:
        return sum(s.reserved() for s in self.running) / self.total_blocks

    def _admit(self, now: float, budget: int) -> None:
        """FIFO: the queue's head waits for a place, KV blocks and token budget; none overtakes."""
        used = sum(s.reserved() for s in self.running)
        while self.waiting and len(self.running) < self.c.max_num_seqs:
            seq = self.waiting[0]
            cached = self._lookup(seq)
            todo = seq.prompt_tokens - cached
            used += seq.reserved()
            if used > self.total_blocks or budget < (1 if self.c.chunked else todo):
                return
            budget -= todo
            self.running.append(self.waiting.popleft())
            seq.cached, seq.computed, seq.admitted_s = cached, cached, now
            if self.c.enable_prefix_caching:
                self.queried, self.hit = self.queried + seq.prompt_tokens, self.hit + cached

    def _lookup(self, seq: Sequence) -> int:
        """Tokens of the longest cached prefix; the last token is always computed anew."""
        for n, block in enumerate(seq.blocks[: (seq.prompt_tokens - 1) // BLOCK]):
            if block not in self.cache:
                return n * BLOCK
            self.cache.move_to_end(block)
        return (seq.prompt_tokens - 1) // BLOCK * BLOCK

    def begin(self, now: float) -> Optional[Step]:
        """Schedule one step; None when there is nothing to do."""
        decode = [s for s in self.running if s.computed >= s.prompt_tokens]
        pending = sum(s.prompt_tokens - s.computed for s in self.running)
        budget = self.c.max_num_batched_tokens - (len(decode) if self.c.chunked else 0)
        self._admit(now, budget - pending)
        prefill = []
        for seq in self.running:
            take = min(budget, seq.prompt_tokens - seq.computed)
            if take > 0:
                prefill.append((seq, take))
                budget -= take
        if prefill and not self.c.chunked:
            decode = []  # without chunking a prompt goes alone, and decoding waits
        if not prefill and not decode:
            return None
        k = 1 if prefill else self.c.num_scheduler_steps
        seconds, busy = self._cost(len(decode), sum(n for _, n in prefill), k)
        return Step(seconds, busy, prefill, decode, k)

    def _cost(self, n: int, prompt_tokens: int, k: int) -> tuple:
        """Seconds and busy share of a step: n decoding sequences times k tokens, and a prefill."""
        p, tp = self.p, self.c.tensor_parallel_size
        host = p["host_step_ms"] + p["host_seq_ms"] * n + p["host_waiting_ms"] * len(self.waiting)
        host += p["host_chunked_ms"] if self.c.chunked else 0.0
        one = p["device_fixed_ms"] + p["device_split_ms"] / tp
        step = p["tp_sync_ms"] * math.log2(tp) + one * n ** p["batch_exponent"]
        device = k * step if n else 0.0
        prefill = (
            p["prefill_fixed_ms"] + p["prefill_token_ms"] * prompt_tokens if prompt_tokens else 0.0
        )
        total = host + device + prefill
        jitter = max(0.5, 1 + self.random.gauss(0, p["step_jitter"]))
        busy = (device * p["decode_busy"] + prefill * p["prefill_busy"]) / total
        return total * jitter * self.start_factor / 1000, busy

    def finish(self, step: Step) -> list:
        """[(sequence, tokens it got)]. Past its end a burst costs time and gives nothing."""
        out = []
        for seq, n in step.prefill:
            seq.computed += n
            if seq.computed >= seq.prompt_tokens and not seq.aborted:
                self._remember(seq)
                out.append((seq, 1))
        for seq in step.decode:
            if not seq.aborted:
                out.append((seq, min(step.tokens, seq.output_tokens - seq.generated)))
        for seq, n in out:
            seq.generated += n
            if seq.generated >= seq.output_tokens:
                self.running.remove(seq)
        return out

    def _remember(self, seq: Sequence) -> None:
        if self.c.enable_prefix_caching:
            self.cache.update(dict.fromkeys(seq.blocks))
            while len(self.cache) > self.total_blocks:
                self.cache.popitem(last=False)
