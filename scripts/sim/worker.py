"""The simulated worker: a model of a few layers whose parts take their share of the step's time.

Its classes are what the step profiler times, as it times a real engine's (era "sim" of its table of targets).
One process does the work of all ranks.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Iterator

from sim.parts import LAYERS, Pace

EXPERTS, EXPERTS_PER_TOKEN = 128, 8


class Order:
    """What the scheduler hands to the worker for one step."""

    def __init__(self, pace: Pace, decodes: int, prompts: list, worker_steps: int) -> None:
        self.pace, self.worker_steps = pace, worker_steps
        self.reqs = decodes + len(prompts)
        self.tokens = decodes + sum(s.prompt_tokens - s.cached for s in prompts)
        self.phase = "decode" if not prompts else "mixed" if decodes else "prefill"

    async def spend(self, part: str, pieces: int = 1) -> None:
        await self.pace.spend(part, pieces * self.worker_steps)


class Attention:
    async def forward(self, order: Order) -> None:
        await order.spend("attention", LAYERS)


class FusedMoE:
    async def forward(self, order: Order) -> None:
        await order.spend("moe", LAYERS)


class Communicator:
    """Of one layer's two all-reduces, behind attention and behind the experts."""

    def __init__(self, ranks: int) -> None:
        self.world_size = ranks

    async def all_reduce(self, order: Order) -> None:
        await order.spend("collective", 2 * LAYERS)


class Model:
    def __init__(self, ranks: int) -> None:
        self.start_layer, self.end_layer = 0, LAYERS
        self.layers = [(Attention(), FusedMoE()) for _ in range(LAYERS)]
        self.group = Communicator(ranks) if ranks > 1 else None

    def named_modules(self) -> Iterator[tuple]:
        """As torch's modules tell what is in them."""
        yield "", self
        for n, (attention, moe) in enumerate(self.layers):
            yield f"layers.{n}.self_attn", attention
            yield f"layers.{n}.mlp", moe

    async def forward(self, order: Order) -> None:
        """Norms and projections are the model's own; they stand before each layer."""
        for attention, moe in self.layers:
            await order.spend("forward", LAYERS)
            for part in (attention, moe):
                await part.forward(order)
                if self.group is not None:
                    await self.group.all_reduce(order)


class LogitsProcessor:
    async def forward(self, order: Order) -> None:
        await order.spend("logits")


class Sampler:
    async def forward(self, order: Order) -> None:
        await order.spend("sampler")


class ModelRunner:
    def __init__(self, flags: Any) -> None:
        told = {
            "model_type": "qwen3_moe",
            "num_hidden_layers": LAYERS,
            "num_experts": EXPERTS,
            "num_experts_per_tok": EXPERTS_PER_TOKEN,
        }
        config = SimpleNamespace(to_dict=lambda: dict(told))
        self.model_config = SimpleNamespace(hf_text_config=config, enforce_eager=True)
        # One process is there, whatever -tp says: nobody is to wait for the files of other ranks.
        self.parallel_config = SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1)
        self.device, self.ranks = "cpu", flags.tensor_parallel_size

    def load_model(self) -> None:
        self.model = Model(self.ranks)
        self.logits, self.sampler = LogitsProcessor(), Sampler()

    async def prepare_inputs(self, order: Order) -> None:
        await order.spend("prepare")


class Worker:
    def __init__(self, flags: Any) -> None:
        self.runner = ModelRunner(flags)
        self.runner.load_model()

    async def execute_model(self, order: Order) -> None:
        """One token of every sequence."""
        runner = self.runner
        await runner.prepare_inputs(order)
        await runner.model.forward(order)
        await runner.logits.forward(order)
        await runner.sampler.forward(order)
