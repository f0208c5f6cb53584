"""One decode run against a ready server: sampler beside it, client, checks, a whole result folder.

In: a run of an order, the server (ServerStart), folders, an event log. Out: done/<launch>/runs/
<run16>/<attempt>/ with run.json, capture.jsonl, metrics_*.txt, client.log and DONE.json last,
renamed into place; of a profiled server also profile.json and profile-<pid>.jsonl. A run without
one good request, or in which the server died, is kept: invalid.
Where a good one is to be checked, cross_check.json is the same run once more, through httpx; what
happens there is told in that file and never spoils the run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from cargo import client_call, procs, room, server_http, smi_choice, smi_sampler, whole
from cargo.beside import Beside, last_words
from cargo.event_log import EventLog
from cargo.server_start import ServerStart
from cargo.watch import LifeOver, StopNow, Watch

HERE = os.path.dirname(os.path.abspath(__file__))
POLL_S = 0.1
CLIENT_GRACE_S = 5.0
AFTER_DEATH_S = 10.0  # for the client to notice that the server is gone and write its record
TOKEN_S = 1e-4  # for the client to decode one, after its run
LONGEST_GRACE_S = 600.0
STOPPED_GRACE_S = 0.5
FIRST_RECORD_S = smi_choice.BUDGET_S + 4 * smi_choice.CALL_S  # the call is chosen, then made
SAMPLER_GRACE_S = 2 * smi_choice.CALL_S + 3.0  # the call that runs, the last one, and a little


class RunResult(NamedTuple):
    status: str  # "done" | "invalid"
    start_id: str
    attempt: str
    reasons: List[str]
    server_died: bool


class ClientEnd(NamedTuple):
    code: Optional[int]
    over_limit: bool


class RunOnce:
    def __init__(
        self,
        order: Dict[str, Any],
        run: Dict[str, Any],
        server: ServerStart,
        launch_dir: str,
        events: EventLog,
        watch: Watch,
        engine_same: Any,
    ) -> None:
        self.order, self.run, self.server = order, run, server
        self.events, self.watch, self.engine_same = events, watch, engine_same
        self.host_is_ours: Callable[[], bool] = lambda: True
        self.launch_dir = launch_dir
        self.runs_dir = os.path.join(launch_dir, "runs", run["digest"])
        self.scratch = os.path.join(launch_dir, ".scratch")
        self.sampler: Optional[Beside] = None
        self.sampled_from = 0.0
        self.client: Optional[Beside] = None
        self.reasons: List[str] = []
        self.summary: Dict[str, Any] = {}
        self.server_died = False

    # ------------------------------------------------------------------ the run
    def carry_out(self, i: int, n: int) -> RunResult:
        begin = time.monotonic()
        self.attempt = self._next_attempt()
        self.folder = os.path.join(self.runs_dir, ".%s.tmp" % self.attempt)
        os.makedirs(self.folder)
        os.makedirs(self.scratch, exist_ok=True)
        self.events.emit("run_begin", run=self.run["digest"], name=self.run["name"], i=i, n=n)
        try:
            self._save_metrics("metrics_before.txt")
            self._start_sampler()
            if self.server.profiling is not None:
                self.server.profiling.begin()
            self._run_client()
            end_ns = time.monotonic_ns()
            self._end_sampler()
            self._save_metrics("metrics_after.txt")
            self._save_profile(end_ns)
            self._check_server()
            self._judge()
            self._cross_check()
            return self._keep(begin)
        except BaseException:  # stopped, out of life, or our own fault: no half run is kept
            self._end_children()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _next_attempt(self) -> str:
        os.makedirs(self.runs_dir, exist_ok=True)
        number = 1
        while os.path.exists(os.path.join(self.runs_dir, "%s-%d" % (self.server.start_id, number))):
            number += 1
        return "%s-%d" % (self.server.start_id, number)

    def _judge(self) -> None:
        record = whole.read_json(self._at("run.json"))
        self.summary = (record or {}).get("summary") or {}
        if not self.summary.get("n_ok"):
            self.reasons.append("no_ok_request")

    def _keep(self, begin: float) -> RunResult:
        status = "invalid" if self.reasons else "done"
        server = self.order["server"]
        facts = {
            "start_id": self.server.start_id,
            "run": self.run["digest"],
            "server": server["digest"],
            "start": server["start"],
            "launch": self.order["launch"],
            "name": self.run["name"],
        }
        self.server.mask.folder(self.folder)
        whole.seal(self.folder, facts, status, self.reasons)
        os.rename(self.folder, os.path.join(self.runs_dir, self.attempt))
        whole.sync(self.runs_dir)
        seconds = round(time.monotonic() - begin, 3)
        self.events.emit(
            "run_end",
            run=self.run["digest"],
            status=status,
            seconds=seconds,
            attempt=self.attempt,
            reasons=self.reasons,
            summary=self.summary,
        )
        return RunResult(status, self.server.start_id, self.attempt, self.reasons, self.server_died)

    def _at(self, name: str) -> str:
        return os.path.join(self.folder, name)

    # ------------------------------------------------------------------ telemetry
    def _start_sampler(self) -> None:
        telemetry = self.order.get("telemetry") or {}
        if not self.run.get("telemetry") or telemetry.get("tool") in (None, "none"):
            return
        interval_s = float(telemetry["interval_s"])
        argv = [*procs.PYTHON, "-S", os.path.join(HERE, "smi_sampler.py")]
        argv += ["--out", self._at("capture.jsonl"), "--interval", repr(interval_s)]
        argv += ["--source", self.server.record["source"], "--tool", telemetry["tool"]]
        kept = ".telemetry-%s.json" % self.server.start_id  # chosen once for all runs of a start
        argv += ["--choice", os.path.join(self.launch_dir, kept), "--", *telemetry["argv"]]
        env = self._at_server(self.server.env.sampler())
        log = os.path.join(self.scratch, "sampler.log")
        self.sampler = Beside(argv, env, self.scratch, log, self.server.start_id)
        self._wait_first_record()
        self.sampled_from = time.monotonic()

    def _at_server(self, env: Dict[str, str]) -> Dict[str, str]:
        return dict(env, DECODELAB_SERVER_URL=self.server.base_url)

    def _wait_first_record(self) -> None:
        """Until the capture has its header and a call, the sampler is gone, or the time is over."""
        end = time.monotonic() + FIRST_RECORD_S
        capture = _NewLines(self._at("capture.jsonl"))
        wanted = 2
        while time.monotonic() < end:
            wanted -= len(capture.news())
            if wanted <= 0 or self.sampler is None or self.sampler.poll() is not None:
                return
            self.watch.pause(0.01)

    def _end_sampler(self) -> None:
        """It takes one more sample, which so began after the last request."""
        if self.sampler is None:
            return
        self._sample_on(float(self.run.get("sample_s") or 0))
        with contextlib.suppress(OSError):
            self.sampler.process.terminate()
        end = time.monotonic() + SAMPLER_GRACE_S
        while self.sampler.poll() is None and time.monotonic() < end:
            self.watch.pause(0.01)
        code = self.sampler.end(0.0)
        self.sampler = None
        if code == smi_sampler.NOT_WRITTEN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._at("capture.jsonl"))

    def _sample_on(self, seconds: float) -> None:
        """A smoke test's one request is over at once; its telemetry is to show something."""
        while time.monotonic() < self.sampled_from + seconds:
            if self.sampler is None or self.sampler.poll() is not None:
                return
            self.watch.pause(POLL_S)

    # ------------------------------------------------------------------ client
    def _client_argv(self, http: str, seed: str, out: str) -> List[str]:
        server = self.server
        model, source, key = server.model(), server.record["source"], server.env.key_name
        target = client_call.Target(server.base_url, model, source, key)
        argv = client_call.program(self.order, http)
        argv += client_call.options(self.run, target, self.scratch, seed)
        return [*argv, "--http", http, "--out", self._at(out)]

    @property
    def _client(self) -> Dict[str, Any]:
        return self.run.get("client") or {}

    def _run_client(self) -> None:
        file = os.path.join(self.scratch, "progress")
        http = self._client.get("http") or "epoll"
        argv = self._client_argv(http, str(self.run["seed"]), "run.json")
        progress = _NewLines(file)

        def tell() -> None:
            for done, of in _progress(progress.news()):
                self.events.emit("progress", run=self.run["digest"], done=done, of=of)

        end = self._drive([*argv, "--progress", file], "client.log", tell)
        if end.over_limit:
            self.reasons.append("limit")
        elif end.code != 0:
            self.reasons.append("client_failed")
        if end.code != 0 and not os.path.exists(self._at("run.json")) and room.is_full(self.folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._at("run.json"))

    def _drive(self, argv: List[str], log: str, tell: Callable[[], None]) -> ClientEnd:
        """The client from its start to its end: its own, the run's limit, or soon after the server's."""
        env = self._at_server(self.server.env.client())
        self.client = Beside(
            argv, env, self.scratch, self._at(log), self.server.start_id, favoured=True
        )
        end = time.monotonic() + float(self.run["limit_s"])
        over_limit = False
        while self.client.poll() is None:
            self.watch.pause(POLL_S)
            tell()
            if not self.server_died and not self.server.alive():
                self.server_died = True
                end = min(end, time.monotonic() + AFTER_DEATH_S + decoding_s(self.run))
            if time.monotonic() > end:
                over_limit = not self.server_died
                self._end_client(CLIENT_GRACE_S + decoding_s(self.run))
                break
        tell()
        code, self.client = self.client.poll(), None
        return ClientEnd(code, over_limit)

    def _end_client(self, grace_s: float) -> None:
        """Its record is waited for; a stop of the launch is not kept waiting meanwhile."""
        assert self.client is not None
        with contextlib.suppress(OSError):
            self.client.process.terminate()
        end = time.monotonic() + grace_s
        while self.client.poll() is None and time.monotonic() < end:
            self.watch.pause(POLL_S)
        self.client.end(0.0)

    # ------------------------------------------------------------------ the second opinion
    def _cross_check(self) -> None:
        """The same run once more through httpx. The run is whole already and stands, whatever comes."""
        epoll = (self._client.get("http") or "epoll") == "epoll"
        if self.reasons or not epoll or not self._client.get("cross_check"):
            return
        try:
            problem = self._second_run()
            alive = self.server.alive() and self.server.healthy(self.watch.check)
            self.server_died = self.server_died or not alive
        except (StopNow, LifeOver):  # the launch sees for itself that it is to end
            self._end_children()
            self.client, problem = None, "the launch was stopped meanwhile"
            with contextlib.suppress(FileNotFoundError):  # of half a run: no opinion
                os.remove(self._at("cross_check.json"))
        if not os.path.exists(self._at("cross_check.json")):
            whole.write_json(self._at("cross_check.json"), {"problem": problem}, durable=False)

    def _second_run(self) -> str:
        """Why there is no record of it, should there be none."""
        try:
            argv = self._client_argv("httpx", "%s-httpx" % self.run["seed"], "cross_check.json")
            end = self._drive(argv, "cross_check.log", lambda: None)
        except OSError as error:
            return room.words(error)
        if end.over_limit:
            return "it was not done within %g s" % self.run["limit_s"]
        return last_words(self._at("cross_check.log")) or "the client ended with code %s" % end.code

    def _end_children(self) -> None:
        for child in (self.client, self.sampler):
            if child is not None:
                child.end(STOPPED_GRACE_S)

    # ------------------------------------------------------------------ server
    def _save_metrics(self, name: str) -> None:
        """The server's own counters; a server without them is no fault."""
        try:
            status, body = server_http.call(
                self.server.base_url,
                "GET",
                "/metrics",
                timeout_s=5.0,
                check=self.watch.check,
                headers=self.server.headers,
            )
        except server_http.ServerHttpError:
            return
        if status == 200:
            whole.write(self._at(name), body, durable=False)

    def _save_profile(self, end_ns: int) -> None:
        """What the step profiler timed in this run. It is what the run was made for: without the room
        for it, the run is made again.
        """
        profiling = self.server.profiling
        if profiling is None:
            return
        complete = profiling.collect(self.folder, end_ns, self.watch.pause)
        if not complete and room.is_full(self.folder):  # the server could not write either
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._at("profile.json"))

    def _check_server(self) -> None:
        if self.server_died or not self.server.alive():
            self.server_died = True
            self.reasons.append("server_died")
        elif not self.server.healthy(self.watch.check):
            self.server_died = True  # alive and deaf is as good as dead
            self.reasons.append("health_failed")
        if not self.engine_same():
            self.reasons.append("engine_changed")
        if not self.host_is_ours():
            self.reasons.append("host_shared")


def decoding_s(run: Dict[str, Any]) -> float:
    """How long the client may need for its record once its run is over: it decodes what came then."""
    requests = run["requests"] + run.get("warmup", 0)
    return min(LONGEST_GRACE_S, TOKEN_S * requests * run["max_tokens"])


class _NewLines:
    """Whole lines of a file that grows, each told once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0

    def news(self) -> List[bytes]:
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                text = f.read()
        except OSError:
            return []
        cut = text.rfind(b"\n") + 1
        self.offset += cut
        return text[:cut].split(b"\n")[:-1]


def _progress(lines: List[bytes]) -> Iterator[Tuple[int, int]]:
    """Requests done, of all, from the client's progress file."""
    for line in lines:
        try:
            said = json.loads(line)
            yield int(said["done"]), int(said["of"])
        except (ValueError, KeyError, TypeError):
            continue
