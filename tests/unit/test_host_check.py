"""What a host is asked before a study: each row by itself, with fakes of what could be wrong."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import engine_look, host_check, procs, smi_choice, smi_tools
from cargo.host_check import HostCheck, Look, Row
from cargo.queue_store import Store

SCRIPT = Path(host_check.__file__)
KEYS = ["python", "workdir", "setup", "telemetry", "port", "lock", "leftovers", "agent"]


def ask(workdir: Path, **changes: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "workdir": str(workdir),
        "setup": None,
        "server": {"argv0": sys.executable, "env": {}, "modules": []},
        "telemetry": {"tool": "none", "argv": [], "env": {}},
        "port": None,
        "lock": None,
        "owner": "me",
    }
    asked.update(changes)
    return asked


def rows(workdir: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    found = HostCheck(ask(workdir, **changes)).rows()
    assert all({"check", "state", "found", "todo"} <= set(row) for row in found)
    return {row["check"]: row for row in found}


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A folder to be put on the server's path, with fakes of an engine."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "torch.py").write_text(
        "__version__ = '2.1.0+corex'\nclass cuda:\n    device_count = staticmethod(lambda: 4)\n"
    )
    (folder / "vllm.py").write_text("print('INFO: hello')\n__version__ = '0.8.5'\n")
    (folder / "broken.py").write_text(
        "raise ImportError('libcuda.so.1: cannot open shared object file')\n"
    )
    yield folder


def test_a_host_in_order_as_it_is_asked(tmp_path: Path, package: Path) -> None:
    asked = ask(
        tmp_path / "工作 dir",
        server={
            "argv0": sys.executable,
            "env": {"PYTHONPATH": str(package)},
            "modules": ["vllm", "torch"],
        },
    )
    done = subprocess.run(
        [sys.executable, "-S", str(SCRIPT)],
        input=json.dumps(asked, ensure_ascii=False).encode(),
        capture_output=True,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        timeout=120,
    )
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    found = json.loads(done.stdout)
    keys = [*KEYS[:3], "import vllm", "import torch", *KEYS[3:]]
    assert [row["check"] for row in found] == keys
    by_key = {row["check"]: row for row in found}
    assert by_key["import vllm"]["found"] == f"0.8.5 ({package / 'vllm.py'})"
    assert by_key["import torch"]["found"].endswith(", 4 devices")
    assert by_key["agent"] == {"check": "agent", "state": "ok", "found": "idle", "todo": None}
    assert not (tmp_path / "工作 dir").exists()  # nothing was made


@pytest.mark.parametrize("text", [b"\xff", b"[", b"[]", b"{}"])
def test_what_is_no_question(text: bytes) -> None:
    done = subprocess.run([sys.executable, "-S", str(SCRIPT)], input=text, capture_output=True)
    assert done.returncode == 1 and "stdin" in json.loads(done.stdout)["error"]


def test_one_that_hangs_or_breaks_hides_no_other(tmp_path: Path) -> None:
    def breaks() -> Row:
        raise PermissionError(13, "Permission denied", "/x")

    looks = [
        Look("hangs", lambda: Row("ok", str(time.sleep(30))), 0.3),
        Look("breaks", breaks, 5.0),
        Look("works", lambda: Row("ok", "fine"), 5.0),
    ]
    begin = time.monotonic()
    for look in looks:
        look.start()
    found = [look.result(begin) for look in looks]
    assert [row["found"] for row in found] == [
        "no answer within 0.3 s",
        "/x: Permission denied",
        "fine",
    ]
    assert [row["state"] for row in found] == ["fail", "fail", "ok"]


def test_modules_that_do_not_import(tmp_path: Path, package: Path) -> None:
    server = {
        "argv0": sys.executable,
        "env": {"PYTHONPATH": str(package)},
        "modules": ["broken", "no_such_module", "json"],
    }
    found = rows(tmp_path, server=server)
    assert "cannot open shared object" in found["import broken"]["found"]
    assert "LD_LIBRARY_PATH" in found["import broken"]["todo"]
    assert found["import no_such_module"]["state"] == "fail"
    assert "install it for" in found["import no_such_module"]["todo"]
    assert found["import json"]["state"] == "ok"
    server["argv0"] = "/no/such/python"
    assert (
        "no python found"
        in rows(tmp_path, server=server | {"modules": ["json"]})["import json"]["found"]
    )


def test_a_checkout_beside_us_does_not_shadow_the_engine(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm.py").write_text("raise SystemExit('the checkout')\n")
    monkeypatch.chdir(tmp_path)
    server = {
        "argv0": sys.executable,
        "env": {"PYTHONPATH": str(package)},
        "modules": ["vllm"],
    }
    assert rows(tmp_path, server=server)["import vllm"]["state"] == "ok"


def test_a_module_that_hangs_or_leaves_a_child(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_look, "IMPORT_S", 2.0)
    (package / "hangs.py").write_text("import time\ntime.sleep(60)\n")
    (package / "forks.py").write_text("import subprocess\nsubprocess.Popen(['sleep', '60'])\n")
    env = {**os.environ, "PYTHONPATH": str(package)}
    state, found, _todo = engine_look.module(sys.executable, env, "hangs")
    assert (state, found) == ("fail", "no end of `import hangs` within 2 s")
    assert engine_look.module(sys.executable, env, "forks")[0] == "ok"


def test_the_setup_makes_the_world_of_what_follows(tmp_path: Path, package: Path) -> None:
    setup = tmp_path / "set up.sh"
    setup.write_text(f"export PYTHONPATH={shlex.quote(str(package))} MY_TOKEN=abc\nunset HOME\n")
    smi = script(tmp_path / "smi", 'echo "at $PYTHONPATH"\n')
    server = {"argv0": sys.executable, "env": {}, "modules": ["torch"]}
    telemetry = {"tool": "ixsmi", "argv": [str(smi), "-q"], "env": {}}
    found = rows(tmp_path, setup=str(setup), server=server, telemetry=telemetry)
    assert found["setup"]["found"] == f"{setup} sets MY_TOKEN, PYTHONPATH; unsets HOME"
    assert found["import torch"]["state"] == "ok"
    assert found["telemetry"]["out"] == f"at {package}\n"
    setup.write_text("echo no driver >&2; exit 4\n")
    found = rows(tmp_path, setup=str(setup), server=server, telemetry=telemetry)
    assert "no driver" in found["setup"]["found"] and found["setup"]["state"] == "fail"
    for key in ("import torch", "telemetry"):
        assert found[key]["found"] == "not tried, since the setup failed"
    assert found["port"]["state"] == "ok"


def test_telemetry_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(text: str, *words: str, interval_s: float = 60.0) -> dict[str, Any]:
        argv = [str(script(tmp_path / "smi", text)), *words]
        asked = {"tool": "ixsmi", "argv": argv, "env": {}, "interval_s": interval_s}
        return rows(tmp_path, telemetry=asked)["telemetry"]

    table = "echo '| IX-ML: 4 |'; echo '| N/A 37C P0 40W / 150W | 68MiB / 32768MiB |'"
    found = look(table)
    assert found["state"] == "ok" and f"{tmp_path}/smi, table; a call takes 0." in found["found"]
    assert found["out"].startswith("| IX-ML: 4 |") and found["tool"] == "ixsmi"
    assert found["form"] == "table" and found["fields"] == []
    asked = look("echo plain", "--query-gpu=index")
    assert asked["state"] == "ok" and asked["out"] == "plain\n"
    csv = look('case "$1" in --query*) echo 0,1,2,3,4,5,6,7,8,9,10,11,12;; *) ' + table + ";; esac")
    assert "csv with 13 query fields" in csv["found"] and csv["fields"][0] == "index"
    slow = look("sleep 0.1;" + table, interval_s=0.05)
    assert slow["state"] == "warn" and "s between samples, not 0.05 s" in slow["found"]
    assert "exit code 9: no device" in look("echo no device >&2; exit 9")["found"]
    assert "shows no accelerator" in look("exit 0")["found"]
    monkeypatch.setattr(smi_choice, "CALL_S", 0.5)
    assert "no answer within 0.5 s" in look("sleep 60")["found"]
    missing = rows(tmp_path, telemetry={"tool": "ixsmi", "argv": ["no-such-smi"], "env": {}})
    assert missing["telemetry"]["found"] == "no-such-smi: not found"
    assert missing["telemetry"]["state"] == "fail"


def test_telemetry_of_whatever_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without accelerators is no fault; a driver that does not answer is told."""
    monkeypatch.setattr(smi_tools, "TOOLS", (smi_tools.BY_NAME["amd-smi"]._replace(ways=()),))
    auto = {"tool": "auto", "argv": ["auto"], "env": {}}
    found = rows(tmp_path, telemetry=auto)["telemetry"]
    assert found["state"] == "ok" and found["found"] == "no SMI tool is here (amd-smi)"
    smi = script(tmp_path / "smi", "echo no driver >&2; exit 9")
    found = rows(tmp_path, telemetry={**auto, "argv": [str(smi)]})["telemetry"]
    assert found["state"] == "warn" and "exit code 9: no driver" in found["found"]


