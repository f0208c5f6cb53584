"""The cause of a failed start in what engines, forks and containers really print; and healthy words.

One line of the wild a row, in the prefix it came with. `test_the_table` prints log x (expected, got).
"""

# ruff: noqa: E501  (one log a line)

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cargo import log_lines, long_log, start_cause, start_rules

CORE = "(EngineCore_DP0 pid=77) ERROR 07-03 07:57:04 [core.py:936] "
WORKER = "(Worker_TP3 pid=1366) ERROR 07-03 07:57:04 [multiproc_executor.py:898] "
V0 = "ERROR 12-19 01:22:33 engine.py:366] "
V0_WORKER = "(VllmWorkerProcess pid=216) ERROR 03-01 07:34:52 multiproc_worker_utils.py:242] "
JOURNAL = "Aug 19 18:34:30 gpu01 vllm[8707]: (APIServer pid=8707) "
LOGGED = "2025-06-27 12:57:51,690 - __main__ - INFO - "
WRAPPED = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"

REAL = [
    # V0 and V1, the engine itself
    (CORE + "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.13 GiB).", "context_too_long"),
    (CORE + "ValueError: Available memory on node 0 (11.54/13.09 GiB) on startup is less than desired CPU memory utilization (0.92, 12.04 GiB)", "gpu_memory_taken"),
    (CORE + "AssertionError: Error in memory profiling. Initial used memory 1048576, currently used memory 524288.", "gpu_memory_taken"),
    (CORE + "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs`", "gpu_oom"),
    (CORE + "ValueError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons: ", "feature_not_supported_by_backend"),
    (CORE + "ValueError: The quantization method awq is not supported for the current GPU. Minimum capability: 75. Current capability: 70.", "feature_not_supported_by_backend"),
    ("Value error, torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16] [type=value_error", "dtype_not_supported"),
    ("ValueError: The model type 'gemma3' does not support float16. Reason: Numerical instability.", "dtype_not_supported"),
    ("ValueError: Quantization method specified in the model config (marlin) does not match the quantization method specified in the `quantization` argument (gptq).", "bad_argument"),
    ("vllm serve: error: the following arguments are required: model_tag", "bad_argument"),
    ("NotImplementedError: VLLM_USE_V1=1 is not supported with --num-scheduler-steps.", "feature_not_supported_by_backend"),
    ("ValueError: Invalid value 'X' for VLLM_ATTENTION_BACKEND. Valid options: ['FLASH_ATTN']", "bad_argument"),
    ("ValueError: Loading /m requires you to execute the configuration file in that repo on your local machine. Make sure you have read the code there to avoid malicious use, then set the option `trust_remote_code=True` to remove this error.", "bad_argument"),
    ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "feature_not_supported_by_backend"),
    (WORKER + "ValueError: Head size 80 is not supported by PagedAttention.", "feature_not_supported_by_backend"),
    (CORE + "AssertionError: 151936 is not divisible by 7", "bad_parallel_size"),
    ("ValueError: World size (2) is larger than the number of available GPUs (1) in this node.", "bad_parallel_size"),
    ("ValueError: Tensor parallel size (2) exceeds available GPUs (1)", "bad_parallel_size"),
    (WORKER + "AssertionError: Invalid device id", "bad_parallel_size"),
    ("AssertionError: please set tensor_parallel_size (8) to less than max local gpu count (4)", "bad_parallel_size"),
    (CORE + "AssertionError: FlashAttention version 3 is not supported on this device", "feature_not_supported_by_backend"),
    ("ValueError: FlashAttention does not support fp8 kv-cache on this device.", "feature_not_supported_by_backend"),
    ("ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')", "dtype_not_supported"),
    ("NotImplementedError: Pipeline parallelism is only supported for the following  architectures: ['A']", "feature_not_supported_by_backend"),
    ("ValueError: LoRA rank 64 is greater than max_lora_rank 16.", "bad_argument"),
    ("ValueError: Too large swap space. 64.00 GiB out of the 31.00 GiB total CPU memory is allocated for the swap space.", "bad_argument"),
    ("ImportError: `tiktoken` is required to read a `tiktoken` file.", "python_environment"),
    ("RuntimeError: CUDA error: operation not supported", "driver_or_device"),
    (WORKER + "TimeoutError: RPC call to execute_model timed out.", "timeout"),
    # the model's files
    (V0 + "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "weights_corrupt"),
    (V0 + "safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeaderDeserialization", "weights_corrupt"),
    ("_pickle.UnpicklingError: invalid load key, 'v'.", "weights_corrupt"),
    (WORKER + "FileNotFoundError: No such file or directory: \"/m/model-00002-of-00004.safetensors\"", "weights_corrupt"),
    (WORKER + "AssertionError: Attempted to load weight (torch.Size([128])) into parameter (torch.Size([64]))", "weights_corrupt"),
    ("OSError: It looks like the config file at '/m/config.json' is not a valid JSON file.", "weights_corrupt"),
    ("OSError: We couldn't connect to 'https://hf-mirror.com' to load the files, and couldn't find them in the cached files.", "model_not_found"),
    ("OSError: You are trying to access a gated repo.", "model_not_found"),
    ("ValueError: No supported config format found in /m.", "model_not_found"),
    ("OSError: Can't load tokenizer for '/m'. If you were trying to load it from", "model_not_found"),
    ("Exception: data did not match any variant of untagged enum ModelWrapper at line 757479 column 3", "model_not_supported"),
    ("ValueError: Qwen9ForCausalLM has no vLLM implementation and the Transformers implementation is not compatible with vLLM.", "model_not_supported"),
    # between devices
    ("(VllmWorkerProcess pid=3615391) ERROR 08-06 18:38:55 multiproc_worker_utils.py:226] RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)", "collective_failed"),
    ("[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled cuda error", "collective_failed"),
    ("[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0'", "collective_failed"),
    ("RuntimeError: create:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:89 HCCL function error: HcclCommInitRootInfo(numRanks, &rootInfo, rank, &(comm->hcclComm_)), error code is 7", "collective_failed"),
    ("RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64", "collective_failed"),
    ("RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", "collective_failed"),
    ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use", "port_in_use"),
    # ray
    ("ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.", "bad_parallel_size"),
    ("(ServeController pid=2645112) ValueError: Placement group bundle cannot have more than 1 GPU.", "bad_parallel_size"),
    ("ValueError: Cannot provide a placement group of placement_group_specs=[{'GPU': 1.0}] within 1800 seconds.", "bad_parallel_size"),
    ("ValueError: Ray does not allocate any GPUs on the driver node. Consider adjusting the Ray placement group or running the driver on a GPU node.", "driver_or_device"),
    ("ValueError: Current node has no GPU available. current_node_resource={}.", "driver_or_device"),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "killed"),
    # Ascend, MUSA, Iluvatar
    ("RuntimeError: NPU out of memory. Tried to allocate 3.47 GiB (NPU 0; 60.97 GiB total capacity; 58.92 GiB already allocated; 1.66 GiB free)", "gpu_oom"),
    ("ImportError: libascend_hal.so: cannot open shared object file: No such file or directory", "missing_library"),
    ("RuntimeError: Initialize:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:217 NPU function error: aclInit(), error code is 107003", "driver_or_device"),
    ("RuntimeError: MUSA error: out of memory", "gpu_oom"),
    ("ModuleNotFoundError: No module named 'torch_musa'", "python_environment"),
    (WORKER + "FileNotFoundError: [Errno 2] No such file or directory: '/usr/nvvm/libdevice/libdevice.compute_bi.10.bc'", "missing_library"),
    (WORKER + "AttributeError: module 'ixformer.functions' has no attribute 'vllm_paged_attention'", "kernel_mismatch"),
    ("ixsmi: error while loading shared libraries: libixml.so: cannot open shared object file: No such file or directory", "missing_library"),
    # docker, OCI, systemd, shells
    ('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].', "driver_or_device"),
    ("docker: Error response from daemon: OCI runtime create failed: container_linux.go:367: starting container process caused: error running hook: exit status 1, stderr: nvidia-container-cli: initialization error: driver error", "driver_or_device"),
    ("Container opvll Creating Error response from daemon: unknown or invalid runtime name: nvidia", "driver_or_device"),
    ("docker: Error response from daemon: driver failed programming external connectivity: Bind for 0.0.0.0:8000 failed: port is already allocated.", "port_in_use"),
    ('docker: Error response from daemon: failed to create task for container: OCI runtime create failed: exec: "vllm": executable file not found in $PATH: unknown.', "launch_script"),
    ("systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL", "killed"),
    ("OOMKilled", "killed"),
    ("./serve.sh: line 12: /opt/corex/bin/python3: No such file or directory", "launch_script"),
    ("nohup: failed to run command 'vllm': No such file or directory", "launch_script"),
    ("Terminated", "stopped"),
    ("OSError: [Errno 28] No space left on device: '/root/.cache/vllm'", "no_space"),
    ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", "no_space"),
    # import errors of transformers, xformers, flash-attn, triton
    ("ImportError: /usr/local/lib/python3.10/dist-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE", "kernel_mismatch"),
    ("ImportError: vllm/_C.abi3.so: undefined symbol _ZN3c106ivalue14ConstantString6createENSt7", "kernel_mismatch"),
    ("ImportError: cannot import name 'Qwen2_5_VLProcessor' from 'transformers'", "python_environment"),
    ("ImportError: This modeling file requires the following packages that were not found in your environment: flash_attn.", "python_environment"),
    ("CUDA error (/__w/xformers/xformers/third_party/flash-attention/hopper/flash_fwd_launch_template.h:188): invalid argument", "kernel_mismatch"),
    (V0_WORKER + "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "python_environment"),
    ("RuntimeError: Cannot find ptxas", "python_environment"),
    ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "kernel_mismatch"),
    (CORE + "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: 101376.", "kernel_mismatch"),
    ("/tmp/tmpx/main.c:5:10: fatal error: Python.h: No such file or directory", "python_environment"),
    ("subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-O3']' returned non-zero exit status 1.", "python_environment"),
    ("RuntimeError: operator torchvision::nms does not exist", "kernel_mismatch"),
    ("NotImplementedError: Could not run '_C::rms_norm' with arguments from the 'CUDA' backend.", "kernel_mismatch"),
    ("ValueError: 'aimv2' is already used by a Transformers config, pick another name.", "python_environment"),
    ("ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject", "python_environment"),
    ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices()? Error 802: system not yet initialized", "driver_or_device"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "driver_or_device"),
    ("RuntimeError: Device string must not be empty", "driver_or_device"),
    # prefixes of those who keep logs for others
    (JOURNAL + "OSError: [Errno 98] Address already in use", "port_in_use"),
    (LOGGED + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "kv_cache_no_room"),
    ("2026-08-07T08:27:05.805Z stderr F ModuleNotFoundError: No module named 'vllm'", "python_environment"),
    ("...half a line without its endERROR 12-19 01:22:33 engine.py:366] ValueError: Unknown attention backend: 'X'", "bad_argument"),
    ("2026-06-09 14:01:54.604 [Info] (Process) (EngineCore pid=42406) torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "gpu_oom"),
    ("  | (EngineCore_DP0 pid=6804) ValueError: No available memory for the cache blocks. Try increasing", "kv_cache_no_room"),
    ("Aug 04  00:35:11.716 | ERROR 08-04 07:35:11 [core.py:515] EngineCore failed to start. ERROR 08-04 07:35:11 [core.py:515]     super().__init__(vllm_config, executor_class) ERROR 08-04 07:35:11 [core.py:515] RuntimeError: CUDA error: no kernel image is available for execution", "kernel_mismatch"),
    ("(EngineCore_1 pid=198373) (EngineCore_3 pid=198391) ERROR 06-30 16:46:05 [core.py:500] RuntimeError: NPU out of memory. Tried to allocate 22.00 MiB", "gpu_oom"),
    ("RuntimeError: [address=0.0.0.0:38231, pid=2088] Device string must not be empty", "driver_or_device"),
    ("lueError: No available memory for the cache blocks. Try incr", "kv_cache_no_room"),  # cut at both ends
    ("torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL", "killed"),  # a wrapper is all there is
    ("RuntimeError: something that nobody has seen yet", "unknown"),
    ("Segmentation fault (core dumped)", "unknown"),
]  # fmt: skip

