"""The step profiler of one server: what it is told, and the steps that belong to each run.

In:  an order's server.profile {"mode", "regions", "skip", "timeline_steps"}, the start's folder. Out: the
server's environment; in a run's folder profile.json and one profile-<pid>.jsonl a process; in the sealed
start what belongs to no run. The profiler itself is the folder profiler/ beside this file; in the server's
processes it writes <start>/profile/steps-<pid>.jsonl, lines with a `kind` and CLOCK_MONOTONIC stamps.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from cargo import whole

SPEC_SCHEMA = "decodelab.profile_spec/1"
RUN_SCHEMA = "decodelab.profile_run/1"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiler")
VARIABLE = "DECODELAB_PROFILE"
FOLDER = "profile"  # in the start's folder, while the server lives
RUN_FILE = "profile.json"
FLUSH_S = 10.0  # the longest that a run waits for what the profiler still holds
POLL_S = 0.02
_STEPS = re.compile(r"^steps-\d+\.jsonl$")
# Keys of an order's profile, which are those of the spec.
KEYS = ("mode", "regions", "skip", "timeline_steps")


class StepsFile:
    """One process's file, read on as it grows. A line without its end waits for the next look."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pid = int(os.path.basename(path)[len("steps-") : -len(".jsonl")])
        self.offset = 0  # what `news` has given
        self.scanned = 0  # how far `answers` has looked
        self.head: List[bytes] = []  # all lines so far that are neither steps nor spans
        self.token: Any = None  # of the last flush that it answered
        self.ended = False
        self.broken = 0  # lines that are no JSON object with a kind

    def news(self) -> Iterator[Tuple[bytes, Dict[str, Any]]]:
        """New steps and spans; the other lines are kept in `head`."""
        with open(self.path, "rb") as f:
            f.seek(self.offset)
            for line in f:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                said = _object(line)
                if said is None:
                    self.broken += 1
                elif said["kind"] in ("step", "spans"):
                    yield line, said
                elif said["kind"] != "flushed":  # profile.json tells whether that came
                    self.head.append(line)

    def answers(self, token: int) -> bool:
        """Whether all that was timed before this flush is written, or nothing more will be."""
        self.scanned = max(self.scanned, self.offset)
        with open(self.path, "rb") as f:
            f.seek(self.scanned)
            for line in f:
                if not line.endswith(b"\n"):
                    break
                self.scanned += len(line)
                said = _object(line) if b'"flushed"' in line or b'"end"' in line else None
                if said is not None and said["kind"] == "flushed":
                    self.token = said.get("token")
                self.ended = self.ended or (said is not None and said["kind"] == "end")
        return self.ended or self.token == token


def _object(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        said = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("kind"), str) else None


class Window:
    """The steps that began within a run, and the spans of those steps."""

    def __init__(self, begin_ns: int, end_ns: int) -> None:
        self.begin_ns, self.end_ns = begin_ns, end_ns
        self.seen: Dict[Any, List[int]] = {}  # role -> first and last step number
        self.steps = 0

    def takes(self, said: Mapping[str, Any]) -> bool:
        t0 = said.get("t0")
        if not isinstance(t0, int) or not self.begin_ns <= t0 <= self.end_ns:
            return False
        number = said.get("i")
        if isinstance(number, int):
            ends = self.seen.setdefault(said.get("role"), [number, number])
            ends[:] = [min(ends[0], number), max(ends[1], number)]
        self.steps += 1
        return True

    def holds(self, spans: Mapping[str, Any]) -> bool:
        first, last = self.seen.get(spans.get("role")) or (1, 0)
        number = spans.get("i")
        return isinstance(number, int) and first <= number <= last


