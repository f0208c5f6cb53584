"""The simulated server's start as its log tells it: lines out, `Refused` where vLLM raises."""

from __future__ import annotations

import sys
import time
from typing import Any, Iterator

from sim import flags
from sim.params import PARAMS, VERSION


def log(where: str, text: str, level: str = "INFO") -> None:
    print(f"{level} {time.strftime('%m-%d %H:%M:%S')} {where}] {text}", flush=True)


def uvicorn(text: str) -> None:
    print(f"INFO:     {text}", file=sys.stderr, flush=True)


def lines(c: Any, env: dict) -> Iterator[tuple]:
    """Log lines up to a loaded engine; resolves `c` on the way and sets `c.blocks`."""
    yield "sim/server.py:1", "SIMULATED: no model and no accelerator behind this server.", "WARNING"
    yield "api_server.py:528", f"vLLM API server version {VERSION}"
    yield "api_server.py:529", f"non-default args: {c.non_default}"
    flags.resolve(c, env)
    tp, kv = c.tensor_parallel_size, c.max_num_batched_tokens
    if c.chunked_by_default:
        words = "Chunked prefill is enabled by default for models with max_model_len > 32K."
        yield "arg_utils.py:957", words, "WARNING"
    if c.chunked:
        yield "config.py:1010", f"Chunked prefill is enabled with max_num_batched_tokens={kv}."
    words = f"Initializing an LLM engine (v{VERSION}) with config: model={c.model!r}, "
    words += f"dtype={c.dtype}, max_seq_len={c.max_model_len}, tensor_parallel_size={tp}, "
    words += f"num_scheduler_steps={c.num_scheduler_steps}, chunked_prefill_enabled={c.chunked}, "
    yield "llm_engine.py:237", words + f"enable_prefix_caching={c.enable_prefix_caching}"
    backend, fallback = flags.backend_of(c.backend_asked)
    if fallback:
        yield "selector.py:224", fallback
    yield "selector.py:115", f"Using {backend[0]} backend."
    flags.check_multi_step(c, backend)
    yield "model_runner.py:1060", f"Starting to load model {c.model}..."
    gib = PARAMS["weights_mib"] / tp / 1024
    yield "model_runner.py:1071", f"Loading model weights took {gib:.4f} GB"
    c.blocks = flags.kv_blocks(c)
    cpu = int(c.swap_space * 1024 // (PARAMS["kv_block_mib"] / tp))
    yield "distributed_gpu_executor.py:57", f"# GPU blocks: {c.blocks}, # CPU blocks: {cpu}"
    words = f"Maximum concurrency for {c.max_model_len} tokens per request: "
    yield "distributed_gpu_executor.py:61", words + f"{c.blocks * 16 / c.max_model_len:.2f}x"


def traceback_of(e: flags.Refused) -> str:
    """What a failed start prints last: in the engine process a wrapper comes after the cause."""
    frame = 'Traceback (most recent call last):\n  File "vllm/{}", in simulated\n{}\n'
    text = frame.format(e.where, e.error)
    if e.side == "engine":
        words = "RuntimeError: Engine process failed to start. See stack trace for the root cause."
        text = f"Process SpawnProcess-1:\n{text}"
        text += frame.format("entrypoints/openai/api_server.py", words)
    return text
