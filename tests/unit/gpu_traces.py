"""Hand-made traces of a GPU in the form that torch.profiler writes, whose truth is known.

`decode_trace`: steps of vLLM on one rank. All times in µs. A step: prepare (host), per layer norm, GEMM, attention,
all-reduce and MoE launched one after another, the sampler, a copy to the host with a wait, then the engine's loop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

HOST, DEVICE = 4242, 0
STREAM = 7
KERNELS = {
    "norm": "void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
    "gemm": "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn",
    "attention": "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>",
    "collective": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "moe": "fused_moe_kernel",
    "sampler": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>",
}
LAYER = ("norm", "gemm", "attention", "collective", "moe")


@dataclass
class Recorder:
    """Events of one process; `now` is the host's clock, `free` when the stream is done."""

    now: float = 1000.0
    free: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 100

    def host(self, cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        place = {"pid": HOST, "tid": HOST}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, **place, "ts": ts, "dur": dur, "args": args}
        )

    def launch(
        self, name: str, dur: float, cat: str = "kernel", call: str = "cudaLaunchKernel"
    ) -> None:
        """The host is busy for 4 µs, the device begins 2 µs after the call's begin or when it is free."""
        self.correlation += 1
        link = {"correlation": self.correlation}
        self.host("cuda_runtime", call, self.now, 4.0, **link)
        begin = max(self.now + 2.0, self.free)
        self.events += [
            {"ph": "s", "id": self.correlation, "pid": HOST, "tid": HOST, "ts": self.now}
            | {"cat": "ac2g", "name": "ac2g"},
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": DEVICE,
                "tid": STREAM,
                "ts": begin,
                "dur": dur,
            }
            | {"args": {"device": DEVICE, "stream": STREAM, **link}},
            {"ph": "f", "id": self.correlation, "pid": DEVICE, "tid": STREAM, "ts": begin}
            | {"cat": "ac2g", "name": "ac2g", "bp": "e"},
        ]
        self.free = begin + dur
        self.now += 4.0

    def wait(self) -> None:
        """The host sees the device's end 1 µs later."""
        end = max(self.now, self.free) + 1.0
        self.host("cuda_runtime", "cudaStreamSynchronize", self.now, end - self.now)
        self.now = end


def step(
    r: Recorder,
    name: str,
    took: dict[str, float],
    layers: int = 2,
    item: bool = False,
    prepare: float = 30.0,
    engine: float = 50.0,
) -> None:
    """`item`: the MoE's router reads a value on the host in each layer."""
    begin = r.now
    r.now += prepare
    for _ in range(layers):
        for part in LAYER:
            r.launch(KERNELS[part], took[part])
            if item and part == "gemm":
                r.wait()
    r.launch(KERNELS["sampler"], took["sampler"])
    r.launch("Memcpy DtoH (Device -> Pinned)", 1.0, "gpu_memcpy", "cudaMemcpyAsync")
    r.wait()
    r.host("user_annotation", name, begin, r.now - begin)
    r.now += engine


TOOK = {
    "norm": 5.0,
    "gemm": 40.0,
    "attention": 20.0,
    "collective": 15.0,
    "moe": 60.0,
    "sampler": 8.0,
}
DECODE = "execute_context_0(0)_generation_1(1)"
PREFILL = "execute_context_1(128)_generation_0(0)"


def decode_trace(
    steps: int = 5,
    took: Sequence[dict[str, float]] | None = None,
    rank: int | None = 0,
    **kinds: Any,
) -> dict[str, Any]:
    """A prefill and so many decode steps; the last has no successor."""
    r = Recorder()
    step(r, PREFILL, {k: 10 * v for k, v in TOOK.items()}, **kinds)
    for k in range(steps):
        step(r, DECODE, took[k] if took else TOOK, **kinds)
    return document(r.events, rank)


def document(events: Iterable[dict[str, Any]], rank: int | None = 0) -> dict[str, Any]:
    told = (
        {}
        if rank is None
        else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
    )
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "BI-V100", "totalGlobalMem": 34359738368}],
        **told,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1790857026000000000,
        "traceEvents": [
            {
                "ph": "M",
                "name": "process_name",
                "pid": HOST,
                "tid": 0,
                "ts": 0.0,
                "args": {"name": "python"},
            },
            *events,
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9.9e9},
        ],
        "traceName": "rank0.pt.trace.json",
    }


def text(trace: dict[str, Any]) -> str:
    """As Kineto indents it."""
    return json.dumps(trace, indent=2)
