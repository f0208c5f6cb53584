"""What the simulated vLLM refuses, in whose words, and what it settles by itself."""

from __future__ import annotations

import itertools

import pytest

from sim import flags, startup


def boot(*argv: str, **env: str) -> tuple:
    """(log lines, Refused or None, configuration) of one start."""
    config, lines = flags.parse(list(argv)), []
    try:
        for line in startup.lines(config, env):
            lines.append(line[1])
    except flags.Refused as e:
        return lines, e, config
    return lines, None, config


def grid() -> list:
    return list(itertools.product(("1", "2", "4"), ("4096", "8192"), ("true", "false"), ("1", "4")))


def boot_cell(cell: tuple, *more: str, **env: str) -> tuple:
    seqs, tokens, chunked, steps = cell
    argv = ["-tp", "4", "--max-model-len", "4096", "--max-num-seqs", seqs]
    argv += ["--max-num-batched-tokens", tokens, "--enable-chunked-prefill", chunked]
    return boot(*argv, "--num-scheduler-steps", steps, *more, **env)


def test_grid_on_sim_attn_fails_in_exactly_the_cells_with_chunks_and_steps():
    refused = [c for c in grid() if boot_cell(c, "--sim-backend", "SIM_ATTN")[1] is not None]
    assert len(grid()) == 24
    assert refused == [c for c in grid() if c[2] == "true" and c[3] == "4"]
    assert len(refused) == 6


def test_grid_on_xformers_refuses_multi_step_with_and_without_chunks():
    words = {}
    for cell in grid():
        error = boot_cell(cell)[1]
        assert (error is not None) == (cell[3] == "4"), cell
        if error:
            words[cell[2]] = error.error
    assert words == {
        "true": "ValueError: Multi-Step + Chunked-Prefill not supported for attention backend: "
        "xformers. Set VLLM_ATTENTION_BACKEND to a value from ['flash-attn'].",
        "false": "ValueError: Multi-Step not supported for attention backend: xformers. Set "
        "VLLM_ATTENTION_BACKEND to a value from ['flash-attn', 'rocm-flash-attn', 'flashinfer'].",
    }


def test_absent_chunked_flag_is_on_for_long_contexts_only():
    for length, on in (("32768", False), ("32769", True), ("262144", True)):
        lines, error, config = boot("--max-model-len", length)
        assert error is None and config.chunked is on
        assert any("enabled by default for models" in line for line in lines) is on
    assert boot("--num-scheduler-steps", "4", "--sim-backend", "SIM_ATTN")[1] is not None
    _, error, _ = boot(
        "--num-scheduler-steps", "4", "--max-model-len", "4096", SIM_BACKEND="SIM_ATTN"
    )
    assert error is None


@pytest.mark.parametrize(
    ("argv", "side", "words"),
    [
        (
            "--enable-chunked-prefill false --max-num-batched-tokens 8192",
            "api",
            "max_num_batched_tokens (8192) is smaller than max_model_len (262144). This",
        ),
        ("-tp 3", "api", "Total number of attention heads (16) must be divisible by tensor"),
        ("-tp 8", "api", "Unable to load Ray"),
        ("--max-model-len 1000000", "api", "User-specified max_model_len (1000000) is greater"),
        ("--gpu-memory-utilization 0.3", "engine", "No available memory for the cache blocks."),
        (
            "--gpu-memory-utilization 0.6",
            "engine",
            "The model's max seq len (262144) is larger than the maximum number of tokens that can",
        ),
        ("--gpu-memory-utilization 1.5", "api", "must be less than 1.0. Got 1.5."),
        ("--max-num-batched-tokens 4 --max-num-seqs 8", "api", "(4) must be greater than or equal"),
        ("--num-scheduler-steps 0", "api", "num_scheduler_steps (0) must be"),
        (
            "--enable-auto-tool-choice",
            "api",
            "TypeError: Error: --enable-auto-tool-choice requires",
        ),
        (
            "--enable-auto-tool-choice --tool-call-parser nope",
            "api",
            "KeyError: 'invalid tool call parser: nope (chose from { ",
        ),
        ("--reasoning-parser nope", "api", "KeyError: 'invalid reasoning parser: nope (chose from"),
    ],
)
def test_refusals(argv: str, side: str, words: str):
    _, error, _ = boot(*argv.split())
    assert error is not None and words in error.error and error.side == side
    text = startup.traceback_of(error)
    last = text.strip().splitlines()[-1]
    assert error.error in text.splitlines()
    assert (
        last.startswith("RuntimeError: Engine process") if side == "engine" else last == error.error
    )


def test_parsers_beside_the_tool_flag_do_not_matter_without_it():
    assert boot("--tool-call-parser", "nope")[1] is None


def test_backends():
    lines, error, _ = boot(VLLM_ATTENTION_BACKEND="FLASH_ATTN")
    at = [
        i for i, line in enumerate(lines) if line.startswith("Cannot use FlashAttention-2 backend")
    ]
    assert error is None and lines[at[0] + 1] == "Using XFormers backend."
    assert "Using XFormers backend." in boot()[0]
    assert "Using SimAttn backend." in boot(VLLM_ATTENTION_BACKEND="SIM_ATTN")[0]
    # The environment is what vLLM knows; it beats the simulator's own default.
    argv = ["--sim-backend", "SIM_ATTN"]
    assert "Using XFormers backend." in boot(*argv, VLLM_ATTENTION_BACKEND="XFORMERS")[0]
    error = boot(VLLM_ATTENTION_BACKEND="xformers")[1]
    assert error and error.error.startswith(
        "ValueError: Invalid attention backend 'xformers'. Avail"
    )
    for name in flags.UNUSABLE:
        assert boot(VLLM_ATTENTION_BACKEND=name)[1] is not None, name
    assert boot("--num-scheduler-steps", "4", VLLM_ATTENTION_BACKEND="FLASH_ATTN")[1] is not None


def test_the_refusal_comes_after_the_backends_line_and_before_the_model():
    lines, error, _ = boot_cell(("2", "8192", "true", "4"))
    assert error and lines[-1] == "Using XFormers backend."
    assert not any("Starting to load" in line for line in lines)


def test_argparse_errors_and_spellings(capsys: pytest.CaptureFixture):
    for argv in (["--no-such-flag", "4"], ["--dtype", "float8"], ["--no-enable-chunked-prefill"]):
        with pytest.raises(SystemExit) as e:
            flags.parse(argv)
        assert e.value.code == 2
        assert "api_server.py: error: " in capsys.readouterr().err
    with pytest.raises(flags.Refused, match="Invalid boolean value: maybe"):
        flags.parse(["--enable-chunked-prefill", "maybe"])
    one = flags.parse(["--max_num_seqs=3", "--enable-chunked-prefill", "--model", "a_b"])
    assert (one.max_num_seqs, one.enable_chunked_prefill, one.model) == (3, True, "a_b")
    assert flags.parse(["--enable-chunked-prefill", "False"]).enable_chunked_prefill is False


def test_an_api_key_is_not_logged():
    lines, _, config = boot("--api-key", "s3cret")
    assert config.api_key == "s3cret" and not any("s3cret" in line for line in lines)
