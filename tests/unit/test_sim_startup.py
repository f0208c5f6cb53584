"""What the simulated vLLM refuses, in whose words, and what it settles by itself."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from cargo import start_cause
from sim import startup


def boot(*argv: str, **env: str) -> tuple:
    """(log lines, lines that a refusal ends the log with, configuration) of one start."""
    config, lines = startup.parse(list(argv)), []
    try:
        for line in startup.start(config, env):
            lines.append(line.partition("] ")[2])
    except SystemExit as e:
        return lines, str(e).splitlines(), config
    return lines, [], config


def grid() -> list:
    return list(itertools.product(("1", "2", "4"), ("4096", "8192"), ("true", "false"), ("1", "4")))


def boot_cell(cell: tuple, *more: str, **env: str) -> tuple:
    seqs, tokens, chunked, steps = cell
    argv = ["-tp", "4", "--max-model-len", "4096", "--max-num-seqs", seqs]
    argv += ["--max-num-batched-tokens", tokens, "--enable-chunked-prefill", chunked]
    return boot(*argv, "--num-scheduler-steps", steps, *more, **env)


def test_grid_on_sim_attn_fails_in_exactly_the_cells_with_chunks_and_steps():
    refused = [c for c in grid() if boot_cell(c, VLLM_ATTENTION_BACKEND="SIM_ATTN")[1]]
    assert len(grid()) == 24
    assert refused == [c for c in grid() if c[2] == "true" and c[3] == "4"]
    assert len(refused) == 6


def test_grid_on_xformers_refuses_multi_step_with_and_without_chunks():
    words = {}
    for cell in grid():
        error = boot_cell(cell)[1]
        assert bool(error) == (cell[3] == "4"), cell
        if error:
            words[cell[2]] = error[1]
    assert words == {
        "true": "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: "
        "xformers. Set VLLM_ATTENTION_BACKEND to a value from ['flash-attn'].",
        "false": "ValueError: Multi-Step not supported for attention backend: xformers. Set "
        "VLLM_ATTENTION_BACKEND to a value from ['flash-attn', 'rocm-flash-attn', 'flashinfer'].",
    }


def test_absent_chunked_flag_is_on_for_long_contexts_only():
    for length, on in (("32768", False), ("32769", True), ("262144", True)):
        _, error, config = boot("--max-model-len", length)
        assert not error and config.chunked is on
    multi = ["--num-scheduler-steps", "4"]
    assert boot(*multi, VLLM_ATTENTION_BACKEND="SIM_ATTN")[1]
    assert not boot(*multi, "--max-model-len", "4096", VLLM_ATTENTION_BACKEND="SIM_ATTN")[1]


@pytest.mark.parametrize(
    ("argv", "side", "words"),
    [
        (
            "--enable-chunked-prefill false --max-num-batched-tokens 8192",
            "api",
            "ValueError: max_num_batched_tokens (8192) is smaller than max_model_len (262144).",
        ),
        (
            "-tp 3",
            "api",
            "ValueError: Total number of attention heads (16) must be divisible by tensor parallel "
            "size (3).",
        ),
        (
            "--gpu-memory-utilization 0.3",
            "engine",
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine.",
        ),
        (
            "--enable-auto-tool-choice --tool-call-parser nope",
            "api",
            "KeyError: 'invalid tool call parser: nope (chose from ('granite', 'hermes', "
            "'internlm', 'llama3_json', 'mistral', 'qwen3_coder'))'",
        ),
    ],
)
def test_refusals(argv: str, side: str, words: str):
    _, error, _ = boot(*argv.split())
    assert error[:2] == ["Traceback (most recent call last):", words]
    wrapper = "RuntimeError: Engine process failed to start. See stack trace for the root cause."
    assert error[2:] == ([error[0], wrapper] if side == "engine" else [])


def test_the_product_explains_every_refusal_by_its_configuration():
    for argv, env in (
        (["-tp", "3"], {}),
        (["--enable-chunked-prefill", "false", "--max-num-batched-tokens", "9"], {}),
        (["--gpu-memory-utilization", "0.3"], {}),
        (["--enable-auto-tool-choice", "--tool-call-parser", "nope"], {}),
        (["--num-scheduler-steps", "4"], {}),
        (["--num-scheduler-steps", "4", "--max-model-len", "4096"], {}),
        ([], {"VLLM_ATTENTION_BACKEND": "nope"}),
    ):
        _, error, _ = boot(*argv, **env)
        cause = start_cause.explain("\n".join(error), 1)
        assert (cause["side"], cause["root_cause"], cause["confidence"]) == (
            "config",
            error[1],
            "high",
        )


def test_a_tool_parser_without_the_tool_flag_does_not_matter():
    assert not boot("--tool-call-parser", "nope")[1]


def test_backends():
    lines, error, _ = boot(VLLM_ATTENTION_BACKEND="FLASH_ATTN")
    at = [i for i, line in enumerate(lines) if line.startswith("Cannot use FlashAttention-2")]
    assert not error and lines[at[0] + 1] == "Using XFormers backend."
    assert "Using XFormers backend." in boot()[0]
    assert "Using SimAttn backend." in boot(VLLM_ATTENTION_BACKEND="SIM_ATTN")[0]
    error = boot(VLLM_ATTENTION_BACKEND="xformers")[1]
    assert error[1].startswith("ValueError: Invalid attention backend 'xformers'. Available")
    assert boot("--num-scheduler-steps", "4", VLLM_ATTENTION_BACKEND="FLASH_ATTN")[1]


def test_the_refusal_comes_after_the_backends_line_and_before_the_model():
    lines, error, _ = boot_cell(("2", "8192", "true", "4"))
    assert error and lines[-1] == "Using XFormers backend."


def test_argparse_errors_and_spellings(capsys: pytest.CaptureFixture):
    for argv in (
        ["--no-such-flag", "4"],
        ["--reasoning-parser", "nope"],
        ["--no-enable-chunked-prefill"],
        ["--enable-chunked-prefill", "maybe"],
    ):
        with pytest.raises(SystemExit) as e:
            startup.parse(argv)
        assert e.value.code == 2
        assert "api_server.py: error: " in capsys.readouterr().err
    one = startup.parse(["--max_num_seqs=3", "--enable-chunked-prefill", "--model", "a_b"])
    assert (one.max_num_seqs, one.enable_chunked_prefill, one.model) == (3, True, "a_b")
    assert startup.parse(["--enable-chunked-prefill", "False"]).enable_chunked_prefill is False


def test_every_flag_of_the_shipped_v0_studies_is_known():
    folder = Path(__file__).resolve().parents[2] / "config"
    seen = set()
    for name in ("config.yaml", "bi100.yaml"):
        study = yaml.safe_load((folder / name).read_text(encoding="utf-8"))
        assert study["server"]["engine"] == "vllm-v0"
        given = dict(study["server"]["flags"])
        for variant in study["variants"].values():
            given.update(variant.get("flags", {}))
            given.update({k: v[0] for k, v in variant.get("vary", {}).items()})
        seen |= set(given)
        words = [[flag] if value is True else [flag, str(value)] for flag, value in given.items()]
        startup.parse([word for pair in words for word in pair])
    assert "--num-scheduler-steps" in seen