def test_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(tmp_path / "a" / "b")["workdir"]
    assert found["state"] in ("ok", "warn") and f"to be made in {tmp_path}" in found["found"]
    (tmp_path / "file").write_text("")
    assert rows(tmp_path / "file" / "x")["workdir"]["state"] == "fail"
    assert rows(Path("/proc/none"))["workdir"]["state"] == "fail"
    for free, state in ((100 << 20, "fail"), (1 << 30, "warn"), (6 << 30, "ok")):
        monkeypatch.setattr(host_check.room, "free_bytes", lambda _path, free=free: free)
        assert rows(tmp_path)["workdir"]["state"] == state


def test_the_port(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        found = rows(tmp_path, port=port)["port"]
        assert found["state"] == "fail" and f"pid {os.getpid()} " in found["found"]
    assert rows(tmp_path, port=port)["port"]["found"] == f"{port} is free"


def test_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert "not made yet" in rows(tmp_path, lock=str(lock))["lock"]["found"]
    lock.write_text(json.dumps({"owner": "她", "since": 0, "doing": "launch x"}))
    assert rows(tmp_path, lock=str(lock))["lock"]["state"] == "ok"
    with open(lock) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        found = rows(tmp_path, lock=str(lock))["lock"]
        assert found["state"] == "warn"
        assert found["found"] == "held by 她 since 1970-01-01 00:00:00Z, doing: launch x"
        lock.write_text("")
        assert "held by someone since unknown" in rows(tmp_path, lock=str(lock))["lock"]["found"]
    assert rows(tmp_path, lock="/no/such/folder/lock")["lock"]["state"] == "fail"


def test_what_a_dead_agent_left(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.prepare()
    child = subprocess.Popen(["/bin/sleep", "60"], env={procs.MARK_ENV: "s1"})
    try:
        live = {"mark": "s1", "log_id": None, "boot_id": procs.boot_id(), "members": []}
        (tmp_path / "live" / "s1.json").write_text(json.dumps(live))
        found = rows(tmp_path)["leftovers"]
        assert found["state"] == "warn" and f"1 processes: {child.pid} " in found["found"]
        assert "agent.py stop" in found["todo"]
        (tmp_path / "live" / "s1.json").write_text(json.dumps({**live, "boot_id": "other"}))
        assert rows(tmp_path)["leftovers"]["found"] == "none"
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_the_agent(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.prepare()
    launch = "0" * 15 + "1"
    store.append({"launch": launch, "owner": "you", "label": "fast start 1"})
    (tmp_path / "agent.log").write_text("one\nlast words\n")
    found = rows(tmp_path)["agent"]
    assert "1 launches queued" in found["found"] and "last words" in found["found"]
    store.write_agent(os.getpid(), state="working", current=launch, owner="you")
    found = rows(tmp_path)["agent"]
    assert found["found"] == f"working on fast start 1 (launch {launch}) for you"
    assert found["state"] == "warn" and rows(tmp_path, owner="you")["agent"]["state"] == "ok"
    assert "agent at work" in rows(tmp_path)["leftovers"]["found"]
    store.halt("two failures", [])
    assert rows(tmp_path)["agent"]["found"] == "halted: two failures"
