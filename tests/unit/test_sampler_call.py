"""One call of a tool: real children that behave, hang, flood, vanish, or leave a daemon behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cargo import smi_call
from cargo.smi_call import Call


def shell(text: str, deadline_s: float = 20.0, **limits: int) -> Call:
    return smi_call.call(["/bin/sh", "-c", text], dict(os.environ), deadline_s, **limits)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone_soon(pid: int) -> bool:
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


def test_stamps_code_and_both_streams() -> None:
    m, w = time.monotonic(), time.time()
    done = shell("echo half; echo lost GPU >&2; exit 9")
    assert (done.rc, done.out, done.err, done.trouble) == (9, b"half\n", b"lost GPU\n", "")
    assert m <= done.m0 <= done.m1 <= time.monotonic() and w <= done.w0 <= done.w1 <= time.time()
    assert done.last_words() == "exit code 9: lost GPU"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=300_000))
def test_every_byte_arrives(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "out").write_bytes(data)
    done = smi_call.call(["/bin/cat", str(tmp_path / "out")], dict(os.environ), 20.0)
    assert (done.rc, done.out, done.err, done.trouble) == (0, data, b"", "")


def test_bytes_that_are_no_utf8_stay_readable() -> None:
    assert shell(r"printf '29 \377\260C'").record()["out"] == r"29 \xff\xb0C"


def test_a_daemon_that_holds_the_pipes_delays_nothing_and_is_ended() -> None:
    done = shell("sleep 300 & echo $!; exit 0")
    assert (done.rc, done.trouble) == (0, "") and done.seconds < 10
    assert gone_soon(int(done.out)), "it was left behind"


def test_a_daemon_in_a_session_of_its_own_is_left_alone() -> None:
    done = shell("setsid sh -c 'echo $$; exec sleep 300' & sleep 0.3; exit 0")
    daemon = int(done.out)
    try:
        assert (done.rc, done.trouble) == (0, "") and done.seconds < 10
        assert alive(daemon), "what left our group is not ours to end"
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_what_was_said_before_the_tools_end_is_kept_beside_a_daemon() -> None:
    done = shell("sleep 300 & head -c 50000 /dev/zero; exit 0")
    assert (done.rc, len(done.out)) == (0, 50000)


def test_one_that_hangs_is_ended_with_its_children() -> None:
    done = shell("sleep 300 & echo $!; wait", deadline_s=0.3)
    assert (done.rc, done.trouble) == (None, "no answer within 0.3 s") and done.seconds >= 0.3
    assert gone_soon(int(done.out)), "its child lives"
    assert done.last_words() == "no answer within 0.3 s"


@pytest.mark.parametrize(("where", "name"), [("1", "out"), ("2", "err")])
def test_one_gone_mad_is_cut_and_told(
    where: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smi_call, "ERR_BYTES", 1000)
    done = shell(f"yes >&{where}", out_bytes=1000)
    assert done.rc is None and done.trouble == f"{name} cut at 1000 bytes"
    assert getattr(done, name) == b"y\n" * 500


def test_one_that_closes_its_pipes_is_waited_for() -> None:
    done = shell("echo x; exec >&- 2>&-; sleep 0.3; exit 3")
    assert (done.rc, done.out) == (3, b"x\n") and done.seconds >= 0.3


def test_one_that_is_missing_or_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x")
    for path, why in ((tmp_path / "no", "No such file"), (tmp_path / "text", "Permission")):
        done = smi_call.call([str(path)], dict(os.environ), 5.0)
        assert done.rc is None and why in done.trouble and not done.stuck


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_cannot_be_killed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_call, "UNKILLABLE_S", 0.1)
    monkeypatch.setattr(smi_call.os, "killpg", lambda *_: None)  # as one stuck in a driver
    done = shell("echo $$; sleep 2", deadline_s=0.2)
    assert done.stuck and done.trouble == "no answer within 0.2 s, not killable"
    os.kill(int(done.out), signal.SIGKILL)
    os.waitpid(int(done.out), 0)
