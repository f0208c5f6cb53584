"""What a start tells of its configuration: V0 and V1 lines, arguments, gauges; cut short, mixed."""

# ruff: noqa: E501  (one log line a line)

from __future__ import annotations

import json
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import engine_told
from decodelab.engine_told import ARGUMENTS, CONFIG, GAUGES, LOG, MODELS, Said

V0 = """\
INFO 10-25 06:00:00 api_server.py:529] args: Namespace(host=None, port=8000, uvicorn_log_level='info', api_key='s3cret', max_num_seqs=2, max_num_batched_tokens=8192, enable_chunked_prefill=None, num_scheduler_steps=4, chat=<a b>, served_model_name=['m'], gpu_memory_utilization=0.95, dispatch_function=<function serve at 0x7f>)
WARNING 10-25 06:00:01 arg_utils.py:964] Chunked prefill is enabled by default for models with max_model_len > 32K. Currently, chunked prefill might not work with some features or models. If you encounter any issues, please disable chunked prefill by setting --enable-chunked-prefill=False.
INFO 10-25 06:00:01 config.py:1005] Chunked prefill is enabled with max_num_batched_tokens=8192.
INFO 10-25 06:00:02 llm_engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='/m/q', speculative_config=None, tokenizer='/m/q', skip_tokenizer_init=False, revision=None, dtype=torch.float16, max_seq_len=262144, load_format=LoadFormat.AUTO, tensor_parallel_size=4, disable_custom_all_reduce=True, quantization=None, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, decoding_config=DecodingConfig(guided_decoding_backend='outlines', enforce_eager=True), seed=0, served_model_name=m, num_scheduler_steps=4, chunked_prefill_enabled=True multi_step_stream_outputs=True, enable_prefix_caching=False, mm_processor_kwargs=None)
"""
V1 = """\
(APIServer pid=1) INFO 11-29 16:44:19 [api_utils.py:286] non-default args: {'host': '127.0.0.1', 'enforce_eager': True, 'served_model_name': ['tiny'], 'attention_backend': 'FLASHINFER', 'hf_token': 'x', 'compilation_config': {'mode': <CompilationMode.NONE: 0>, 'dtype': 'no'}, 'gpu_memory_utilization': 0.1, 'max_num_seqs': 2}
(APIServer pid=1) INFO 11-29 16:44:19 [model.py:2152] Using max model len 32768
(APIServer pid=1) INFO 11-29 16:44:19 [scheduler.py:307] Chunked prefill is enabled with max_num_batched_tokens=8192.
(EngineCore pid=2) INFO 11-29 16:44:27 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/m/tiny', speculative_config=None, dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, quantization=None, enforce_eager=True, aux_output_config=AuxOutputConfig(dtype=None, max_bytes=None), kv_cache_dtype=auto, device_config=cpu, served_model_name=tiny, enable_prefix_caching=True, enable_chunked_prefill=True, compilation_config={'mode': <CompilationMode.NONE: 0>, 'backend': 'inductor'}
(EngineCore pid=2) INFO 11-29 16:44:30 [core.py:288] Disabling prefix caching: model has non-causal attention layers.
"""
GAUGE = 'vllm:cache_config_info{block_size="128",cache_dtype="fp8",enable_prefix_caching="True",engine="0",num_gpu_blocks="12554",sliding_window="None"} 1.0'


def test_v0_config_line_and_namespace() -> None:
    values = engine_told.read(V0, {}).values
    assert values["max_num_seqs"] == Said(2, ARGUMENTS)
    assert values["gpu_memory_utilization"] == Said(0.95, ARGUMENTS)
    assert values["max_num_batched_tokens"] == Said(8192, LOG)
    assert values["max_model_len"] == Said(262144, CONFIG)
    assert values["tensor_parallel_size"] == Said(4, CONFIG)
    assert values["num_scheduler_steps"] == Said(4, CONFIG)
    assert values["dtype"] == Said("torch.float16", CONFIG)
    assert values["load_format"] == Said("AUTO", CONFIG)
    assert values["device"] == Said("cuda", CONFIG)
    assert values["enforce_eager"] == Said(False, CONFIG)  # not that of the decoding config
    assert values["quantization"] == Said(None, CONFIG)
    # V0 forgets the comma between these two
    assert values["enable_chunked_prefill"] == Said(True, CONFIG)
    assert values["multi_step_stream_outputs"] == Said(True, CONFIG)
    assert values["enable_prefix_caching"] == Said(False, CONFIG)


