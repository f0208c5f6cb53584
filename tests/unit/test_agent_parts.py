"""Small parts of the host agent: processes, ports, HTTP calls, the engine's identity, argv."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import client_floor, identity, keeper, keeper_link, ports, procs, server_http
from cargo.client_floor import ClientFloor
from cargo.event_log import EventLog
from cargo.host_lock import HostLock
from cargo.log_tail import LogReader
from cargo.queue_store import Store
from cargo.server_env import LaunchEnv
from cargo.server_start import word_after
from cargo.watch import Signals, StopNow, Watch


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with open(tmp_path / "log", "wb") as log:
        env = {procs.MARK_ENV: "mark-1"}
        child = subprocess.Popen(["/bin/sleep", "60"], env=env, stdout=log)
    yield child
    child.kill()
    child.wait()


def test_marks_find_by_environment_and_by_log(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    log = procs.file_id(str(tmp_path / "log"))
    assert list(procs.marked(["mark-1"], None)) == [sleeper.pid]
    assert list(procs.marked(["mark"], None)) == []  # a prefix is another mark
    assert list(procs.marked(["other"], log)) == [sleeper.pid]
    assert list(procs.marked([], procs.file_id(str(tmp_path)))) == []


def test_children_with_and_without_the_kernels_list(sleeper: subprocess.Popen[bytes]) -> None:
    assert sleeper.pid in procs.children(os.getpid())
    assert sleeper.pid in procs._children_by_scan(os.getpid())
    assert sleeper.pid in procs.descendants(os.getpid())


def test_kill_until_gone(sleeper: subprocess.Popen[bytes]) -> None:
    def find() -> list[procs.Proc]:
        return procs.living([sleeper.pid])

    killed, left = procs.kill_until_gone(find, lambda: None, 5.0)
    assert (killed, left) == (1, []) and sleeper.wait() == -signal.SIGKILL
    assert procs.identify(sleeper.pid) is None


def test_one_that_forks_all_the_time_is_caught(tmp_path: Path) -> None:
    """It is another process every 20 ms, in another session, and nobody's child that we know."""
    code = """
import os, time
while True:
    time.sleep(0.02)
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    env = {procs.MARK_ENV: "artist-1"}
    first = subprocess.Popen([sys.executable, "-S", "-c", code], env=env)
    first.wait()

    def find() -> Iterator[procs.Proc]:
        return keeper_link.find_leftovers(["artist-1"], None, None)

    def quick() -> Iterator[procs.Proc]:
        return keeper_link.find_newest(["artist-1"], None)

    killed, left = procs.kill_until_gone(find, lambda: None, 20.0, quick)
    assert killed >= 1 and left == []
    for _ in range(200):
        assert list(quick()) == []


def test_the_newest_pids() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    assert child.pid in procs.newest(1000)
    child.kill()
    child.wait()


def test_who_owns_a_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert ports.listeners(port) == []  # bound is not listening
        server.listen()
        assert ports.owner_among(port, [1, os.getpid()]) == os.getpid()
        assert ports.owner_among(port, []) is None
        assert ports.owner_of(port) == {"pid": os.getpid(), "uid": os.getuid()}
    assert ports.owner_of(port) is None
    assert ports.free_port() > 0


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that sends each answer to one connection and keeps that open; yields its address."""
    kept: list[socket.socket] = []

    def serve() -> None:
        for answer in answers:
            conn, _ = server.accept()
            kept.append(conn)
            conn.recv(65536)
            conn.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()
        for conn in kept:
            conn.close()


def test_answers_end_by_their_own_length() -> None:
    answers = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12",
    )
    with answering(*answers) as url:
        assert server_http.call(url, "GET", "/") == (200, b"ok")
        assert server_http.call(url, "GET", "/") == (503, b"no")
        with pytest.raises(server_http.ServerHttpError, match=r"no full answer within 0\.3 s"):
            server_http.call(url, "GET", "/", timeout_s=0.3)


def test_a_wait_for_an_answer_can_be_interrupted() -> None:
    class Stop(Exception):
        pass

    def check() -> None:
        raise Stop

    with answering(b"") as url, pytest.raises(Stop):
        server_http.call(url, "GET", "/", check=check)


@pytest.mark.parametrize("url", ["https://", "ftp://h", "nonsense", "http://h:port"])
def test_addresses_that_cannot_be_used(url: str) -> None:
    with pytest.raises((server_http.ServerHttpError, ValueError)):
        server_http.address_of(url)


