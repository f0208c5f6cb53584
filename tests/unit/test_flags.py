"""Flags: one canonical form per server, and values that reach it as they are written."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from decodelab import flags

COMMAND = ["python3", "-m", "server"]
AWKWARD = [
    "$(touch /tmp/x)",
    "`id`; rm -rf ~ && echo | tee > out",
    "two words",
    "line one\nline two",
    "-leading",
    "--looks-like-a-flag",
    "quo\"te's",
    "{braces} ${HOME} %s \\n",
    "中文 名字",
    "",
    "*",
    "a=b",
]


def parsed(argv: list[str], *names: str) -> argparse.Namespace:
    """What an argparse server reads from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    for name in names:
        parser.add_argument(name)
    return parser.parse_args(argv[len(COMMAND) :])


@pytest.mark.parametrize(
    "one, other",
    [
        ({"-tp": 4}, {"--tensor-parallel-size": 4}),
        ({"-tp": 4}, {"--tensor_parallel_size": "4"}),
        ({"-pp": 2}, {"--pipeline-parallel-size": 2}),
        ({"-q": "awq"}, {"--quantization": "awq"}),
        ({"--max_num_seqs": 2}, {"--max-num-seqs": 2}),
        ({"--num-scheduler-steps": 1}, {}),
        ({"-tp": 1, "--dtype": "auto"}, {}),
        ({"--enforce-eager": False}, {}),
        ({"--enable-chunked-prefill": "False"}, {"--enable-chunked-prefill": False}),
        ({"--a": 1, "--b": 2}, {"--b": 2, "--a": 1}),
    ],
)
def test_spellings_of_one_server_on_v0(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert flags.canonical(one, "vllm-v0") == flags.canonical(other, "vllm-v0")
    assert flags.argv(COMMAND, "m", one, "vllm-v0") == flags.argv(COMMAND, "m", other, "vllm-v0")


@pytest.mark.parametrize(
    "one, other",
    [
        ({"--enable-chunked-prefill": False}, {}),
        ({"--enable-chunked-prefill": False}, {"--enable-chunked-prefill": True}),
        ({"--multi-step-stream-outputs": False}, {}),
        ({"--num-scheduler-steps": 4}, {}),
        ({"--max-num-seqs": 256}, {}),
        ({"--enable-prefix-caching": True}, {}),
        ({"--gpu-memory-utilization": 0.9}, {}),
        ({"--swap-space": 4}, {}),
    ],
)
def test_what_is_not_the_same_on_v0(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert flags.canonical(one, "vllm-v0") != flags.canonical(other, "vllm-v0")


def test_spellings_of_one_server_on_v1() -> None:
    assert flags.canonical({"--no-enable-chunked-prefill": True}, "vllm-v1") == {
        "--enable-chunked-prefill": False
    }
    assert flags.canonical({"-dp": 1, "--enforce-eager": False}, "vllm-v1") == {}
    assert flags.canonical({"-ep": True}, "vllm-v1") == {"--enable-expert-parallel": True}
    assert (
        flags.canonical({"--enable-prefix-caching": False}, "vllm-v1") != {}
    )  # on by default there


def test_scheduler_steps_are_folded_only_where_they_exist() -> None:
    assert flags.canonical({"--num-scheduler-steps": 1}, "vllm-v1") == {
        "--num-scheduler-steps": "1"
    }


@pytest.mark.parametrize(
    "engine, flag, tail",
    [
        ("vllm-v0", "--enable-chunked-prefill", ["--enable-chunked-prefill", "False"]),
        ("vllm-v0", "--enable-prefix-caching", []),
        ("vllm-v1", "--enable-chunked-prefill", ["--no-enable-chunked-prefill"]),
        ("vllm-v1", "--enable-prefix-caching", ["--no-enable-prefix-caching"]),
        ("other", "--enable-anything", []),
    ],
)
def test_false_is_spelled_as_the_era_wants(engine: str, flag: str, tail: list[str]) -> None:
    assert flags.argv(COMMAND, None, {flag: False}, engine) == COMMAND + tail
    assert flags.argv(COMMAND, None, {flag: True}, engine) == [*COMMAND, flag]
    assert flags.argv(COMMAND, None, {}, engine) == COMMAND


def test_other_engines_keep_their_own_spelling() -> None:
    assert flags.argv(COMMAND, None, {"--mem_fraction": 0.8, "-tp": 2}, "other") == [
        *COMMAND,
        "--mem_fraction",
        "0.8",
        "-tp",
        "2",
    ]


@pytest.mark.parametrize("engine", flags.ERAS)
@pytest.mark.parametrize("text", AWKWARD)
def test_any_text_survives(engine: str, text: str) -> None:
    argv = flags.argv(
        COMMAND,
        text,
        {"--chat-template": text, "--served-model-name": [text.lstrip("-"), "b"]},
        engine,
    )
    assert text in argv or f"--chat-template={text}" in argv
    assert text.lstrip("-") in argv
    if engine == "other":
        argv = flags.argv(COMMAND, text, {"--chat-template": text}, engine)
        read = parsed(argv, "--chat-template")
        assert (read.model, read.chat_template) == (text, text)


@pytest.mark.parametrize(
    "given, text", [(4, "4"), (0.95, "0.95"), (-1, "-1"), (1e-05, "1e-05"), (10**18, str(10**18))]
)
def test_numbers_survive(given: Any, text: str) -> None:
    read = parsed(flags.argv(COMMAND, "m", {"--number": given}, "vllm-v0"), "--number")
    assert read.number == text


def test_a_list_is_several_words_and_a_mapping_is_json() -> None:
    argv = flags.argv(
        COMMAND, None, {"--names": ["a b", 3], "--config": {"b": "é", "a": [1]}}, "vllm-v1"
    )
    assert argv == [*COMMAND, "--config", '{"a": [1], "b": "é"}', "--names", "a b", "3"]


def test_keys_inside_a_dotted_flag_are_data() -> None:
    assert flags.name("--hf_overrides.rope_theta", "vllm-v1") == "--hf-overrides.rope_theta"


@pytest.mark.parametrize(
    "given, engine, word",
    [
        ({"-tp": 1, "--tensor-parallel-size": 2}, "vllm-v0", "again"),
        ({"--port": 1}, "vllm-v0", "--port"),
        ({"--api_key": "x"}, "vllm-v1", "--api_key"),
        ({"--no-enforce-eager": False}, "vllm-v1", "--no-enforce-eager: False"),
        ({"--names": ["a", "-b"]}, "vllm-v1", "in a list"),
        ({"-x": False}, "vllm-v1", "-x: false"),
        ({"--a": {}, "-tp": []}, "vllm-v0", None),
    ],
)
def test_problems(given: dict[str, Any], engine: str, word: str | None) -> None:
    found = flags.problems(given, engine)
    assert [p for p in found if not word or word not in p.found] == []
    assert len(found) == (1 if word else 0)
