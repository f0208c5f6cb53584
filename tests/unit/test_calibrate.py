"""The client's own floor: the null emitter, the figures, and what happens when something is missing."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import calibrate, null_emitter, stamps
from cargo.load import RunState
from decodelab.progress import Progress

SECOND = 10**9
SCRIPTS = Path(calibrate.__file__).parent.parent
FIELDS = {
    "schema",
    "streams",
    "rate_hz",
    "events",
    "lost",
    "lag_p50_s",
    "lag_p99_s",
    "lag_max_s",
    "user_lag_p50_s",
    "user_lag_p99_s",
    "cpu_us_per_event",
    "ttft_floor_s",
    "stamp_source",
    "loop_late_p99_s",
    "client",
    "t_wall",
}


def until(true: Callable[[], Any], what: str) -> None:
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError(f"it never came to this: {what}")


def gone(pid: int) -> bool:
    """No such process, or one that only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return calibrate.floor(streams=8, rate_hz=50, seconds=0.6)


def test_the_figures_hang_together(measured: dict[str, Any]) -> None:
    assert measured.keys() >= FIELDS, measured
    assert measured["schema"] == "decodelab.client_floor/1"
    assert measured["events"] == 8 * 30 and measured["lost"] == 0
    assert measured["lag_p50_s"] <= measured["lag_p99_s"] <= measured["lag_max_s"]
    assert measured["user_lag_p50_s"] <= measured["user_lag_p99_s"]
    assert measured["cpu_us_per_event"] > 0 and measured["ttft_floor_s"] > 0
    assert set(measured["client"]) >= {"version", "digest"}
    assert calibrate.headline(measured).startswith("client floor, 8 streams x 50/s")


def test_the_kernels_stamps_lie_nearer_than_the_readers_own(measured: dict[str, Any]) -> None:
    """All streams emit at once: the reader's own stamps wait for each other in its queue."""
    assert measured["stamp_source"] == "kernel", measured
    assert measured["lag_p50_s"] < measured["user_lag_p50_s"]


def test_without_kernel_stamps_both_lags_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "ask_for_stamps", lambda sock: False)
    found = calibrate.floor(streams=2, rate_hz=50, seconds=0.1)
    assert found["stamp_source"] == "user", found
    assert found["lag_p50_s"] == found["user_lag_p50_s"] > 0
    assert found["lag_p99_s"] == found["user_lag_p99_s"]


# ---------------------------------------------------------------------- matching
@pytest.fixture(scope="module")
def run() -> tuple[RunState, list[list[int]]]:
    with calibrate.Emitter() as emitter:
        state = calibrate.drive_together(emitter.port, "g", calibrate.Steps(6, 5, 100.0))
        return state, emitter.stamps()["g"]


def test_the_streams_go_in_step(run: tuple[RunState, list[list[int]]]) -> None:
    sent = run[1]
    assert [len(stream) for stream in sent] == [5] * 6
    steps = list(zip(*sent, strict=True))
    assert all(list(step) == sorted(step) for step in steps)  # in the order of their number
    for before, after in itertools.pairwise(steps):
        assert after[0] - before[-1] >= SECOND / 100 / 2  # a late step never bunches the events


def test_each_stream_is_compared_with_its_own_stamps(
    run: tuple[RunState, list[list[int]]],
) -> None:
    """Stream i is said to have been sent i seconds earlier: its lags, and no others, grow by that."""
    state, sent = run
    true = calibrate.compare(state, sent)
    moved = [[t - i * SECOND for t in stream] for i, stream in enumerate(sent)]
    found = calibrate.compare(state, moved)
    assert found["lag_max_s"] - 5 == pytest.approx(true["lag_max_s"], abs=0.5)
    assert found["lag_p50_s"] == pytest.approx(2.5, abs=0.5)
    assert found["lost"] == true["lost"] == 0