def test_v1_lines_gauges_and_models() -> None:
    start = {"models": {"data": [{"id": "tiny", "max_model_len": 32768}]}, "gauges": [GAUGE]}
    values = engine_told.read(V1, start).values
    assert values["max_num_seqs"] == Said(2, ARGUMENTS)
    assert values["dtype"] == Said("torch.bfloat16", CONFIG)
    assert values["served_model_name"] == Said("tiny", CONFIG)
    assert values["VLLM_USE_V1"] == Said("1", LOG)
    assert values["enable_prefix_caching"] == Said(False, LOG)  # the API process does not know yet
    assert values["block_size"] == Said(128, GAUGES)
    assert values["kv_cache_dtype"] == Said("auto", CONFIG)
    assert "attention_backend" not in values  # parsed is not chosen
    assert "num_gpu_blocks" not in values and "sliding_window" not in values


def test_without_a_log_models_and_gauges_speak() -> None:
    start = {"models": {"data": [{"id": "a"}, {"max_model_len": 4096}]}, "gauges": [GAUGE]}
    values = engine_told.read(None, start).values
    assert values["max_model_len"] == Said(4096, MODELS)
    assert values["kv_cache_dtype"] == Said("fp8", GAUGES)


def test_a_secret_is_kept_nowhere() -> None:
    for log in (V0, V1):
        text = engine_told.read(log, {}).as_json() or ""
        assert "s3cret" not in text and "hf_token" not in text and "api_key" not in text


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("Multi-Step (--num-scheduler-steps > 1) is currently not supported for CPUs and has been disabled.", "num_scheduler_steps", 1),
        ("Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to setting -cc.mode=none", "enforce_eager", True),
        ("CUDA graph is not supported on mllama yet, fallback to the eager mode.", "enforce_eager", True),
        ("Graph capturing finished in 12 secs, took 0.40 GiB", "enforce_eager", False),
        ("Disabling chunked prefill for model without KVCache", "enable_chunked_prefill", False),
        ("Only models using causal attention support chunked prefill and prefix caching; disabling both.", "enable_prefix_caching", False),
        ("Chunked prefill is not supported for MLA; disabling it for V1 backend.", "enable_chunked_prefill", False),
        ("Initializing a V0 LLM engine (v0.9.0) with config: model='m', ", "VLLM_USE_V1", "0"),
        ("--num-scheduler-steps is not supported by the V1 Engine. Falling back to V0. We recommend to remove it.", "VLLM_USE_V1", "0"),
        ("If you encounter any issues, please disable chunked prefill by setting --enable-chunked-prefill=False.", "enable_chunked_prefill", None),
        ("Chunked prefill is not supported with this; disabling CUDA graphs", "enable_chunked_prefill", None),
        ("Cudagraph is disabled under eager mode", "enable_prefix_caching", None),
        ("To use prefix caching, block size is 64. If prefix caching is disabled, block size is 16.", "enable_prefix_caching", None),
        ("CUDA graphs need memory; when it lacks, fall back to eager mode", "enforce_eager", None),
    ],
)  # fmt: skip
def test_dispatch_lines(line: str, option: str, value: object) -> None:
    said = engine_told.read(f"INFO 07-12 09:51:28 [a.py:1] {line}\n", {}).values.get(option)
    assert said == (None if value is None else Said(value, LOG))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "ignored"),
    [
        ("Unknown vLLM environment variable detected: VLLM_ATTENTION_BACKEND", ["VLLM_ATTENTION_BACKEND"]),
        ("Cannot use AttentionBackendEnum.FLASHINFER backend on CPU.", ["FLASHINFER"]),
        ("--max-num-partial-prefills is ignored with this scheduler", ["--max-num-partial-prefills"]),
        ("--disable-cascade-attn is deprecated and has no effect since cascade attention was removed.", ["--disable-cascade-attn"]),
        ("The flag --swap-space has no effect.", ["--swap-space"]),
        ("Ignoring --block-size because --kv-offload is set", ["--block-size"]),
        ("The latter will be used, and the former will be ignored.", []),
        ("Ignoring stale tensor from sender 3", []),
        ("If a draft model is used, --max-num-seqs is ignored", []),
    ],
)  # fmt: skip
def test_what_the_engine_says_it_ignores(line: str, ignored: list[str]) -> None:
    assert engine_told.read(f"WARNING 07-12 09:51:28 [a.py:1] {line}\n", {}).ignored == ignored


