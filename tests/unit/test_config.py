"""Opening a config: defaults, hosts.local.yaml, control keys, lines; no crash on anything."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_config import SMALL

from decodelab import config, yamlsource
from decodelab.mistakes import ConfigError

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout without anybody's hosts.local.yaml."""
    (tmp_path / "config").mkdir()
    for name in ("scripts", "resources"):
        (tmp_path / name).symlink_to(REPO / name)
    return tmp_path


def study(root: Path, text: str = SMALL) -> Path:
    path = root / "config/small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(root: Path, text: str, overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        config.load(study(root, text), overrides, root)
    return str(error.value)


def test_defaults_are_filled_in_at_every_depth(root: Path) -> None:
    loaded = config.load(study(root), None, root)
    assert loaded["limits"]["start_s"] == 600
    assert loaded["workloads"]["short"]["timeout_s"]["total"] == 1800
    assert loaded["hosts"]["here"]["python"] == "{this}"
    assert loaded["hosts"]["here"]["telemetry"] == {"tool": "ixsmi", "interval_s": 1.0}
    assert loaded["experiments"]["A"]["repeats"] == 1
    assert loaded["languages"] == ["zh", "en"]


def test_filling_in_does_not_touch_what_was_given() -> None:
    given = yaml.safe_load(SMALL)
    before = copy.deepcopy(given)
    filled = config.fill(given)
    filled["hosts"]["here"]["telemetry"]["tool"] = "none"
    filled["languages"].append("de")
    assert given == before
    assert config.fill(given)["languages"] == ["zh", "en"]


@pytest.mark.parametrize("name", ["config", "vllm-cpu", "2026-07-14-decode"])
def test_shipped_studies_are_well(root: Path, name: str) -> None:
    config.load(REPO / f"config/{name}.yaml", {}, root)


def test_the_real_study_needs_only_the_example_of_hosts_local(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"hosts\.local\.example\.yaml"):
        config.load(REPO / "config/bi100.yaml", {}, root)
    example = (REPO / "config/hosts.local.example.yaml").read_text(encoding="utf-8")
    (root / config.LOCAL_HOSTS).write_text(example, encoding="utf-8")
    loaded = config.load(REPO / "config/bi100.yaml", {}, root)
    assert loaded["hosts"]["bi100"]["transport"] == "ssh"


def test_hosts_local_wins_field_by_field(root: Path) -> None:
    (root / config.LOCAL_HOSTS).write_text("hosts:\n  here: {devices: 2}\n  other: {devices: 1}\n")
    loaded = config.load(study(root), None, root)
    assert loaded["hosts"]["here"]["devices"] == 2
    assert loaded["hosts"]["here"]["telemetry"]["tool"] == "ixsmi"
    assert loaded["hosts"]["other"]["transport"] == "local"


def test_a_host_over_ssh(root: Path) -> None:
    (root / config.LOCAL_HOSTS).write_text(
        "hosts:\n  far: {transport: ssh, ssh: me@far, ssh_config: ~/lab.config, workdir: /w, setup: /e.sh}\n"
    )
    far = config.load(study(root), {"host": "here"}, root)["hosts"]["far"]
    assert far["ssh_config"] == "~/lab.config" and far["python"] == "python3"
    assert far["lock"] == "/tmp/decodelab.lock" and far["setup"] == "/e.sh"


def test_the_value_of_a_secret_is_not_shown(root: Path) -> None:
    for wrong in ("[sk-canary, sk-canary]", "sk-canary", "{A: sk-canary}", '["1canary"]'):
        text = SMALL.replace("  engine: vllm-v0", f"  engine: vllm-v0\n  secrets: {wrong}")
        assert "canary" not in mistakes(root, text)
    for wrong in ("sk-canary", "[canary]", '"1\\ncanary"'):
        text = SMALL.replace("  engine: vllm-v0", f"  engine: vllm-v0\n  api_key: {wrong}")
        assert "canary" not in mistakes(root, text)


def test_mistakes_in_hosts_local_say_so(root: Path) -> None:
    (root / config.LOCAL_HOSTS).write_text("hosts:\n  here:\n    device: 2\nserver: {}\n")
    text = mistakes(root, SMALL)
    assert "hosts.here.device  (config/hosts.local.yaml:3)" in text
    assert 'server  (config/hosts.local.yaml:4)\n  found:   "server"\n  allowed: only hosts' in text


