"""The class of a kernel, a copy or a framework op by its name: which region of a step it is time of.

One table of patterns, in order: the first that fits decides, so that what is told by a narrow word (`nccl`, `moe`)
goes before a wide one (`gemm`, `elementwise`). Names are those of CUDA, cutlass, cuBLAS, Triton, FlashAttention,
FlashInfer, xformers, vLLM, CoreX, ROCm, NCCL and RCCL. What fits nothing is `other`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from decodelab import step_regions

OTHER = "other"
# regions of a device's idle time, by its cause (`trace_account`)
IDLE = ("engine", "prepare", "sync", "launch_gap", step_regions.UNATTRIBUTED)

# region -> patterns, seen in any case and anywhere in the name
CLASSES: dict[str, tuple[str, ...]] = {
    "collective": (
        r"nccl|rccl|msccl|ixccl",
        r"fence(wait|ops|signal|post)",  # CoreX: NCCL's barriers
        r"cross_device_reduce|custom_all_?reduce|quick_?reduce|two_?shot|one_?shot_all|multimem_all",
        r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|c10d::|gloo:",
        r"deep_?ep|internode::|intranode::|nvshmem|pplx",
    ),
    "moe": (
        r"moe|grouped_topk|topk_?gating|topk_softmax|expert|w13_kernel|w2_reduce|sorted_token",
        r"group(ed)?_?gemm|ptr_?array.*gemm|GemmGrouped|marlin_moe",
    ),
    "linear_attention": (
        r"gdn|gated_?delta|delta_?rule|mamba|selective_(scan|state)|ssd_|ssm|causal_conv1d",
        r"linear_att|lightning_att|chunk_(fwd|gla|kda|scaled|local)|fused_recurrent|kda|short_conv",
    ),
    "attention": (
        r"flash_?(fwd|att|mla|decode)|fmha|fa2|fa3|mha_(fwd|varlen)|splitkv|flash::",
        r"paged_?att|attention|attn|scaled_dot_product|mqa_|mla_|reshape_and_cache|kv_?cache",
        r"BatchDecodeWith|BatchPrefillWith|single_query|MergeState|merge_attn|concat_and_cache",
        r"xformers|unified_kv|rotary|rope|prefill_kernel|advance_step|^_(fwd|bwd)(_grouped)?_kernel",
    ),
    "sampler": (
        r"sampl|arg_?max|argmin|multinomial|top_?k_?top_?p|top_?p|penalt|logprob|rejection_",
        r"sbtopk|gatherTopK|radixSort|RadixSort|bitonicSort|sort(_?by_?key|KeyValue)|exponential_kernel",
        r"apply_repetition|gumbel|min_p|logits_process|random_from_to|distribution_elementwise",
    ),
    "norm": (
        r"rms_?norm|layer_?norm|l2_?norm|group_?norm|add_rms|_norm\b|norm_(fwd|kernel)|^triton_.*rsqrt",
    ),
    "gemm": (
        r"gemm|gemv|cutlass|cublas|rocblas|hipblas|Cijk_|wgmma|nvjet|xmma|s\d+gemm|splitKreduce",
        r"split_?k_?reduce|marlin|machete|matmul|w8a8|w4a16|ampere_.*_(tn|nn|nt)|wvSplitK|LLGemm",
        r"^aten::(mm|bmm|addmm|linear|matmul|baddbmm|einsum|mv|dot)$|onednn|mkldnn|skinny",
    ),
    "copy": (
        r"memcpy|memset|kernelCopy|copy_?kernel|direct_copy|CatArrayBatched|\bcopy_?\b|fill_kernel",
        r"^aten::(copy_|_to_copy|to|clone|contiguous|cat|stack|fill_|zero_|empty.*|resize_|zeros|ones)$",
        r"FillFunctor|indexSelect|index_select|index_kernel|index_elementwise|gather_kernel|embedding",
        r"scatter_gather|^aten::(index|gather|scatter|index_select|index_put_|slot_mapping)$",
    ),
    "elementwise": (
        r"element_?wise|silu|gelu|swiglu|act_and_mul|sigmoid|tanh|relu|softmax|softplus|vectorized",
        r"unrolled|reduce_kernel|reduceKernel|pointwise|triton_(poi|red|per|for)|cumsum|scan|where",
        r"quant|cast|convert|compare|arange|bitwise|^aten::(add|sub|mul|div|pow|mean|sum|rsqrt|exp|lt|gt)_?$",
        r"^aten::(eq|ne|le|ge|neg|sqrt|max|min|abs|cos|sin|log|clamp|masked_fill)_?$",
    ),
}
# vLLM's own annotations (VLLM_CUSTOM_SCOPES_FOR_PROFILING) within a step
SCOPES = {
    "gpu_model_runner: preprocess": "prepare",
    "gpu_model_runner: forward": "forward",
    "gpu_model_runner: postprocess": "logits",
    "gpu_model_runner: sample": "sampler",
    "gpu_model_runner: bookkeep": "sync",
    "gpu_model_runner: ModelRunnerOutput": "output",
}
# On the CPU a scope or op of these is a whole: what it calls inside (a GEMM of the experts) is its own time.
WHOLE = {
    *("collective", "moe", "linear_attention", "attention", "sampler"),
    *("prepare", "logits", "sync", "output", "scheduler"),
}


def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_COMPILED = {region: _pattern(patterns) for region, patterns in CLASSES.items()}


@lru_cache(maxsize=20_000)
def region_of(name: str) -> str:
    """A region's own name (our exported traces) is that region."""
    if name in SCOPES:
        return SCOPES[name]
    if name in step_regions.REGIONS or name in CLASSES:
        return name
    return next((r for r, pattern in _COMPILED.items() if pattern.search(name)), OTHER)
