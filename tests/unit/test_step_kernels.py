"""Names of kernels and ops, each of the class it is known to be of."""

from __future__ import annotations

import pytest

from decodelab import step_kernels

NAMES = {
    "collective": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "rcclGenericKernel<false>",
        "fenceWaitE",
        "fenceOps",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*)",
        "c10d::allreduce_",
    ],
    "copy": [
        "Memcpy DtoH (Device -> Pinned)",
        "Memset (Device)",
        "kernelCopy",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>>",
        "void at::native::index_elementwise_kernel<128, 4>",
        "aten::copy_",
    ],
    "gemm": [
        "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8>",
        "nvjet_tst_128x64_64x8_1x2_h_bz_TNT",
        "Cijk_Alik_Bljk_BBS_BH_MT64x16x128_MI16x16x16x1",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
        "aten::mm",
        "general_gemm",
    ],
    "moe": [
        "fused_moe_kernel",
        "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16>",
        "void vllm::moe::moe_align_block_size_kernel<int>",
        "direct_w13_kernel",
        "direct_w2_reduce_kernel",
        "_C::cpu_fused_moe",
    ],
    "attention": [
        "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>",
        "void vllm::paged_attention_v2_kernel<unsigned short, 128>",
        "kernel_unified_attention_2d",
        "BatchDecodeWithPagedKVCacheKernel",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>",
        "_fwd_kernel",
        "vllm::unified_attention_with_output",
    ],
    "linear_attention": [
        "fused_recurrent_gated_delta_rule_fwd_kernel",
        "_causal_conv1d_update_kernel",
        "gdn_packed_decode",
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "_selective_scan_update_kernel",
    ],
    "norm": [
        "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
        "aten::native_layer_norm",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "triton_poi_fused_mul_silu_1",
        "void vllm::act_and_mul_kernel<c10::BFloat16>",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>",
        "aten::mul",
    ],
    "sampler": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>",
        "_topk_topp_kernel",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024>",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>",
        "aten::argmax",
    ],
    "other": ["some_vendor_thing", "aten::view", ""],
}


@pytest.mark.parametrize(("region", "name"), [(r, n) for r, names in NAMES.items() for n in names])
def test_a_name_is_of_its_class(region: str, name: str) -> None:
    assert step_kernels.region_of(name) == region


def test_every_class_is_tested() -> None:
    assert set(NAMES) == {*step_kernels.CLASSES, step_kernels.OTHER}