def test_control_keys(root: Path) -> None:
    path = study(root)
    loaded = config.load(path, {"retry": "fast", "quick": True}, root)
    assert loaded["control"] == {"retry": "fast", "quick": True}
    (root / config.LOCAL_HOSTS).write_text("hosts: {other: {devices: 1}}\n")
    assert config.load(path, {"host": "other"}, root)["host"] == "other"
    assert config.load(path, {}, root)["host"] == "here"


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "false", "False"])
def test_switches_come_as_texts_from_the_command_line(root: Path, text: str) -> None:
    loaded = config.load(study(root), {"quick": text}, root)
    assert loaded["control"]["quick"] is (text.lower() == "true")


def test_a_name_that_reads_as_a_switch_stays_a_text(root: Path) -> None:
    named = SMALL.replace("  fast:", '  "true":').replace("fast", '"true"')
    assert config.load(study(root, named), {"retry": "true"}, root)["control"]["retry"] == "true"


def test_snakemake_hands_over_the_file_itself_with_configfile(root: Path) -> None:
    path = study(root)
    both = {**yaml.safe_load(SMALL), "retry": "fast"}
    assert config.load(path, both, root)["control"]["retry"] == "fast"
    both["variants"] = {**both["variants"], "more": {}}
    with pytest.raises(ConfigError, match="keys of the study are changed in its file"):
        config.load(path, both, root)


def test_originals_may_be_named_per_call(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "originals"
    folder.mkdir()
    path = REPO / "config/2026-07-14-decode.yaml"
    assert config.load(path, {}, root)["replay"]["raw_dir"] is None
    assert config.load(path, {"raw_dir": str(folder)}, root)["replay"]["raw_dir"] == str(folder)
    with pytest.raises(ConfigError, match="a folder that exists"):
        config.load(path, {"raw_dir": str(folder / "no")}, root)


def test_lines_and_duplicates_at_any_depth(root: Path) -> None:
    text = SMALL.replace("short: {requests: 3,", "short: {requests: 3, requests: 4,")
    assert (
        "workloads.short.requests  (config/small.yaml:14)\n  found:   the key a second time"
        in mistakes(root, text)
    )
    # A merge (<<) is no duplicate: the mapping's own keys win.
    merged = SMALL.replace("  short: {", "  short: &w {").replace("curve: {", "curve: {<<: *w, ")
    loaded = config.load(study(root, merged), None, root)
    assert loaded["workloads"]["curve"]["max_tokens"] == 32


def test_an_empty_file_lacks_each_key_once(root: Path) -> None:
    with pytest.raises(ConfigError) as error:
        config.load(study(root, ""), None, root)
    paths = [m.path for m in error.value.mistakes if not isinstance(m, str)]
    assert len(paths) == len(set(paths)) and ("study",) in paths


@pytest.mark.parametrize(
    "short",
    [
        "{concurrency: 3, requests: 3, max_tokens: 64}",
        "{requests: 3, max_tokens: 64, extra_body: {temperature: 1, top_p: 0.9}}",
        "{requests: 3, max_tokens: 64, extra_body: {stream_options: {continuous_usage: true}}}",
        "{requests: 100000, max_tokens: 1000000, concurrency: [1, 4096]}",
        f"{{requests: 3, max_tokens: 64, scenario: {'s' * 80}, suffix: {'x' * 40}}}",
    ],
)
def test_workloads_at_their_limits_are_well(root: Path, short: str) -> None:
    text = SMALL.replace("short: {requests: 3, max_tokens: 64}", f"short: {short}")
    assert text != SMALL
    config.load(study(root, text), None, root)


@pytest.mark.parametrize(
    "length, tokens",
    [("65", 65), ('"64"', 64), ("64k", 64000), ("64K", 65536), ("auto", None), ("-1", None)],
)
def test_an_answer_is_shorter_than_the_context(root: Path, length: str, tokens: int | None) -> None:
    text = SMALL.replace("-tp: 4,", f"-tp: 4, --max-model-len: {length},")
    if tokens is None or tokens > 64:
        config.load(study(root, text), None, root)
    at_least = text.replace("max_tokens: 64", f"max_tokens: {tokens}")
    if tokens is not None:
        assert f'of "base" is {tokens}' in mistakes(root, at_least)


def test_an_answer_has_room_in_every_cell_of_a_grid(root: Path) -> None:
    grid = "fast: {vary: {--max-model-len: [32, 128]}}"
    text = SMALL.replace("fast: {flags: {--num-scheduler-steps: 4}}", grid)
    text = text[: text.index("    question:")]
    found = mistakes(root, text)
    assert '64, but --max-model-len of "fast-mml32" is 32' in found
    assert '32, but --max-model-len of "fast-mml32" is 32' in found


def test_yaml_does_not_make_dates_times_or_octals_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "a: 2026-07-14\nb: 12:30:00\nc: 010\nd: 0.95\ne: 4\nf: 1e-3\ng: off\nh: 4.\n1: x\non: y\n"
    )
    read = yamlsource.read(path).data
    assert read == {
        "a": "2026-07-14",
        "b": "12:30:00",
        "c": "010",
        "d": 0.95,
        "e": 4,
        "f": 0.001,
        "g": False,
        "h": 4.0,
        "1": "x",
        "on": "y",
    }


