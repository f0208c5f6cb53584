"""What ends a start: the classes of causes, and which words in a log name which class.

CLASSES: a class, where its cause lies, one action. RULES: what an error line says -> its class,
most specific first: the first row that matches names the error. Patterns look at the *start* of a
message where they can, so that a line cut in the middle is still known. The other tables say which
words are no cause of their own, and which are too few. Data, and what reads it.

A class on the side of the configuration is final: a row of one must be certain of it.
"""

# ruff: noqa: E501  (one rule a line: the tables are read as tables)

from __future__ import annotations

import re
from functools import lru_cache
from typing import Dict, NamedTuple, Optional, Tuple

from cargo import device_memory

CONFIG, HOST, NONE = "config", "host", "none"


class Class(NamedTuple):
    side: str  # "config": not possible, a result; "host": invalid, made again at the next call
    en: str  # one action
    zh: str


CLASSES: Dict[str, Class] = {
    "bad_argument": Class(CONFIG, "Correct or remove the flag that the engine rejects.", "改正或移除被引擎拒绝的启动参数。"),
    "feature_not_supported_by_backend": Class(CONFIG, "Remove the option that this backend refuses, or ask for a backend that takes it.", "移除该后端不支持的选项，或改用支持它的后端。"),
    "kv_cache_no_room": Class(CONFIG, "Raise --gpu-memory-utilization.", "调高 --gpu-memory-utilization。"),
    "context_too_long": Class(CONFIG, "Lower --max-model-len.", "调低 --max-model-len。"),
    "gpu_oom": Class(CONFIG, "Lower the memory this variant asks for (--max-num-seqs, --max-num-batched-tokens or --max-model-len).", "降低该变体的显存需求（--max-num-seqs、--max-num-batched-tokens 或 --max-model-len）。"),
    "model_not_found": Class(CONFIG, "Correct the model path.", "改正模型路径。"),
    "model_not_supported": Class(CONFIG, "Use an engine (or transformers) version that knows this model.", "换用支持该模型的引擎（或 transformers）版本。"),
    "dtype_not_supported": Class(CONFIG, "Set --dtype to one that this device and this model take.", "把 --dtype 设为该设备与该模型都支持的类型。"),
    "bad_parallel_size": Class(CONFIG, "Set --tensor-parallel-size to what the model and the devices allow.", "把 --tensor-parallel-size 设为模型与设备都允许的值。"),
    "port_in_use": Class(HOST, "Free the port, or choose another.", "释放该端口，或换一个端口。"),
    "gpu_memory_taken": Class(HOST, "Free the accelerator memory that another process holds.", "释放被其他进程占用的显存。"),
    "weights_corrupt": Class(HOST, "Copy the model's weight files again.", "重新拷贝模型权重文件。"),
    "collective_failed": Class(HOST, "Check the links between the devices (run once with NCCL_DEBUG=INFO).", "检查卡间通信（用 NCCL_DEBUG=INFO 运行一次）。"),
    "kernel_mismatch": Class(HOST, "Install the build of the engine that matches this torch and device.", "安装与当前 torch 和设备匹配的引擎构建。"),
    "missing_library": Class(HOST, "Add the folder of the named library to LD_LIBRARY_PATH.", "把所缺动态库所在目录加入 LD_LIBRARY_PATH。"),
    "python_environment": Class(HOST, "Start the server with the Python environment that has the engine and all it needs.", "用装有该引擎及其全部依赖的 Python 环境启动服务。"),
    "driver_or_device": Class(HOST, "Check the device and its driver with the SMI tool.", "用 SMI 工具检查设备与驱动。"),
    "no_space": Class(HOST, "Free space where the named file lies (disk, or /dev/shm of the container).", "释放所示文件所在位置的空间（磁盘，或容器的 /dev/shm）。"),
    "killed": Class(HOST, "See in the kernel log who killed the process (mostly: out of host memory).", "查看内核日志确认被谁杀死（多为主机内存不足）。"),
    "stopped": Class(HOST, "Start it again: it was stopped from outside.", "重新启动：它是被外部停止的。"),
    "timeout": Class(HOST, "Look at the stage where it hung, and raise the limit of that stage if it was only slow.", "查看卡住的阶段；若只是较慢，调大该阶段的时限。"),
    "launch_script": Class(HOST, "Correct server.command.", "改正 server.command。"),
    "unknown": Class(HOST, "Read the log.", "请查看日志。"),
    "none": Class(NONE, "Nothing to do.", "无需处理。"),
}  # fmt: skip