NO_TOKEN = "an answer without a token: "


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (404, {"x": 1}, "HTTP 404: "),
        (200, {}, "not a completion: "),
        (200, {"choices": []}, "not a completion: "),
        (200, {"choices": [None]}, "not a completion: "),
        (200, {"choices": "oops"}, "not a completion: "),
        (200, {"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": 0}}, NO_TOKEN),
        (200, {"choices": [{"message": {"content": None}, "finish_reason": "abort"}]}, NO_TOKEN),
        (200, {"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": 1}}, None),
        (200, {"choices": [{"message": {"content": "a"}}]}, None),
        (200, {"choices": [{"message": {"content": None, "reasoning_content": "a"}}]}, None),
        (200, {"choices": [{"message": {"tool_calls": [{}]}}]}, None),
        (200, {"choices": [{"text": "a"}]}, None),
    ],
)  # fmt: skip
def test_one_token_says_what_it_got(status: int, body: Any, trouble: str | None) -> None:
    raw = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
    with answering(head + raw) as url:
        said = server_http.one_token(url, "m", 2.0, lambda: None)
    assert said == (trouble and trouble + raw.decode())


def test_the_fingerprint_is_content_for_python_and_size_for_the_rest(tmp_path: Path) -> None:
    root = tmp_path / "pkg"
    (root / "__pycache__").mkdir(parents=True)
    (root / "a.py").write_text("1")
    (root / "k.so").write_bytes(b"12")
    roots = {"pkg": [str(root)]}
    first = identity.fingerprint(roots, [])
    (root / "__pycache__" / "a.pyc").write_text("an import writes this")
    (root / "k.so").write_bytes(b"21")
    assert identity.fingerprint(roots, []) == first
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    (copy / "a.py").write_text("1")
    (copy / "k.so").write_bytes(b"99")
    assert identity.fingerprint({"pkg": [str(copy)]}, []) == first  # the place is not part of it
    stamp = identity.stamp(roots, [])
    (root / "a.py").write_text("2")
    assert identity.stamp(roots, []) != stamp
    changed = identity.fingerprint(roots, [])
    (root / "k.so").write_bytes(b"123")
    seen = {first, changed, identity.fingerprint(roots, []), identity.fingerprint({"pkg": []}, [])}
    assert len(seen) == 4
    assert identity.fingerprint({}, []) is None
    assert identity.fingerprint({}, ["/no/such"]) not in (None, first)


def test_the_probe_asks_the_servers_own_python(tmp_path: Path) -> None:
    (tmp_path / "record.py").write_text("")  # a name that the cargo has too
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = identity.probe([sys.executable], env, str(empty), ["json", "record", "no_such"], [])
    assert found["problem"] is None
    assert found["roots"]["record"] == [str(tmp_path / "record.py")]
    assert found["roots"]["no_such"] == []
    assert found["identity"]["python"].startswith("3.")
    missing = identity.probe(["/no/such"], env, str(empty), [], [])
    assert missing["problem"] == "no python found behind /no/such"


def test_the_python_behind_a_script(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text(f"#!{sys.executable} -E\n")
    script.chmod(0o755)
    assert identity.python_of(str(script), dict(os.environ)) == sys.executable
    script.write_text("#!/bin/sh\n")
    assert identity.python_of(str(script), dict(os.environ)) is None


def test_words_after_a_flag() -> None:
    assert word_after(["--port", "1", "--port=2"], "--port") == "2"
    assert word_after(["--portal", "1"], "--port") is None
    assert word_after(["--host"], "--host") is None


def test_the_servers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE", "1")
    env = LaunchEnv({"server": {"env": {"GONE": None, "N": 4}}}).server("id")
    assert "GONE" not in env and env["N"] == "4" and env[procs.MARK_ENV] == "id"


def test_log_lines_come_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LogReader(str(log))
    assert reader.lines() == []
    log.write_bytes(b"one\ntw")
    assert reader.lines() == ["one"]
    with open(log, "ab") as f:
        f.write("o ü\n".encode())
    assert reader.lines() == ["two ü"] and not reader.behind()


def test_a_flood_is_read_as_fast_as_it_comes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 99 + b"\n")
    reader = LogReader(str(log))
    assert len(reader.lines()) == 1
    with open(log, "ab") as f:
        f.write((b"x" * 99 + b"\n") * 60_000)
    assert reader.behind()
    assert len(reader.lines()) == 60_000 and not reader.behind()


