"""The cause of a failed start where something else comes first, is louder, or was cut.

One minimal log a row, with the exit code or the time limit that ended it. What is laid to the
configuration is final, so the rows also say which causes may be.
"""

# ruff: noqa: E501  (one log a line)

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cargo import device_memory, long_log, start_cause, start_rules, start_stages
from cargo.launch import Launch
from cargo.server_start import StartFailed
from decodelab.store import Start

SCRIPT = Path(__file__).parents[2] / "scripts" / "explain_start.py"
BOOT = "INFO 07-01 10:00:00 api_server.py:530] vLLM API server version 0.6.3\n"
LOAD = "INFO 07-01 10:00:05 model_runner.py:1] Starting to load model /m...\n"
GRAPH = "INFO 07-01 10:00:09 model_runner.py:1] Capturing the model for CUDA graphs.\n"
READY = "(APIServer pid=1) INFO:     Application startup complete.\n"
V0 = "ERROR 07-01 10:00:20 engine.py:366] "
V0_WORKER = "(VllmWorkerProcess pid=212) ERROR 07-01 10:00:21 multiproc_worker_utils.py:229] "
CORE = "(EngineCore_DP0 pid=120) ERROR 07-01 10:00:20 [core.py:708] "
CORE_INFO = "(EngineCore_DP0 pid=120) INFO 07-01 10:00:30 [core.py:77] "
W0 = "(Worker_TP0 pid=131) ERROR 07-01 10:00:20 [multiproc_executor.py:597] "
W1 = "(Worker_TP1 pid=132) ERROR 07-01 10:00:20 [multiproc_executor.py:597] "
API = "(APIServer pid=1) "
FAILED = (
    API
    + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)
DURING = "During handling of the above exception, another exception occurred:\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which 312.88 MiB is free. Including non-PyTorch memory, this process has 15.30 GiB memory in use.\n"
GLOO = (
    "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n"
)
NCCL_GONE = "RuntimeError: NCCL error: remote process exited or there was a network error\n"
USAGE = "Exception in thread Thread-5 (_report_usage_worker):\nTraceback (most recent call last):\njson.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
TOOL = "/root/start.sh: line 3: ixsmi: command not found\n"
HUNG = None