RULES: Tuple[Tuple[str, str], ...] = (
    # -- port
    ("port_in_use", r"Errno 98|(?i:address already in use|port is already allocated)|EADDRINUSE"),
    # -- the host's memory and disk, where the words alone would mean the device's
    ("killed", r"killed due to (?:the node running low on memory|memory pressure)|ray\.exceptions\.OutOfMemoryError|oom-kill|(?i:out of memory: killed process)"),
    ("killed", r"(?i)pinned host memory|cudaHostAlloc|cudaMallocHost"),
    ("no_space", r"\[?Errno 28\]?|No space left on device|insufficient shared memory|Disk quota exceeded"),
    # -- what a backend or an engine version refuses
    ("feature_not_supported_by_backend", r"Multi-Step(?: \+)?(?: Chunked-Prefill)?(?: is)? not supp"),
    ("feature_not_supported_by_backend", r"(?i)(?:chunked[- ]prefill|prefix caching|CUDA graph) is not supported (?:with|for|by)"),
    ("feature_not_supported_by_backend", r"(?i)multi-step (?:scheduling|decoding)? ?is not supp"),
    ("feature_not_supported_by_backend", r"(?i)speculative decoding is not (?:yet )?supported (?:with|by|for)"),
    ("feature_not_supported_by_backend", r"VLLM_USE_V1=1 is not supported with|is not supported by the V1 Engine"),
    ("feature_not_supported_by_backend", r"Minimum capability: \d+|not supported for the current GPU|FlashAttention (?:only supports|does not support|version \d is not supp)|Pipeline parallelism is (?:only|not) supp"),
    ("dtype_not_supported", r"torch\.\w+ is not supported for quantization method"),
    ("feature_not_supported_by_backend", r"(?i)quantization (?:method )?.{0,40} not supported|Failed to find a kernel that can implement|Marlin does not support"),
    ("feature_not_supported_by_backend", r"(?i)No valid attention backend|Selected backend \S+ is not valid"),
    ("feature_not_supported_by_backend", r"(?i)head[ _](?:size|dim) \d+ is not supported|unsupported head[ _](?:size|dim)"),
    ("feature_not_supported_by_backend", r"(?i)kv[ _-]?cache(?: dtype)? .{0,40}not (?:yet )?supported"),
    ("feature_not_supported_by_backend", r"(?i)\bnot supported (?:by|for|with|on) .{0,60}(?:backend|engine|attention)"),
    ("feature_not_supported_by_backend", r"kernel only supports block sizes up to"),
    # -- arguments
    ("bad_argument", r"error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option)"),
    ("bad_argument", r"(?i)(?:unknown|invalid) attention backend|for VLLM_ATTENTION_BACKEND"),
    ("bad_argument", r"(?i)(?:invalid|unknown) (?:tool call|tool|reasoning) parser|(?:reasoning|tool) parser '?[^ ]+'? not found"),
    ("bad_argument", r"(?i)GPU memory utilization must be (?:less|at most|between|in )|Unsupported connector type|chat template .{0,200}appears path-like, but doesn't exist"),
    ("bad_argument", r"max_loras \(\d+\) must be|max_tokens_per_mm_item \(\d+\) is larger than|Missing required keys in `rope_scaling`"),
    ("bad_argument", r"Error: --[\w-]+(?: \S+)? (?:requires|and|cannot|is only)|cannot be enabled at the same time|Engine\w*Args\S* got an unexpected keyword"),
    ("bad_argument", r"trust_remote_code=True|(?i:unknown quantization method)"),
    # -- context and room for the KV cache
    ("context_too_long", r"max seq len \(\d+\)"),
    ("context_too_long", r"User-specified max_model_len"),
    ("context_too_long", r"maximum number of tokens that can be stored in(?: the)? KV cache"),
    ("bad_argument", r"max_num_batched_tokens \(?\d+\)? (?:is smaller|must be)"),
    ("kv_cache_no_room", r"No available memory for the cache blocks|Available KV cache memory: -|exceeds available Mamba cache blocks"),
    # -- memory of the device
    ("gpu_memory_taken", r"(?:Free|Available) memory on (?:device|node)"),
    ("gpu_memory_taken", r"Error in memory profiling\. Initial (?:free|used) memory"),
    # -- dtype, parallel size
    ("dtype_not_supported", r"(?i)(?:bfloat16|bf16|float16|fp8|half).{0,40}(?:only supported|not supported|not implemented)"),
    ("dtype_not_supported", r"not implemented for '(?:Half|BFloat16|Float8\w*)'|(?i:unknown dtype|does not support (?:bfloat16|bf16|float16))"),
    ("bad_parallel_size", r"(?i)(?:must be|not|is not) (?:evenly )?divisible by (?:the )?(?:tensor|tp|number of|world|pipeline)|^AssertionError: \d+ is not divisible by \d+"),
    ("bad_parallel_size", r"(?:output|input)_size .{0,80}not divisible by weight quantization block_[nk]"),
    ("bad_parallel_size", r"(?i)world.?size .{0,40}(?:larger|greater|exceeds|not equal)|number of required \w+ exceeds|invalid device (?:ordinal|id)\b"),
    ("bad_parallel_size", r"(?i)(?:tensor|pipeline)[ _-]parallel[ _-]size .{0,60}(?:exceed|larger|greater|less than|available|invalid)"),
    ("bad_parallel_size", r"(?i)cannot provide a placement group|placement group bundle cannot have"),
    # -- the model
    ("model_not_found", r"is not a local folder and is not a valid model|Repo id must |Could not find any GGUF|is not the path to a directory containing"),
    ("model_not_found", r"Invalid repository ID or local directory|does not appear to have a file named|No supported config format found|Can't load (?:tokenizer|the configuration|feature extractor|(?:image |video )?processor)"),
    ("model_not_found", r"NotExistError: The model|offline mode is enabled|OfflineModeIsEnabled"),
    ("model_not_found", r"LocalEntryNotFoundError|RepositoryNotFoundError|RevisionNotFoundError|GatedRepoError|gated repo|couldn't connect to 'https?://|host='huggingface"),
    ("model_not_found", r"Cannot find any model weights|Incorrect path_or_model_id|No such file or directory: '[^']*/config\.json'|Error no file named"),
    ("model_not_supported", r"Model architectures? .{0,80}(?:failed to be insp|not supp|are not)|Cannot find model module"),
    ("model_not_supported", r"Transformers does not recogni|has model type `|Unrecognized model in|Unrecognized configuration class"),
    ("model_not_supported", r"(?i)tokenizer class \S+ does not exist|has no vLLM implementation|variant of untagged enum (?:Model|PyPre)|rope_scaling.{0,20} (?:should|must) have"),
    ("model_not_supported", r"^ValueError: (?:Architecture|GGUF model with architecture) \S+ (?:is )?not supported"),
    ("model_not_supported", r"^AttributeError: '\w+Config' object has no attribute"),
    ("weights_corrupt", r"SafetensorError|deserializing header|PytorchStreamReader failed|unexpected EOF, expected \d+|invalid header or archive|UnpicklingError"),
    ("weights_corrupt", r"size mismatch for |weights were not initialized from checkpoint|no module or parameter named|Attempted to load weight|in loading state_dict"),
    ("weights_corrupt", r"No such file or directory.{0,200}\.safetensors|is not a valid JSON file|Unable to load (?:weights|vocabulary) from"),
    ("weights_corrupt", r"^KeyError: '(?:model\.)?(?:layers|language_model|embed_tokens|lm_head)\b"),
    # -- between devices
    ("collective_failed", r"NCCL error|ncclSystemError|ncclInternalError|ncclUnhandled|ncclRemoteError|ncclInvalidUsage|setting up NCCL communicator"),
    ("collective_failed", r"(?i)\b(?:hccl|ixccl|rccl|mccl|eccl|cncl)\b.{0,60}(?:error|fail|timeout)|Hccl\w+\(|HcclComm"),
    ("collective_failed", r"ProcessGroup(?:\w*CCL|Gloo)?.{0,80}(?:timeout|failed|Watchdog)|DistBackendError|DistNetworkError|DistStoreError"),
    ("collective_failed", r"(?i)gloo.{0,80}(?:connectFullMesh|timed out|failed|closed by peer)|custom_?all_?reduce.{0,60}(?:fail|error)|custom_all_reduce\.cuh"),
    ("collective_failed", r"(?i)connection closed by peer"),
    # -- libraries, kernels, Python
    ("kernel_mismatch", r"wasn't build with CUDA support"),
    ("missing_library", r"cannot open shared object file|error while loading shared libraries|Library not loaded|No such file or directory: '[^']*(?:libdevice|\.so\b)"),
    ("kernel_mismatch", r"no kernel image is available|undefined symbol|invalid device function|PTX .{0,40}unsupported|device kernel image is invalid"),
    ("kernel_mismatch", r"ptxas fatal|PTXASError|is not defined for option 'gpu-name'|OutOfResources|out of resource: shared memory|unsupported (?:target|gpu architecture)"),
    ("kernel_mismatch", r"(?:ixformer|_C|_moe_C|vllm_ops|torch\.ops)\S*'? (?:object )?has no attribute|version `?(?:GLIBC|GLIBCXX|CXXABI)"),
    ("kernel_mismatch", r"^(?:AttributeError|RuntimeError): module '(?:torch|triton|flash_attn|xformers|flashinfer)\S*' has no attribute|Could not run '\S+' with arguments from|operator \S+ does not exist"),
    ("kernel_mismatch", r"No module named 'vllm\._|built for a different|was compiled using NumPy|compiled with different|^CUDA error \(\S+:\d+\): invalid argument"),
    ("python_environment", r"ModuleNotFoundError|No module named |ImportError: cannot import name|PackageNotFoundError|requires the following packages"),
    ("python_environment", r"FileNotFoundError: .{0,200}<stdin>|start a new process before the|has finished its bootstrapping"),
    ("python_environment", r"failed to import$|is not available, please install|is not installed|Cannot re-initialize \w+ in forked subprocess|requires Python|DistributionNotFound|VersionConflict|is required for a normal functioning|requires the \w+ library but it was not found"),
    ("python_environment", r"Torch not compiled with CUDA"),
    ("python_environment", r"Failed to find C compiler|(?i:(?:can ?not|could not|failed to) find (?:ptxas|nvcc|ninja))|CUDA_HOME environment variable is not set|fatal error: Python\.h|Ninja is required|No such file or directory: '(?:\S*/)?(?:ninja|gcc|nvcc|ptxas|clang)'"),
    ("python_environment", r"binary incompatibility|is already used by a Transformers config|all_special_tokens_extended|CalledProcessError: Command .{0,40}/(?:gcc|cc|g\+\+|clang|nvcc)"),
    # -- driver, device
    ("driver_or_device", r"(?i)no (?:CUDA|ROCm|HIP|NPU|MUSA)[- ](?:capable device|GPUs are available|devices? (?:is|are) available)|driver version is insufficient|driver on your system is too old"),
    ("driver_or_device", r"(?i)failed to infer device type|device string must not be empty|found no nvidia driver|(?:NVML|IXML|ixml).{0,40}(?:error|not initialized|failed|not found)"),
    ("driver_or_device", r"(?i)(?:CUDA|MUSA|HIP) (?:unknown )?error: (?:unknown|initialization|all CUDA-capable|an illegal|CUDA-capable device|unspecified|hardware|uncorrectable|misaligned|system|device is busy|operation not (?:permitted|supported))"),
    ("driver_or_device", r"(?i)CUDA unknown error|device-side assert|uncorrectable ECC|GPU (?:is|has) (?:lost|fallen off)|illegal memory access|cudaGetDeviceCount|system not yet initialized"),
    ("driver_or_device", r"NPU function error|drvErr|drvDeviceGet|current node has no GPU|does not allocate any GPUs on the driver node|(?i:current node has no \w+ available)"),
    ("driver_or_device", r"CUDA driver initialization failed|cuInit failed|ixdrv: |CUBLAS_STATUS_NOT_INITIALIZED"),
    ("driver_or_device", r"could not select device driver|nvidia-container-cli|invalid runtime name"),
    # -- memory
    ("gpu_oom", r"OutOfMemoryError|(?i:(?:CUDA|HIP|NPU|XPU|MUSA|MLU|GCU|DCU|device|driver)(?: driver)? (?:error: )?out of memory)|CUBLAS_STATUS_ALLOC_FAILED"),
    ("gpu_oom", r"(?i)error: out of memory|Tried to allocate [\d.]+ [GMK]iB"),
    ("killed", r"^Killed\b|: line \d+:\s+\d+ Killed|OOMKilled|(?i:oom[- ]killer|signal 9\b|SIGKILL|status=9/KILL|killed by signal: Killed)"),
    ("killed", r"\[?Errno 12\]?|DefaultCPUAllocator: can't allocate|^(?:[\w.]+\._Array)?MemoryError|std::bad_alloc|exit(?:ed with)?(?: code)?: -9\b|Failed core proc\(s\): \{[^{}]*: -9\b"),
    # -- the launch itself
    ("launch_script", r"command not found|syntax error near|unexpected EOF while looking|can't open file|: Permission denied|unbound variable|bad interpreter"),
    ("launch_script", r"^(?:/bin/|/usr/bin/)?(?:ba|da|z)?sh: .*(?:not found|No such file)|^exec:? |^(?:env|nohup|timeout|taskset|numactl|nice): .*No such file|: line \d+: .*No such file"),
    ("launch_script", r"Error response from daemon|OCI runtime|executable file not found in|Unable to find image"),
    ("stopped", r"^KeyboardInterrupt|(?i:received (?:signal[ =]*)?(?:SIGTERM|SIGINT|15\b)|SIGTERM received)|^Terminated\b|: line \d+:\s+\d+ Terminated"),
    # -- the rest of what validation refuses
    ("bad_argument", r"^(?:pydantic\S*ValidationError|ValidationError): \d+ validation error|^\s*(?:Value error, |Assertion failed, |Input should be )"),
    ("bad_argument", r"LoRA rank \d+ is greater|Too large swap space"),
    ("bad_argument", r"Cannot find the config file for (?:awq|gptq|\w+)$|does not match the quantization method"),
    ("missing_library", r"^ImportError: lib[\w.+-]+\.so[\d.]*: "),
    ("python_environment", r"^ImportError: "),
    ("timeout", r"(?i)^timeout: sending signal|^TimeoutError: .{0,40}(?:waiting|timed out)|timed out waiting for (?:the )?(?:engine|worker)"),
)  # fmt: skip
_RULES = tuple((name, re.compile(pattern)) for name, pattern in RULES)

