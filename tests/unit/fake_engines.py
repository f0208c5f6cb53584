"""Package trees with an engine's module paths and none of its weight, for the step profiler to be loaded into.

`write_v0`: a vLLM of 0.6: one process, or a worker that gets its orders by broadcast. `write_torch`: a torch whose
device has a clock of its own: work is queued at no cost to the host and takes device time.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

V0 = {
    "vllm/__init__.py": "__version__ = '0.6.3'",
    "vllm/nn.py": """
        class Module:
            def __call__(self, *args, **kwargs):
                return self.forward(*args, **kwargs)

            def named_modules(self, prefix=""):
                yield prefix, self
                for name, held in list(vars(self).items()):
                    for place, one in enumerate(held if isinstance(held, list) else [held]):
                        if isinstance(one, Module):
                            yield from one.named_modules((prefix + "." + name + str(place)).strip("."))
        """,
    "vllm/work.py": """
        import time

        def work(ms):
            \"\"\"Busy for so long; on a device where there is one.\"\"\"
            import sys
            torch = sys.modules.get("torch")
            if torch is not None:
                torch.cuda.queue(ms)
                return
            end = time.monotonic_ns() + int(ms * 1e6)
            while time.monotonic_ns() < end:
                pass
        """,
    "vllm/distributed/parallel_state.py": """
        from vllm.work import work

        class GroupCoordinator:
            def __init__(self, world_size, inbox=None):
                self.world_size = world_size
                self.inbox = inbox

            def all_reduce(self, tensor):
                if self.world_size > 1:
                    work(0.2)
                return tensor

            def broadcast_tensor_dict(self, told=None, src=0):
                return self.inbox.get() if told is None else told
        """,
    "vllm/attention/backends/flash_attn.py": """
        from vllm.work import work

        class FlashAttentionImpl:
            def forward(self, x):
                work(0.3)
                return x
        """,
    "vllm/attention/layer.py": """
        from vllm.nn import Module
        from vllm.attention.backends.flash_attn import FlashAttentionImpl

        class Attention(Module):
            def __init__(self):
                self.impl = FlashAttentionImpl()

            def forward(self, x):
                return self.impl.forward(x)
        """,
    "vllm/model_executor/layers/fused_moe/layer.py": """
        from vllm.nn import Module
        from vllm.work import work

        class FusedMoE(Module):
            def __init__(self, group):
                self.group = group

            def forward(self, x):
                work(0.5)
                return self.group.all_reduce(x)
        """,
    "vllm/model_executor/layers/logits_processor.py": """
        from vllm.nn import Module
        from vllm.work import work

        class LogitsProcessor(Module):
            def forward(self, x):
                work(0.1)
                return x
        """,
    "vllm/model_executor/layers/sampler.py": """
        from vllm.nn import Module
        from vllm.work import work

        def get_pythonized_sample_results(x):
            import sys
            torch = sys.modules.get("torch")
            if torch is not None:
                torch.cuda.synchronize()
            return [x]

        class Sampler(Module):
            def forward(self, x):
                work(0.1)
                return get_pythonized_sample_results(x)
        """,
    "vllm/model_executor/models/tiny.py": """
        from vllm.attention.layer import Attention
        from vllm.model_executor.layers.fused_moe.layer import FusedMoE
        from vllm.nn import Module
        from vllm.work import work

        class TinyMLP(Module):
            def forward(self, x):
                work(0.05)
                return x

        class TinyForCausalLM(Module):
            def __init__(self, group, layers):
                self.attention = [Attention() for _ in range(layers)]
                self.experts = [FusedMoE(group) for _ in range(layers)]
                self.shared = [TinyMLP() for _ in range(layers)]

            def forward(self, x):
                for attention, moe, shared in zip(self.attention, self.experts, self.shared):
                    x = shared(moe(attention(x)))
                if x == "bad":
                    raise ZeroDivisionError("a forward that fails")
                return x
        """,
    "vllm/worker/model_runner.py": """
        from vllm.model_executor.layers.logits_processor import LogitsProcessor
        from vllm.model_executor.layers.sampler import Sampler

        class Config:
            def __init__(self, **told):
                self.__dict__.update(told)

        class HfConfig:
            def to_dict(self):
                return {"num_hidden_layers": 3, "num_experts": 8, "torch_dtype": object(), "rope": {"theta": 1.0}}

        class GPUModelRunnerBase:
            def __init__(self, group, device=None):
                self.group = group
                self.device = device
                self.model_config = Config(hf_text_config=HfConfig(), enforce_eager=True)
                self.parallel_config = Config(tensor_parallel_size=group.world_size, pipeline_parallel_size=1)

            def load_model(self):
                from vllm.model_executor.models.tiny import TinyForCausalLM
                self.model = TinyForCausalLM(self.group, 3)
                self.logits = LogitsProcessor()
                self.sampler = Sampler()

            def profile_run(self):
                self.execute_model(Config(x=0, attn_metadata=None))

        class ModelRunner(GPUModelRunnerBase):
            def prepare_model_input(self, groups):
                prefills = sum(g.is_prompt for g in groups)
                metadata = Config(num_prefills=prefills, num_prefill_tokens=sum(
                    g.token_chunk_size for g in groups if g.is_prompt), num_decode_tokens=len(groups) - prefills)
                return Config(x=groups[0].x, attn_metadata=metadata)

            def execute_model(self, model_input):
                return self.sampler(self.logits(self.model(model_input.x)))

        class CUDAGraphRunner:
            def forward(self, x):
                return x
        """,
    "vllm/worker/worker_base.py": """
        class LocalOrDistributedWorkerBase:
            def _get_worker_input_from_broadcast(self):
                return self.group.broadcast_tensor_dict(src=0) or None

            def execute_model(self, execute_model_req=None):
                if execute_model_req is None:
                    model_input = self._get_worker_input_from_broadcast()
                    if model_input is None:
                        return None
                else:
                    model_input = self.model_runner.prepare_model_input(execute_model_req.seq_group_metadata_list)
                    self.group.broadcast_tensor_dict(model_input)
                return self.model_runner.execute_model(model_input)
        """,
    "vllm/worker/worker.py": """
        from vllm.worker.model_runner import ModelRunner
        from vllm.worker.worker_base import LocalOrDistributedWorkerBase

        class Worker(LocalOrDistributedWorkerBase):
            def __init__(self, group, device=None):
                self.group = group
                self.model_runner = ModelRunner(group, device)
                self.model_runner.load_model()

            def determine_num_available_blocks(self):
                self.execute_model(Order([Sequences(True, 64, 0)]))
                self.model_runner.profile_run()

        class Order:
            def __init__(self, groups):
                self.seq_group_metadata_list = groups

        class Sequences:
            def __init__(self, is_prompt, tokens, x):
                self.is_prompt, self.token_chunk_size, self.x = is_prompt, tokens, x
                self.seq_data = {0: None}
        """,
    "vllm/executor/executor_base.py": """
        class ExecutorBase:
            def execute_model(self, execute_model_req):
                raise NotImplementedError
        """,
    "vllm/executor/gpu_executor.py": """
        from vllm.executor.executor_base import ExecutorBase
        from vllm.worker.worker import Worker

        class GPUExecutor(ExecutorBase):
            def __init__(self, group, device=None):
                self.driver_worker = Worker(group, device)
                self.driver_worker.determine_num_available_blocks()

            def execute_model(self, execute_model_req):
                return self.driver_worker.execute_model(execute_model_req)

        class GPUExecutorAsync(GPUExecutor):
            async def execute_model_async(self, execute_model_req):
                import asyncio
                await asyncio.sleep(0.002)
                return self.driver_worker.execute_model(execute_model_req)
        """,
    "vllm/core/scheduler.py": """
        class Scheduler:
            def __init__(self, orders):
                self.orders = orders

            def schedule(self):
                groups = self.orders.pop(0)
                return groups, object(), False
        """,
    "vllm/engine/llm_engine.py": """
        from vllm.core.scheduler import Scheduler
        from vllm.executor.gpu_executor import GPUExecutor, GPUExecutorAsync
        from vllm.worker.worker import Order
        from vllm.work import work

        class LLMEngine:
            def __init__(self, group, orders, device=None):
                self.scheduler = Scheduler(orders)
                self.executor = GPUExecutorAsync(group, device)

            def step(self):
                groups, _, _ = self.scheduler.schedule()
                output = self.executor.execute_model(execute_model_req=Order(groups))
                self._process_model_outputs(output)
                return output

            def _process_model_outputs(self, output):
                return output
        """,
    "vllm/engine/async_llm_engine.py": """
        from vllm.engine.llm_engine import LLMEngine
        from vllm.worker.worker import Order

        class _AsyncLLMEngine(LLMEngine):
            async def step_async(self):
                groups, _, _ = self.scheduler.schedule()
                output = await self.executor.execute_model_async(Order(groups))
                self._process_model_outputs(output)
                return output
        """,
}

TORCH = """
    import time

    class _Device:
        def __init__(self, type):
            self.type = type

        def __str__(self):
            return self.type + ":0"

    def device(kind):
        return _Device(kind)

    class cuda:
        free_at = 0  # ns on the host's clock: when the device has done what is queued
        waits = 0

        @staticmethod
        def is_available():
            return True

        is_initialized = is_available

        @staticmethod
        def queue(ms):
            cuda.free_at = max(cuda.free_at, time.monotonic_ns()) + int(ms * 1e6)

        @staticmethod
        def synchronize():
            cuda.waits += 1
            while time.monotonic_ns() < cuda.free_at:
                pass

        class Event:
            made = 0

            def __init__(self, enable_timing=False):
                assert enable_timing
                cuda.Event.made += 1

            def record(self):
                self.at = max(cuda.free_at, time.monotonic_ns())

            def synchronize(self):
                cuda.waits += 1
                while time.monotonic_ns() < self.at:
                    pass

            def elapsed_time(self, end):
                assert time.monotonic_ns() >= end.at, "the device has not come so far"
                return (end.at - self.at) / 1e6
    """


def write_v0(folder: Path) -> Path:
    """Writes the tree; a missing package file is empty. Returns what goes on PYTHONPATH."""
    for name, text in V0.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    for path in [p for p in (folder / "vllm").rglob("*") if p.is_dir()]:
        (path / "__init__.py").touch()
    return folder


def write_torch(folder: Path) -> Path:
    (folder / "torch").mkdir(parents=True, exist_ok=True)
    (folder / "torch" / "__init__.py").write_text(textwrap.dedent(TORCH), encoding="utf-8")
    return folder