# What healthy servers say and what looks like a cause.
HEALTHY = [
    "WARNING 07-01 10:00:00 [__init__.py:1] Failed to import from vllm._C with ModuleNotFoundError(\"No module named 'vllm._C'\")",
    "INFO 08-07 08:26:47 importing.py:10] Triton not installed; certain GPU-related functions will not be available.",
    "WARNING 07-01 10:00:00 arg_utils.py:963] The model has a long context length (100000). This may cause OOM errors during the initial memory profiling phase",
    "INFO 07-01 10:00:00 model_runner.py:1430] Capturing cudagraphs for decoding. If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization`",
    "[rank0]:[W326 11:49:12.331714626 compiler_depend.ts:133] Warning: Warning: Device do not support double dtype now, dtype cast repalce with float. (function operator())",
    "/opt/x/torch/cuda/__init__.py:51: FutureWarning: The pynvml package is deprecated. Please install nvidia-ml-py instead. If you did not install pynvml directly, report this",
    "WARNING 07-01 10:00:00 [system_utils.py:255] Found ulimit of 20000. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`.",
    "(EngineCore_DP0 pid=59619) INFO 10-15 08:32:29 [pynccl.py:103] vLLM is using nccl==2.27.3",
    "gpu01:845:845 [7] NCCL INFO init.cc:1236 -> 1",
    "NCCL version 2.20.5+cuda12.4",
    "WARNING 07-01 10:00:00 [compilation.py:1409] CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend FlashInferBackend; setting cudagraph_mode=PIECEWISE",
    "(APIServer pid=46) WARNING 03-23 16:18:37 [vllm.py:736] Async scheduling will be disabled because it is not supported with the `ray` distributed executor backend",
    "ERROR 08-07 08:27:55 _custom_ops.py:58] Error in calling custom op topk_softmax: module 'ixformer.functions' has no attribute 'x'",
    "ERROR 08-07 08:27:55 _custom_ops.py:58] Please try a clean build and install of vllm,or remove old built files such as vllm/*cpython*.so and build/ .",
    "Loading safetensors checkpoint shards: 100% Completed | 16/16 [00:17<00:00,  1.12s/it]",
    "2026-08-07 08:26:48.657168: I tensorflow/core/util/port.cc:110] oneDNN custom operations are on. You may see different results. To turn them off, set `TF_ENABLE_ONEDNN_OPTS=0`.",
]  # fmt: skip
BOOT = "INFO 07-01 10:00:00 api_server.py:530] vLLM API server version 0.6.3\n"
READY = "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"


