"""The load client's parts that need no server: arguments, scenarios, salt, stamps, writing."""

from __future__ import annotations

import ast
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cargo import client_options, decode_microbench, endpoint, load, scenario, stamps

CARGO = Path(decode_microbench.__file__).parent
GOOD = [
    "--base-url=http://127.0.0.1:9",
    "--model=m",
    "--scenario=short",
    "--concurrency=1",
    "--requests=1",
    "--max-tokens=8",
]


def test_shipped_scenarios_are_what_they_promise() -> None:
    assert sorted(path.stem for path in (CARGO / "scenarios").iterdir()) == list(scenario.SHIPPED)
    short, tool = scenario.load("short"), scenario.load("tool")
    assert short["tools"] is None
    names = [entry["function"]["name"] for entry in tool["tools"]]
    assert len(names) == len(set(names)) == 29
    for entry in tool["tools"]:
        function = entry["function"]
        assert entry["type"] == "function"
        assert function["description"]
        assert set(function["parameters"]["required"]) <= set(function["parameters"]["properties"])
    # about 2,200 prompt tokens at four characters a token
    characters = len(json.dumps(tool["tools"])) + len(tool["messages"][0]["content"])
    assert 2100 <= characters / 4 <= 2300


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("[]", "a JSON object expected"),
        ("{", "not JSON"),
        ('{"messages": []}', "messages"),
        ('{"messages": [{"content": "a"}]}', "messages[0]"),
        ('{"messages": [{"role": "user"}], "tools": {}}', "tools"),
        ('{"messages": [{"role": "user"}], "mesages": 1}', "'mesages'"),
        ('{"prompt_tokens": 0}', "prompt_tokens"),
        ('{"prompt_tokens": true}', "prompt_tokens"),
        ('{"prompt_tokens": 9, "messages": [{"role": "user"}]}', "exclude each other"),
    ],
)
def test_a_scenario_that_cannot_be_used(content: str, part: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(scenario.ScenarioError, match=part.replace("[", r"\[")):
        scenario.load(str(path))


BAD_LINES = [
    (["--concurrency=0"], "at least 1"),
    (["--requests=-1"], "at least 1"),
    (["--max-tokens=x"], "invalid int"),
    (["--timeout-total=nan"], "at least"),
    (["--temperature=-1"], "at least 0"),
    (["--extra-body=[]"], "a JSON object expected"),
    (["--extra-body={"], "not JSON"),
    (['--extra-body={"stream": false}'], "'stream' is set by the client"),
    (['--extra-body={"stream_options": 1}'], "stream_options"),
    (["--scenario=no-such"], "no-such"),
    (["--base-url=127.0.0.1:8000"], "http://HOST:PORT expected"),
    (["--base-url=http://127.0.0.1:99999"], "base-url"),
    (["--base-url=https://127.0.0.1:8000"], "--http httpx"),
    (["--base-url=http://192.0.2.1:8000"], "not on loopback"),
    (["--base-url=http://me:secret@127.0.0.1:8000"], "no user or password"),
    (["--api-key-env=LAB_NO_SUCH_KEY"], "LAB_NO_SUCH_KEY"),
    (["--http=curl"], "invalid choice"),
    (["--source=guessed"], "invalid choice"),
    (["--out=/no/such/folder/f.json"], "no folder"),
    (["--rate=0"], "at least"),
    (["--arrivals=constant"], "--arrivals needs --rate"),
    (["--arrivals=gamma", "--rate=1"], "invalid choice"),
    (["--min-tokens=9"], "--min-tokens is more than --max-tokens"),
    (["--cache=warm"], "needs --warmup"),
    (["--prompt-tokens=9"], "exclude each other"),
    (["--processes=0"], "at least 1"),
    (["--timeout-total=1e300"], "at most 1000000000"),
    (['--extra-body={"x": NaN}'], "not JSON"),
    (['--extra-body={"x": 1e999}'], "not JSON"),
    (['--extra-body={"n": 2}'], "'n' is set by the client"),
    (['--extra-body={"ignore_eos": "no"}'], "ignore_eos: 'no' cannot be"),
    (['--extra-body={"min_tokens": 9}'], "--min-tokens is more than --max-tokens"),
    (["--seed=\udcff"], "--seed: text that is no UTF-8"),
    (["--base-url=http://[::1"], "base-url"),
    (["--base-url=http://a..b:80"], "base-url"),
    (["--out=/dev/null"], "is no file"),
    ([f"--out={'x' * 300}.json"], "File name too long"),
]


@pytest.mark.parametrize(("line", "part"), BAD_LINES, ids=lambda value: str(value)[:40])
def test_bad_arguments_end_with_2_and_say_why(
    line: list[str], part: str, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "f.json"
    try:
        code = decode_microbench.main([*GOOD, f"--out={out}", *line])
    except SystemExit as stopped:
        code = stopped.code  # type: ignore[assignment]
    assert code == 2
    said = capsys.readouterr().err
    assert part in said
    assert "secret" not in said
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_named(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        decode_microbench.main(["--model=m"])
    said = capsys.readouterr().err
    assert "--base-url, --concurrency, --requests, --max-tokens, --out, --scenario" in said


def test_httpx_missing_is_said_clearly(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(decode_microbench.httpx_client, "httpx", None)
    assert decode_microbench.main([*GOOD, f"--out={tmp_path}/f.json", "--http=httpx"]) == 2
    assert "httpx is not installed" in capsys.readouterr().err


def test_nothing_written_ends_with_1(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert decode_microbench.main([*GOOD, f"--out={tmp_path}/f.json"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_files_place_is_told_before_anything_is_sent(
    tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "folder").mkdir()
    assert decode_microbench.main([*GOOD, f"--out={tmp_path}/folder"]) == 2
    assert "it exists and is no file" in capsys.readouterr().err


def test_what_the_extra_body_says_is_what_the_record_says() -> None:
    line = '--extra-body={"temperature": 0.5, "ignore_eos": false, "min_tokens": 4, "top_p": 0.9}'
    found = client_options.read([*GOOD, "--out=f.json", line])
    assert (found.temperature, found.ignore_eos, found.min_tokens) == (0.5, False, 4)
    assert found.extra_body == {"top_p": 0.9}


def test_a_terminal_that_cannot_say_it_is_no_failure(monkeypatch: Any) -> None:
    class Full:
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None: ...

    monkeypatch.setattr(sys, "stdout", Full())
    decode_microbench._say("汉")
    assert sys.stdout.name == os.devnull
    sys.stdout.close()


def test_a_progress_file_that_cannot_be_written_ends_no_run() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    progress = decode_microbench.ProgressFile("/dev/full")
    progress(1, 2)
    progress.close()


def test_the_record_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "f.json"
    out.write_text("before")
    with pytest.raises(ValueError, match="JSON"):
        decode_microbench.write_whole(str(out), {"a": float("nan")})
    assert out.read_text() == "before"
    decode_microbench.write_whole(str(out), {"a": "汉"})
    assert json.loads(out.read_text()) == {"a": "汉"}
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://127.0.0.1:8000", "/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1/", "/v1/chat/completions"),
        ("http://localhost:8000/gateway", "/gateway/v1/chat/completions"),
    ],
)
def test_base_url(url: str, path: str) -> None:
    found = endpoint.resolve(url, "epoll")
    assert found.path == path
    assert found.port == 8000
    assert found.address is not None


def ancillary(wall_ns: int) -> bytes:
    return struct.pack("@ll", wall_ns // 10**9, wall_ns % 10**9)


def offset_with(points: list[tuple[int, int]]) -> stamps.MonotonicOffset:
    found = stamps.MonotonicOffset()
    found._at = [at for at, _ in points]
    found._offset = [offset for _, offset in points]
    return found


SECOND = 10**9


def test_a_stamp_is_converted_with_the_offset_of_its_time() -> None:
    """The wall clock drifts by 1 ms a second against the monotonic one."""
    clock = offset_with([(0, 1000 * SECOND), (SECOND, 1000 * SECOND + 10**6)])
    wall = 1000 * SECOND + SECOND // 2 + 5 * 10**5
    found = clock.convert(ancillary(wall), SECOND // 2)
    assert found.kernel
    assert abs(found.t_ns - SECOND // 2) <= 1
    assert clock.steps == 0


@pytest.mark.parametrize("step_s", [-3600, -1, 1, 3600])
@pytest.mark.parametrize("stepped_before_it", [False, True])
def test_a_step_of_the_wall_clock_moves_no_stamp(step_s: int, stepped_before_it: bool) -> None:
    clock = offset_with([(0, 1000 * SECOND), (SECOND, (1000 + step_s) * SECOND)])
    received = SECOND // 2
    wall = received + (1000 + (step_s if stepped_before_it else 0)) * SECOND
    found = clock.convert(ancillary(wall), received + 5000)
    assert found == stamps.Stamp(received, True)
    assert clock.steps == 1


def test_a_stamp_that_cannot_be_right_is_not_used() -> None:
    clock = offset_with([(0, 1000 * SECOND)])
    user = 5 * SECOND
    assert clock.convert(None, user) == stamps.Stamp(user, False)
    assert clock.convert(b"", user) == stamps.Stamp(user, False)
    assert clock.convert(ancillary(0), user) == stamps.Stamp(user, False)
    # later than the read by more than the clocks' error
    late = ancillary(1000 * SECOND + user + SECOND)
    assert clock.convert(late, user) == stamps.Stamp(user, False)
    # later by less: the read itself is the bound
    close = ancillary(1000 * SECOND + user + 50_000)
    assert clock.convert(close, user) == stamps.Stamp(user, True)


def test_the_real_offset_is_right() -> None:
    clock = stamps.MonotonicOffset()
    wall, mono = time.time_ns(), time.monotonic_ns()
    found = clock.convert(ancillary(wall), mono)
    assert found.kernel
    assert abs(found.t_ns - mono) < 5_000_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernel stamps are Linux's")
def test_the_stamp_switch_leaves_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    switch = stamps.StampSwitch()
    assert isinstance(switch.works, bool)
    switch.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_kernel_stamps_the_users_are_taken(monkeypatch: Any) -> None:
    monkeypatch.setattr(stamps, "ask_for_stamps", lambda sock: False)
    switch = stamps.StampSwitch()
    assert not switch.works
    switch.close()


def test_the_client_is_old_python_and_names_its_own_files() -> None:
    for name in decode_microbench.FILES:
        tree = ast.parse((CARGO / name).read_text(encoding="utf-8"), feature_version=(3, 9))
        for node in ast.walk(tree):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
                if node.module == "cargo":
                    own = [f"{alias.name}.py" for alias in node.names]
                    assert set(own) <= set(decode_microbench.FILES), name
            for module in modules:
                root = module.split(".")[0]
                known = root in sys.stdlib_module_names or root in ("cargo", "httpx")
                assert known, (name, module)
                if root == "httpx":
                    assert name == "httpx_client.py"
                if module.startswith("cargo."):
                    assert module.split(".")[1] + ".py" in decode_microbench.FILES
    assert len(decode_microbench.own_digest()) == 16
    assert load.Limits._fields == ("connect", "first_token", "between_tokens", "total")
