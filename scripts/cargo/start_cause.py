"""Why did a server start fail?  In: the text of its log (and exit code).  Out: one dict.

`explain(text, exit_code=None, timed_out=False)` gives {"class", "root_cause", "line", "stage",
"hint": {"en", "zh"}, "side": "config"|"host"|"none", "confidence": "high"|"low"}.

How it works: the log is cleaned into logical lines (colours, prefixes and joined lines undone),
the lines that *are* an error are picked (never warnings, never the source code that a traceback
echoes), wrappers such as "Engine core initialization failed" are set aside, and the first error
left, engine and worker processes before the API process, is named by the first row of RULES that
it matches.  Pure: standard library only, no clock, no files.
"""

# ruff: noqa: E501  (one rule a line: the tables are read as tables)

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from cargo.mask import url_passwords

CONFIG, HOST, NONE = "config", "host", "none"

# class -> (side, one action in English, the same in Chinese).  side "config" makes a variant
# not_possible (a result), "host" makes the launch invalid (made again at the next call).
CLASSES: Dict[str, Tuple[str, str, str]] = {
    "bad_argument": (
        CONFIG,
        "Correct or remove the flag that the engine rejects.",
        "改正或移除被引擎拒绝的启动参数。",
    ),
    "feature_not_supported_by_backend": (
        CONFIG,
        "Remove the option that this backend refuses, or ask for a backend that takes it.",
        "移除该后端不支持的选项，或改用支持它的后端。",
    ),
    "kv_cache_no_room": (
        CONFIG,
        "Raise --gpu-memory-utilization.",
        "调高 --gpu-memory-utilization。",
    ),
    "context_too_long": (CONFIG, "Lower --max-model-len.", "调低 --max-model-len。"),
    "gpu_oom": (
        CONFIG,
        "Lower the memory this variant asks for (--max-num-seqs, --max-num-batched-tokens or --max-model-len).",
        "降低该变体的显存需求（--max-num-seqs、--max-num-batched-tokens 或 --max-model-len）。",
    ),
    "model_not_found": (CONFIG, "Correct the model path.", "改正模型路径。"),
    "model_not_supported": (
        CONFIG,
        "Use an engine (or transformers) version that knows this model.",
        "换用支持该模型的引擎（或 transformers）版本。",
    ),
    "dtype_not_supported": (CONFIG, "Set --dtype half.", "设置 --dtype half。"),
    "bad_parallel_size": (
        CONFIG,
        "Set --tensor-parallel-size to what the model and the devices allow.",
        "把 --tensor-parallel-size 设为模型与设备都允许的值。",
    ),
    "port_in_use": (HOST, "Free the port, or choose another.", "释放该端口，或换一个端口。"),
    "gpu_memory_taken": (
        HOST,
        "Free the accelerator memory that another process holds.",
        "释放被其他进程占用的显存。",
    ),
    "weights_corrupt": (HOST, "Copy the model's weight files again.", "重新拷贝模型权重文件。"),
    "collective_failed": (
        HOST,
        "Check the links between the devices (run once with NCCL_DEBUG=INFO).",
        "检查卡间通信（用 NCCL_DEBUG=INFO 运行一次）。",
    ),
    "kernel_mismatch": (
        HOST,
        "Install the build of the engine that matches this torch and device.",
        "安装与当前 torch 和设备匹配的引擎构建。",
    ),
    "missing_library": (
        HOST,
        "Add the folder of the named library to LD_LIBRARY_PATH.",
        "把所缺动态库所在目录加入 LD_LIBRARY_PATH。",
    ),
    "python_environment": (
        HOST,
        "Start the server with the Python environment that has the engine.",
        "用装有该引擎的 Python 环境启动服务。",
    ),
    "driver_or_device": (
        HOST,
        "Check the device and its driver with the SMI tool.",
        "用 SMI 工具检查设备与驱动。",
    ),
    "killed": (
        HOST,
        "See in the kernel log who killed the process (mostly: out of host memory).",
        "查看内核日志确认被谁杀死（多为主机内存不足）。",
    ),
    "stopped": (
        HOST,
        "Start it again: it was stopped from outside.",
        "重新启动：它是被外部停止的。",
    ),
    "timeout": (
        HOST,
        "Look at the stage where it hung, and raise limits.start_s if it was only slow.",
        "查看卡住的阶段；若只是较慢，调大 limits.start_s。",
    ),
    "launch_script": (HOST, "Correct server.command.", "改正 server.command。"),
    "unknown": (HOST, "Read the log.", "请查看日志。"),
    "none": (NONE, "Nothing to do.", "无需处理。"),
}

