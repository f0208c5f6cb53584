"""Small engines as folders on a path: a torch and a vllm that lay their attention backends out as V0 and
V1 do, some of whose backends break, hang or want the device.
"""

from __future__ import annotations

from pathlib import Path

TORCH = """
class dtype: pass
float16, bfloat16, float32 = dtype(), dtype(), dtype()
class cuda:
    def _lazy_init(): raise AssertionError("a device was opened")
    def get_device_capability(device=None): cuda._lazy_init()
    def mem_get_info(): cuda._lazy_init()
"""
V0_SELECTOR = """
import enum
import logging
import os
import torch
import vllm.envs as envs
from vllm.platforms import current_platform
logger = logging.getLogger("vllm.attention.selector")

class _Backend(enum.Enum):
    FLASH_ATTN = enum.auto()
    XFORMERS = enum.auto()
    FLASHINFER = enum.auto()
    TORCH_SDPA = enum.auto()

def which_attn_to_use(head_size, sliding_window, dtype, kv_cache_dtype, block_size,
                      is_attention_free):
    selected = _Backend.FLASH_ATTN
    by_env = os.environ.get("VLLM_ATTENTION_BACKEND")
    if by_env is not None:
        selected = _Backend[by_env]
    if selected == _Backend.TORCH_SDPA:
        torch.cuda.mem_get_info()
    if selected == _Backend.FLASH_ATTN:
        try:
            import vllm_flash_attn
        except ImportError:
            logger.info("Cannot use FlashAttention-2 backend because the vllm_flash_attn package is "
                        "not found.")
            selected = _Backend.XFORMERS
    return selected
"""
V0_CONFIG = """
class SchedulerConfig:
    def _verify_args(self):
        if self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is "
                f"smaller than max_model_len ({self.max_model_len}). "
                "This effectively limits the maximum sequence length")
"""
MULTI_STEP = """
MULTI_STEP_ATTENTION_BACKENDS = ["FLASH_ATTN", "FLASHINFER"]
MULTI_STEP_CHUNKED_PREFILL_ATTENTION_BACKENDS = ["FLASH_ATTN"]
class MultiStepModelRunner:
    def __init__(self, name, accepted):
        raise ValueError(f"Multi-Step + Chunked-Prefill not supported for attention backend: {name}. "
                         f"Set VLLM_ATTENTION_BACKEND to a value from {accepted}.")
"""
V1_REGISTRY = """
from enum import Enum
class AttentionBackendEnum(Enum):
    FLASH_ATTN = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"
    TRITON_ATTN = "vllm.v1.attention.backends.triton_attn.TritonAttentionBackend"
    FLASHINFER = "vllm.v1.attention.backends.flashinfer.FlashInferBackend"
    TREE_ATTN = "vllm.v1.attention.backends.tree_attn.TreeBackend"
    CUSTOM = None
"""
V1_SELECTOR = """
from typing import NamedTuple, Any
class AttentionSelectorConfig(NamedTuple):
    head_size: int
    dtype: Any
    kv_cache_dtype: Any
    block_size: Any
    use_mla: bool = False
"""
V1_PLATFORM = """
import importlib
class Platform:
    @classmethod
    def get_attn_backend_cls(cls, selected_backend, attn_selector_config, num_heads=None):
        assert attn_selector_config.head_size == 64
        path = (selected_backend and selected_backend.value) or (
            "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend")
        module, _, name = path.rpartition(".")
        try:
            getattr(importlib.import_module(module), name)
        except (ImportError, OSError) as e:
            raise ValueError(f"Selected backend {selected_backend} is not valid for this "
                             f"configuration. Reason: [{type(e).__name__}: {e}]") from e
        return path
current_platform = Platform()
"""
V1_BACKEND = """
class {kind}:
    @staticmethod
    def get_name():
        return "{name}"
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """The files below `root`, each folder a package."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for folder in path.parents:
            if folder == root:
                break
            if not (folder / "__init__.py").exists():
                (folder / "__init__.py").write_text("")
    return root


def v0(root: Path, **more: str) -> Path:
    """A V0 engine on CoreX: its XFormers backend is the vendor's."""
    files = {
        "torch.py": TORCH,
        "ixformer/__init__.py": "",
        "xformers/ops/fmha/__init__.py": "import ixformer.functions\n",
        "ixformer/functions.py": "",
        "vllm/_version.py": "__version__ = version = '0.6.3'\n",
        "vllm/envs.py": "VLLM_USE_V1 = False\n",
        "vllm/platforms/__init__.py": "current_platform = object()\n",
        "vllm/config.py": V0_CONFIG,
        "vllm/attention/selector.py": V0_SELECTOR,
        "vllm/attention/backends/flash_attn.py": "import vllm_flash_attn\n",
        "vllm/attention/backends/xformers.py": "import ixformer.functions as ixf_F\n",
        "vllm/attention/backends/flashinfer.py": "import flashinfer_of_nowhere\n",
        "vllm/attention/backends/torch_sdpa.py": "",
        "vllm/worker/multi_step_model_runner.py": MULTI_STEP,
    }
    return write(root, {**files, **more})


def v1(root: Path, **more: str) -> Path:
    backends = "vllm/v1/attention/backends"
    files = {
        "torch.py": TORCH,
        "vllm/_version.py": "__version__ = version = '0.20.0'\n",
        "vllm/envs.py": "",
        "vllm/platforms/__init__.py": V1_PLATFORM,
        f"{backends}/registry.py": V1_REGISTRY,
        "vllm/v1/attention/selector.py": V1_SELECTOR,
        f"{backends}/flash_attn.py": V1_BACKEND.format(
            kind="FlashAttentionBackend", name="FLASH_ATTN"
        ),
        f"{backends}/triton_attn.py": V1_BACKEND.format(
            kind="TritonAttentionBackend", name="TRITON_ATTN"
        ),
        f"{backends}/flashinfer.py": "raise OSError('libcudart.so.12: cannot open shared object')\n",
        f"{backends}/tree_attn.py": V1_BACKEND.format(kind="TreeBackend", name="TREE_ATTN"),
    }
    return write(root, {**files, **more})