@pytest.mark.parametrize(
    "text, found",
    [
        ("\tstudy: x\n", "YAML"),
        ("study: [1\n", "YAML"),
        ("study: *nobody\n", "YAML"),
        ("", "study, which is required"),
        ("just a text\n", "a mapping of keys"),
        ("a: &a [*a]\n", "YAML"),
        ("a: 1\n---\nb: 2\n", "YAML"),
    ],
)
def test_files_that_are_no_config(root: Path, text: str, found: str) -> None:
    assert found in mistakes(root, text)


def test_a_file_that_cannot_be_read(root: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        config.load(root / "config/none.yaml", None, root)
    path = root / "config/bytes.yaml"
    path.write_bytes(b"study: \xff\xfe\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        config.load(path, None, root)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, below in items:
        yield from places(below, (*path, key))


RICH = yaml.safe_load(SMALL) | {
    "suspects": {
        "s": {
            "title": "s",
            "prior": 1,
            "evidence": [
                {"when": {"question": "A_1", "verdict": "refuted"}, "effect": "raise", "text": "t"}
            ],
        }
    },
    "next_steps": [{"title": {"zh": "z", "en": "e"}, "when": [{"anomaly": "gpus_idle"}]}],
    "facts": {"zh": ["z"], "en": ["e"]},
    "targets": {"e2e_tps_p10": ">= 20"},
}
RICH["variants"]["grid"] = {
    "extends": "base",
    "vary": {"--max-num-seqs": [1, 2]},
    "remove": ["--tool-call-parser"],
}
RICH["workloads"] |= {
    "open": {
        "prompt": {"tokens": 64},
        "thinking": "off",
        "chat_template_kwargs": {"thinking": False},
        "tools": 1,
        "rate": 2.5,
        "arrivals": "constant",
        "concurrency": 2,
        "requests": 2,
        "max_tokens": 16,
        "min_tokens": 8,
        "extra_body": {"stream_options": {"a": 1}},
    },
    "warm": {
        "requests": 1,
        "max_tokens": 8,
        "warmup": 1,
        "cache": "warm",
        "continuous_usage_stats": True,
        "return_token_ids": False,
        "cross_check": True,
        "http": "epoll",
    },
}
RICH["server"]["flags"] |= {"--enable-prefix-caching": True, "--max-model-len": 4096}
RICH["experiments"]["A"]["runs"]["base"] += ["open", "warm"]
RICH["experiments"]["B"] = {
    "when": "A is not supported",
    "runs": {"grid": ["short"]},
    "then": {"refuted": "no"},
}


def test_the_rich_config_is_well(root: Path) -> None:
    config.complete(RICH, lambda path: "here", root, [])


@pytest.mark.parametrize("bad", [None, -1, True, "x y/z", "x\0", [None], {"x": None}], ids=repr)
def test_no_value_anywhere_makes_it_crash(root: Path, bad: Any) -> None:
    """Whatever stands wherever: the config is well, or its mistakes are named."""
    for path in places(RICH):
        data = copy.deepcopy(RICH)
        at = data
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = bad
        try:
            config.complete(data, lambda path: "here", root, [])
        except ConfigError as error:
            assert error.mistakes, path