# (class, what its error line says): most specific first, the first row that matches names the
# error.  Patterns look at the *start* of a message where they can, so that a line cut in the middle
# is still known.
RULES: Tuple[Tuple[str, str], ...] = (
    # -- port
    ("port_in_use", r"Errno 98|(?i:address already in use)|EADDRINUSE"),
    # -- what a backend or an engine version refuses
    ("feature_not_supported_by_backend", r"Multi-Step(?: \+)?(?: Chunked-Prefill)?(?: is)? not supp"),
    ("feature_not_supported_by_backend", r"(?i)chunked[- ]prefill is not supported with"),
    ("feature_not_supported_by_backend", r"(?i)multi-step (?:scheduling|decoding)? ?is not supp"),
    ("feature_not_supported_by_backend", r"(?i)speculative decoding is not supported with"),
    ("feature_not_supported_by_backend", r"VLLM_USE_V1=1 is not supported with"),
    ("feature_not_supported_by_backend", r"Minimum capability: \d+|not supported for the current GPU"),
    ("feature_not_supported_by_backend", r"(?i)quantization method .{0,40} not supported"),
    ("feature_not_supported_by_backend", r"(?i)No valid attention backend|Selected backend \S+ is not valid"),
    ("feature_not_supported_by_backend", r"(?i)head (?:size|dim) \d+ is not supported|unsupported head[ _](?:size|dim)"),
    ("feature_not_supported_by_backend", r"(?i)\bnot supported (?:by|for|with|on) .{0,60}(?:backend|engine|attention)"),
    # -- arguments
    ("bad_argument", r"error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option)"),
    ("bad_argument", r"(?i)(?:unknown|invalid) attention backend|for VLLM_ATTENTION_BACKEND"),
    ("bad_argument", r"(?i)invalid (?:tool call|reasoning) parser|(?:reasoning|tool) parser '?[^ ]+'? not found"),
    ("bad_argument", r"Error: --[\w-]+ (?:requires|and|cannot|is only)|cannot be enabled at the same time"),
    # -- context and room for the KV cache
    ("context_too_long", r"max seq len \(\d+\)"),
    ("context_too_long", r"User-specified max_model_len"),
    ("context_too_long", r"maximum number of tokens that can be stored in(?: the)? KV cache"),
    ("bad_argument", r"max_num_batched_tokens \(?\d+\)? (?:is smaller|must be)"),
    ("kv_cache_no_room", r"No available memory for the cache blocks|Available KV cache memory: -"),
    # -- memory of the device
    ("gpu_memory_taken", r"Free memory on (?:device|node)"),
    ("gpu_memory_taken", r"Error in memory profiling\. Initial free memory"),
    # -- dtype, parallel size
    ("dtype_not_supported", r"(?i)(?:bfloat16|bf16|float16|fp8|half).{0,40}(?:only supported|not supported|not implemented)"),
    ("dtype_not_supported", r"not implemented for '(?:Half|BFloat16|Float8\w*)'|(?i:unknown dtype|does not support (?:bfloat16|bf16|float16))"),
    ("bad_parallel_size", r"(?i)(?:must be|not|is not) (?:evenly )?divisible by (?:the )?(?:tensor|tp|number of|world|pipeline)"),
    ("bad_parallel_size", r"(?i)world.?size .{0,40}(?:larger|greater|exceeds|not equal)|number of required GPUs exceeds|invalid device ordinal"),
    ("bad_parallel_size", r"(?i)(?:tensor|pipeline)[ _-]parallel[ _-]size .{0,60}(?:exceed|larger|greater|available|invalid)"),
    # -- the model
    ("model_not_found", r"is not a local folder and is not a valid model|Repo id must be in the form"),
    ("model_not_found", r"Invalid repository ID or local directory|does not appear to have a file named"),
    ("model_not_found", r"LocalEntryNotFoundError|RepositoryNotFoundError|GatedRepoError|couldn't connect to 'https?://huggingface|host='huggingface"),
    ("model_not_found", r"Cannot find any model weights|Incorrect path_or_model_id|No such file or directory: '[^']*/config\.json'"),
    ("model_not_supported", r"Model architectures? .{0,80}(?:failed to be insp|not supp|are not)|Cannot find model module"),
    ("model_not_supported", r"Transformers does not recogni|has model type `|Unrecognized model in|Unrecognized configuration class"),
    ("model_not_supported", r"(?i)tokenizer class \S+ does not exist|has no vLLM implementation"),
    ("weights_corrupt", r"SafetensorError|deserializing header|PytorchStreamReader failed|unexpected EOF, expected \d+"),
    ("weights_corrupt", r"size mismatch for |weights were not initialized from checkpoint|no module or parameter named"),
    ("weights_corrupt", r"^KeyError: '(?:model\.)?(?:layers|language_model|embed_tokens|lm_head)\b"),
    # -- between devices
    ("collective_failed", r"NCCL error|ncclSystemError|ncclInternalError|ncclUnhandled|ncclRemoteError|ixccl|HCCL|RCCL"),
    ("collective_failed", r"ProcessGroup(?:NCCL|HCCL)?.{0,80}(?:timeout|failed|Watchdog)|DistBackendError|DistNetworkError|DistStoreError"),
    ("collective_failed", r"(?i)gloo.{0,80}(?:connect|timed out|failed)|custom_?all_?reduce.{0,60}(?:fail|error)"),
    # -- libraries, kernels, Python
    ("missing_library", r"cannot open shared object file|error while loading shared libraries|Library not loaded"),
    ("kernel_mismatch", r"no kernel image is available|undefined symbol|invalid device function|PTX .{0,40}unsupported"),
    ("kernel_mismatch", r"(?:ixformer|_C|_moe_C|vllm_ops|torch\.ops)\S*'? (?:object )?has no attribute|version `?(?:GLIBC|GLIBCXX|CXXABI)"),
    ("kernel_mismatch", r"No module named 'vllm\._|built for a different|was compiled using NumPy"),
    ("python_environment", r"ModuleNotFoundError|No module named |ImportError: cannot import name|PackageNotFoundError"),
    ("python_environment", r"FileNotFoundError: .{0,200}<stdin>|start a new process before the|has finished its bootstrapping"),
    ("python_environment", r"failed to import$|is not available, please install|Cannot re-initialize CUDA in forked subprocess|requires Python|DistributionNotFound"),
    # -- driver, device
    ("driver_or_device", r"(?i)no (?:CUDA|ROCm|HIP)[- ](?:capable device|GPUs are available)|driver version is insufficient"),
    ("driver_or_device", r"(?i)failed to infer device type|found no nvidia driver|(?:NVML|IXML|ixml).{0,40}(?:error|not initialized|failed|not found)"),
    ("driver_or_device", r"(?i)CUDA (?:unknown )?error: (?:unknown|initialization|all CUDA-capable|an illegal|CUDA-capable device|unspecified|hardware|uncorrectable|misaligned|system)"),
    ("driver_or_device", r"(?i)CUDA unknown error|device-side assert|uncorrectable ECC|GPU (?:is|has) (?:lost|fallen off)|illegal memory access"),
    # -- memory
    ("gpu_oom", r"OutOfMemoryError|(?i:(?:CUDA|HIP|NPU|XPU|device|driver)(?: driver)? (?:error: )?out of memory)|CUBLAS_STATUS_ALLOC_FAILED"),
    ("gpu_oom", r"(?i)error: out of memory|Tried to allocate [\d.]+ [GM]iB"),
    ("killed", r"^Killed\b|: line \d+:\s+\d+ Killed|(?i:oom-kill|out of memory: killed process|signal 9\b|SIGKILL)"),
    ("killed", r"\[?Errno 12\]?|DefaultCPUAllocator: can't allocate|^MemoryError"),
    # -- the launch itself
    ("launch_script", r"command not found|syntax error near|unexpected EOF while looking|can't open file|: Permission denied"),
    ("launch_script", r"^(?:/bin/|/usr/bin/)?(?:ba|da|z)?sh: .*(?:not found|No such file)|^exec:? |^env: .*No such file"),
    ("stopped", r"^KeyboardInterrupt|(?i:received (?:signal[ =]*)?(?:SIGTERM|SIGINT|15\b)|SIGTERM received)"),
    # -- the rest of what validation refuses
    ("bad_argument", r"^(?:pydantic\S*ValidationError|ValidationError): \d+ validation error|^\s*(?:Value error, |Input should be )"),
    ("bad_argument", r"Cannot find the config file for (?:awq|gptq|\w+)$|does not match the quantization method"),
    ("timeout", r"(?i)^TimeoutError: .{0,40}(?:waiting|timed out)|timed out waiting for (?:the )?(?:engine|worker)"),
)  # fmt: skip
_RULES = tuple((name, re.compile(pattern)) for name, pattern in RULES)