def test_an_event_that_was_lost_is_counted_and_compared_with_nothing(
    run: tuple[RunState, list[list[int]]],
) -> None:
    state, sent = run
    true = calibrate.compare(state, sent)
    more = [[*sent[0], sent[0][-1] + 1], *([t - 9 * SECOND for t in stream] for stream in sent[1:])]
    found = calibrate.compare(state, more)
    assert (found["lost"], found["events"]) == (1, true["events"] + 1)
    assert found["lag_p50_s"] == pytest.approx(9, abs=0.5)
    with pytest.raises(calibrate.Trouble, match="no stream came whole"):
        calibrate.compare(state, [[*stream, 1] for stream in sent])


def test_more_events_than_were_sent_is_no_figure(run: tuple[RunState, list[list[int]]]) -> None:
    state, sent = run
    with pytest.raises(calibrate.Trouble, match="request 2: 5 events recorded, 4 sent"):
        calibrate.compare(state, [*sent[:2], sent[2][:-1], *sent[3:]])


# ---------------------------------------------------------------------- nothing raises
def fake_emitter(tmp_path: Path, code: str) -> str:
    path = tmp_path / "emitter.py"
    path.write_text(
        f"import json, os, socket, sys, time\nprint(os.getpid(), file=note, flush=True)\n{code}".replace(
            "note", f"open({str(tmp_path / 'pid')!r}, 'w')"
        )
    )
    return str(path)


