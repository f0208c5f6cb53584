"""Flags and environment of the simulated vLLM 0.6.3, and every reason to refuse them in its words.

Argv and env in; a resolved configuration or `Refused` out. `resolve` does what vLLM does before its
engine process starts (side "api"); the functions below it do what happens inside that process
(side "engine": in the log a wrapper error follows the cause).
"""

from __future__ import annotations

import argparse

from sim.params import PARAMS


class Refused(Exception):
    """It cannot start: the error as logged, the file that raises it, and in which process."""

    def __init__(self, error: str, where: str, side: str = "api") -> None:
        super().__init__(error)
        self.error, self.where, self.side = error, where, side


# Name -> (its name in `Using X backend.`, in errors; runs multi-step without, with chunked prefill)
BACKENDS = {
    "XFORMERS": ("XFormers", "xformers", False, False),
    "SIM_ATTN": ("SimAttn", "sim-attn", True, False),  # made up: exists only here
}
# Not installed here: vLLM says so, takes XFORMERS and starts all the same.
FALLS_BACK = {
    "FLASH_ATTN": "Cannot use FlashAttention-2 backend because the vllm_flash_attn package is not "
    "found. Make sure that vllm_flash_attn was built and installed (on by default).",
}
# Known names that end the start, in our own words.
UNUSABLE = ["ROCM_FLASH", "TORCH_SDPA", "OPENVINO", "FLASHINFER", "PALLAS", "IPEX", "NO_ATTENTION"]
# What multi-step's error offers, without and with chunked prefill (lower case in 0.6.3).
MULTI_STEP_OFFERS = (["flash-attn", "rocm-flash-attn", "flashinfer"], ["flash-attn"])
LONG_CONTEXT = 32768
TOOL_PARSERS = ["granite", "hermes", "internlm", "llama3_json", "mistral", "qwen3_coder"]
REASONING_PARSERS = ["deepseek_r1", "qwen3"]

VALUE_FLAGS: dict = {  # flag: (type, default)
    "--model": (str, "sim-model"), "--host": (str, "127.0.0.1"), "--port": (int, 8000),
    "--tensor-parallel-size -tp": (int, 1), "--pipeline-parallel-size -pp": (int, 1),
    "--gpu-memory-utilization": (float, 0.9), "--swap-space": (float, 4.0),
    "--max-model-len": (int, None), "--max-num-seqs": (int, 256), "--api-key": (str, None),
    "--max-num-batched-tokens": (int, None), "--num-scheduler-steps": (int, 1),
    "--tool-call-parser": (str, None), "--reasoning-parser": (str, None),
    "--sim-state": (str, None),
}  # fmt: skip
BOOLEAN_FLAGS = {"--enable-chunked-prefill": None, "--multi-step-stream-outputs": True}
ON_FLAGS = "--enable-prefix-caching --enable-auto-tool-choice"
# Accepted without effect. (cached_tokens are reported without the first, as on the reference host.)
NO_EFFECT_ON = """--enable-prompt-tokens-details --enforce-eager --trust-remote-code
  --disable-log-requests --disable-log-stats --use-v2-block-manager --disable-custom-all-reduce
  --disable-frontend-multiprocessing --disable-async-output-proc"""
NO_EFFECT_VALUE = """--tokenizer --download-dir --load-format --kv-cache-dtype --seed --block-size
  --quantization --device --chat-template --max-seq-len-to-capture --max-logprobs --response-role
  --scheduler-delay-factor --preemption-mode --uvicorn-log-level --guided-decoding-backend
  --distributed-executor-backend --num-gpu-blocks-override"""
DTYPES = ["auto", "half", "float16", "bfloat16", "float", "float32"]


class _StoreBoolean(argparse.Action):
    """vLLM's own: a bad word is an uncaught ValueError (rc 1), not an argparse error (rc 2)."""

    def __call__(self, parser, namespace, values, option_string=None):
        if str(values).lower() not in ("true", "false"):
            words = f"Invalid boolean value: {values}. Expected 'true' or 'false'."
            raise Refused(f"ValueError: {words}", "utils.py")
        setattr(namespace, self.dest, str(values).lower() == "true")


def _dashed(word: str) -> str:
    name, eq, value = word.partition("=")
    return name.replace("_", "-") + eq + value if word.startswith("--") else word


def parse(argv: list) -> argparse.Namespace:
    """argparse's view of the flags, its errors and rc 2 included; `--a_b` is `--a-b`."""
    parser = argparse.ArgumentParser(prog="api_server.py", description="A simulated vLLM server.")
    for names, (kind, default) in VALUE_FLAGS.items():
        parser.add_argument(*names.split(), type=kind, default=default)
    for name in (ON_FLAGS + " " + NO_EFFECT_ON).split():
        parser.add_argument(name, action="store_true")
    for name, default in BOOLEAN_FLAGS.items():
        parser.add_argument(name, action=_StoreBoolean, nargs="?", const="true", default=default)
    for name in NO_EFFECT_VALUE.split():
        parser.add_argument(name)
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--dtype", choices=DTYPES, default="auto")
    parser.add_argument("--sim-backend", choices=sorted(BACKENDS))
    args = parser.parse_args([_dashed(word) for word in argv])
    changed = {k: v for k, v in vars(args).items() if v != parser.get_default(k)}
    args.non_default = {k: "***" if k == "api_key" else v for k, v in changed.items()}
    return args