# What a wrapper or a follow-up says: true, and never the cause.
WRAPPERS = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|Engine process failed to start"
    r"|See (?:root cause|stack trace)|EngineDeadError|MQEngineDeadError|AsyncEngineDeadError|Engine loop (?:is not running|has died)"
    r"|Background loop (?:has errored|is stopped)|Task finished unexpectedly|Error executing method|Failed core proc"
    r"|died unexpectedly|RayTaskError|RayActorError|ActorDiedError|ChildFailedError|ProcessExitedException|ProcessRaisedException"
    r"|CalledProcessError|^SystemExit|CancelledError|^EOFError|BrokenPipeError|Connection(?:Reset|Refused|Aborted)Error"
    r"|ZMQError|cannot schedule new futures|Event loop is closed|object has no attribute '(?:model_executor|shutdown|engine_core|_?workers?)'"
    r"|Exception in ASGI application|leaked (?:shared_memory|semaphore)"
)  # fmt: skip

# Not a failure by itself, though worth a fault in the report: the server goes on, slower or wrong.
DEGRADED = re.compile(
    r"Error in calling custom op|obsolete version of vllm|clean build and install of vllm|NaN in .{0,60}replac"
    r"|native kernel failed|falling back to|fall(?:ing|s)? ?back to"
)