def log_of(line: str) -> str:
    return f"{BOOT}{line}\n{WRAPPED}\n"


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(line, name, start_cause.explain(log_of(line))) for line, name in REAL]
    wrong = [line for line, name, got in rows if got["class"] != name]
    with capsys.disabled():
        print(f"\nstart causes: {len(rows) - len(wrong)} of {len(rows)} real messages right")
        for line, name, got in rows:
            mark = "ok " if got["class"] == name else "BAD"
            print(f"  {mark} {name:34} {got['class']:34} {line[-70:]}")
    assert not wrong


@pytest.mark.parametrize(("line", "name"), REAL, ids=range(len(REAL)))
def test_the_root_cause_is_the_line_itself(line: str, name: str) -> None:
    found = start_cause.explain(log_of(line))
    assert (found["class"], found["line"]) == (name, 2)
    assert found["root_cause"] and found["root_cause"] in line
    assert found["side"] == start_rules.CLASSES[name].side


@pytest.mark.parametrize("line", HEALTHY, ids=range(len(HEALTHY)))
def test_healthy_words_are_no_cause(line: str) -> None:
    assert start_cause.explain(f"{BOOT}{line}\n{READY}")["class"] == "none"
    hung = start_cause.explain(f"{BOOT}{line}\n", timed_out=True)
    assert (hung["class"], hung["root_cause"]) == ("timeout", None)


