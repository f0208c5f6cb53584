"""Silent degradation: found and counted in a log, and an invalid run unless it was asked for."""

# ruff: noqa: E501  (one log line a line)

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_study import Study, request

from cargo import log_lines
from decodelab import degradation, findings, markdown, reasons, report_degradation, shape, words

FIXTURE = Path(__file__).parents[1] / "golden" / "report" / "fixture"

W = "(VllmWorkerProcess pid=344) WARNING 08-07 08:27:55 qwen3_5.py:445] "
# (the line, the rule that counts it or None)
LINES = [
    (W + "NaN in prefill GatedDeltaNet layer 0 (frac=0.9998), replacing with zeros", "nan_replaced"),
    ("WARNING 08-07 08:27:55 x.py:4] logits contain NaN values, replaced by 0", "nan_replaced"),
    ("ERROR 08-07 08:27:55 _custom_ops.py:58] Error in calling custom op topk_softmax: module 'ixformer.functions' has no attribute 'x'", "operator_missing"),
    (W + "FusedMoE native kernel failed (AttributeError: module 'ixformer.functions' has no attribute 'x'), falling back to pure PyTorch experts permanently.", "kernel_fallback"),
    ("WARNING 07-01 10:00:00 [moe.py:1] Marlin kernel is not available, falling back to the default path.", "kernel_fallback"),
    ("WARNING 07-01 10:00:00 [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.", "eager_forced"),
    ("WARNING 07-01 10:00:00 config.py:1] CUDA graph is not supported on CPU, fallback to the eager mode.", "eager_forced"),
    ("INFO 07-01 10:00:00 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: model='/m', enforce_eager=True, kv_cache_dtype=auto", "eager_forced"),
    ("INFO 07-01 10:00:00 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: model='/m', enforce_eager=False, kv_cache_dtype=auto", None),
    ("INFO 07-01 10:00:00 api_server.py:531] args: Namespace(enforce_eager=True, port=8000)", None),
    ("WARNING 07-01 10:00:00 [compilation.py:1409] CUDAGraphMode.FULL is not supported with X backend; setting cudagraph_mode=NONE", "eager_forced"),
    ("WARNING 07-01 10:00:00 [compilation.py:1409] CUDAGraphMode.FULL_AND_PIECEWISE is not supported with X; setting cudagraph_mode=PIECEWISE", None),
    ("WARNING 07-01 10:00:00 arg_utils.py:1] --num-scheduler-steps is not supported by the V1 Engine. Falling back to V0. We recommend to remove", "engine_fallback"),
    ("WARNING 07-01 10:00:00 attn.py:9] block table has 20000 entries, capped at 2048", "block_table_capped"),
    ("WARNING 07-01 10:00:00 attn.py:9] capping block_tables to 32768 tokens", "block_table_capped"),
    ("INFO 07-01 10:00:00 attn.py:9] block_tables shape (2, 2048)", None),
    ("WARNING 07-01 10:00:00 config.py:9] Your device 'X' (with compute capability 7.0) doesn't support torch.bfloat16. Falling back to torch.float16 for compatibility.", "dtype_replaced"),
    ("INFO 07-01 10:00:00 config.py:1670] Downcasting torch.float32 to torch.float16.", None),
    ("INFO 07-01 10:00:00 selector.py:224] Cannot use FlashAttention-2 backend because the vllm.vllm_flash_attn package is not found.", "backend_passed_over"),
    ("INFO 07-01 10:00:00 selector.py:1] Cannot use _Backend.FLASH_ATTN backend on CPU.", None),
    ("WARNING 07-01 10:00:00 [topk.py:5] FlashInfer is not available. Falling back to the PyTorch-native implementation of top-p & top-k sampling.", "sampler_fallback"),
    ("WARNING 08-21 18:37:41 [topk_topp_sampler.py:300] xpu kernel topk_topp_sampler does not support per-request generators. Falling back to PyTorch-native implementation.", "sampler_fallback"),
    ("`scaled_dot_product_attention` does not support `output_attentions=True`. Falling back to eager attention. This warning can be removed", None),
    ("CUDA graph capture failed: out of memory. Falling back to eager mode.", "eager_forced"),
    ("WARNING 07-01 10:00:00 [fused_moe.py:8] Using default MoE config. Performance might be sub-optimal! Config file not found at x", "kernel_untuned"),
    ("WARNING 07-01 10:00:00 custom_all_reduce.py:1] Custom allreduce is disabled because your platform lacks GPU P2P capability", "all_reduce_plain"),
    ("INFO 07-01 10:00:00 [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.", None),
    ("WARNING 07-01 10:00:00 [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead.", None),
    ("WARNING 07-01 10:00:00 [tokenizer.py:1] Falling back to slow tokenizer", None),
    ("INFO 07-01 10:00:00 [gpu_model_runner.py:1] CUDA graphs are disabled for the encoder", None),
    ("INFO 07-01 10:00:00 [gpu_model_runner.py:1] CUDA graphs are disabled for prefill attention; decode graphs captured", None),
    ("WARNING 07-01 10:00:00 [fp8.py:1] DeepGEMM kernel disabled by VLLM_USE_DEEP_GEMM=0, falling back to CUTLASS", None),
    ("WARNING 07-01 10:00:00 [fp8.py:1] DeepGEMM kernel not available (VLLM_USE_DEEP_GEMM=0), falling back to CUTLASS", None),
    ("INFO 07-01 10:00:00 [x.py:1] kernel OK, never falls back to torch", None),
    ("INFO 07-01 10:00:00 [x.py:1] If the operator is missing, the engine will fall back to torch", None),
    ("INFO 07-01 10:00:00 [x.py:1] Failed to get kernel version, falling back to torch.distributed store", None),
    ("INFO 07-01 10:00:00 [x.py:1] FlashAttention extension: head_dim 96 supported without falling back to padding", None),
    ("INFO 07-01 10:00:00 [x.py:1] Failed to set start method kernel param, falling back to spawn", None),
    ("INFO 07-01 10:00:00 [gpu.py:1] block_table: max_num_blocks_per_req limited to 2048 as max_model_len / block_size", None),
    ("INFO 07-01 10:00:00 [x.py:1] NaN values will be replaced with zeros if they occur", None),
    ("INFO 07-01 10:00:00 [utils.py:233] non-default args: {'model': '/m', 'chat_template': 'falling back to eager mode'}", None),
    ("WARNING 07-01 10:00:00 [moe.py:1] Layer 'model.layers.0.mlp.experts' is not supported by GPTQMoeMarlin. Falling back to Moe WNA16 kernels.", "kernel_fallback"),
    ("WARNING 07-01 10:00:00 [ixf] op silu_and_mul missing; using PyTorch reference (slow)", "kernel_fallback"),
    ("WARNING 07-01 10:00:00 [ixf] op fused_moe not found, use torch implementation instead", "kernel_fallback"),
    ("WARNING 07-01 10:00:00 [marlin_utils_fp8.py:82] Your GPU does not have native support for FP8 computation but FP8 quantization is being used. Weight-only FP8 compression will be used leveraging the Marlin kernel. This may degrade performance for compute-heavy workloads.", "quantization_emulated"),
    ("WARNING 07-01 10:00:00 x.py:1] CUDA graph capture failed, running without graphs", "eager_forced"),
    ("WARNING 07-01 10:00:00 [x.py:1] torch.compile is turned off; running in eager mode", "eager_forced"),
    ("WARNING 07-01 10:00:00 [config.py:1] Compute capability 7.0 does not support CUDA graphs; CUDA graph disabled", "eager_forced"),
    ("WARNING 07-01 10:00:00 x.py:2] found 16 nan/inf values in hidden states; sanitized", "nan_replaced"),
    ('INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK', None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name"), LINES, ids=range(len(LINES)))
def test_each_line_is_counted_by_its_rule_alone(line: str, name: str | None) -> None:
    assert [item["name"] for item in degradation.degradations(line)] == ([name] if name else [])


@pytest.mark.parametrize("line", [line for line, name in LINES if name])
def test_a_prompt_is_no_statement_of_the_engine(line: str) -> None:
    """vLLM logs each prompt, and a prompt may hold a line of any log."""
    for said in (line, "Why: " + line):
        log = f"INFO 11-18 18:10:00 logger.py:37] Received request chat-1: prompt: {said!r}, params: x"
        assert degradation.degradations(log) == []


def test_every_rule_is_met() -> None:
    assert {name for _, name in LINES} - {None} == set(degradation.BY_NAME)


def test_counts_first_line_and_text() -> None:
    log = f"INFO: x\n\x1b[1;36m{LINES[0][0]}\x1b[0;0m\n{LINES[3][0]}\n{LINES[0][0]}\r\n"
    assert degradation.degradations(log) == [
        {
            "name": "nan_replaced",
            "count": 2,
            "first_line": 2,
            "line": "NaN in prefill GatedDeltaNet layer 0 (frac=0.9998), replacing with zeros",
        },
        {
            "name": "kernel_fallback",
            "count": 1,
            "first_line": 3,
            "line": LINES[3][0].replace(W, ""),
        },
    ]
    cell = degradation.cell(degradation.degradations(log))
    assert cell == "nan_replaced:2:2;kernel_fallback:1:3"
    assert [(r.name, n, at) for r, n, at in degradation.read_cell(cell)] == [
        ("nan_replaced", 2, 2),
        ("kernel_fallback", 1, 3),
    ]
    assert degradation.cell([]) is None and degradation.read_cell(None) == []


STANDINGS: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("eager_forced", {}, [], "fault"),
    ("eager_forced", {"canonical": {"--enforce-eager": True}}, [], "wanted"),
    ("eager_forced", {"canonical": {"--enforce-eager": False}}, [], "fault"),
    ("eager_forced", {}, ["eager_forced"], "accepted"),
    ("eager_forced", {}, ["nan_replaced"], "fault"),
    ("nan_replaced", {"canonical": {"--enforce-eager": True}}, [], "fault"),
    ("engine_fallback", {"env": {"VLLM_USE_V1": "0"}}, [], "wanted"),
    ("engine_fallback", {"env": {"VLLM_USE_V1": "1"}}, [], "fault"),
    ("dtype_replaced", {"flags": {"--dtype": "half"}}, [], "wanted"),
    ("backend_passed_over", {}, [], "told"),
    ("backend_passed_over", {"env": {"VLLM_ATTENTION_BACKEND": "XFORMERS"}}, [], "wanted"),
]


@pytest.mark.parametrize(("name", "variant", "accepts", "standing"), STANDINGS)
def test_a_fault_unless_it_was_asked_for(
    name: str, variant: dict[str, Any], accepts: list[str], standing: str
) -> None:
    assert degradation.standing(degradation.BY_NAME[name], variant, accepts) == standing


def test_a_run_of_a_spoilt_start_is_invalid_and_says_why() -> None:
    plan = {"variants": {"a": {"canonical": {"--enforce-eager": True}}}}
    starts = [
        {"variant": "a", "start_id": "s1", "degraded": "eager_forced:1:3;nan_replaced:16:9"},
        {"variant": "a", "start_id": "s2", "degraded": "eager_forced:1:3"},
        {"variant": "b", "start_id": "s1", "degraded": "block_table_capped:1:1"},
    ]
    for start_id, validity, codes in (
        ("s1", "invalid", ["late", "degraded_nan_replaced"]),
        ("s2", "suspect", ["late"]),
    ):
        run: Any = SimpleNamespace(
            planned={"variant": "a"},
            entry={"start_id": start_id},
            validity="suspect",
            reasons=["late"],
        )
        degradation.spoil(run, plan, starts)
        assert (run.validity, run.reasons) == (validity, codes)


@pytest.mark.parametrize(
    ("flags", "accepts", "validity"),
    [
        ({}, [], "invalid"),
        ({"--enforce-eager": True}, [], "valid"),
        ({}, ["eager_forced"], "valid"),
    ],
)
def test_a_published_log_reaches_the_tables(
    tmp_path: Path, flags: dict[str, Any], accepts: list[str], validity: str
) -> None:
    study = Study({"base": flags}, accepts=accepts)
    study.add("decode_base", [request(n, start=n * 20.0) for n in range(4)])
    start = {
        "variant": "base",
        "server": "s",
        "start": 1,
        "start_id": "base-1",
        "status": "stopped",
    }
    study.index["starts"].append({**start, "file": "server_base.log"})
    study.write(tmp_path)
    (tmp_path / "server_base.log").write_text("INFO: x\n" + LINES[5][0] + "\n", encoding="utf-8")
    tables = study.tables(tmp_path)
    assert tables.starts[0]["degraded"] == "eager_forced:1:2"
    run = tables.runs["decode_base"]
    assert (run["validity"], "degraded_eager_forced" in run["reasons"]) == (
        validity,
        validity == "invalid",
    )


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_the_report_shows_it_beside_the_runs(language: str) -> None:
    found = findings.load(
        FIXTURE / "plan.json", FIXTURE / "tables", FIXTURE / "verdicts.json", FIXTURE / "runs"
    )
    say = words.load(language)
    assert report_degradation.tables(found, say) == []
    cell = "kernel_untuned:4:7;nan_replaced:16:81"
    starts = [{**row, "degraded": cell} for row in found.starts]
    (table,) = report_degradation.tables(dataclasses.replace(found, starts=starts), say)
    rule = degradation.BY_NAME["nan_replaced"]
    what, count, where, outcome, runs = table.rows[0]
    assert getattr(rule, language) in what and markdown.code("nan_replaced") in what
    assert count == f"{16 * len(starts)}"
    assert where == markdown.code(f"{starts[0]['log']}:81")
    assert outcome == say.say("degradation.fault")
    assert next(iter(found.runs)) in runs
    assert table.rows[1][3] == say.say("degradation.told")
    assert table.notes == [say.say("degradation.fault_note")]


def test_the_schema_and_the_words_know_every_rule_that_spoils() -> None:
    names = [rule.name for rule in degradation.RULES if rule.spoils]
    accepts = shape.schema()["$defs"]["server"]["properties"]["accepts"]
    assert accepts["items"]["enum"] == names
    assert all(degradation.PREFIX + name in reasons.TEXTS for name in names)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([line for line, _ in LINES]), max_size=8),
    st.data(),
    st.text(max_size=40),
)
def test_cut_anywhere_it_invents_nothing(lines: list[str], data: st.DataObject, noise: str) -> None:
    text = noise + "\n".join(lines)
    text = text[: data.draw(st.integers(0, len(text)))]
    raw = text.split("\n")
    found = degradation.degradations(text)
    assert sum(item["count"] for item in found) <= len(raw) + text.count("\r") + len(lines)
    for item in found:
        assert item["line"] in log_lines.plain(raw[item["first_line"] - 1])
    cell = degradation.cell(found)
    assert [r.name for r, _, _ in degradation.read_cell(cell)] == [item["name"] for item in found]