# (stage, the line that says it was reached), in order; the host's watch and this file read the same
# table.
STAGES: Tuple[Tuple[str, str], ...] = (
    ("imports", r"Automatically detected platform|vLLM API server version|version \d+\.\d+\.\d+\S*\s*$|\bargs: Namespace|non-default args"),
    ("engine_init", r"Initializing an? (?:V1 )?LLM engine|Using \S+ (?:attention )?backend|Worker ready; awaiting|init_device"),
    ("weights", r"Starting to load model|Loading safetensors|Loading (?:model )?weights took|Loading pt checkpoint"),
    ("kv_cache", r"Memory profiling|# (?:GPU|CPU|\w+) blocks:|KV cache size:|Maximum concurrency for|KV cache memory|KV cache layout"),
    ("graph_capture", r"[Cc]apturing (?:the model for )?CUDA ?graph|Graph capturing|torch\.compile takes"),
    ("listening", r"Starting vLLM (?:API )?server|Available routes are|Started server process|Waiting for application startup"),
    ("ready", r"Application startup complete|Uvicorn running on"),
)  # fmt: skip
_STAGES = tuple((name, re.compile(pattern)) for name, pattern in STAGES)
_READY = _STAGES[-1][1]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|(?<![\w.])\[(?:0|1|0;0|1;\d\d|\d\d)m")
_JOINED = re.compile(
    r"(?<=\S)(?=\((?:APIServer|EngineCore\w*|Worker\w*|VllmWorker\w*|RayWorker\w*) pid=\d+\))"
)
_PROCESS = re.compile(r"\((?i:(apiserver)|enginecore|worker|vllmworker|rayworker|rayexecutor)")
_PREFIX = re.compile(
    r"[\w.-]+(?:-\d+)?\s+\| ?"  # docker compose
    r"|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)? ?"  # container runtime
    r"|\([^()]{0,60}\bpid=\d+[^()]{0,40}\) ?"  # (EngineCore_DP0 pid=77)
    r"|\[rank\d+\]: ?"
    r"|(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)(?: \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?[\w./<>-]+:\d+\] ?|:\s*)"
)
_WARNS = re.compile(
    r"\[?[WI]\d{4} \d\d:|\[?[WI] |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] |\S*Warning: |\S+: \w*Warning: |WARN|Warning:"
)
_EXCEPTION = re.compile(
    r"\s{0,3}(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)(?:\([\w.]+\))?(?::|\s*$)|\s{0,3}Exception:"
)
_PYDANTIC = re.compile(r"\s*(?:\S+ValidationError: )?\d+ validation errors? for \w+")
_EMPTY = re.compile(
    r"\s{0,3}[\w.]*(?:Error|Exception):\s*$"
)  # what is wrong stands on the next line
_FATAL = re.compile(  # an error that is no Python exception
    r"\S+: error: |(?:\S+: line \d+:\s+\d+ )?Killed\b|\S+: error while loading shared libraries|Segmentation fault|Bus error|Fatal Python error"
    r"|(?:/\S*/)?(?:ba|da|z)?sh: |\S+: line \d+: |exec:? \S+: |env: |Error: --|python\S*: (?:can't open file|No module)|/\S*python\S*: (?:No module|Error while)"
    r"|terminate called|\[Errno \d+\]|.*(?i:oom-kill|Out of memory: Killed)"
)
_STOP_NOTE = re.compile(
    r"(?i)received signal[ =:]*(?:SIGTERM|SIGINT|15|2)\b|received SIG(?:TERM|INT)|Shutting down FastAPI|^\s*Shutting down\b|KeyboardInterrupt"
)
_MAX_TEXT = 2000  # of the root cause, in characters
_MAX_LINE = 8000  # the rest of a longer line is a dump, not a message


class Line(NamedTuple):
    number: int  # 1-based, in the file
    text: str  # without colours and prefixes
    level: Optional[str]
    process: str  # "engine" (engine core and workers), "api" or ""


def stage_of(text: str) -> Optional[str]:
    """The stage that this log line says was reached, or None."""
    for name, pattern in _STAGES:
        if pattern.search(text):
            return name
    return None


def explain(text: str, exit_code: Optional[int] = None, timed_out: bool = False) -> Dict[str, Any]:
    """The cause of a failed start; class "none" for a log that shows nothing wrong."""
    lines = logical_lines(text)
    ready_at = max((i for i, line in enumerate(lines) if _READY.search(line.text)), default=None)
    found = _cause(lines, ready_at)
    if found is not None and found[0] != "unknown":
        name, line, sure = found
        return _answer(name, line, _stage_before(lines, line), "high" if sure else "low")
    if timed_out:
        return _answer("timeout", None, _stage_before(lines, None), "high")
    if found is not None:
        return _answer("unknown", found[1], _stage_before(lines, found[1]), "low")
    return _without_error(lines, ready_at, exit_code)


def _without_error(
    lines: List[Line], ready_at: Optional[int], exit_code: Optional[int]
) -> Dict[str, Any]:
    """No error in the log: the exit code, a request to stop, or the wrappers decide."""
    stage = _stage_before(lines, None)
    if exit_code in (137, -9):
        return _answer("killed", None, stage, "low")
    note = next((line for line in lines if _STOP_NOTE.search(line.text)), None)
    if exit_code in (143, -15, 130, -2):
        return _answer("stopped", note, stage, "high" if note else "low")
    if ready_at is not None and exit_code in (None, 0):
        return _answer(
            "none", None, stage, "high"
        )  # it was ready; a stop after that is no failed start
    if note is not None and ready_at is None:
        return _answer("stopped", note, stage, "high")
    wrapped = any(
        (_is_error(line) or line.level in ("ERROR", "CRITICAL")) and not DEGRADED.search(line.text)
        for line in lines
    )
    booting = any(line.level in ("INFO", "WARNING") for line in lines)
    if not wrapped and booting and exit_code in (None, 0):
        return _answer("none", None, stage, "low")
    return _answer("unknown", None, stage, "low")


def _cause(lines: List[Line], ready_at: Optional[int]) -> Optional[Tuple[str, Line, bool]]:
    """(class, line, sure) of the first cause; engine and worker processes first, wrappers never."""
    first = 0 if ready_at is None else ready_at + 1
    errors = [(_class_of(line.text), line) for line in _errors(lines[first:])]
    if ready_at is not None:  # what fails single requests of a running server is no failed start
        deadly = ("port_in_use", "killed", "gpu_oom", "driver_or_device", "collective_failed")
        errors = [(c, e) for c, e in errors if c in deadly or (c and e.process == "engine")]
        errors = [(c, e) for c, e in errors if c != "stopped"]
    for wanted in ("engine", ""):
        for name, line in errors:
            if name is not None and (not wanted or line.process == wanted):
                return name, line, True
    if ready_at is None:
        loose = next((hit for hit in map(_loose, lines) if hit is not None), None)
        if loose is not None:
            return loose[0], loose[1], False
    for wanted in ("engine", ""):
        for _name, line in errors:
            if not wanted or line.process == wanted:
                return "unknown", line, False
    return None


def _errors(lines: List[Line]) -> List[Line]:
    """Lines that are an error and no wrapper; of one that only announces, the line that says it."""
    out: List[Line] = []
    for position, line in enumerate(lines):
        if not _is_error(line) or WRAPPERS.search(line.text):
            continue
        if _PYDANTIC.match(line.text) or _EMPTY.match(line.text):
            line = _said_below(lines[position + 1 : position + 4]) or line
        out.append(line)
    return out


def _said_below(lines: List[Line]) -> Optional[Line]:
    """The indented line after an announcement (a field's name may stand between them)."""
    for line in lines:
        if line.text.startswith("  File "):
            return None
        if line.text.startswith("  "):
            return line._replace(text=line.text.strip())
    return None


def _is_error(line: Line) -> bool:
    if line.level in ("DEBUG", "INFO", "WARNING") or _WARNS.match(line.text):
        return False
    return bool(
        _EXCEPTION.match(line.text) or _FATAL.match(line.text) or _PYDANTIC.match(line.text)
    )


def _loose(line: Line) -> Optional[Tuple[str, Line]]:
    """A known message on a line that does not look like an error (a cut log): worth naming, not
    worth trusting.
    """
    text = line.text
    if line.level in ("DEBUG", "INFO", "WARNING") or _WARNS.match(text):
        return None
    if WRAPPERS.search(text) or DEGRADED.search(text):
        return None
    if text.startswith(("    ", "  File ")) or re.match(r"\s*(?:raise|return|File)\b", text):
        return None  # a traceback echoes source code; the words of an error stand there before it happens
    name = _class_of(text)
    return (name, line) if name not in (None, "bad_argument", "stopped") else None


def _class_of(text: str) -> Optional[str]:
    for name, pattern in _RULES:
        if pattern.search(text):
            return "gpu_memory_taken" if name == "gpu_oom" and _others_hold_more(text) else name
    return None


def _others_hold_more(text: str) -> bool:
    """torch names who holds the device: its own share, and other processes by pid."""
    own = re.search(r"this process has ([\d.]+) ([GM])iB", text)
    others = re.findall(r"Process \d+ has ([\d.]+) ([GM])iB", text)
    if own is None or not others:
        return False
    unit = {"G": 1024.0, "M": 1.0}
    try:
        return sum(float(v) * unit[u] for v, u in others) > float(own.group(1)) * unit[own.group(2)]
    except ValueError:
        return False


def _stage_before(lines: List[Line], cause: Optional[Line]) -> Optional[str]:
    stage = None
    for line in lines:
        if cause is not None and line.number >= cause.number:
            break
        stage = stage_of(line.text) or stage
    return stage


def _answer(
    name: str, line: Optional[Line], stage: Optional[str], confidence: str
) -> Dict[str, Any]:
    side, en, zh = CLASSES[name]
    return {
        "class": name,
        "root_cause": None if line is None else url_passwords(line.text.strip())[:_MAX_TEXT],
        "line": line.number if line is not None else None,
        "stage": stage,
        "hint": {"en": en, "zh": zh},
        "side": side,
        "confidence": confidence,
    }


def logical_lines(text: str) -> List[Line]:
    """The log's lines without colours and prefixes; lines that were joined are parted again."""
    out: List[Line] = []
    for number, raw in enumerate(text.split("\n"), 1):
        for part in _ANSI.sub("", raw).split("\r"):
            for piece in _JOINED.split(part):
                if piece.strip():
                    out.append(_line(number, piece))
    return out


def _line(number: int, piece: str) -> Line:
    level: Optional[str] = None
    process = ""
    rest = piece[:_MAX_LINE].rstrip()
    for _ in range(8):  # docker | time | process | level: a handful at most
        match = _PREFIX.match(rest)
        if match is None or match.end() == 0:
            break
        level = level or match.group("level")
        who = _PROCESS.match(match.group(0))
        if who is not None:
            process = "api" if who.group(1) else "engine"
        elif match.group(0).startswith("[rank"):
            process = "engine"
        rest = rest[match.end() :]
    return Line(number, rest, level, process)
