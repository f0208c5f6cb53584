"""Set-up scripts of any kind: what the server gets is exact, what is recorded can be printed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from cargo import whole
from cargo.decode_microbench import write_whole
from cargo.setup_env import Setup, SetupFailed, Setups


def source(tmp_path: Path, script: str) -> Setup:
    path = tmp_path / "setup.sh"
    path.write_text(script)
    return Setups().of(str(path))


def recorded(setup: Setup) -> dict[str, str]:
    assert setup.record is not None
    json.dumps(setup.record, ensure_ascii=False).encode()  # no lone surrogate
    shown: dict[str, str] = setup.record["set"]
    return shown


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    setup = source(tmp_path, "export BAD=$'\\xff\\xfe' GOOD=$'\\xc3\\xa4\\n'\n")
    assert os.fsencode(setup.env["BAD"]) == b"\xff\xfe"  # the server's own
    assert recorded(setup) == {"BAD": "\\xff\\xfe", "GOOD": "ä\n"}


def test_what_looks_secret_is_not_recorded(tmp_path: Path) -> None:
    names = ["AWS_ACCESS", "X_AUTH", "MY_CRED", "PASSPHRASE", "private_x", "DB_PWD", "HF_TOKEN"]
    lines = [f"export {name}=canary" for name in names]
    lines += ["export URL='x http://me:canary@proxy:80/a'", "export PLAIN=http://proxy:80"]
    setup = source(tmp_path, "\n".join(lines) + "\n")
    shown = recorded(setup)
    assert "canary" not in str(shown) and setup.env["URL"] == "x http://me:canary@proxy:80/a"
    assert shown["URL"] == "x http://me:***@proxy:80/a" and shown["PLAIN"] == "http://proxy:80"


@pytest.mark.parametrize("script", ["yes\n", "yes >&2\n", "yes | head -c 9000000\n"])
def test_a_flood_is_ended(tmp_path: Path, script: str) -> None:
    with pytest.raises(SetupFailed, match="wrote more than 4 MiB to stdout or stderr"):
        source(tmp_path, script)


def test_who_stays_in_the_background_cannot_fill_the_memory(tmp_path: Path) -> None:
    """Its first byte after the end of the script is refused: `yes` ends by that."""
    pid_file = tmp_path / "pid"
    script = f"(sleep 0.5; exec yes) & echo $! >'{pid_file}'; export A=1\n"
    assert recorded(source(tmp_path, script)) == {"A": "1"}
    pid = int(pid_file.read_text())
    for _ in range(2000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state in "ZX":
            return
        time.sleep(0.01)
    raise AssertionError("it still writes")


@pytest.mark.parametrize("script", ["export A=1\nexit 0\n", "exec bash\n", "exec true\n"])
def test_a_script_that_ends_the_shell(tmp_path: Path, script: str) -> None:
    with pytest.raises(SetupFailed, match="it calls exit or exec, so that its environment cannot"):
        source(tmp_path, script)


def test_the_words_of_a_failure_hide_a_password_in_a_url(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed) as failed:
        source(tmp_path, "printf 'no way to http://me:canary@proxy \\377' >&2; exit 3\n")
    words = str(failed.value)
    assert "status 3. no way to http://me:***@proxy" in words and "canary" not in words
    words.encode()


def test_a_run_with_odd_words_is_written(tmp_path: Path) -> None:
    write_whole(str(tmp_path / "run.json"), {"message": "a\ud800b", "x": 0.1})
    assert json.loads((tmp_path / "run.json").read_text()) == {"message": "a\\ud800b", "x": 0.1}
    assert whole.dump({"a": "\udc80"}).decode().count("\\\\x80") == 1
