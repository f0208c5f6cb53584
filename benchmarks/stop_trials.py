"""How clean is a stop?  The host agent's ways against the naive ones, on a server of 13 processes.

    python benchmarks/stop_trials.py [--trials 20] [--only WAY ...]

In: nothing. Out: a Markdown table: clean trials, leftovers, seconds until nothing is left. The
server is tests/e2e/fakes/crowd.py: all its processes ignore TERM; sessions of their own, daemons,
grandchildren, and one that forks into a new session every 20 ms. Exit code 1 if a way of the
agent's was not clean each time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / "scripts")]

from cargo import ports, procs  # noqa: E402
from tests.e2e.fakes.agent_lab import FAKES, PYTHON, Lab  # noqa: E402

CROWD = 13
SEEN_AT_ONCE = 12  # one of them has another pid by the time we look
SETTLE_S = 0.5  # a naive way has this long to take effect
QUIET_S = 1.0  # nothing seen for so long: nothing is there
NEWEST = 40


class Trial(NamedTuple):
    left: int
    seconds: float


class Crowd:
    """The processes of one trial, known by a tag in their argv."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def pids(self) -> list[int]:
        """A walk through all of /proc, then quickly the newest: one of them never stays."""
        found = {pid for pid in procs.all_pids() if self.is_one(pid)}
        return sorted(found | set(self.newest()))

    def newest(self) -> list[int]:
        last = int(Path("/proc/loadavg").read_text().split()[-1])
        return [pid for pid in range(max(2, last - NEWEST), last + 1) if self.is_one(pid)]

    def is_one(self, pid: int) -> bool:
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return self.tag.encode() in argv and procs.identify(pid) is not None

    def wait_for(self, least: int, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while len(self.pids()) < least:
            if time.monotonic() > end:
                raise SystemExit(f"only {len(self.pids())} of {least} processes came up")
            time.sleep(0.02)

    def after(self, begin: float, seconds: float = 60.0) -> Trial:
        """Until nothing was seen for a while; a single look can miss the one that forks."""
        seen = begin
        gone: float | None = None  # the end of the first look that found nothing
        while (gone is None or time.monotonic() - gone < QUIET_S) and seen - begin < seconds:
            if self.pids():
                seen, gone = time.monotonic(), None
            elif gone is None:
                gone = time.monotonic()
        return Trial(len(self.pids()), (gone or seen) - begin)

    def end(self) -> None:
        """Whatever a way left; only what carries this trial's tag."""
        quiet = 0
        while quiet < 50:
            found = self.pids() if quiet == 0 else self.newest()
            quiet = 0 if found else quiet + 1
            for pid in found:
                with_start = procs.identify(pid)
                if with_start is not None:
                    procs.send(with_start, signal.SIGKILL)


# ---------------------------------------------------------------------- naive ways
def naive(kill: Callable[[int], None]) -> Callable[[Path], Trial]:
    def trial(folder: Path) -> Trial:
        crowd, port = Crowd(f"{folder}#crowd"), ports.free_port()
        argv = [PYTHON, "-S", str(FAKES / "crowd.py"), "--port", str(port)]
        argv += ["--crowd-tag", crowd.tag]
        with open(folder / "log", "wb") as log:
            main = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        try:
            crowd.wait_for(SEEN_AT_ONCE)
            begin = time.monotonic()
            kill(main.pid)
            took = time.monotonic() - begin
            time.sleep(SETTLE_S)
            return Trial(len(crowd.pids()), took)
        finally:
            crowd.end()
            main.wait()

    return trial


def kill_group(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


def kill_tree_once(pid: int) -> None:
    for one in [pid, *procs.descendants(pid)]:
        proc = procs.identify(one)
        if proc is not None:
            procs.send(proc, signal.SIGKILL)


# ---------------------------------------------------------------------- the agent's ways
def ours(act: Callable[[Lab, Crowd], float]) -> Callable[[Path], Trial]:
    def trial(folder: Path) -> Trial:
        lab = Lab(folder / "work")
        crowd = Crowd(f"{lab.workdir}#crowd")
        argv = [PYTHON, "-S", str(FAKES / "crowd.py"), "--crowd-tag", crowd.tag]
        slow = lab.run(17, max_tokens=20000)
        lab.submit(lab.order(1, runs=[slow], argv=argv, stop_grace_s=0.5))
        try:
            lab.until_event(1, "run_begin")
            crowd.wait_for(SEEN_AT_ONCE)
            time.sleep(0.2)
            found = crowd.after(act(lab, crowd))
            lab.until(lambda: not lab.processes(), 30.0)
            return found
        finally:
            crowd.end()
            lab.close()

    return trial


def stop(lab: Lab, _crowd: Crowd) -> float:
    begin = time.monotonic()
    lab.call("stop", "--wait", "60")
    return begin


def kill_main(lab: Lab, _crowd: Crowd) -> float:
    events = [e for e in lab.events(1) if e["event"] == "start_begin"]
    record = lab.folder(1) / f"start-{events[-1]['start_id']}" / "start.json"
    begin = time.monotonic()
    os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
    return begin


def kill_keeper(lab: Lab, _crowd: Crowd) -> float:
    begin = time.monotonic()
    lab.kill(lab.keeper_pid())
    return begin


def kill_agent(lab: Lab, _crowd: Crowd) -> float:
    begin = time.monotonic()
    lab.kill(lab.agent_pid())
    return begin


def kill_both_then_submit(lab: Lab, _crowd: Crowd) -> float:
    lab.kill(lab.agent_pid(), lab.keeper_pid())
    time.sleep(1.0)
    begin = time.monotonic()
    lab.submit(lab.order(2))
    return begin


WAYS: dict[str, tuple[bool, Callable[[Path], Trial]]] = {
    "kill -9 of the process group": (False, naive(kill_group)),
    "one tree walk, KILL each": (False, naive(kill_tree_once)),
    "agent: stop (grace 0.5 s)": (True, ours(stop)),
    "agent: kill -9 of the server's main process": (True, ours(kill_main)),
    "agent: kill -9 of the keeper": (True, ours(kill_keeper)),
    "agent: kill -9 of the agent": (True, ours(kill_agent)),
    "agent: kill -9 of agent and keeper, then the next submit": (True, ours(kill_both_then_submit)),
}


def repeated(name: str, trials: int) -> list[Trial]:
    found = []
    for number in range(trials):
        folder = Path(tempfile.mkdtemp(prefix="stop-trial-"))
        try:
            found.append(WAYS[name][1](folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{name}: {number + 1} of {trials}: {found[-1]}", file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="how clean is a stop?")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=list(WAYS), metavar="WAY")
    args = parser.parse_args()
    names = [name for name in WAYS if any(word in name for word in args.only)]
    print(f"{args.trials} trials each; the server has {CROWD} processes\n")
    print("| way | clean | leftovers, mean | seconds, median / max |\n|---|---|---|---|")
    failed = False
    for name in names:
        found = repeated(name, args.trials)
        clean = sum(trial.left == 0 for trial in found)
        left = statistics.mean(trial.left for trial in found)
        seconds = [trial.seconds for trial in found]
        times = f"{statistics.median(seconds):.2f} / {max(seconds):.2f}"
        print(f"| {name} | {clean}/{len(found)} | {left:.1f} | {times} |", flush=True)
        failed = failed or (WAYS[name][0] and clean < len(found))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