# How common messages begin: of a line that was cut before the words of its rule, this much is left.
BEGINNINGS: Tuple[Tuple[str, str], ...] = (
    ("kv_cache_no_room", "No available memory for the cache blocks"),
    ("context_too_long", "The model's max seq len ("),
    ("context_too_long", "To serve at least one request with the model"),
    ("context_too_long", "User-specified max_model_len"),
    ("gpu_memory_taken", "Free memory on device"),
    ("gpu_memory_taken", "Error in memory profiling. Initial"),
    ("gpu_oom", "CUDA out of memory"),
    ("gpu_oom", "CUDA error: out of memory"),
    ("dtype_not_supported", "Bfloat16 is only supported on GPUs"),
    ("bad_parallel_size", "Total number of attention heads ("),
    ("port_in_use", "[Errno 98] Address already in use"),
    ("model_not_supported", "Model architectures ["),
    ("model_not_found", "Repo id must be in the form"),
    ("weights_corrupt", "Error while deserializing header"),
    ("collective_failed", "NCCL error: "),
    ("feature_not_supported_by_backend", "Multi-Step not supported for attention backend"),
    ("feature_not_supported_by_backend", "Multi-Step + Chunked-Prefill not supported"),
    ("kernel_mismatch", "CUDA error: no kernel image is available"),
    ("driver_or_device", "No CUDA GPUs are available"),
    ("driver_or_device", "Failed to infer device type"),
    ("python_environment", "No module named '"),
    ("bad_argument", "unrecognized arguments: "),
)
_LEAST = 10  # characters; less is the beginning of too much