PROMPT = "Enforce eager set. --max-num-seqs is ignored. prefix caching is disabled. Using max model len 100"
REQUESTS = [
    f"INFO 11-18 18:10:00 logger.py:37] Received request chat-1: prompt: '{PROMPT}', params: SamplingParams(n=1)",
    f"INFO 11-18 18:10:00 logger.py:37] Received request chat-1: prompt: 'WARNING 07-12 09:51:28 [a.py:1] {PROMPT}'",
    f"(APIServer pid=1) INFO 11-18 18:10:00 [logger.py:70] Generated response chat-1: output: '{PROMPT}'",
]


@pytest.mark.parametrize("line", REQUESTS)
def test_what_a_user_says_is_no_statement_of_the_engine(line: str) -> None:
    for log in (V0, V1):
        assert engine_told.read(f"{log}{line}\n", {}) == engine_told.read(log, {})


def test_after_it_serves_nothing_is_read() -> None:
    ready = "INFO:     Application startup complete.\n"
    text = f"{V1}{ready}WARNING 07-12 09:51:28 [a.py:1] {PROMPT}\n"
    assert engine_told.read(text, {}) == engine_told.read(V1, {})


def test_a_draft_s_context_is_not_the_engine_s() -> None:
    line = "(APIServer pid=1) INFO 11-29 16:44:19 [model.py:2152] Using max model len 2048\n"
    assert engine_told.read(V1 + line, {}).values["max_model_len"] == Said(32768, CONFIG)
    assert engine_told.read(line, {}).values["max_model_len"] == Said(2048, LOG)


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", "-1e999"])
def test_a_number_that_is_none_is_not_read(number: str) -> None:
    line = f"INFO [utils.py:233] non-default args: {{'seed': {number}, 'port': 1}}\n"
    assert engine_told.read(line, {}).values == {"port": Said(1, ARGUMENTS)}


@pytest.mark.parametrize("text", ["A_" * 4000, "--" + "a-" * 4000, "chunked prefill " * 500])
def test_a_line_twice_as_long_takes_no_four_times_the_time(text: str) -> None:
    def seconds(line: str) -> float:
        began = time.process_time()
        engine_told.read(f"{line} is ignored\n" * 20, {})
        return time.process_time() - began

    half = text[: len(text) // 2]
    assert min(seconds(text) for _ in range(5)) < 3 * min(seconds(half) for _ in range(5)) + 0.01


@pytest.mark.parametrize("log", [V0, V1])
def test_cut_at_every_byte_it_never_invents_a_value(log: str) -> None:
    """Whatever is told of a part of the log was told, word for word, somewhere in the whole."""
    known: dict[str, set[object]] = {}
    lines = log.splitlines(keepends=True)
    for n in range(len(lines) + 1):
        for option, said in engine_told.read("".join(lines[:n]), {}).values.items():
            known.setdefault(option, set()).add(said.value)
    for at in range(len(log)):
        for option, said in engine_told.read(log[:at], {}).values.items():
            assert said.value in known[option], (at, option, said)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([V0, V1]), st.data())
def test_a_line_cut_by_another_process_never_invents_a_number(
    log: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(log)))
    mixed = log[:at] + "\n(Worker pid=3) INFO 11-29 16:44:36 [a.py:1] hello\n" + log[at:]
    whole = log.replace("=", " ").replace(",", " ").replace(")", " ").replace("]", " ").split()
    for said in engine_told.read(mixed, {}).values.values():
        if isinstance(said.value, int) and not isinstance(said.value, bool) and said.value > 9:
            assert any(str(said.value) in word for word in whole)


@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    engine_told.read(text, {"gauges": [text], "models": {"data": [text]}})
    engine_told.read(f"x args: Namespace({text})\n", {})
    engine_told.read(f"non-default args: {{{text}}}\n", {})
    json.loads(
        engine_told.read(f"Initializing an LLM engine (v1) with config: {text}\n", {}).as_json()
        or "{}"
    )


NAME = st.text(string.ascii_lowercase, min_size=1, max_size=8)
VALUE = st.one_of(
    st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False),
    st.text(string.ascii_letters + " ,=()'\"[]{}", max_size=20),
)  # fmt: skip


@given(st.dictionaries(NAME, VALUE, min_size=1, max_size=6))
def test_plain_arguments_come_back_as_they_were(given_: dict[str, object]) -> None:
    line = f"INFO 07-12 09:51:28 [a.py:1] non-default args: {given_!r}"
    found = dict(engine_told.arguments(line))
    expected = {k: v for k, v in given_.items() if k in found}
    assert found == expected
    assert all(k in found for k, v in given_.items() if not isinstance(v, float))
