"""Requested against effective: one row an option, and what forbids a verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decodelab import effective
from decodelab.effective import DIFFERS, IGNORED, IN_EFFECT, NOT_TOLD


def start(backend: str | None = None, ignored: str | None = None, **told: Any) -> dict[str, Any]:
    values = {name: [value, "engine config"] for name, value in told.items()}
    return {
        "variant": "v",
        "start_id": "s",
        "backend": backend,
        "ignored": ignored,
        "effective": json.dumps(values) if values else None,
    }


def outcome(flags: dict[str, Any], env: dict[str, str], row: dict[str, Any]) -> list[str]:
    variant = {"flags": flags, "env": env, "engine": "vllm-v1"}
    return [option.verdict for option in effective.options(variant, row)]


@pytest.mark.parametrize(
    ("flag", "asked", "told", "value", "verdict"),
    [
        ("--max-model-len", 8192, "max_model_len", 8192, IN_EFFECT),
        ("--max-model-len", "8k", "max_model_len", 8000, IN_EFFECT),
        ("--max-model-len", "8K", "max_model_len", 8192, IN_EFFECT),
        ("--max-model-len", "1M", "max_model_len", 1048576, IN_EFFECT),
        ("--max-model-len", "auto", "max_model_len", 32768, IN_EFFECT),
        ("--max-model-len", 65536, "max_model_len", 32768, DIFFERS),
        ("-tp", 4, "tensor_parallel_size", 4, IN_EFFECT),
        ("-tp", 4, "tensor_parallel_size", 1, DIFFERS),
        ("--dtype", "half", "dtype", "torch.float16", IN_EFFECT),
        ("--dtype", "bfloat16", "dtype", "torch.float16", DIFFERS),
        ("--kv-cache-dtype", "fp8_e4m3", "kv_cache_dtype", "fp8", IN_EFFECT),
        ("--quantization", "awq", "quantization", None, DIFFERS),
        ("--enable-chunked-prefill", False, "enable_chunked_prefill", True, DIFFERS),
        ("--no-enable-chunked-prefill", True, "enable_chunked_prefill", False, IN_EFFECT),
        ("--enforce-eager", True, "enforce_eager", True, IN_EFFECT),
        ("--gpu-memory-utilization", 0.95, "gpu_memory_utilization", 0.95, IN_EFFECT),
        ("--num-scheduler-steps", 4, "num_scheduler_steps", 1, DIFFERS),
        ("--load-format", "safetensors", "load_format", "SAFETENSORS", IN_EFFECT),
        ("--tool-call-parser", "qwen3_coder", "tool_call_parser", "qwen3_coder", IN_EFFECT),
        ("--max-num-seqs", 2, "max_num_batched_tokens", 2, NOT_TOLD),
        ("--speculative-config", '{"method": "ngram"}', "speculative_config", None, DIFFERS),
        ("--hf-overrides", '{"a": 1}', "hf_overrides", "x", NOT_TOLD),
        ("--chat-template", "{repo}/t.jinja", "chat_template", "/a/t.jinja", NOT_TOLD),
        ("--max-model-len", 8192, "max_model_len", "327(Worker", NOT_TOLD),  # a mangled line
        ("--enforce-eager", True, "enforce_eager", "Fal", NOT_TOLD),
    ],
)
def test_values(flag: str, asked: Any, told: str, value: Any, verdict: str) -> None:
    assert outcome({flag: asked}, {}, start(**{told: value})) == [verdict]


@pytest.mark.parametrize(
    ("asked", "used", "verdict"),
    [
        ("FLASH_ATTN", "Flash Attention", IN_EFFECT),
        ("FLASH_ATTN_VLLM_V1", "Flash Attention", IN_EFFECT),
        ("flash_attn", "FLASH_ATTN", IN_EFFECT),
        ("ROCM_FLASH", "ROCmFlashAttention", IN_EFFECT),
        ("FLASHINFER", "Flashinfer", IN_EFFECT),
        ("TRITON_ATTN_VLLM_V1", "Triton", IN_EFFECT),
        ("FLASH_ATTN", "XFormers", DIFFERS),
        ("FLASHINFER", "XFormers", DIFFERS),
        ("XFORMERS", "XFormers", IN_EFFECT),
        ("XFORMERS_VLLM_V1", "XFormers", IN_EFFECT),
        ("FLASHINFER", "FLASHINFER_MLA", DIFFERS),
        ("FLASH_ATTN", "FLASH_ATTN_DIFFKV", DIFFERS),
        ("FLASH_ATTN", None, NOT_TOLD),
        ("TRITON_MLA", "Triton MLA", IN_EFFECT),
        ("FLASH_ATTN_MLA", "FlashAttention MLA", IN_EFFECT),
        ("FLASHINFER_MLA", "FlashInfer", DIFFERS),
        ("ROCM_AITER_FA", "Aiter Flash Attention", IN_EFFECT),
        ("TORCH_SDPA", "Torch SDPA", IN_EFFECT),
        ("CPU_ATTN", "Torch SDPA", NOT_TOLD),
    ],
)
def test_backends(asked: str, used: str | None, verdict: str) -> None:
    row = start(backend=used)
    assert outcome({}, {"VLLM_ATTENTION_BACKEND": asked}, row) == [verdict]
    assert outcome({"--attention-backend": asked}, {}, row) == [verdict]
    assert outcome({"--attention-config.backend": asked}, {}, row) == [verdict]


def test_ignored_options_and_their_reasons() -> None:
    row = start(backend="XFormers", ignored="VLLM_ATTENTION_BACKEND;FLASHINFER;--swap-space")
    variant = {
        "engine": "vllm-v1",
        "flags": {"--attention-backend": "FLASHINFER", "--swap-space": 4, "-tp": 2},
        "env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER", "OTHER": "1"},
    }
    assert [o.verdict for o in effective.options(variant, row)] == [
        IGNORED, IGNORED, NOT_TOLD, IGNORED, NOT_TOLD,
    ]  # fmt: skip
    assert {r["code"] for r in effective.differences(variant, row)} == {"option_ignored"}


def test_a_reason_names_option_both_values_and_source() -> None:
    row = start(max_model_len=32768)
    found = effective.differences({"flags": {"--max-model-len": 65536}}, row)
    assert [r["code"] for r in found] == ["option_not_in_effect"]
    for language in ("en", "zh"):
        for word in ("--max-model-len", "65536", "32768", "engine config"):
            assert word in found[0][language]


def test_an_old_row_and_a_server_that_tells_nothing_conclude_nothing() -> None:
    variant = {"flags": {"--max-num-seqs": 2}, "env": {"A": "b"}}
    assert effective.differences(variant, {"variant": "v"}) == []
    assert effective.differences(variant, start()) == []


def test_a_secret_is_not_shown() -> None:
    variant = {"flags": {"--hf-token": "s3cret"}, "env": {"MY_API_KEY": "s3cret"}}
    assert [o.requested for o in effective.options(variant, start())] == [effective.HIDDEN] * 2