def test_the_host_lock_has_one_holder(tmp_path: Path) -> None:
    first, second = HostLock(str(tmp_path / "l")), HostLock(str(tmp_path / "l"))
    assert first.take({"owner": "a"}) and first.held
    assert not second.take({"owner": "b"})
    assert second.owner() == {"owner": "a"}
    first.release()
    assert second.take({"owner": "b"}) and second.owner() == {"owner": "b"}
    second.release()


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
@pytest.mark.parametrize("first", [1001, 1002])
def test_two_users_share_a_lock_in_a_sticky_folder(first: int) -> None:
    """Whatever the umask of the one who made it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        path = os.path.join(folder, "lock")
        assert as_user(first, lambda: HostLock(path).take({"owner": "one"}))
        assert os.stat(path).st_uid == first and os.stat(path).st_mode & 0o777 == 0o666
        mine = HostLock(path)
        assert mine.take({"owner": "root"})
        assert not as_user(2003 - first, lambda: HostLock(path).take({"owner": "two"}))
        mine.release()
        assert as_user(2003 - first, lambda: HostLock(path).take({"owner": "two"}))
        assert json.loads(Path(path).read_text())["owner"] == "two"


def as_user(uid: int, what: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.umask(0o077)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            code = 0 if what() else 1
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WEXITSTATUS(status) in (0, 1)
    return os.WEXITSTATUS(status) == 0


def test_a_lock_that_somebody_else_makes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our look and our making it; in a sticky folder O_CREAT on it would be refused."""
    path, really = str(tmp_path / "l"), os.open
    looks = iter([FileNotFoundError(2, "not yet")])

    def open_(name: str, flags: int, mode: int = 0o777) -> int:
        for error in looks:
            os.close(really(name, os.O_CREAT | os.O_WRONLY, 0o666))
            raise error
        assert not flags & os.O_CREAT or flags & os.O_EXCL
        return really(name, flags, mode)

    monkeypatch.setattr(os, "open", open_)
    lock = HostLock(path)
    assert lock.take({"owner": "a"}) and lock.owner() == {"owner": "a"}
    lock.release()


def test_a_young_server_is_looked_at_often() -> None:
    pauses = [keeper.refresh_pause(age) for age in (0, 3, 100)]
    assert pauses == [0.1, 0.3, 1.0]


# ---------------------------------------------------------------------- the client's floor
CLIENT = {"version": "1", "digest": "c0ffee", "python": "3.9"}
FLOOR = """
import json, os, sys
with open(os.environ["COUNT"], "a") as f:
    f.write("x")
floor = {"schema": "decodelab.client_floor/1", "client": %r, "t_wall": %r, "lag_p99_s": 5e-05}
with open(sys.argv[sys.argv.index("--out") + 1], "w") as f:
    json.dump(floor, f)
"""


