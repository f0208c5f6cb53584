"""A checkout of its own for an end-to-end test: real Snakemake, real host agent, real processes,
loopback only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[2]
CALL_DEADLINE_S = 240
START_DEPTH = len(("server", "start1", "start-id"))  # of a whole folder in the raw store
RUN_DEPTH = len(("server", "start1", "run", "attempt"))


@dataclass(frozen=True)
class Count:
    """What the raw store holds: real server starts, and whole runs."""

    starts: int
    runs: int

    def __sub__(self, other: Count) -> Count:
        return Count(self.starts - other.starts, self.runs - other.runs)


@dataclass(frozen=True)
class Call:
    exit_code: int
    text: str


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True)
    return done.stdout.decode()


class Lab:
    """One checkout and the calls of snakemake in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def copy(cls, target: Path) -> Lab:
        """Copy what git would commit: tracked files, and new ones it does not ignore."""
        listed = git(REPO, "ls-files", "-co", "--exclude-standard", "-z")
        for name in filter(None, listed.split("\0")):
            file = target / name
            if (REPO / name).is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPO / name, file)
        return cls(target)

    def clone(self, target: Path) -> Lab:
        """A real `git clone` of this checkout as it is now."""
        git(self.root, "init", "-q")
        git(self.root, "add", "-A")
        who = ["-c", "user.name=lab", "-c", "user.email=lab@localhost"]
        git(self.root, *who, "commit", "-qm", "as it is")
        git(self.root, "clone", "-q", str(self.root), str(target))
        return Lab(target)

    def write_config(self, config: dict[str, Any], name: str = "config/config.yaml") -> None:
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *words]

    def run(
        self,
        *words: str,
        env: dict[str, str] | None = None,
        deadline_s: float = CALL_DEADLINE_S,
    ) -> Call:
        """Call snakemake and wait for its end."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=deadline_s,
            env={**os.environ, **(env or {})},
        )
        return Call(done.returncode, done.stdout)

    def start(self, *words: str, under: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Call snakemake in a process group of its own, as a terminal would; `under`: as what
        becomes it, like nohup.
        """
        return subprocess.Popen(
            [*under, *self.command(*words)],
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def count(self) -> Count:
        """Also while a job puts something in: what has a dot before its name is not there yet."""
        raw = self.root / "results" / "raw"
        depths = []
        for place, folders, names in os.walk(raw):  # passes over what goes meanwhile
            folders[:] = [name for name in folders if not name.startswith(".")]
            if "DONE.json" in names:
                depths.append(len(Path(place).relative_to(raw).parts))
        return Count(depths.count(START_DEPTH), depths.count(RUN_DEPTH))

    def workdir(self, host: str = "embedded") -> Path:
        return self.root / ".decodelab" / host

    def processes(self) -> dict[int, str]:
        """Every process of this machine whose command line or working folder lies in this checkout."""
        mine = {}
        for proc in Path("/proc").iterdir():
            if not proc.name.isdigit() or int(proc.name) == os.getpid():
                continue
            try:
                line = (
                    (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
                cwd = os.readlink(proc / "cwd")
                state = (proc / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if state != "Z" and (str(self.root) in line or cwd.startswith(str(self.root))):
                mine[int(proc.name)] = line
        return mine

    def servers(self) -> dict[int, str]:
        return {pid: line for pid, line in self.processes().items() if "sim/server.py" in line}

    def wait_for_no_process(self, deadline_s: float = 30) -> dict[int, str]:
        """What is still there at the deadline: empty if all is well."""
        end = time.monotonic() + deadline_s
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def end_all(self) -> None:
        """At a test's end: no process of this checkout outlives it, whatever failed."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def json(self, name: str) -> Any:
        return json.loads((self.root / name).read_text(encoding="utf-8"))