class Profiling:
    """`mine`: the pids of the server's processes that live now."""

    def __init__(
        self, profile: Mapping[str, Any], start_folder: str, mine: Callable[[], Set[int]]
    ) -> None:
        self.folder = os.path.join(start_folder, FOLDER)
        asked = {key: profile.get(key) for key in KEYS}
        self.spec = {"schema": SPEC_SCHEMA, **asked, "folder": self.folder}
        self.mine = mine
        self.files: Dict[str, StepsFile] = {}
        self.token = 0
        self.begin_ns = 0
        self.gone: Set[int] = set()  # processes that were no more when the run began

    # ------------------------------------------------------------------ the server
    def prepare(self, private: bool) -> None:
        """`private`: what grows here may hold a secret until it is masked."""
        os.makedirs(self.folder, mode=0o700 if private else 0o755)
        whole.write_json(os.path.join(self.folder, "spec.json"), self.spec, durable=False)

    def env(self, env: Mapping[str, str]) -> Dict[str, str]:
        """The server's own path stays behind ours."""
        path = [HERE, env["PYTHONPATH"]] if env.get("PYTHONPATH") else [HERE]
        spec = os.path.join(self.folder, "spec.json")
        return {**env, "PYTHONPATH": os.pathsep.join(path), VARIABLE: spec}

    # ------------------------------------------------------------------ a run
    def begin(self) -> None:
        """What was timed before now is of no run: the start's own probe, and between two runs."""
        self._look()
        living = self.mine()
        for steps in self.files.values():
            for _line in steps.news():
                pass
            steps.answers(self.token)
        self.gone = {s.pid for s in self.files.values() if s.ended or s.pid not in living}
        self.begin_ns = time.monotonic_ns()

    def collect(self, folder: str, end_ns: int, pause: Callable[[float], None]) -> bool:
        """Write what the server's processes timed since `begin` into a run's folder. Whether it is
        all of it; raises OSError where it cannot be written.
        """
        silent = self._flush(pause)
        made = []
        for path in sorted(self.files):
            steps, window = self.files[path], Window(self.begin_ns, end_ns)
            name = "profile-%d.jsonl" % steps.pid
            _write(steps, window, os.path.join(folder, name))
            told = {"pid": steps.pid, "file": name, "steps": window.steps}
            made.append(dict(told, answered=steps.pid not in silent, broken_lines=steps.broken))
        whole_of_it = bool(made) and not any(
            one["broken_lines"] or not one["answered"] for one in made
        )
        run = whole.read_json(os.path.join(folder, "run.json"))
        record = {
            "schema": RUN_SCHEMA,
            "mode": self.spec["mode"],
            "spec": self.spec,
            "begin_ns": self.begin_ns,
            "end_ns": end_ns,
            "requests_begin_ns": requests_begin_ns(run),
            "complete": whole_of_it,
            "processes": made,
        }
        whole.write_json(os.path.join(folder, RUN_FILE), record, durable=False)
        return whole_of_it

    def _flush(self, pause: Callable[[float], None]) -> Set[int]:
        """Pids of this run's processes that did not write out all they had: dead, or deaf."""
        self._look()
        if not self.files:  # an old server, or one that reads no sitecustomize: nobody would answer
            return set()
        self.token += 1
        flush = os.path.join(self.folder, "flush.json")
        whole.write_json(flush, {"token": self.token}, durable=False)
        end = time.monotonic() + FLUSH_S
        while True:
            self._look()
            asked = [s for s in self.files.values() if s.pid not in self.gone]
            silent = {s.pid for s in asked if not s.answers(self.token)}
            if not silent & self.mine() or time.monotonic() > end:
                return silent
            pause(POLL_S)

    def _look(self) -> None:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return
        for name in names:
            path = os.path.join(self.folder, name)
            if _STEPS.match(name) and path not in self.files:
                self.files[path] = StepsFile(path)


def _write(steps: StepsFile, window: Window, path: str) -> None:
    """First what is said once, then the run's steps as they came, then the spans of these steps."""
    spans: List[Tuple[bytes, Dict[str, Any]]] = []
    with tempfile.TemporaryFile(dir=os.path.dirname(path)) as mine:
        for line, said in steps.news():
            if said["kind"] == "spans":
                spans.append((line, said))
            elif window.takes(said):
                mine.write(line)
        mine.seek(0)
        with open(path, "wb") as f:
            f.writelines(steps.head)
            shutil.copyfileobj(mine, f)
            f.writelines(line for line, said in spans if window.holds(said))


def requests_begin_ns(run: Any) -> Optional[int]:
    """When the first counted request of a run record was sent, on CLOCK_MONOTONIC; None: not known."""
    try:
        zero_s = run["clock"]["t0_monotonic_s"]
        sent = [r["t_start_s"] for r in run["requests"] if not r.get("warmup")]
        return round((zero_s + min(t for t in sent if t is not None)) * 1e9)
    except (KeyError, TypeError, ValueError):
        return None


# ---------------------------------------------------------------------- the start
def settle(start_folder: str) -> None:
    """In a start that is over: its profile folder becomes one profile-<pid>.jsonl a process, of the
    lines that are of no run; the steps themselves are in the runs' folders.
    """
    folder = os.path.join(start_folder, FOLDER)
    if not os.path.isdir(folder):
        return
    kept = {}
    for name in sorted(os.listdir(folder)):
        if _STEPS.match(name):
            steps = StepsFile(os.path.join(folder, name))
            with contextlib.suppress(OSError):
                for _line in steps.news():
                    pass
            kept["profile-%d.jsonl" % steps.pid] = steps.head
    shutil.rmtree(folder, ignore_errors=True)  # first, for on a full disk this makes the room
    for name, lines in kept.items():
        whole.write(os.path.join(start_folder, name), b"".join(lines), durable=False)