# What a wrapper or a follow-up says: true, and never the cause.
WRAPPERS = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|Engine process (?:failed to start|\(pid \d+\) died)"
    r"|See (?:root cause|stack trace)|EngineDeadError|MQEngineDeadError|AsyncEngineDeadError|Engine loop (?:is not running|has died)"
    r"|Background loop (?:has errored|is stopped)|Task finished unexpectedly|Error executing method|Failed core proc"
    r"|died unexpectedly|RayTaskError|RayActorError|ActorDiedError|ChildFailedError|ProcessExitedException|ProcessRaisedException"
    r"|CalledProcessError(?!: Command .{0,40}/(?:gcc|cc|g\+\+|clang|nvcc))|^SystemExit|CancelledError|^EOFError|BrokenPipeError|Connection(?:Reset|Refused|Aborted)Error"
    r"|ZMQError(?!: Address already in use)|cannot schedule new futures|Event loop is closed|object has no attribute '(?:model_executor|shutdown|engine_core|_?workers?)'"
    r"|Exception in ASGI application|leaked (?:shared_memory|semaphore)|Worker failed with error|WorkerProc hit an exception"
)  # fmt: skip

# What follows from another process's end: a cause only where nothing else failed.
FOLLOWS = re.compile(
    r"(?i)closed by peer|remote process exited|exit(?:ed with)?(?: code)?: -9\b|KeyboardInterrupt"
)

