"""The cause of a failed start: one minimal log per kind of trap, then fuzz (never a crash, never an invented line)."""

# ruff: noqa: E501  (one log a line)

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cargo import log_lines, start_cause, start_rules

SCRIPT = Path(__file__).parents[2] / "scripts" / "explain_start.py"
TB = 'Traceback (most recent call last):\n  File "/opt/vllm/engine.py", line 5, in f\n'
V0 = "ERROR 07-01 10:00:00 engine.py:366] "
CORE = "(EngineCore_DP0 pid=17) ERROR 07-01 10:00:00 [core.py:718] "
WORKER = "(Worker_TP1 pid=18) ERROR 07-01 10:00:00 [multiproc_executor.py:597] "
WRAPPED = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
BOOT = "INFO 07-01 10:00:00 api_server.py:530] vLLM API server version 0.6.3\n"
READY = "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"

# (name, log, class, what the root line starts with, line number)
CASES = [
    ("argparse", "usage: vllm serve [-h]\n  [--x]\nvllm: error: unrecognized arguments: --bogus 4\n", "bad_argument", "vllm: error", 3),
    ("argparse choice", "usage: a\nserve.py: error: argument --dtype: invalid choice: 'x'\n", "bad_argument", "serve.py: error", 2),
    ("backend unknown", TB + "ValueError: Unknown attention backend: 'NOPE'. Valid options are: A\n", "bad_argument", "ValueError", 3),
    ("parser unknown", TB + "KeyError: 'invalid tool call parser: nope (chose from {a})'\n", "bad_argument", "KeyError", 3),
    ("pydantic", TB + "pydantic_core.ValidationError: 1 validation error for SchedulerConfig\n  Value error, max_num_batched_tokens (8) is smaller than max_model_len (9). x\n", "bad_argument", "Value error, max_num", 4),
    ("pydantic field", "1 validation error for EngineArgs\nmax_num_seqs\n  Input should be greater than or equal to 1\n", "bad_argument", "Input should be", 3),
    ("multi-step", BOOT + "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: XFORMERS. Set x\n", "feature_not_supported_by_backend", "ValueError: Multi-Step", 2),
    ("multi-step alone", "ValueError: Multi-Step not supported for attention backend: xformers. Set X\n", "feature_not_supported_by_backend", "ValueError", 1),
    ("old multi-step", "ValueError: Chunked prefill is not supported with multi-step (--num-scheduler-steps > 1)\n", "feature_not_supported_by_backend", "ValueError", 1),
    ("v1 multi-step", "NotImplementedError: Multi-step scheduling is not supported (and not needed) on vLLM V1.\n", "feature_not_supported_by_backend", "NotImpl", 1),
    ("assertion", "AssertionError: Chunked prefill is not supported with flashinfer yet.turn_prefills_into_decodes\n", "feature_not_supported_by_backend", "AssertionError", 1),
    ("kv", CORE + "ValueError: No available memory for the cache blocks. Try\n" + WRAPPED, "kv_cache_no_room", "ValueError", 1),
    ("source echo first", V0 + '    raise ValueError("No available memory for the cache blocks. "\n' + V0 + "ValueError: No available memory for the cache blocks.\n", "kv_cache_no_room", "ValueError: No", 2),
    ("context v0", "ValueError: The model's max seq len (9) is larger than the maximum number of\n", "context_too_long", "ValueError", 1),
    ("context v1 cut", CORE + "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is nee", "context_too_long", "ValueError: To serve", 1),
    ("context derived", "  Value error, User-specified max_model_len (65536) is greater than the derived\n", "context_too_long", "Value error", 1),
    ("memory taken", CORE + "ValueError: Free memory on device (3.2/4.0 GiB) on startup is less than desired\n", "gpu_memory_taken", "ValueError: Free", 1),
    ("oom", WORKER + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB. this process has 23.5 GiB memory in use\n", "gpu_oom", "torch.OutOf", 1),
    ("oom by others", WORKER + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB. Process 77 has 20.0 GiB memory in use. Including non-PyTorch memory, this process has 3.5 GiB memory in use.\n", "gpu_memory_taken", "torch.OutOf", 1),
    ("oom driver", CORE + "RuntimeError: CUDA driver error: out of memory\n", "gpu_oom", "RuntimeError", 1),
    ("port v1", TB + "OSError: [Errno 98] Address already in use\n", "port_in_use", "OSError", 3),
    ("port after ready", BOOT + READY + "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\nINFO:     Waiting for application shutdown.\n", "port_in_use", "[Errno 98]", 4),
    ("model path", TB + "OSError: a/b is not a local folder and is not a valid model identifier listed on 'https://h'\n", "model_not_found", "OSError: a/b", 3),
    ("architecture", "ValueError: Model architectures ['Foo'] are not supported for now. Supported\nERROR 02-06 10:20:56 registry.py:306]     raise CalledProcessError(1)\n", "model_not_supported", "ValueError: Model", 1),
    ("transformers", "1 validation error for ModelConfig\n  Value error, The checkpoint you are trying to load has model type `q` but Transformers does not recognize\n", "model_not_supported", "Value error, The", 2),
    ("weights", WORKER + "safetensors_rust.SafetensorError: Error while deserializing header: x\n" + CORE + "Exception: WorkerProc initialization failed due to an exception in a background process.\n" + WRAPPED, "weights_corrupt", "safetensors", 1),
    ("dtype", "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.\n", "dtype_not_supported", "ValueError", 1),
    ("tp", "ValueError: Total number of attention heads (4) must be divisible by tensor parallel size (8).\n", "bad_parallel_size", "ValueError", 1),
    ("nccl", "[rank0]: RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n(RayWorkerWrapper pid=8) ERROR 04-16 01:01:44 [worker_base.py:620] Error executing method 'init_device'.\n", "collective_failed", "RuntimeError: NCCL", 1),
    ("kernel", WORKER + "RuntimeError: CUDA error: no kernel image is available for execution on the device\n", "kernel_mismatch", "RuntimeError", 1),
    ("symbol", "ImportError: /x/_C.abi3.so: undefined symbol: _ZN3c10\n", "kernel_mismatch", "ImportError", 1),
    ("library", TB + "ImportError: libfoo.so.1: cannot open shared object file: No such file or directory\n", "missing_library", "ImportError: libfoo", 3),
    ("loader", "ixsmi: error while loading shared libraries: libixml.so: cannot open shared object file\n", "missing_library", "ixsmi: error", 1),
    ("module", "ModuleNotFoundError: No module named 'typing_extensions'\n", "python_environment", "ModuleNotFound", 1),
    ("python -m", "/usr/bin/python3: No module named vllm\n", "python_environment", "/usr/bin/python3", 1),
    ("device", "RuntimeError: Failed to infer device type, please set\n", "driver_or_device", "RuntimeError", 1),
    ("script", "bash: line 1: vllm: command not found\n", "launch_script", "bash:", 1),
    ("killed", BOOT + "Killed\n", "killed", "Killed", 2),
    ("killed in script", "./serve.sh: line 3:  4711 Killed                  python3 -m vllm\n", "killed", "./serve.sh", 1),
    ("stopped", BOOT + "INFO 07-01 10:00:01 launcher.py:57] Received signal SIGTERM\n", "stopped", "Received", 2),
    ("warning like a cause", "WARNING 07-01 10:00:00 _custom_ops.py:14] Failed to import from vllm._C with ImportError('libcudart.so.12: cannot open shared object file')\nImportError: libcuda.so.1: cannot open shared object file: No such file\n", "missing_library", "ImportError: libcuda.so", 2),
    ("worker before api", "(APIServer pid=1) RuntimeError: something odd\n" + WORKER + "RuntimeError: CUDA error: invalid device ordinal\n", "bad_parallel_size", "RuntimeError: CUDA", 2),
    ("engine's unknown before api's known", CORE + "RuntimeError: flux capacitor\n(APIServer pid=1) OSError: [Errno 98] Address already in use\n", "unknown", "RuntimeError: flux", 1),
    ("api's known before engine's unknown", "(APIServer pid=1) OSError: [Errno 98] Address already in use\n" + CORE + "RuntimeError: flux capacitor\n", "port_in_use", "OSError", 1),
    ("secondary", "EOFError\nBrokenPipeError: [Errno 32] Broken pipe\n" + CORE + "ValueError: No available memory for the cache blocks.\n", "kv_cache_no_room", "ValueError", 3),
    ("message on the next line", "RuntimeError:\n        An attempt has been made to start a new process before the\n        current process\n", "python_environment", "An attempt", 2),
    ("quantization", "ValueError: Quantization method specified in the model config (fp8) does not match the quantization method specified\n", "bad_argument", "ValueError", 1),
    ("error without a type", "Error: --enable-auto-tool-choice requires --tool-call-parser\n", "bad_argument", "Error: --enable", 1),
    ("engine's own timeout", BOOT + "TimeoutError: Timed out waiting for engine core processes to start\n", "timeout", "TimeoutError", 2),
    ("entry point", "exec /opt/run.sh: no such file or directory\n", "launch_script", "exec /opt", 1),
    ("busy device", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n", "driver_or_device", "RuntimeError", 1),
    ("no exception word", "# GPU blocks: 9\nmaximum number of tokens that can be stored in KV cache: 144\n", "context_too_long", "maximum number", 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("log", "name", "root", "line"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_cause(log: str, name: str, root: str, line: int) -> None:
    found = start_cause.explain(log)
    assert found["class"] == name
    assert found["root_cause"].startswith(root)
    assert found["line"] == line
    assert found["side"] == start_rules.CLASSES[name].side
    assert found["hint"]["en"] and found["hint"]["zh"]


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_colours_prefixes_and_joined_lines_change_nothing(
    case: tuple[str, str, str, str, int],
) -> None:
    _name, log, cause, root, line = case
    coloured = re.sub(r"^(.)", "\x1b[1;36m\\1\x1b[0;0m", log, flags=re.M)
    composed = re.sub(r"^(?=.)", "vllm-1  | ", log, flags=re.M)
    for variant in (coloured, composed, log.replace("\n", "\r\n")):
        found = start_cause.explain(variant)
        assert (found["class"], found["line"]) == (cause, line)
        assert found["root_cause"].startswith(root)


def test_lines_joined_without_newlines_are_parted() -> None:
    log = (
        '(APIServer pid=2)   File "/x/hub.py", line 5, in f(APIServer pid=2)     raise OSError('
        "(APIServer pid=2) OSError: a/b is not a local folder and is not a valid model identifier"
        "(APIServer pid=2) If this is a private repository[ui] Waiting ...(APIServer pid=3) INFO 03-06 01:34:23 [utils.py:2]"
    )
    found = start_cause.explain(log)
    assert found["class"] == "model_not_found"
    assert (
        found["root_cause"]
        == "OSError: a/b is not a local folder and is not a valid model identifier"
    )


@pytest.mark.parametrize(
    ("log", "rc", "timed_out", "expected"),
    [
        (BOOT + READY, None, False, "none"),
        (BOOT + READY + "INFO:     Shutting down\n", 0, False, "none"),  # ready once, stopped in order
        (BOOT, None, False, "none"),  # still booting, nothing wrong in it
        (BOOT, 1, False, "unknown"),
        (BOOT, 137, False, "killed"),
        (BOOT, -9, False, "killed"),
        (BOOT, -15, False, "stopped"),
        (BOOT, None, True, "timeout"),
        (BOOT + WRAPPED, 1, False, "unknown"),
        (WRAPPED, None, False, "unknown"),
        ("", None, False, "unknown"),
        ("[startup] begin init_device\n", None, False, "unknown"),
        (BOOT + "RuntimeError: flux capacitor\n", 1, False, "unknown"),
        # a request that failed is no failed start
        (BOOT + READY + "ERROR 07-01 10:00:00 serving.py:3] IndexError: list index\n", None, False, "none"),
        # degraded, yet it runs
        (BOOT + "ERROR 07-01 10:00:00 _custom_ops.py:58] Error in calling custom op topk: module 'ixformer.functions' has no attribute 'x'\n" + READY, None, False, "none"),
    ],
)  # fmt: skip
def test_no_cause_in_the_log(log: str, rc: int | None, timed_out: bool, expected: str) -> None:
    found = start_cause.explain(log, exit_code=rc, timed_out=timed_out)
    assert found["class"] == expected
    if expected in ("none", "killed", "timeout"):
        assert found["root_cause"] is None


def test_a_known_cause_outranks_the_timeout_and_the_exit_code() -> None:
    log = CORE + "ValueError: No available memory for the cache blocks.\n"
    assert start_cause.explain(log, exit_code=-9, timed_out=True)["class"] == "kv_cache_no_room"


def test_stage_is_the_last_one_reached_before_the_cause() -> None:
    log = (
        BOOT
        + "INFO 07-01 10:00:01 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: x\n"
        + "INFO 07-01 10:00:02 model_runner.py:1] Starting to load model /m...\n"
        + WORKER
        + "ValueError: odd\nINFO 07-01 10:00:03 x.py:1] # GPU blocks: 7\n"
    )
    assert start_cause.explain(log)["stage"] == "weights"


STAGES = [
    # a traceback says where it stood, also where the log's own lines are lost
    (V0 + '  File "/v/worker.py", line 5, in init_device\n' + V0 + "RuntimeError: x\n", "engine_init"),
    (WORKER + '  File "/v/gpu_worker.py", line 5, in load_model\n' + WORKER + "RuntimeError: x\n", "weights"),
    (CORE + '  File "/v/core.py", line 5, in _initialize_kv_caches\n' + CORE + "ValueError: No available memory for the cache blocks.\n", "kv_cache"),
    # a slower rank takes nothing back
    ("INFO 07-01 10:00:02 m.py:1] Loading model weights took 1 GB\nINFO 07-01 10:00:02 m.py:1] Starting to load model /m...\nRuntimeError: x\n", "kv_cache"),
    # a supervisor began again
    ("INFO 07-01 10:00:02 m.py:1] # GPU blocks: 7\n" + BOOT + "INFO 07-01 10:00:09 m.py:1] Starting to load model /m...\n", "weights"),
    ("vllm: error: unrecognized arguments: --x\n", None),
]  # fmt: skip


@pytest.mark.parametrize(("log", "stage"), STAGES, ids=range(len(STAGES)))
def test_stage(log: str, stage: str | None) -> None:
    assert start_cause.explain(log)["stage"] == stage


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(name, cause, start_cause.explain(log)) for name, log, cause, _root, _line in CASES]
    right = sum(got["class"] == cause for _, cause, got in rows)
    with capsys.disabled():
        print(f"\nstart causes: {right} of {len(rows)} logs right")
        for name, cause, got in rows:
            mark = "ok " if got["class"] == cause else "BAD"
            print(f"  {mark} {name:28} {cause:34} {got['class']}")
    assert right == len(rows)


@pytest.mark.parametrize(("name", "whole"), start_rules.BEGINNINGS)
def test_a_message_that_was_cut_is_still_known(name: str, whole: str) -> None:
    head = BOOT + "vllm: error: " if name == "bad_argument" else BOOT + CORE + "ValueError: "
    others = [text for other, text in start_rules.BEGINNINGS if other != name]
    for end in range(12, len(whole) + 1):
        found = start_cause.explain(head + whole[:end])
        shared = any(text.startswith(whole[:end].rstrip()) for text in others)
        assert found["class"] in ({name, "unknown"} if shared else {name})
        assert found["line"] == 2 and found["root_cause"].endswith(whole[:end].strip())


def test_cut_after_every_byte() -> None:
    for _name, log, _cause, _root, _line in CASES[::4]:
        raw = log.encode()
        for end in range(len(raw)):
            text = raw[:end].decode("utf-8", errors="replace")
            found = start_cause.explain(text)
            if found["root_cause"] is not None:
                plain = log_lines.plain(text.split("\n")[found["line"] - 1])
                assert found["root_cause"] in plain


def test_every_class_has_a_rule_or_is_decided_without_one() -> None:
    ruled = {name for name, _ in start_rules.RULES}
    assert ruled | {"unknown", "none"} == set(start_rules.CLASSES)
    for name, (side, en, zh) in start_rules.CLASSES.items():
        assert side in ("config", "host", "none"), name
        assert en.endswith(".") and zh.endswith("。")


PIECES = [c[1] for c in CASES] + [
    BOOT,
    READY,
    WRAPPED,
    TB,
    "\x1b[",
    "(EngineCore" + "-" * 40,
    "\r",
    "\n",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=6), st.integers(0, 4000), st.text(max_size=30))
def test_fuzz_never_crashes_and_never_invents(parts: list[str], cut: int, noise: str) -> None:
    text = ("".join(parts) + noise)[:cut]
    found = start_cause.explain(text)
    assert found["class"] in start_rules.CLASSES
    plain = [log_lines.plain(line) for line in text.split("\n")]
    if found["root_cause"] is not None:
        assert found["root_cause"] in plain[found["line"] - 1]


def test_long_hostile_lines_are_quick() -> None:
    for text in (
        "(EngineCore" + "-a" * 20000,
        "a." * 20000,
        "x" * 100000 + " | y",
        "[" * 50000,
        "1" * 50000,
    ):
        start_cause.explain(text + "\nValueError: " + text)


def test_command_line(tmp_path: Path) -> None:
    log = tmp_path / "s.log"
    log.write_bytes(
        b"\xff\xfe garbage\n" + TB.encode() + b"OSError: [Errno 98] Address already in use\n"
    )
    done = subprocess.run(
        [sys.executable, SCRIPT, log, "--rc", "1"], capture_output=True, text=True, timeout=30
    )
    found = json.loads(done.stdout)
    assert (found["class"], found["line"]) == ("port_in_use", 4)
    assert {"class", "root_cause", "line", "stage", "hint", "confidence"} <= found.keys()
    lost = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "no"], capture_output=True, text=True, timeout=30
    )
    assert lost.returncode == 1 and "cannot read" in lost.stderr
