"""The one table of what is timed: region, kind, module, names, by engine era.

Kinds: `region` is timed inside a step; of `around` only what lies between the regions inside it; `step` begins
(and mostly is) one; `rest` is the other half of the worker's step; `arrival` waits for the order of a step, which
begins when it has come; `mute` is the engine's own profiling or warm-up pass, inside which nothing is a step;
`load` is where a model becomes known; `look` is only looked at for the phase of its step.

A call inside an open region of the same name is part of it and is not counted again. So a region may list
an outer and an inner method: the inner one is seen alone where the outer is compiled away, and exactly one call
a layer is counted. Of several rows of a region only those of the engine's version exist; the others are told.
"""

from collections import namedtuple

Target = namedtuple("Target", "region kind era module name")
Target.__doc__ = "One method; `name` is Class.method, or a function of the module."

ENGINE = "engine"  # region of the rows that are an engine's step
WORKER = "worker"  # and of those that are a worker's

_V0, _V1, _V2, _ALL, _SIM = "V0", "V1", "V1/MRV2", "V0+V1", "sim"
_LAYERS = "vllm.model_executor.layers."
_COLLECTIVES = (
    "all_reduce _all_reduce_out_place all_gather _all_gather_out_place all_gatherv reduce_scatter "
    "_reduce_scatter_out_place reduce_scatterv gather broadcast send_tensor_dict recv_tensor_dict "
    "isend_tensor_dict irecv_tensor_dict send recv dispatch combine"
)

