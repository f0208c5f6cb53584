"""A lab for tests of the host agent: a working folder with the cargo shipped to it, and orders.

In: what a test wants started. Out: answers of the agent's commands, files, and the list of
processes that are still there. Processes are found by the lab's own folder name in their argv;
only pids that the lab found that way are ever signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cargo import calibrate, procs

REPO = Path(__file__).resolve().parents[3]
FAKES = Path(__file__).resolve().parent
PYTHON = sys.executable


def digest(number: int) -> str:
    return f"{number:016x}"


class Lab:
    def __init__(self, workdir: Path, cargo: Path | None = None) -> None:
        self.workdir = workdir
        self.cargo = cargo or workdir / "cargo" / "test" / "cargo"
        leave_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPO / "scripts" / "cargo", self.cargo, ignore=leave_out)
        self.started: list[subprocess.Popen[bytes]] = []
        self.python = PYTHON  # of the agent
        self.env: dict[str, str] | None = None  # of the agent; None: this process's own
        self._know_the_floor()

    def _know_the_floor(self) -> None:
        """The client's floor as if measured before: each fresh folder would spend 2.5 s on it."""
        client = calibrate.which_client()
        floor = {"schema": calibrate.SCHEMA, "client": client, "boot_id": procs.boot_id()}
        self.workdir.mkdir(parents=True, exist_ok=True)
        path = self.workdir / f"client_floor-{client['digest']}.json"
        path.write_text(json.dumps({**floor, "t_wall": time.time()}))

    # ------------------------------------------------------------------ orders
    def run(self, number: int, **changes: Any) -> dict[str, Any]:
        run = {
            "digest": digest(number),
            "name": f"decode_v_short_c1_t4_r2_{number}",
            "scenario": {"name": "short", "messages": [{"role": "user", "content": "hi"}]},
            "concurrency": 1,
            "requests": 2,
            "max_tokens": 4,
            "warmup": 0,
            "seed": f"seed {number}",
            "telemetry": False,
            "client": {"extra_body": {}, "timeout_s": {"connect": 5, "total": 60}},
            "limit_s": 60.0,
        }
        run.update(changes)
        return run

    def order(self, number: int, *flags: str, runs: Any = 1, **changes: Any) -> dict[str, Any]:
        """An order for the fake server; `changes` may hold parts of server and limits by name."""
        argv = [PYTHON, "-S", str(FAKES / "fake_server.py"), "--tag", str(self.workdir), *flags]
        server = {
            "digest": digest(0xA000 + number),
            "start": 1,
            "argv": argv,
            "env": {},
            "model": "tiny",
            "port": None,
            "source": "simulated",
            "attach": None,
            "engine_key": digest(0),
            "expected_fingerprint": None,
            "fingerprint": {"modules": [], "files": []},
        }
        limits = {"start_s": 20, "silence_s": 15, "probe_s": 10, "stop_grace_s": 5, "life_s": 120.0}
        for name, value in changes.items():
            (limits if name in limits else server)[name] = value
        if isinstance(runs, int):
            runs = [self.run(number * 16 + i) for i in range(runs)]
        return {
            "schema": "decodelab.order/1",
            "launch": digest(number),
            "study": "test",
            "owner": "me",
            "label": f"v{number}",
            "position": [number, 9],
            "server": server,
            "limits": limits,
            "telemetry": {
                "tool": "ixsmi",
                "argv": [PYTHON, "-S", str(FAKES / "fake_smi.py")],
                "interval_s": 0.2,
                "env": {},
            },
            "setup": None,
            "secrets": [],
            "api_key": None,
            "runs": runs,
        }

    # ------------------------------------------------------------------ commands
    def call(self, command: str, *words: str, stdin: Any = None) -> dict[str, Any]:
        done = self.call_raw(command, *words, stdin=stdin)
        assert done.returncode == 0, (done.stdout, done.stderr)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def call_raw(
        self, command: str, *words: str, stdin: Any = None
    ) -> subprocess.CompletedProcess[bytes]:
        argv = [self.python, "-S", str(self.cargo / "agent.py"), command]
        argv += ["--workdir", str(self.workdir), *words]
        text = None if stdin is None else json.dumps(stdin, ensure_ascii=False).encode()
        return subprocess.run(argv, input=text, capture_output=True, timeout=60, env=self.env)

    def refused(self, command: str, *words: str, stdin: Any = None) -> str:
        """The words with which the agent refuses."""
        done = self.call_raw(command, *words, stdin=stdin)
        assert done.returncode == 1 and b"Traceback" not in done.stderr, done.stderr
        error: str = json.loads(done.stdout)["error"]
        return error

    def submit(self, *orders: dict[str, Any], owner: str = "me", **more: Any) -> dict[str, Any]:
        return self.call("submit", stdin={"owner": owner, "orders": list(orders), **more})

    def status(self, number: int | None = None) -> dict[str, Any]:
        return self.call("status", *([] if number is None else ["--launch", digest(number)]))

    def outcome(self, number: int) -> dict[str, Any] | None:
        path = self.folder(number) / "outcome.json"
        return json.loads(path.read_text()) if path.exists() else None

    def folder(self, number: int) -> Path:
        return self.workdir / "done" / digest(number)

    def events(self, number: int) -> list[dict[str, Any]]:
        path = self.folder(number) / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def names(self, number: int) -> list[str]:
        return [event["event"] for event in self.events(number)]

    # ------------------------------------------------------------------ waiting
    def until(self, true: Callable[[], Any], seconds: float = 30.0) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = true()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s; agent.log:\n{self.log()}")

    def until_event(self, number: int, event: str) -> dict[str, Any]:
        found: dict[str, Any] = self.until(
            lambda: next((e for e in self.events(number) if e["event"] == event), None)
        )
        return found

    def until_idle(self, seconds: float = 40.0) -> None:
        self.until(lambda: not (self.workdir / "agent.json").exists(), seconds)
        self.until(lambda: not self.processes(), 5.0)

    def log(self) -> str:
        path = self.workdir / "agent.log"
        return path.read_text() if path.exists() else ""

    # ------------------------------------------------------------------ processes
    def processes(self) -> dict[int, str]:
        """Living processes with the lab's folder in their argv (the test itself has it not)."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                argv = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if os.fsencode(self.workdir) in argv and state not in "ZX":
                found[int(name)] = argv.replace(b"\0", b" ").decode()
        return found

    def agent_pid(self) -> int:
        pid: int = json.loads((self.workdir / "agent.json").read_text())["pid"]
        return pid

    def keeper_pid(self) -> int:
        live = next((self.workdir / "live").glob("*.json"))
        pid: int = json.loads(live.read_text())["keeper"][0]
        return pid

    def kill(self, *pids: int) -> None:
        for pid in pids:
            assert pid in self.processes(), "not a process of this lab"
            os.kill(pid, signal.SIGKILL)

    def start_foreign(self, *flags: str) -> tuple[subprocess.Popen[bytes], int]:
        """Somebody else's server; returns it and its port."""
        from cargo import ports

        port = ports.free_port()
        argv = [PYTHON, "-S", str(FAKES / "fake_server.py"), "--port", str(port), *flags]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        self.started.append(process)
        self.until(lambda: ports.listeners(port))
        return process, port

    def close(self) -> list[str]:
        """End what this lab started; returns what was still there."""
        for process in self.started:
            process.kill()
            process.wait()
        left = self.processes()
        for _ in range(50):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):  # it ended with the one before
                    os.kill(pid, signal.SIGKILL)
            if not self.processes():
                break
            time.sleep(0.02)
        return list(left.values())