ANSWERS = {
    "it ends at once": ("", "the null emitter ended early"),
    "it says nothing": ("time.sleep(60)", "said nothing within 0.3 s"),
    "nobody listens": (
        "print('{\"port\": 1}', flush=True); time.sleep(60)",
        "request 0: connection",
    ),
    "it speaks no HTTP": (
        "s = socket.create_server(('127.0.0.1', 0)); print(json.dumps({'port': s.getsockname()[1]}),"
        " flush=True)\nwhile True:\n c = s.accept()[0]; c.recv(9999); c.send(b'hello world'); c.close()",
        "request 0: connection",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_cannot_be_measured_is_a_problem(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = ANSWERS[case]
    monkeypatch.setattr(calibrate, "EMITTER", fake_emitter(tmp_path, code))
    if case == "it says nothing":
        monkeypatch.setattr(calibrate, "_TALK_S", 0.3)
    found = calibrate.floor(streams=2, rate_hz=50, seconds=0.1)
    assert set(found) == {"schema", "problem"} and words in found["problem"], found
    assert calibrate.headline(found) == f"client floor not measured: {found['problem']}"
    pid = tmp_path / "pid"
    if case != "it says nothing":  # it may have been ended before its first line
        assert pid.exists()
    assert not pid.exists() or not pid.read_text() or gone(int(pid.read_text()))


def test_it_is_measured_out_of_a_zip_as_well(tmp_path: Path) -> None:
    """Where the emitter is no file that Python could be told."""
    zipped = tmp_path / "client.zip"
    with zipfile.ZipFile(zipped, "w") as out:
        for file in Path(calibrate.__file__).parent.glob("*.py"):
            out.write(file, f"cargo/{file.name}")
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from cargo import calibrate\n"
        "print(json.dumps(calibrate.floor(streams=2, rate_hz=50, seconds=0.1)))\n"
    )
    argv = [sys.executable, "-E", "-S", "-c", code, str(zipped)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found.keys() >= FIELDS, found
    assert (found["events"], found["lost"]) == (10, 0)


def test_no_python_to_start_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate.sys, "executable", "/no/such/python")
    found = calibrate.floor(streams=1, rate_hz=50, seconds=0.1)
    assert "FileNotFoundError" in found["problem"]


@pytest.mark.parametrize(
    "wrong", [{"streams": 0}, {"rate_hz": 0}, {"seconds": 0.001}, {"seconds": float("nan")}]
)
def test_senseless_arguments_are_a_problem(wrong: dict[str, Any]) -> None:
    found = calibrate.floor(**{"streams": 1, "rate_hz": 50, "seconds": 0.1, **wrong})
    assert set(found) == {"schema", "problem"} and found["problem"]


# ---------------------------------------------------------------------- its own process
def test_the_emitter_ends_with_its_starter() -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from cargo import calibrate\n"
        "emitter = calibrate.Emitter()\n"
        "print(emitter.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    argv = [sys.executable, "-S", "-c", code, str(SCRIPTS)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        emitter = int(starter.stdout.readline())
        assert not gone(emitter)
        starter.kill()
    until(lambda: gone(emitter), "the emitter has ended")


def test_the_emitter_ends_in_the_middle_of_its_steps() -> None:
    """Its starter dies while the streams run."""
    with calibrate.Emitter() as emitter:
        sock = socket.create_connection(("127.0.0.1", emitter.port))
        with sock:
            sock.sendall(request(streams=1, stream=0, events=100_000, rate_hz=50))
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")
            assert emitter.process.stdin is not None
            emitter.process.stdin.close()
            assert emitter.process.wait(30) == 0


@pytest.mark.parametrize("busy", [False, True])
def test_the_emitter_lives_no_longer_than_it_was_told(busy: bool) -> None:
    with calibrate.Emitter(life_s=0.5) as emitter, socket.socket() as sock:
        sock.connect(("127.0.0.1", emitter.port))
        if busy:
            sock.sendall(request(streams=1, stream=0, events=100_000, rate_hz=1000))
        assert emitter.process.wait(30) == -signal.SIGALRM


def request(**wish: Any) -> bytes:
    body = json.dumps({"null_emitter": {"group": "g", **wish}}).encode()
    return b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_a_request_that_comes_in_pieces() -> None:
    whole = request(streams=2, stream=1, events=3, rate_hz=5.0)
    for cut in range(len(whole)):
        assert null_emitter.wish_of(whole[:cut]) is None, whole[:cut]
    assert null_emitter.wish_of(whole) == ("g", 2, 1, 3, 5.0)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nnull",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_other_requests_are_not_answered(sent: bytes) -> None:
    with calibrate.Emitter() as emitter:
        with socket.create_connection(("127.0.0.1", emitter.port)) as sock:
            sock.sendall(sent)
            assert sock.recv(100) == b""
        assert emitter.process.poll() is None  # and it goes on


@pytest.fixture
def script(tmp_path: Path) -> Iterator[list[str]]:
    yield [
        sys.executable,
        "-S",
        str(SCRIPTS / "cargo" / "calibrate.py"),
        "--out",
        str(tmp_path / "f"),
    ]


def test_as_a_program_it_writes_its_file(script: list[str], tmp_path: Path) -> None:
    done = subprocess.run(script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "f").read_text())
    assert found["events"] == 32 * 100 and found["lost"] == 0
    assert os.listdir(tmp_path) == ["f"]


def test_as_a_program_it_ends_when_told(script: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(script) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: children.read_text(), "the emitter was started")
        emitter = int(children.read_text())
        process.terminate()
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
    until(lambda: gone(emitter), "the emitter has ended")
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "floor", lambda: {"schema": calibrate.SCHEMA})
    (tmp_path / "f").mkdir()
    assert calibrate.main(["--out", str(tmp_path / "f")]) == 1
    assert "--out" in capsys.readouterr().err


def test_a_person_who_waits_is_told_why() -> None:
    out = io.StringIO()
    progress = Progress("v1", 1, 2, 10.0, 10.0, out=out)
    problem = "the null emitter ended early"
    for event in (
        {"event": "calibrating"},
        {"event": "calibrated", "seconds": 2.4, "lag_p99_s": 5e-05, "problem": None},
        {"event": "calibrated", "seconds": 0.1, "lag_p99_s": None, "problem": problem},
    ):
        progress.show(event)
    begun, failed = out.getvalue().splitlines()
    assert "measuring the load client's own floor" in begun
    assert problem in failed