# (what, log, exit code or HUNG, class, may it be final)
ROWS = [
    ("a network that is away today", "OSError: We couldn't connect to 'https://hf-mirror.com' to load the files, and couldn't find them in the cached files.\n", 1, "model_not_found", False),
    # a guess is no verdict: the time limit, a signal, an error without a name come first
    ("a retried allocation, then a hang", BOOT + "[ixformer] warmup: CUDA out of memory with block 256, retrying with 128 ... ok\n" + GRAPH, HUNG, "timeout", False),
    ("a size printed, then a hang", BOOT + "maximum number of tokens that can be stored in KV cache: 261936\n" + GRAPH, HUNG, "timeout", False),
    ("a size printed, the log cut there", "maximum number of tokens that can be stored in KV cache: 144\n", 1, "context_too_long", False),
    ("a retried allocation, then an error without a name", BOOT + "[ixformer] warmup: CUDA out of memory with block 256, retrying\n" + V0 + "RuntimeError: strange\n", 1, "unknown", False),
    ("an echoed command", "+ exec vllm serve /m\n+ echo User-specified max_model_len 262144\n", -9, "killed", False),
    ("NumPy's warning, then a hang", "A module that was compiled using NumPy 1.x cannot be run in\n" + BOOT + LOAD, HUNG, "timeout", False),
    ("NCCL's plug-in", BOOT + "h:131:131 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file\nRuntimeError: strange\n", 1, "unknown", False),
    ("advice on assertions", "RuntimeError: CUDA error: invalid argument\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n", 1, "unknown", False),
    ("a package that is optional", BOOT + "flash_attn is not installed, using torch\n" + LOAD, HUNG, "timeout", False),
    # healthy words
    ("Gloo's greeting, then a hang", BOOT + GLOO + LOAD, HUNG, "timeout", False),
    ("Gloo's greeting while it boots", BOOT + GLOO, 0, "none", False),
    ("Gloo's failure", W0 + "RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error\n", 1, "collective_failed", False),
    # V0's driver has no pid; what a worker says after it is what followed
    ("driver full, a worker loses its peer", BOOT + V0 + OOM + V0_WORKER + "RuntimeError: [pair.cc:534] gloo Connection closed by peer [127.0.0.1]:41217\n", 1, "gpu_oom", True),
    ("driver without room, a worker's NCCL", BOOT + V0 + "ValueError: No available memory for the cache blocks.\n" + V0_WORKER + "torch.distributed.DistBackendError: NCCL error in: P.cpp:2027, remote process exited\n", 1, "kv_cache_no_room", True),
    ("driver full, a worker interrupted", BOOT + V0 + OOM + "(VllmWorkerProcess pid=212) KeyboardInterrupt\n", 1, "gpu_oom", True),
    ("the peer speaks before the cause", W0 + "RuntimeError: [Rank 0] Connection closed by peer [127.0.0.1]:4\n" + W1 + OOM + FAILED, 1, "gpu_oom", True),
    ("an error without a name, then a worker loses it", BOOT + V0 + "RuntimeError: strange\n" + V0_WORKER + NCCL_GONE, 1, "unknown", False),
    ("nothing but a lost peer", BOOT + V0_WORKER + NCCL_GONE, 1, "collective_failed", False),
    ("the port, then the engine follows", CORE_INFO + "Initializing\n" + API + "OSError: [Errno 98] Address already in use\n" + W1 + NCCL_GONE, 1, "port_in_use", False),
    ("stopped, then NCCL", CORE_INFO + "Initializing\n" + API + "KeyboardInterrupt: terminated\n" + W1 + "RuntimeError: NCCL error: unhandled system error\n", 143, "stopped", False),
    # what the start script got past
    ("a tool is missing, the device is full", TOOL + BOOT + V0 + OOM, 1, "gpu_oom", True),
    ("a tool is missing, the arguments are wrong", TOOL + "usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --x\n", 2, "bad_argument", True),
    ("a tool is missing, then killed", TOOL + BOOT + LOAD, -9, "killed", False),
    ("a tool cannot load, the device is full", "ixsmi: error while loading shared libraries: libixml.so: cannot open shared object file\n" + BOOT + V0 + OOM, 1, "gpu_oom", True),
    ("the engine is missing", "/root/start.sh: line 12: vllm: command not found\n", 127, "launch_script", False),
    # what was caught
    ("a key was looked for", W0 + "KeyError: 'model.layers.0.self_attn.qkv_proj'\n" + W0 + DURING + W0 + OOM + FAILED, 1, "gpu_oom", True),
    ("a module was looked for", W0 + "ModuleNotFoundError: No module named 'flash_attn_interface'\n" + W0 + DURING + W0 + "RuntimeError: CUDA error: no kernel image is available for execution\n" + FAILED, 1, "kernel_mismatch", False),
    ("a module was looked for, and what came has no name", W0 + "ModuleNotFoundError: No module named 'x'\n" + W0 + DURING + W0 + "RuntimeError: strange\n" + FAILED, 1, "python_environment", False),
    ("an optional plug-in, then killed", CORE + "ModuleNotFoundError: No module named 'lmcache'\n(Worker_TP0 pid=131) Loading safetensors checkpoint shards:  14% Completed | 5/37\n", -9, "killed", False),
    ("an error the process outlived, then a hang", CORE + "ValueError: No available memory for the cache blocks.\n" + CORE_INFO + "next try\n", HUNG, "timeout", False),
    ("the usage report, then killed", BOOT + USAGE + LOAD, 137, "killed", False),
    ("the usage report, then stopped", BOOT + USAGE + LOAD, 143, "stopped", False),
    ("the engine's own error outranks a signal", CORE + "RuntimeError: strange\n" + FAILED, -9, "unknown", False),
    # killed
    ("a worker's exit code", BOOT + "ERROR 07-01 10:05:00 multiproc_worker_utils.py:116] Worker VllmWorkerProcess pid 211 died, exit code: -9\n", 1, "killed", False),
    ("a core's exit code", API + "RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': -9}\n", 1, "killed", False),
    ("Ray's memory monitor", "(raylet) node_manager.cc:3193: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 crashed\n", 1, "killed", False),
    ("what Ray holds to be possible", API + "The actor is dead because its worker process has died. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer (3) SIGSEGV\n", 1, "unknown", False),
    ("the host's memory, pinned", W0 + "RuntimeError: CUDA error: out of memory (pinned host memory): cudaHostAlloc failed\n", 1, "killed", False),
    ("the host's memory, NumPy", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 31.2 GiB for an array\n", 1, "killed", False),
    # after it was ready
    ("the engine died", READY + CORE + "EngineCore encountered a fatal error.\n" + CORE + "IndexError: index 32768 is out of bounds\n" + API + "vllm.v1.engine.exceptions.EngineDeadError: x\n" + API + "INFO:     Shutting down\n", 0, "unknown", False),
    # cut: it may have gone on to say something else
    ("cut: whose memory", CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to al", 1, "gpu_oom", False),
    ("cut: which value", "pydantic_core.ValidationError: 1 validation error for VllmConfig\n  Value error, Total number of attention heads (28) must be div", 1, "bad_argument", False),
    ("cut: Ray's", "ray.exceptions.OutOfMemoryError: Task was", 1, "killed", False),
    ("cut: a library", "ImportError: libcudart.so.12: cannot op", 1, "missing_library", False),
    # who holds the memory
    ("memory of others whom nobody can see", W0 + OOM.replace("15.30 GiB", "2.46 GiB") + FAILED, 1, "gpu_memory_taken", False),
    ("memory of others, torch 1", V0 + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 2; 31.73 GiB total capacity; 1.21 GiB already allocated; 88.06 MiB free; 1.30 GiB reserved in total by PyTorch)\n", 1, "gpu_memory_taken", False),
    ("more than an empty device has", W0 + "ValueError: Free memory on device (31.20/31.73 GiB) on startup is less than desired GPU memory utilization (0.99, 31.41 GiB).\n", 1, "bad_argument", True),
    # said otherwise, or on another line
    ("ZMQ's port", CORE + "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:29551')\n", 1, "port_in_use", False),
    ("a file of a cache", W0 + "PermissionError: [Errno 13] Permission denied: '/root/.triton/cache/7f/x.so'\n", 1, "unknown", False),
    ("xformers, dtype", V0 + "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n" + V0 + "     query       : shape=(1, 2048)\n" + V0 + "    bf16 is only supported on A100+ GPUs\n", 1, "dtype_not_supported", True),
    ("xformers, build", V0 + "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n" + V0 + "    bf16 is only supported on A100+ GPUs\n" + V0 + "    xFormers wasn't build with CUDA support\n", 1, "kernel_mismatch", False),
    ("a message under its exception", "ImportError: \n requires the protobuf library but it was not found in your environment.\n", 1, "python_environment", False),
]  # fmt: skip

# (message, class): of the wild, each by itself.
MESSAGES = [
    ("ValueError: GPU memory utilization must be less than 1.0. Got 1.2.", "bad_argument"),
    ("ValueError: The supplied chat template string (/m/chat.jinja) appears path-like, but doesn't exist!", "bad_argument"),
    ("ValueError: Unsupported connector type: MooncakeConnectorX", "bad_argument"),
    ("ValueError: Unknown reasoning parser: qwen9. Available: ['qwen3']", "bad_argument"),
    ("ValueError: max_loras (4) must be greater than or equal to max_cpu_loras (2)", "bad_argument"),
    ("ValueError: Chunked MM input disabled but max_tokens_per_mm_item (16384) is larger than max_num_batched_tokens (2048).", "bad_argument"),
    ("TypeError: Error: --tool-call-parser x cannot be used", "bad_argument"),
    ("ValueError: CUDA Paged Attention kernel only supports block sizes up to 32. Got 128.", "feature_not_supported_by_backend"),
    ("ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128.", "bad_parallel_size"),
    ("OSError: Can't load image processor for '/m'. If you were trying to load it from", "model_not_found"),
    ("modelscope.hub.errors.NotExistError: The model: Qwen/Q does not exist on https://modelscope.cn", "model_not_found"),
    ("huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://h/x: offline mode is enabled.", "model_not_found"),
    ("ValueError: Architecture qwen3moe not supported", "model_not_supported"),
    ("AssertionError: Torch not compiled with CUDA enabled", "python_environment"),
    ("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.", "driver_or_device"),
    ("RuntimeError: ixdrv: cuInit failed, no device found", "driver_or_device"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "driver_or_device"),
    ("RuntimeError: Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:364 'invalid argument'", "collective_failed"),
    ("/root/start.sh: line 22: MODEL_DIR: unbound variable", "launch_script"),
    ("-bash: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory", "launch_script"),
    ("timeout: sending signal TERM to command 'python3'", "timeout"),
]  # fmt: skip


@pytest.mark.parametrize(("log", "code", "name", "final"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])  # fmt: skip
def test_cause(log: str, code: int | None, name: str, final: bool) -> None:
    found = start_cause.explain(log, exit_code=code, timed_out=code is HUNG)
    assert (found["class"], start_cause.is_final(found)) == (name, final)
    if found["root_cause"] is not None:
        assert found["root_cause"] in log.split("\n")[found["line"] - 1]


@pytest.mark.parametrize(("message", "name"), MESSAGES)
def test_message(message: str, name: str) -> None:
    found = start_cause.explain(message + "\n", exit_code=1)
    assert (found["class"], found["line"], found["confidence"]) == (name, 1, "high")


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    got = [start_cause.explain(log, code, code is HUNG)["class"] for _, log, code, _, _ in ROWS]
    with capsys.disabled():
        right = sum(row[3] == name for row, name in zip(ROWS, got, strict=True))
        print(f"\nstart causes: {right} of {len(ROWS)} hard logs right")


def test_only_a_certain_cause_in_the_configuration_is_final() -> None:
    assert start_cause.is_final({"side": "config", "confidence": "high"})
    for cause in ({"side": "config", "confidence": "low"}, {"side": "host", "confidence": "high"}, {"side": "config"}, {}):  # fmt: skip
        assert not start_cause.is_final(cause)


@pytest.mark.parametrize(
    ("total", "free", "own", "taken"),
    [("31.73", "1.10", "30.20", False), ("31.73", "0.30", "28.00", True), ("80.00", "1.00", "75.50", False)],
)  # fmt: skip
def test_what_is_neither_free_nor_ours_is_of_others(
    total: str, free: str, own: str, taken: bool
) -> None:
    text = f"CUDA out of memory. GPU 0 has a total capacity of {total} GiB of which {free} GiB is free. Including non-PyTorch memory, this process has {own} GiB memory in use."
    assert device_memory.corrected("gpu_oom", text) == ("gpu_memory_taken" if taken else "gpu_oom")


def test_a_number_that_is_none_decides_nothing() -> None:
    text = "total capacity of 1.2.3 GiB of which .. GiB is free. this process has 1..2 GiB"
    assert device_memory.corrected("gpu_oom", text) in ("gpu_oom", "gpu_memory_taken")


def test_every_named_message_has_a_hint() -> None:
    for message, _name in MESSAGES:
        assert start_rules.may_name(message), message
    for _name, whole in start_rules.BEGINNINGS:
        assert start_rules.may_name("ValueError: " + whole), whole


@pytest.mark.parametrize(("confidence", "status"), [("high", "not_possible"), ("low", "invalid")])
def test_a_guess_is_no_result(confidence: str, status: str) -> None:
    cause = {"class": "gpu_oom", "side": "config", "confidence": confidence}
    known = SimpleNamespace(causes={}, starts={})
    launch = SimpleNamespace(came_up=False, known=known, server_digest="d")
    server = SimpleNamespace(attached=False, start_id="s1")
    ended = Launch._failed_start(launch, server, StartFailed(cause))  # type: ignore[arg-type]
    assert ended.status == status and bool(known.causes) == (status == "not_possible")
    start = Start(Path("x"), "s1", {"status": "failed", "cause": cause})
    assert start.not_possible == (status == "not_possible")


# ------------------------------------------------------------------ long logs
DULL = "INFO 11-18 18:07:09 x.py:1] vendor chatter with words and words and words and words\n"
STAGE_LINES = [
    "INFO 07-01 10:00:00 [__init__.py:1] Automatically detected platform cuda.",
    "INFO 07-01 10:00:00 x.py:1] vLLM API server version 0.6.3",
    "INFO 07-01 10:00:00 x.py:1] Starting to load model /m...",
    "INFO 07-01 10:00:00 x.py:1] Loading model weights took 16.2 GB",
    "INFO 07-01 10:00:00 x.py:1] # CUDA blocks: 7",
    "INFO 07-01 10:00:00 x.py:1] Capturing the model for CUDA graphs.",
    "INFO 07-01 10:00:00 x.py:1] Graph capturing finished in 6 secs",
    "INFO:     Application startup complete.",
    "INFO:     Uvicorn running on http://0.0.0.0:8000",
]


def test_a_long_log_keeps_its_numbers_and_its_telling_lines() -> None:
    dull, lines = DULL * 20_000, STAGE_LINES + [m for m, _ in MESSAGES]
    text = dull + "\n".join(lines) + "\n" + dull
    short = long_log.condensed(text)
    assert len(short) < len(text) / 2 and short.count("\n") == text.count("\n")
    assert short.split("\n")[20_000 : 20_000 + len(lines)] == lines
    assert all(start_stages.stage_of(line) for line in STAGE_LINES[:-1])


@pytest.mark.parametrize(("before", "after"), [(60_000, 0), (40_000, 40_000), (0, 60_000)])
def test_the_cause_is_found_wherever_it_stands_in_a_long_log(
    before: int, after: int, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    log.write_text(DULL * before + OOM + DULL * after)
    found = start_cause.explain(long_log.read(str(log)), exit_code=1)
    assert (found["class"], found["line"]) == ("gpu_oom", before + 1)


def test_a_file_that_is_too_long_keeps_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_log, "MAX_READ", 1 << 20)
    log = tmp_path / "server.log"
    log.write_text(DULL * 40_000 + OOM)
    assert start_cause.explain(long_log.read(str(log)), 1)["line"] == 40_001
    assert long_log.read(str(tmp_path / "none")) == ""


@pytest.mark.parametrize("end", ["\n", "\r", ""])
def test_a_flood_hides_no_cause(end: str) -> None:
    piece = "[rank0]: some vendor line without level number of warmup at block size"
    found = start_cause.explain((piece + end) * 140_000 + "\n" + OOM, exit_code=1)
    assert (found["class"], found["side"]) == ("gpu_oom", "config")


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    log = tmp_path / "s.log.gz"
    data = bytearray(gzip.compress(DULL.encode() * 50))
    data[12:20] = b"\xff" * 8
    log.write_bytes(data)
    done = subprocess.run([sys.executable, SCRIPT, log], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "cannot read" in done.stderr and "Traceback" not in done.stderr