# region, kind, era, module, "Class: method method" (several classes apart by ;), or a function's name.
_ROWS = (
    # -- V0, 0.6 to 0.10
    (ENGINE, "step", _V0, "vllm.engine.llm_engine", "LLMEngine: step"),
    (ENGINE, "step", _V0, "vllm.engine.async_llm_engine", "_AsyncLLMEngine: step_async"),
    (WORKER, "step", _V0, "vllm.worker.worker_base", "LocalOrDistributedWorkerBase: execute_model"),
    (
        WORKER,
        "arrival",
        _V0,
        "vllm.worker.worker_base",
        "LocalOrDistributedWorkerBase: _get_worker_input_from_broadcast",
    ),
    ("scheduler", "region", _V0, "vllm.core.scheduler", "Scheduler: schedule"),
    ("output", "region", _V0, "vllm.engine.llm_engine", "LLMEngine: _process_model_outputs"),
    (
        "handover",
        "region",
        _V0,
        "vllm.executor.executor_base",
        "ExecutorBase: execute_model; DistributedExecutorBase: execute_model execute_model_async",
    ),
    ("handover", "region", _V0, "vllm.executor.gpu_executor", "GPUExecutor: execute_model"),
    (
        "handover",
        "region",
        _V0,
        "vllm.executor.gpu_executor",
        "GPUExecutorAsync: execute_model_async",
    ),
    (
        "handover",
        "region",
        _V0,
        "vllm.executor.distributed_gpu_executor",
        "DistributedGPUExecutor: execute_model; DistributedGPUExecutorAsync: execute_model_async",
    ),
    (
        "handover",
        "region",
        _V0,
        "vllm.distributed.parallel_state",
        "GroupCoordinator: broadcast_tensor_dict",
    ),
    (
        "prepare",
        "region",
        _V0,
        "vllm.worker.model_runner",
        "ModelRunner: prepare_model_input; "
        "GPUModelRunnerBase: _prepare_model_input_tensors set_active_loras",
    ),
    ("prepare", "region", _V0, "vllm.worker.worker", "Worker: prepare_worker_input execute_worker"),
    ("forward", "region", _V0, "vllm.worker.model_runner", "CUDAGraphRunner: forward"),
    ("prepare", "around", _V0, "vllm.worker.model_runner", "ModelRunner: execute_model"),
    (WORKER, "look", _V0, "vllm.worker.model_runner", "ModelRunner: execute_model"),
    ("sampler", "region", _V0, _LAYERS + "sampler", "Sampler: forward"),
    ("sync", "region", _V0, _LAYERS + "sampler", "get_pythonized_sample_results"),
    (
        "sync",
        "region",
        _V0,
        "vllm.worker.multi_step_model_runner",
        "ModelOutput: pythonize maybe_pythonize",
    ),
    (
        "attention",
        "region",
        _V0,
        "vllm.attention.backends.flash_attn",
        "FlashAttentionImpl: forward",
    ),
    ("attention", "region", _V0, "vllm.attention.backends.flashinfer", "FlashInferImpl: forward"),
    ("attention", "region", _V0, "vllm.attention.backends.xformers", "XFormersImpl: forward"),
    (
        "attention",
        "region",
        _V0,
        "vllm.attention.backends.torch_sdpa",
        "TorchSDPABackendImpl: forward",
    ),
    (WORKER, "load", _V0, "vllm.worker.model_runner", "GPUModelRunnerBase: load_model"),
    (
        WORKER,
        "mute",
        _V0,
        "vllm.worker.model_runner",
        "GPUModelRunnerBase: profile_run _dummy_run capture_model",
    ),
    (
        WORKER,
        "mute",
        _V0,
        "vllm.worker.worker",
        "Worker: determine_num_available_blocks initialize_cache",
    ),
    # -- V1, 0.7 to 0.32
    (
        ENGINE,
        "step",
        _V1,
        "vllm.v1.engine.core",
        "EngineCore: step step_with_batch_queue; EngineCoreProc: _process_engine_step",
    ),
    (WORKER, "step", _V1, "vllm.v1.worker.gpu_worker", "Worker: execute_model"),
    (WORKER, "rest", _V1, "vllm.v1.worker.gpu_worker", "Worker: sample_tokens"),
    (
        "scheduler",
        "region",
        _V1,
        "vllm.v1.core.sched.scheduler",
        "Scheduler: schedule get_grammar_bitmask",
    ),
    ("output", "region", _V1, "vllm.v1.core.sched.scheduler", "Scheduler: update_from_output"),
    ("scheduler", "region", _V1, "vllm.v1.core.scheduler", "Scheduler: schedule"),
    ("output", "region", _V1, "vllm.v1.core.scheduler", "Scheduler: update_from_output"),
    (
        "handover",
        "region",
        _V1,
        "vllm.v1.executor.abstract",
        "Executor: execute_model sample_tokens take_draft_token_ids",
    ),
    (
        "handover",
        "region",
        _V1,
        "vllm.v1.executor.multiproc_executor",
        "MultiprocExecutor: execute_model sample_tokens; FutureWrapper: result",
    ),
    (
        "handover",
        "region",
        _V1,
        "vllm.v1.executor.uniproc_executor",
        "UniProcExecutor: execute_model sample_tokens; AsyncOutputFuture: result",
    ),
    (
        "prepare",
        "region",
        _V1,
        "vllm.v1.worker.gpu_model_runner",
        "GPUModelRunner: _update_states _prepare_inputs _determine_batch_execution_and_padding "
        "_get_slot_mappings _build_attention_metadata _preprocess _prepare_padding_mask",
    ),
    ("prepare", "around", _V1, "vllm.v1.worker.gpu_model_runner", "GPUModelRunner: execute_model"),
    ("output", "around", _V1, "vllm.v1.worker.gpu_model_runner", "GPUModelRunner: sample_tokens"),
    ("forward", "region", _V1, "vllm.v1.worker.gpu_model_runner", "GPUModelRunner: _model_forward"),
    (
        "sampler",
        "region",
        _V1,
        "vllm.v1.worker.gpu_model_runner",
        "GPUModelRunner: _sample _update_states_after_model_execute",
    ),
    ("sampler", "region", _V1, "vllm.v1.sample.sampler", "Sampler: forward"),
    ("sampler", "region", _V1, "vllm.v1.sample.rejection_sampler", "RejectionSampler: forward"),
    (
        "sync",
        "region",
        _V1,
        "vllm.v1.worker.gpu_model_runner",
        "GPUModelRunner: _bookkeeping_sync _to_list; AsyncGPUModelRunnerOutput: get_output",
    ),
    ("sync", "region", _V1, "vllm.v1.worker.cpu_model_runner", "CPUModelRunner: _to_list"),
    (
        "attention",
        "region",
        _V1,
        "vllm.v1.attention.backends.flash_attn",
        "FlashAttentionImpl: forward",
    ),
    (
        "attention",
        "region",
        _V1,
        "vllm.v1.attention.backends.flashinfer",
        "FlashInferImpl: forward",
    ),
    (
        "attention",
        "region",
        _V1,
        "vllm.v1.attention.backends.triton_attn",
        "TritonAttentionImpl: forward",
    ),
    (
        "attention",
        "region",
        _V1,
        "vllm.v1.attention.backends.flex_attention",
        "FlexAttentionImpl: forward",
    ),
    (
        "attention",
        "region",
        _V1,
        "vllm.v1.attention.backends.xformers",
        "XFormersAttentionImpl: forward",
    ),
    (
        "attention",
        "region",
        _V1,
        "vllm.v1.attention.backends.cpu_attn",
        "CPUAttentionBackendImpl: forward",
    ),
    (WORKER, "load", _V1, "vllm.v1.worker.gpu_model_runner", "GPUModelRunner: load_model"),
    (WORKER, "load", _V1, "vllm.v1.worker.cpu_model_runner", "CPUModelRunner: load_model"),
    (
        WORKER,
        "mute",
        _V1,
        "vllm.v1.worker.gpu_worker",
        "Worker: determine_available_memory compile_or_warm_up_model execute_dummy_batch",
    ),
    (
        WORKER,
        "mute",
        _V1,
        "vllm.v1.worker.cpu_worker",
        "CPUWorker: determine_available_memory compile_or_warm_up_model",
    ),
    (
        WORKER,
        "mute",
        _V1,
        "vllm.v1.worker.gpu_model_runner",
        "GPUModelRunner: _dummy_run profile_run capture_model",
    ),
    # -- V1 with model runner V2, behind a switch from 0.12, on its own from 0.22
    (
        "prepare",
        "region",
        _V2,
        "vllm.v1.worker.gpu.model_runner",
        "GPUModelRunner: update_pp_decode_requests finish_requests free_states add_requests "
        "update_requests gather_batch_req_state prepare_inputs prepare_attn",
    ),
    ("prepare", "around", _V2, "vllm.v1.worker.gpu.model_runner", "GPUModelRunner: execute_model"),
    ("output", "around", _V2, "vllm.v1.worker.gpu.model_runner", "GPUModelRunner: sample_tokens"),
    (
        "forward",
        "region",
        _V2,
        "vllm.v1.worker.gpu.cudagraph_utils",
        "CudaGraphManager: run_fullgraph run_pw_graph; ModelCudaGraphManager: run_fullgraph",
    ),
    (
        "sampler",
        "region",
        _V2,
        "vllm.v1.worker.gpu.model_runner",
        "GPUModelRunner: sample postprocess_sampled",
    ),
    ("sampler", "region", _V2, "vllm.v1.worker.gpu.sample.sampler", "Sampler: __call__"),
    ("sync", "region", _V2, "vllm.v1.worker.gpu.async_utils", "AsyncOutput: get_output"),
    (WORKER, "load", _V2, "vllm.v1.worker.gpu.model_runner", "GPUModelRunner: load_model"),
    (
        WORKER,
        "mute",
        _V2,
        "vllm.v1.worker.gpu.model_runner",
        "GPUModelRunner: _dummy_run profile_run capture_model",
    ),
    # -- layers, common to the eras
    (
        "attention",
        "region",
        _ALL,
        "vllm.attention.layer",
        "Attention: forward; MLAAttention: forward",
    ),
    ("attention", "region", _ALL, _LAYERS + "attention.attention", "Attention: forward"),
    (
        "attention",
        "region",
        _ALL,
        _LAYERS + "attention.mla_attention",
        "MLAAttention: forward forward_impl",
    ),
    (
        "linear_attention",
        "region",
        _ALL,
        _LAYERS + "mamba.gdn.qwen_gdn_linear_attn",
        "QwenGatedDeltaNetAttention: _forward_core _forward_core_rocm _forward_core_fused_norm_packed "
        "forward_cpu",
    ),
    (
        "linear_attention",
        "region",
        _ALL,
        "vllm.model_executor.models.qwen3_next",
        "Qwen3NextGatedDeltaNet: _forward _forward_core",
    ),
    ("linear_attention", "region", _ALL, _LAYERS + "mamba.mamba_mixer", "MambaMixer: forward_impl"),
    (
        "linear_attention",
        "region",
        _ALL,
        _LAYERS + "mamba.mamba_mixer2",
        "MambaMixer2: conv_ssm_forward",
    ),
    ("moe", "region", _ALL, _LAYERS + "fused_moe.layer", "FusedMoE: forward forward_impl"),
    (
        "moe",
        "region",
        _ALL,
        _LAYERS + "fused_moe.runner.default_moe_runner",
        "DefaultMoERunner: forward forward_impl",
    ),
    (
        "moe",
        "region",
        _ALL,
        _LAYERS + "fused_moe.runner.moe_runner",
        "MoERunner: forward _forward_impl",
    ),
    ("logits", "region", _ALL, _LAYERS + "logits_processor", "LogitsProcessor: forward"),
    (
        "collective",
        "region",
        _ALL,
        "vllm.distributed.parallel_state",
        "GroupCoordinator: " + _COLLECTIVES,
    ),
    # -- decodelab's own simulator
    (ENGINE, "step", _SIM, "sim.core", "EngineCore: step"),
    (WORKER, "step", _SIM, "sim.worker", "Worker: execute_model"),
    ("scheduler", "region", _SIM, "sim.core", "Scheduler: schedule"),
    ("output", "region", _SIM, "sim.core", "OutputProcessor: process_outputs"),
    ("prepare", "region", _SIM, "sim.worker", "ModelRunner: prepare_inputs"),
    ("forward", "region", _SIM, "sim.worker", "Model: forward"),
    ("attention", "region", _SIM, "sim.worker", "Attention: forward"),
    ("moe", "region", _SIM, "sim.worker", "FusedMoE: forward"),
    ("collective", "region", _SIM, "sim.worker", "Communicator: all_reduce"),
    ("logits", "region", _SIM, "sim.worker", "LogitsProcessor: forward"),
    ("sampler", "region", _SIM, "sim.worker", "Sampler: forward"),
    (WORKER, "load", _SIM, "sim.worker", "ModelRunner: load_model"),
)
# What has no fixed class is found in the loaded model: modules whose class is called so.
MODEL_CLASSES = {"mlp": "MLP"}


def _expand(rows: tuple) -> list:
    found = []
    for region, kind, era, module, names in rows:
        for group in names.split(";"):
            owner, colon, methods = group.strip().partition(": ")
            plain = ["%s.%s" % (owner, m) for m in methods.split()] if colon else [owner]
            found += [Target(region, kind, era, module, name) for name in plain]
    return found


TARGETS = _expand(_ROWS)


def of_user(region: str, told: object) -> Target:
    """Raises ValueError when `told` is not "module:Class.method" or "module:function"."""
    module, colon, name = str(told).partition(":")
    parts = module.split(".") + name.split(".")
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError('"module:Class.method" expected, found %r' % (told,))
    return Target(str(region), "region", "user", module, name)