# Words of a cause in lines that are none, in engines that serve.
BENIGN = re.compile(
    r"NCCL INFO|TORCH_USE_CUDA_DSA|^\+ |was compiled using NumPy|(?i:\bretry|continuing|, using )"
    r"|Cannot use FA version|Failed to import Triton kernels"
)

# What reads like an error and is none: a request that is refused, what Ray holds to be possible.
NO_ERROR = re.compile(
    r"maximum context length is \d+ tokens\. However, you requested|some potential root causes"
)

# A line that was cut after these words may have gone on to say something else.
TOO_FEW = re.compile(
    r"OutOfMemoryError|out of memory|Dist\w+Error|^ImportError|ModuleNotFoundError|ValidationError|^Value error,|^RuntimeError: (?:NCCL|CUDA) error"
)

# A network that is away today: the class holds, but the same start may succeed on another day.
OUTAGE = re.compile(
    r"couldn't connect to 'https?://|host='huggingface|LocalEntryNotFoundError|outgoing traffic"
)

# One of these stands in every message that a rule names on a line that is no exception (cheap to
# look for; in small letters).
HINTS = (
    "error", "errno", "fail", " not ", "n't", "no ", "invalid", "unknown", "unsupported", "unrecognized", "only supp", "must ",
    "exceed", "larger", "greater", "out of ", "kill", "terminated", "already", "missing", "denied", "undefined", "unable", "required",
    "mismatch", "maximum number of tokens", "user-specified", "max seq len", "memory on", "assert", "illegal", "lost", "too ", "closed by",
    "timed out", "timeout", "exit code", "gloo", "ccl", "image", "built for", "different", "incompatib", "trust_remote_code", "ended",
    "unbound", "interpreter", "cannot", "requires", "minimum capability",
)  # fmt: skip

# Not a failure by itself: the server goes on, slower or wrong (see decodelab/degradation.py).
DEGRADED = re.compile(
    r"Error in calling custom op|obsolete version of vllm|clean build and install of vllm|NaN in .{0,60}replac"
    r"|native kernel failed|fall(?:ing|s)? ?back to"
)


@lru_cache(maxsize=1024)  # a flood says one thing many times
def class_of(text: str) -> Optional[str]:
    """The class that these words name, or None."""
    for name, pattern in _RULES:
        if pattern.search(text):
            return device_memory.corrected(name, text)
    return None


def class_of_cut(text: str) -> Optional[str]:
    """The class of a message of which only its beginning is left, or None."""
    _head, _colon, message = text.partition("rror: ")
    if len(message) < _LEAST:
        return None
    found = {name for name, whole in BEGINNINGS if whole.startswith(message)}
    return found.pop() if len(found) == 1 else None


def may_name(text: str) -> bool:
    """Whether it is worth trying the rules on a line that is no exception."""
    small = text.lower()
    return any(hint in small for hint in HINTS)