class FloorLab:
    """A working folder and a calibrate.py of the test's own making."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.store = Store(str(root / "work"))
        self.store.prepare()
        self.count = root / "count"
        self.signals = Signals()
        self.watch = Watch(self.store, self.signals, None)
        monkeypatch.setenv("COUNT", str(self.count))
        monkeypatch.setattr(client_floor, "HERE", str(root))
        monkeypatch.setattr(client_floor, "_client", lambda: dict(CLIENT))
        self.program(FLOOR % (CLIENT, time.time()))

    def program(self, code: str) -> None:
        (self.root / "calibrate.py").write_text(code)

    @property
    def file(self) -> Path:
        return self.root / "work" / "client_floor-c0ffee.json"

    def ask(self, agent: ClientFloor) -> dict[str, Any]:
        events = EventLog(str(self.root / "events"))
        try:
            return agent.of(self.store, events, self.watch)
        finally:
            events.close()

    def measured(self) -> int:
        return len(self.count.read_text()) if self.count.exists() else 0

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / "events").read_text().splitlines()]


@pytest.fixture
def floors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FloorLab]:
    lab = FloorLab(tmp_path, monkeypatch)
    yield lab
    assert os.listdir(tmp_path / "work" / "cwd") == []
    left = [pid for pid in procs.children(os.getpid()) if b"calibrate.py" in argv_of(pid)]
    assert left == []


def argv_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_floor_is_measured_once_for_a_host_and_a_client(floors: FloorLab) -> None:
    agent = ClientFloor()
    first = floors.ask(agent)
    assert first["lag_p99_s"] == 5e-05 and first["boot_id"] == procs.boot_id()
    assert floors.ask(agent) == first  # the next start
    assert floors.ask(ClientFloor()) == first  # the next agent
    assert json.loads(floors.file.read_text()) == first
    assert floors.measured() == 1
    begin, end = floors.events()
    assert (begin["event"], end["event"]) == ("calibrating", "calibrated")
    assert (end["lag_p99_s"], end["problem"]) == (5e-05, None)


WEEK_S = 7 * 86400


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"t_wall": time.time() - WEEK_S + 600}, True),
        ({"t_wall": time.time() - WEEK_S - 600}, False),
        ({"t_wall": time.time() + WEEK_S + 600}, False),  # the wall clock was put back
        ({"t_wall": None}, False),
        ({"boot_id": "another"}, False),
        ({"client": {**CLIENT, "python": "3.13"}}, False),
        ({"client": {**CLIENT, "digest": "other"}}, False),
        ({"schema": "decodelab.client_floor/2"}, False),
        ({"problem": "it failed"}, False),
    ],
)
def test_how_long_a_kept_floor_holds(floors: FloorLab, change: dict[str, Any], holds: bool) -> None:
    kept = floors.ask(ClientFloor())
    floors.file.write_text(json.dumps({**kept, **change}))
    floors.ask(ClientFloor())
    assert floors.measured() == (1 if holds else 2)


@pytest.mark.parametrize("torn", ["", "[]", "{", "null"])
def test_a_torn_floor_file_is_measured_again(floors: FloorLab, torn: str) -> None:
    floors.file.write_text(torn)
    assert floors.ask(ClientFloor())["lag_p99_s"] == 5e-05
    assert floors.measured() == 1 and json.loads(floors.file.read_text())["lag_p99_s"] == 5e-05


FAILS = {
    "exit code 3: no such thing": "import sys; print('no such thing'); sys.exit(3)",
    "exit code -9: it said nothing": "import os; os.kill(os.getpid(), 9)",
    "exit code 1: SyntaxError: ": "this is no Python",
    "no result within 0.5 s": "import time; time.sleep(60)",
    "the emitter died": (
        "import json, sys\nwith open(sys.argv[-1], 'w') as f:\n"
        " json.dump({'schema': 'decodelab.client_floor/1', 'problem': 'the emitter died'}, f)"
    ),
}


@pytest.mark.parametrize("words", FAILS)
def test_a_floor_that_cannot_be_measured_is_noted_and_not_kept(
    floors: FloorLab, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within" in words:
        monkeypatch.setattr(client_floor, "LIMIT_S", 0.5)
    floors.program(FAILS[words])
    agent = ClientFloor()
    found = floors.ask(agent)
    assert found["schema"] == "decodelab.client_floor/1" and words in found["problem"], found
    assert floors.ask(agent) == found  # asked once in an agent's life
    assert not floors.file.exists()
    assert [e["event"] for e in floors.events()] == ["calibrating", "calibrated"]
    assert floors.events()[-1]["problem"] == found["problem"]


def test_a_folder_that_takes_no_file_costs_the_floor_and_nothing_else(
    floors: FloorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(client_floor.os, "makedirs", full)
    assert "No space left" in floors.ask(ClientFloor())["problem"]
    monkeypatch.undo()


def test_what_a_dead_agent_left_is_not_taken_for_a_result(floors: FloorLab) -> None:
    left = floors.root / "work" / "cwd" / client_floor.MARK
    left.mkdir()
    (left / "floor.json").write_text(json.dumps({"schema": "decodelab.client_floor/1"}))
    floors.program("raise SystemExit(3)")
    assert "exit code 3" in floors.ask(ClientFloor())["problem"]


def test_a_client_that_cannot_be_read_is_noted(
    floors: FloorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> dict[str, str]:
        raise SyntaxError("invalid syntax")

    monkeypatch.setattr(client_floor, "_client", broken)
    assert floors.ask(ClientFloor())["problem"] == "SyntaxError: invalid syntax"


def test_a_stop_ends_the_measuring_of_the_floor(floors: FloorLab) -> None:
    floors.program(
        f"import time; open({str(floors.root / 'begun')!r}, 'w').close(); time.sleep(60)"
    )

    def stop() -> None:
        while not (floors.root / "begun").exists():
            time.sleep(0.01)
        floors.signals.stop = True

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(StopNow):
        floors.ask(ClientFloor())
    thread.join()
    assert not floors.file.exists()