def test_every_message_survives_the_shortening_of_a_long_log() -> None:
    dull = "INFO 11-18 18:07:09 x.py:1] vendor chatter with words and words and words\n" * 10_000
    kept = long_log.condensed(dull + "\n".join(line for line, _ in REAL) + "\n" + dull)
    assert [line for line, _ in REAL if line not in kept] == []


def test_every_class_is_met() -> None:
    assert {name for _, name in REAL} | {"none"} == set(start_rules.CLASSES)


MIXED = [line for line, _ in REAL] + HEALTHY + [WRAPPED, BOOT.strip(), *READY.split("\n")]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(MIXED), max_size=8),
    st.lists(st.sampled_from(MIXED), max_size=8),
    st.data(),
)
def test_cut_dropped_and_interleaved(one: list[str], two: list[str], data: st.DataObject) -> None:
    """Two processes write into one pipe; lines are lost; the copy ends anywhere."""
    order = data.draw(st.permutations([*one, *two]))
    kept = [line for line in order if data.draw(st.booleans())]
    joint = data.draw(st.sampled_from(["\n", "\r\n", "", "\n\n"]))
    text = joint.join(kept)
    text = text[: data.draw(st.integers(0, len(text)))]
    found = start_cause.explain(
        text, data.draw(st.sampled_from([None, 0, 1, -9, 143])), data.draw(st.booleans())
    )
    assert found["class"] in start_rules.CLASSES
    if found["root_cause"] is not None:
        assert found["root_cause"] in log_lines.plain(text.split("\n")[found["line"] - 1])
    else:
        assert found["line"] is None


@pytest.mark.parametrize("line", [REAL[0][0], REAL[19][0], REAL[53][0]])
def test_cut_after_every_byte(line: str) -> None:
    raw = log_of(line).encode()
    for end in range(len(raw) + 1):
        text = raw[:end].decode("utf-8", errors="replace")
        found = start_cause.explain(text, 1)
        assert found["root_cause"] is None or found["root_cause"] in text
