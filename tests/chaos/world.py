"""One world of the chaos suite: a checkout, its hosts, a study on them, and everything that runs.

In:  a folder, a size, machines (none: the host is local). Out: calls of the real Snakemake, moments
to wait for, counts that rest on the witness, and the processes of this world. `close` ends every
one of them by pid.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodelab.store import Store
from decodelab.study import Study, open_study
from tests.chaos.machine import Machine
from tests.chaos.study import Size, config, mood_file
from tests.chaos.witness import Witness, wait_until
from tests.e2e.lab import Lab

CALL_S = 150.0
IDLE_S = 60.0


@dataclass
class Calling:
    """One call of snakemake that runs or has ended."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def end(self, seconds: float = CALL_S) -> int:
        """Wait for its end; its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {seconds:g} s:\n{self.text[-3000:]}") from None

    def signal(self, number: int) -> None:
        """To its whole process group, as a terminal does."""
        os.killpg(self.process.pid, number)


class World:
    def __init__(
        self,
        root: Path,
        size: Size | None = None,
        machines: Sequence[Machine] = (),
        tag: Path | None = None,
        **block: Any,
    ) -> None:
        self.root, self.size, self.machines = root, size or Size(), list(machines)
        self.lab = Lab.copy(root / "checkout")
        self.tag = tag or root  # in the words of every fake server; its mood lies there
        self.block = block  # added to every host's entry
        self.environment: dict[str, str] = {}
        self.calls: list[Calling] = []
        self.bystanders: list[subprocess.Popen[bytes]] = []
        self.workdirs = [m.workdir for m in self.machines] or [root / "host" / "work"]
        self.witness = Witness(self.workdirs)
        self.configure()
        self._add_bystanders()

    # ------------------------------------------------------------------ the study
    def configure(self, **block: Any) -> None:
        """Write the config; `block` changes every host's entry."""
        self.block.update(block)
        hosts = {m.name: m.block() for m in self.machines} or {"h": self._local()}
        for entry in hosts.values():
            entry.update(self.block)
        self.lab.write_config(config(self.size, hosts, self.lab.root, self.tag))
        self.study: Study = open_study(["config/config.yaml"], {}, self.lab.root)

    def _local(self) -> dict[str, Any]:
        workdir = str(self.workdirs[0])
        return {"transport": "local", "simulated": True, "devices": 1, "workdir": workdir}

    def watch(self, workdir: Path) -> None:
        """The host works in this folder, not in its machine's own."""
        self.workdirs[:] = self.witness.workdirs[:] = [workdir]

    @property
    def workdir(self) -> Path:
        return self.workdirs[0]

    @property
    def machine(self) -> Machine:
        return self.machines[0]

    def mood(self, *flags: str) -> None:
        """The fake server's mood from its next start on."""
        mood_file(self.tag).write_text("\n".join(flags), encoding="utf-8")

    # ------------------------------------------------------------------ calls
    def call(self, *words: str) -> Calling:
        """Snakemake for every receipt of the study, in a process group of its own."""
        output = self.root / f"call-{len(self.calls) + 1}.txt"
        with output.open("wb") as f:
            process = subprocess.Popen(
                self.lab.command(*self.study.receipts(), *(words or ("--cores", "1"))),
                cwd=self.lab.root,
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        self.calls.append(Calling(process, output))
        return self.calls[-1]

    def unlock(self) -> None:
        """What a user must do after a kill -9 of snakemake (tests/e2e/test_signals.py: and is told to)."""
        for file in (self.lab.root / ".snakemake" / "locks").glob("*"):
            file.unlink()

    @property
    def text(self) -> str:
        return "\n".join(call.text for call in self.calls)

    def host_log(self) -> str:
        """What the agents said, for a test that failed."""
        logs = [w / "agent.log" for w in self.workdirs if (w / "agent.log").exists()]
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    # ------------------------------------------------------------------ counts
    def wanted(self) -> set[tuple[str, str]]:
        """(launch, run) of everything the study asks for."""
        return {(run["launch"], run["run"]) for run in self.study.plan["runs"]}

    def found(self) -> dict[tuple[str, str], str]:
        """What of it lies in the raw store, and as what: "done" or "invalid"."""
        store = Store(self.lab.root / "results" / "raw")
        found = {}
        for launch, run in self.wanted():
            facts = self.study.launches[launch]
            attempt = store.select(str(facts["server"]), int(facts["start"]), run)
            if attempt is not None:
                found[launch, run] = attempt.status
        return found

    def lost(self) -> set[str]:
        """Good attempts that were really made and are not in the raw store."""
        kept = {
            p.parent.name for p in (self.lab.root / "results/raw").glob("*/start*/*/*/DONE.json")
        }
        return self.witness.attempts() - kept

    def good(self) -> int:
        return list(self.found().values()).count("done")

    def twice(self) -> set[tuple[str, str]]:
        return {key for key, count in self.witness.measured().items() if count > 1}

    # ------------------------------------------------------------------ processes
    def processes(self) -> dict[int, str]:
        """Living processes of this world by words, folder or environment; not the ways to it
        (sshd), not the bystanders.
        """
        mark = os.fsencode(self.root)
        others = {b.pid for b in self.bystanders} | {os.getpid()}
        found = {}
        for proc in Path("/proc").iterdir():
            if not proc.name.isdigit() or int(proc.name) in others:
                continue
            try:
                state = (proc / "stat").read_text().rpartition(")")[2].split()[0]
                words = (proc / "cmdline").read_bytes()
                inside = [words, os.fsencode(os.readlink(proc / "cwd"))]
                inside.append((proc / "environ").read_bytes())
                way = (proc / "comm").read_text().startswith("sshd") or b"sshd" in words[:40]
            except OSError:
                continue
            if state not in "ZX" and not way and any(mark in text for text in inside):
                found[int(proc.name)] = words.replace(b"\0", b" ").decode("utf-8", "replace")
        return found

    def servers(self) -> dict[int, str]:
        return {
            pid: words
            for pid, words in self.processes().items()
            if "server.py" in words and "--port" in words and "agent.py" not in words
        }

    def until_idle(self, seconds: float = IDLE_S) -> dict[int, str]:
        """Wait until no process of this world lives; what is still there at the deadline."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def until_served(self) -> int:
        """Wait for a server's process; its pid."""
        wait_until(self.servers, "a server process")
        return min(self.servers())

    def agent(self, workdir: Path | None = None) -> int:
        return int(self.json((workdir or self.workdir) / "agent.json")["pid"])

    def keeper(self) -> int:
        live = next((self.workdir / "live").glob("*.json"))
        return int(self.json(live)["keeper"][0])

    def json(self, path: Path) -> Any:
        return self.lab.json(str(path))

    def _add_bystanders(self) -> None:
        """Other people's processes that look like ours in every way but the recorded identity."""
        sleep = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
        work = str(self.workdir)
        for words in (
            [f"{work}/cargo/0123456789abcdef/cargo/agent.py", "work", "--workdir", work],
            [f"{self.lab.root}/scripts/sim/server.py", "--host", "127.0.0.1", "--port", "1"],
        ):
            env = {**os.environ, "DECODELAB_MARK": "20200101T000000Z-000000"}
            self.bystanders.append(subprocess.Popen([*sleep, *words], env=env))

    def close(self) -> None:
        """End everything of this world, whatever failed."""
        self.witness.close()
        for call in self.calls:
            if call.process.poll() is None:
                call.process.kill()
                call.process.wait()
        for _ in range(100):
            left = self.processes()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not left:
                break
            time.sleep(0.05)
        for bystander in self.bystanders:
            bystander.kill()
            bystander.wait()
        for machine in self.machines:
            machine.close()