def resolve(c: argparse.Namespace, env: dict) -> argparse.Namespace:
    """What vLLM settles and checks before its engine process starts; fills in the defaults."""
    _check_parsers(c)
    c.names = c.served_model_name or [c.model]
    c.max_model_len = c.max_model_len or PARAMS["max_position"]
    c.chunked_by_default = c.enable_chunked_prefill is None and c.max_model_len > LONG_CONTEXT
    c.chunked = c.chunked_by_default or bool(c.enable_chunked_prefill)
    small = 512 if c.chunked and c.num_scheduler_steps == 1 else max(c.max_model_len, 2048)
    c.max_num_batched_tokens = c.max_num_batched_tokens or small
    asked = env.get("VLLM_ATTENTION_BACKEND") or c.sim_backend or env.get("SIM_BACKEND")
    c.backend_asked = asked or "XFORMERS"
    for bad, words in _size_checks(c):
        if bad:
            raise Refused(f"ValueError: {words}", "config.py")
    return c


def _check_parsers(c: argparse.Namespace) -> None:
    where = "entrypoints/openai/api_server.py"
    if c.enable_auto_tool_choice and not c.tool_call_parser:
        raise Refused(
            "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser", where
        )
    tools = c.tool_call_parser if c.enable_auto_tool_choice else None
    known = (
        ("tool call", tools, TOOL_PARSERS),
        ("reasoning", c.reasoning_parser, REASONING_PARSERS),
    )
    for kind, value, valid in known:
        if value is not None and value not in valid:
            words = f"invalid {kind} parser: {value} (chose from {{ {','.join(valid)} }})"
            raise Refused(f"KeyError: {words!r}", where)


def _size_checks(c: argparse.Namespace) -> list:
    """(is it so, what vLLM then says)."""
    heads, positions, share = PARAMS["heads"], PARAMS["max_position"], c.gpu_memory_utilization
    tp, pp, steps = c.tensor_parallel_size, c.pipeline_parallel_size, c.num_scheduler_steps
    length, tokens, seqs = c.max_model_len, c.max_num_batched_tokens, c.max_num_seqs
    return [
        (length > positions, f"User-specified max_model_len ({length}) is greater than the derived "
         f"max_model_len (max_position_embeddings={positions} or model_max_length=None in model's "
         "config.json). This may lead to incorrect model outputs or CUDA errors."),
        (share > 1, f"GPU memory utilization must be less than 1.0. Got {share}."),
        (tp < 1 or heads % tp, f"Total number of attention heads ({heads}) must be divisible by "
         f"tensor parallel size ({tp})."),
        (tp * pp > PARAMS["gpus"], "Unable to load Ray which is required for multi-node inference, "
         "please install Ray with `pip install ray`."),
        (steps > 1 and c.chunked and pp > 1,
         "Multi-Step Chunked-Prefill is not supported for pipeline-parallel-size > 1"),
        (tokens < length and not c.chunked, f"max_num_batched_tokens ({tokens}) is smaller than "
         f"max_model_len ({length}). This effectively limits the maximum sequence length to "
         "max_num_batched_tokens and makes vLLM reject longer sequences. Please increase "
         "max_num_batched_tokens or decrease max_model_len."),
        (tokens < seqs, f"max_num_batched_tokens ({tokens}) must be greater than or equal to "
         f"max_num_seqs ({seqs})."),
        (steps < 1, f"num_scheduler_steps ({steps}) must be greater than or equal to 1."),
    ]  # fmt: skip


def backend_of(name: str) -> tuple:
    """The backend that takes effect when `name` is asked for, and what is logged of a fallback."""
    known = [*FALLS_BACK, *BACKENDS, *UNUSABLE]
    error = f"ImportError: attention backend {name} is not built for this device"
    if name not in known:
        error = f"ValueError: Invalid attention backend '{name}'. "
        error += f"Available backends: {', '.join(known)} (case-sensitive)."
    if name not in known or name in UNUSABLE:
        raise Refused(error, "attention/selector.py", "engine")
    return BACKENDS["XFORMERS" if name in FALLS_BACK else name], FALLS_BACK.get(name)


def check_multi_step(c: argparse.Namespace, backend: tuple) -> None:
    _, name, alone, with_chunks = backend
    if c.num_scheduler_steps > 1 and not (with_chunks if c.chunked else alone):
        kind = "Multi-Step + Chunked-Prefill" if c.chunked else "Multi-Step"
        error = f"ValueError: {kind} not supported for attention backend: {name}. "
        error += f"Set VLLM_ATTENTION_BACKEND to a value from {MULTI_STEP_OFFERS[c.chunked]}."
        raise Refused(error, "worker/multi_step_model_runner.py", "engine")


def kv_blocks(c: argparse.Namespace) -> int:
    """Blocks of 16 tokens that fit beside the weights; `Refused` when none do, or too few."""
    tp, advice = c.tensor_parallel_size, "when initializing the engine."
    room = c.gpu_memory_utilization * PARAMS["gpu_mib"] - PARAMS["activation_mib"]
    blocks = max(0, int((room - PARAMS["weights_mib"] / tp) // (PARAMS["kv_block_mib"] / tp)))
    error = f"The model's max seq len ({c.max_model_len}) is larger than the maximum number of "
    error += f"tokens that can be stored in KV cache ({blocks * 16}). Try increasing "
    error += f"`gpu_memory_utilization` or decreasing `max_model_len` {advice}"
    if not blocks:
        error = "No available memory for the cache blocks. Try increasing "
        error += f"`gpu_memory_utilization` {advice}"
    if c.max_model_len > blocks * 16:
        raise Refused(f"ValueError: {error}", "worker/worker.py", "engine")
    return blocks
