"""What a server's log says is in effect, per engine era."""

# ruff: noqa: E501  (one log line a line)

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import startlog


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ("INFO 07-12 09:51:28 selector.py:115] Using XFormers backend.", "XFormers"),
        ("INFO 07-12 09:51:28 selector.py:1] Using Flash Attention backend.", "Flash Attention"),
        ("(Worker pid=3) INFO 07-12 09:51:28 [cuda.py:1] Using Flash Attention backend on V1 engine.", "Flash Attention"),
        ("INFO 07-12 09:51:28 [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: ['A'].", "FLASH_ATTN"),
        ("INFO 07-12 09:51:28 [cuda.py:1] Using AttentionBackendEnum.FLASHINFER backend.", "FLASHINFER"),
        ("\x1b[1;36m(VllmWorkerProcess pid=3)\x1b[0;0m INFO 07-12 09:51:28 selector.py:1] Using XFormers backend.", "XFormers"),
        ("INFO 07-12 09:51:28 [u.py:1] Using CPU Unquantized MoE backend out of potential backends: ['CPU'].", None),
        ("INFO 07-12 09:51:28 [u.py:1] Using CPUUnquantizedExperts MoE backend", None),
        ("INFO 07-12 09:51:28 [cuda.py:1] Using Triton MLA backend on V1 engine.", "Triton MLA"),
        ("INFO 07-12 09:51:28 [cuda.py:1] Using Cutlass MLA backend on V1 engine.", "Cutlass MLA"),
        ("INFO 07-12 09:51:28 [cuda.py:1] Using Aiter Flash Attention backend on V1 engine.", "Aiter Flash Attention"),
        ("INFO 07-12 09:51:28 [cpu.py:1] Using Torch SDPA backend.", "Torch SDPA"),
        ("INFO 07-12 09:51:28 [utils.py:1] Using gloo backend.\nINFO [cuda.py:1] Using XFormers backend.", "XFormers"),
        ("INFO 07-12 09:51:28 [x.py:1] Using xgrammar backend.", None),
        ("INFO 07-12 09:51:28 logger.py:37] Received request 1: prompt: 'Using XFormers backend.'", None),
        ("INFO 07-12 09:51:28 [cpu.py:1] Cannot use AttentionBackendEnum.FLASHINFER backend on CPU.", None),
    ],
)  # fmt: skip
def test_backend(line: str, backend: str | None) -> None:
    assert startlog.read(line).backend == backend


def test_version_and_time_to_ready() -> None:
    v0 = startlog.read(
        "INFO 12-31 23:59:50 api_server.py:530] vLLM API server version 0.6.3\n"
        "INFO 12-31 23:59:58 x.py:1] loading\nINFO:     Application startup complete.\n"
        "INFO 12-31 23:59:59 x.py:1] serving\n"
    )
    assert (v0.version, v0.ready_s) == ("0.6.3", 8.0)
    v1 = startlog.read(
        "(APIServer pid=1) INFO 11-29 16:44:19 [a.py:1]   █▄█▀ █  █  version 0.32.0\n"
    )
    assert (v1.version, v1.ready_s) == ("0.32.0", None)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    startlog.read(text)
    startlog.read("Using " + text + " backend\nversion " + text)
