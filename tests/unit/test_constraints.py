"""Each rule of the constraint table both ways: what it refuses, and where it makes no claim."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import constraints, flags
from decodelab.constraints import Facts, known_impossible

GIB = 2.0**30
STEPS = {"--num-scheduler-steps": 4, "--enable-chunked-prefill": True}
UNCHUNKED = {
    "--enable-chunked-prefill": False,
    "--max-num-batched-tokens": "4k",
    "--max-model-len": 8192,
}
FULL = Facts("0.6.3", weights_bytes=17 * GIB, device_bytes=32 * GIB)
ROOMY = Facts("0.6.3", weights_bytes=15 * GIB, device_bytes=32 * GIB)
FOUR_HEADS = Facts("0.32.0", model={"text_config": {"num_attention_heads": 4}})
SEQS = {"--max-num-batched-tokens": 128, "--max-num-seqs": 256}


def code(given: dict[str, Any], facts: Facts, engine: str = "vllm-v0", **more: Any) -> str | None:
    variant = {"engine": engine, "canonical": flags.canonical(given, engine), "env": {}, **more}
    found = known_impossible(variant, facts)
    assert found is None or (found.text["zh"] and found.text["en"] and found.source)
    return None if found is None else found.code


@pytest.mark.parametrize(
    ("told", "facts", "engine", "expected"),
    [
        (UNCHUNKED, Facts("0.6.3"), "vllm-v0", "budget_below_context"),
        (UNCHUNKED, Facts("0.6.3.post1+cu124"), "vllm-v0", "budget_below_context"),
        (UNCHUNKED, Facts("0.32.0+cpu"), "vllm-v1", "budget_below_context"),
        (SEQS, Facts("0.32.0"), "vllm-v1", "budget_below_seqs"),
        (SEQS, Facts("0.5.5"), "vllm-v0", "budget_below_seqs"),
        ({"-tp": 3}, Facts("0.9.0", model={"num_attention_heads": 32}), "vllm-v1", "heads_not_divisible"),
        ({"-tp": 8}, FOUR_HEADS, "vllm-v1", "heads_not_divisible"),
        (STEPS, Facts("0.6.1"), "vllm-v0", "multi_step_chunked"),
        ({**STEPS, "-pp": 2}, Facts("0.6.4"), "vllm-v0", "multi_step_chunked_pipeline"),
        ({"--num-scheduler-steps": 8, "--speculative-model": "m"}, Facts("0.7.2"), "vllm-v0", "multi_step_speculation"),
        (STEPS, Facts("0.6.3", backend="XFormers"), "vllm-v0", "multi_step_backend"),
        (STEPS, Facts("0.6.3", backend="FLASHINFER"), "vllm-v0", "multi_step_backend"),
        (STEPS, Facts("0.7.0", backend="XFORMERS"), "vllm-v0", "multi_step_backend"),
        ({"--num-scheduler-steps": 4}, Facts("0.10.1"), "vllm-v1", "no_multi_step"),
        ({"--gpu-memory-utilization": 0.5}, FULL, "vllm-v0", "weights_above_share"),
    ],
)  # fmt: skip
def test_refused(told: dict[str, Any], facts: Facts, engine: str, expected: str) -> None:
    assert code(told, facts, engine) == expected


@pytest.mark.parametrize(
    ("told", "facts", "engine"),
    [
        # the engine is not known, or not one that was read
        (UNCHUNKED, Facts(), "vllm-v0"),
        (UNCHUNKED, Facts("0.33.0"), "vllm-v1"),
        (UNCHUNKED, Facts("0.6.4.dev12+g1234"), "vllm-v0"),
        (UNCHUNKED, Facts("0.6.3+corex.4.2"), "vllm-v0"),
        (UNCHUNKED, Facts("0.6.3", changed=True), "vllm-v0"),
        (UNCHUNKED, Facts("0.6.3"), "other"),
        # V1 to 0.11 chunks whatever it is told
        (UNCHUNKED, Facts("0.8.5"), "vllm-v1"),
        (UNCHUNKED, Facts("0.8.5", refusals=frozenset({"budget_below_context"})), "vllm-v1"),
        # a value is not written, or allows it
        ({**UNCHUNKED, "--max-model-len": "4k"}, Facts("0.6.3"), "vllm-v0"),
        ({"--max-num-batched-tokens": 64, "--max-model-len": 8192}, Facts("0.6.3"), "vllm-v0"),
        ({"--max-num-batched-tokens": 128}, Facts("0.6.3"), "vllm-v0"),
        ({**SEQS, "--max-num-seqs": 128}, Facts("0.6.3"), "vllm-v0"),
        ({"-tp": 3}, Facts("0.9.0"), "vllm-v1"),
        ({"-tp": 4}, Facts("0.9.0", model={"num_attention_heads": 32}), "vllm-v1"),
        ({"-tp": 3, "--hf-overrides": "{}"}, Facts("0.9.0", model={"num_attention_heads": 32}), "vllm-v1"),
        (STEPS, Facts("0.6.3"), "vllm-v0"),  # the backend is not known
        (STEPS, Facts("0.6.3", backend="Flash Attention"), "vllm-v0"),
        (STEPS, Facts("0.7.3", backend="FLASHINFER"), "vllm-v0"),
        ({"--num-scheduler-steps": 4}, Facts("0.6.3", backend="XFORMERS"), "vllm-v0"),  # auto
        ({**STEPS, "--num-scheduler-steps": 1}, Facts("0.6.1"), "vllm-v0"),
        ({"--num-scheduler-steps": 4}, Facts("0.10.0"), "vllm-v1"),
        ({"--gpu-memory-utilization": 0.5}, ROOMY, "vllm-v0"),
        ({"--gpu-memory-utilization": 0.5, "--cpu-offload-gb": 4}, FULL, "vllm-v0"),
        ({}, Facts("0.6.3", weights_bytes=40 * GIB, device_bytes=32 * GIB), "vllm-v0"),  # no share written
    ],
)  # fmt: skip
def test_no_claim(told: dict[str, Any], facts: Facts, engine: str) -> None:
    assert code(told, facts, engine) is None


def test_a_vendors_engine_is_believed_by_its_own_source() -> None:
    own = frozenset({"multi_step_backend", "budget_below_context"})
    corex = Facts("0.6.3+corex", changed=True, backend="XFORMERS", refusals=own)
    assert code(UNCHUNKED, corex) == "budget_below_context"
    assert code(STEPS, corex) is None, "the list of its own backends was not read"
    read = Facts("0.6.3", True, "XFORMERS", ("FLASH_ATTN",), refusals=own)
    assert code(STEPS, read) == "multi_step_backend"
    widened = Facts("0.6.3", True, "XFORMERS", ("FLASH_ATTN", "XFORMERS"), refusals=own)
    assert code(STEPS, widened) is None, "this vendor's XFormers takes it"


def test_who_runs_already_or_chose_the_other_engine_is_left_alone() -> None:
    assert code(UNCHUNKED, Facts("0.6.6"), env={"VLLM_USE_V1": "1"}) is None
    assert code(UNCHUNKED, Facts("0.6.6"), env={"VLLM_USE_V1": "0"}) is not None
    assert code(UNCHUNKED, Facts("0.6.6"), attach="http://x") is None


@pytest.mark.parametrize(
    ("version", "release", "published"),
    [
        ("0.6.3", (0, 6, 3), True),
        ("v0.8.5.post1", (0, 8, 5), True),
        ("0.32.0+cpu", (0, 32, 0), True),
        ("0.6.3+rocm614", (0, 6, 3), True),
        ("0.6.3+cu118.d20241014", (0, 6, 3), True),
        ("0.6.3+cpu.g1a2b3c4", (0, 6, 3), True),
        ("0.6.3+g1a2b3c4.cpu", (0, 6, 3), False),
        ("0.6.2+cu118.corex423", (0, 6, 2), False),
        ("0.6.2+cu102.das", (0, 6, 2), False),
        ("0.6.2+rocm.dtk", (0, 6, 2), False),
        ("0.6.2+rocm624.dtk2504", (0, 6, 2), False),
        ("0.6.2+cpu.maca", (0, 6, 2), False),
        ("0.6.2+gitabc", (0, 6, 2), False),
        ("0.6.3+sim", (0, 6, 3), False),
        ("0.6.3+corex.4.2.0", (0, 6, 3), False),
        ("0.6.4.dev3+g12ab", None, False),
        ("unknown", None, False),
        (None, None, False),
    ],
)
def test_versions(version: str | None, release: object, published: bool) -> None:
    assert constraints.release_of(version) == release
    assert constraints.is_published(version) is published


values = st.one_of(st.booleans(), st.integers(-5, 10**6), st.text(max_size=6), st.floats())
names = st.sampled_from(
    ["--enable-chunked-prefill", "--max-num-batched-tokens", "--max-model-len", "--max-num-seqs",
     "--num-scheduler-steps", "-tp", "-pp", "--gpu-memory-utilization"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(names, values, max_size=6), st.sampled_from(["0.6.3", "0.32.0", None, "x"]))
def test_any_flags_get_an_answer(told: dict[str, Any], version: str | None) -> None:
    facts = Facts(version, model={"num_attention_heads": 32}, weights_bytes=GIB, device_bytes=GIB)
    code(told, facts)
    if version is None:
        assert code(told, facts) is None
