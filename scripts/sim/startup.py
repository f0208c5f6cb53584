"""The start of the simulated vLLM 0.6.3: flags and environment in; log lines or SystemExit out."""

from __future__ import annotations

import argparse
import re
from typing import Any, Callable, Iterator, Optional

from sim.engine import PARAMS

VERSION, HEADS = "0.6.3+sim", 16
IN_ENGINE = "llm_engine.py:237]"  # from this line on it is V0's engine process that speaks
TOOL_PARSERS = ("granite", "hermes", "internlm", "llama3_json", "mistral", "qwen3_coder")
# Asked for -> (what takes effect, its name in errors, whether it runs multi-step without chunks).
# With chunks none does: only FlashAttention would, and it is not installed here.
BACKENDS = {
    "XFORMERS": ("XFormers", "xformers", False),
    "FLASH_ATTN": ("XFormers", "xformers", False),
    "SIM_ATTN": ("SimAttn", "sim-attn", True),  # made up: exists only here
}
MULTI_STEP = {"plain": ["flash-attn", "rocm-flash-attn", "flashinfer"], "chunked": ["flash-attn"]}
NO_FLASH = "Cannot use FlashAttention-2 backend because the vllm_flash_attn package is not found."

# Log line or error -> when (None: always). A start tells them in this order, up to the first error.
START: dict[str, Optional[Callable[[Any], Any]]] = {
    "server.py:1] SIMULATED: no model and no accelerator behind this server.": None,
    f"api_server.py:528] vLLM API server version {VERSION}": None,
    "api_server.py:529] non-default args: {non_default}": None,
    f"KeyError: 'invalid tool call parser: {{tool_call_parser}} (chose from {TOOL_PARSERS})'": (
        lambda c: c.enable_auto_tool_choice and c.tool_call_parser not in TOOL_PARSERS
    ),
    f"ValueError: Total number of attention heads ({HEADS}) must be divisible by tensor parallel "
    "size ({tensor_parallel_size}).": lambda c: HEADS % c.tensor_parallel_size,
    "ValueError: max_num_batched_tokens ({max_num_batched_tokens}) is smaller than max_model_len "
    "({max_model_len}).": lambda c: not c.chunked and c.max_num_batched_tokens < c.max_model_len,
    f"{IN_ENGINE} Initializing an LLM engine (v{VERSION}), chunked_prefill_enabled={{chunked}}": None,
    f"ValueError: Invalid attention backend '{{asked}}'. Available: {list(BACKENDS)}": (
        lambda c: c.asked not in BACKENDS
    ),
    f"selector.py:224] {NO_FLASH}": lambda c: c.asked == "FLASH_ATTN",
    "selector.py:115] Using {backend} backend.": None,
    "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: {backend_name}. "
    f"Set VLLM_ATTENTION_BACKEND to a value from {MULTI_STEP['chunked']}.": (
        lambda c: c.num_scheduler_steps > 1 and c.chunked
    ),
    "ValueError: Multi-Step not supported for attention backend: {backend_name}. Set "
    f"VLLM_ATTENTION_BACKEND to a value from {MULTI_STEP['plain']}.": (
        lambda c: c.num_scheduler_steps > 1 and not c.multi_step
    ),
    "model_runner.py:1060] Starting to load model {model}...": None,
    "model_runner.py:1071] Loading model weights took {weights_gib:.4f} GB": None,
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
    "when initializing the engine.": lambda c: c.blocks < 1,
    "distributed_gpu_executor.py:57] # GPU blocks: {blocks}, # CPU blocks: 0": None,
}
TRACEBACK = "Traceback (most recent call last):\n"
WRAPPER = "RuntimeError: Engine process failed to start. See stack trace for the root cause."


def choose(asked: str) -> "tuple[str, Optional[str]]":
    """The backend that takes effect when one of BACKENDS is asked for ("": none), and why not that one."""
    row = BACKENDS[asked or "XFORMERS"]
    taken = next(name for name, other in BACKENDS.items() if other == row)
    return taken, NO_FLASH if asked and taken != asked else None


def refuses(words: str) -> bool:
    """Whether an error of the start has these words."""
    return any(words in text for text in START if text.split()[0].endswith("Error:"))


def parse(argv: list) -> argparse.Namespace:
    """argparse's view of the flags, its errors and exit code 2 included; `--a_b` is `--a-b`."""
    parser = argparse.ArgumentParser(prog="api_server.py")
    parser.add_argument("--model", default="sim-model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    parser.add_argument("--max-model-len", type=int, default=262144)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--num-scheduler-steps", type=int, default=1)
    parser.add_argument("--multi-step-stream-outputs", type=_boolean, nargs="?", const=True)
    parser.add_argument("--enable-chunked-prefill", type=_boolean, nargs="?", const=True)
    parser.add_argument("--enable-prefix-caching", action="store_true")
    parser.add_argument("--enable-auto-tool-choice", action="store_true")
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--reasoning-parser", choices=("deepseek_r1", "qwen3"))
    c = parser.parse_args([re.sub("^--[^=]+", lambda m: m[0].replace("_", "-"), a) for a in argv])
    c.non_default = {k: v for k, v in vars(c).items() if v != parser.get_default(k)}
    return c


def _boolean(word: str) -> bool:
    return ("false", "true").index(word.lower()) == 1


def start(c: argparse.Namespace, env: Any) -> Iterator[str]:
    """Log lines up to a loaded engine; adds to the flags what follows from them."""
    tp, long = c.tensor_parallel_size, c.max_model_len > 32768
    c.chunked = long if c.enable_chunked_prefill is None else c.enable_chunked_prefill
    default = 512 if c.chunked else max(c.max_model_len, 2048)
    c.max_num_batched_tokens = c.max_num_batched_tokens or default
    c.asked = env.get("VLLM_ATTENTION_BACKEND") or "XFORMERS"
    c.backend, c.backend_name, c.multi_step = BACKENDS.get(c.asked, BACKENDS["XFORMERS"])
    weights_mib = PARAMS["weights_mib"] / tp
    room_mib = c.gpu_memory_utilization * PARAMS["gpu_mib"] - PARAMS["activation_mib"] - weights_mib
    c.blocks, c.weights_gib = int(room_mib * tp // PARAMS["kv_block_mib"]), weights_mib / 1024
    in_engine = False
    for text, when in START.items():
        if when and not when(c):
            continue
        line = text.format(**vars(c))
        if line.split()[0].endswith("Error:"):
            raise SystemExit(TRACEBACK + line + f"\n{TRACEBACK}{WRAPPER}" * in_engine)
        in_engine = in_engine or text.startswith(IN_ENGINE)
        yield line
