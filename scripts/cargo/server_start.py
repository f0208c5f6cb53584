"""One real start of one server: port check, spawn under a keeper, readiness, stop, sealed folder.

In: an order, the store, an event log. Out: a server that has answered with a real token, or
StartFailed with the cause; at the end start-<id>/ with server.log, start.json and DONE.json.
Ready is: our process lives, *our* processes own the port, /health is 200, /v1/models answers, and
one token came. A log line alone never makes it ready. Whatever is written holds no secret; only
the growing log may, so nobody else can read it until it is masked and sealed.
"""

from __future__ import annotations

import datetime
import os
import shutil
import time
from typing import Any, Callable, Dict, List, Optional, Set

from cargo import (
    long_log,
    ports,
    procs,
    reasons,
    room,
    server_http,
    start_cause,
    start_stages,
    whole,
)
from cargo.device_verdict import beside_foreign_memory
from cargo.event_log import EventLog
from cargo.keeper_link import SHORT_GRACE_S, KeeperLink, StopReport
from cargo.log_tail import LogReader
from cargo.profiling import Profiling, settle
from cargo.queue_store import Store
from cargo.server_env import LaunchEnv
from cargo.watch import Watch

SIMULATOR = "decodelab-simulator"
START_SCHEMA = "decodelab.start/1"
PORT_FREE_S = 10.0
MOST_PIECES = 8  # of a flooding log, read before a server counts as ready


class StartFailed(Exception):
    """The start did not come to a ready server; `cause` says why and whose fault it is."""

    def __init__(self, cause: Dict[str, Any]) -> None:
        super().__init__(cause.get("root_cause") or cause.get("class"))
        self.cause = cause


def new_start_id() -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.strftime("%Y%m%dT%H%M%SZ-") + os.urandom(3).hex()


def word_after(argv: List[str], flag: str) -> Optional[str]:
    """The value of `--flag value` or `--flag=value`; the last one wins, as argparse has it."""
    found = None
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            found = argv[i + 1]
        elif word.startswith(flag + "="):
            found = word[len(flag) + 1 :]
    return found


def _living(link: KeeperLink) -> Set[int]:
    return {proc.pid for proc in procs.living(link.pids())}


class ServerStart:
    attached = False

    def __init__(
        self,
        store: Store,
        order: Dict[str, Any],
        events: EventLog,
        identity: Dict[str, Any],
        env: LaunchEnv,
        client_floor: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.store, self.order, self.events, self.env = store, order, events, env
        self.mask, self.headers = events.mask, env.headers()
        self.start_id = new_start_id()
        self.folder = os.path.join(store.launch_dir(order["launch"]), "start-" + self.start_id)
        self.log_path = os.path.join(self.folder, "server.log")
        self.cwd = store.at("cwd", self.start_id)
        self.log = LogReader(self.log_path)
        self.link: Optional[KeeperLink] = None
        self.port: Optional[int] = None
        self.base_url = ""
        self.ready = False
        self.stages = self._stage_watch()
        self.profiling: Optional[Profiling] = None  # the step profiler, where the order wants it
        self.record = self._first_record(identity)
        self.record["client_floor"] = client_floor

    def _first_record(self, identity: Dict[str, Any]) -> Dict[str, Any]:
        server = self.order["server"]
        return {
            "schema": START_SCHEMA,
            "start_id": self.start_id,
            "launch": self.order["launch"],
            "server": server["digest"],
            "start": server["start"],
            "status": "failed",
            "argv": None,
            "env_names": sorted(server.get("env") or {}),
            "setup": self.env.setup.record,
            "pid": None,
            "port": None,
            "t_begin": time.time(),
            "t_spawned": None,
            "t_ready": None,
            "t_stop": None,
            "t_end": None,
            "ready_s": None,
            "stop_s": None,
            "stages": [],
            "context": None,
            "device_check": self.env.device_check,
            "exit_code": None,
            "cause": None,
            "models": None,
            "version": None,
            "engine_key": server.get("engine_key"),
            "fingerprint": identity.get("fingerprint"),
            "identity": dict(identity["identity"]),
            "identity_problem": identity.get("problem"),
            "autogroup": None,
            "left": [],
            "port_free": None,
            "source": server["source"],
        }

    def _stage_watch(self) -> start_stages.StageWatch:
        server = self.order["server"]
        asked = word_after(server["argv"] or [], "--max-model-len")
        return start_stages.StageWatch(self.order["limits"], start_stages.tokens_asked(asked))

    # ------------------------------------------------------------------ start
    def bring_up(self, watch: Watch) -> None:
        os.makedirs(self.folder)
        os.makedirs(self.cwd)
        self.events.emit("start_begin", start_id=self.start_id)
        try:
            self._spawn()
            self._wait_ready(watch)
        except StartFailed as failed:
            self.record["cause"] = failed.cause = self.mask.deep(failed.cause)
            if self.link is not None:
                self.record["stages"] = self.stages.table(self._age_s())
            raise

    def _spawn(self) -> None:
        argv = list(self.order["server"]["argv"])
        own_port = word_after(argv, "--port")
        fixed = int(own_port) if own_port else self.order["server"].get("port")
        self.port = int(fixed) if fixed else ports.free_port()
        owner = ports.owner_of(self.port) if fixed else None
        if owner is not None:
            raise StartFailed(self._foreign(owner))
        host = word_after(argv, "--host")
        if host is None:
            argv += ["--host", "127.0.0.1"]
        if own_port is None:
            argv += ["--port", str(self.port)]
        reach = "127.0.0.1" if host in (None, "0.0.0.0", "::", "localhost") else host
        self.base_url = "http://%s:%d" % (reach, self.port)
        live = self.store.at("live", self.start_id + ".json")
        self.link = KeeperLink(self.start_id, self.log_path, live, self.cwd)
        self.record.update(argv=argv, port=self.port, t_spawned=time.time())
        self.spawned_at = time.monotonic()
        if self.mask:
            os.close(os.open(self.log_path, os.O_WRONLY | os.O_CREAT, 0o600))
        self.link.start(argv, self._environment(self.link))
        if self.link.exec_error is not None:
            raise StartFailed(reasons.cause("launch_script", self.link.exec_error))
        if self.link.main is not None:
            self.record["pid"] = self.link.main.pid
        self._save()

    def _environment(self, link: KeeperLink) -> Dict[str, str]:
        env, profile = self.env.server(self.start_id), self.order["server"].get("profile")
        if profile is None:
            return env
        self.profiling = Profiling(profile, self.folder, lambda: _living(link))
        self.profiling.prepare(private=bool(self.mask))
        return self.profiling.env(env)

    def _foreign(self, owner: Dict[str, Any]) -> Dict[str, Any]:
        if owner["pid"] is None:
            who = "a process of uid %s" % owner["uid"]
        else:
            known = procs.describe(owner["pid"])
            who = "pid %s (uid %s): %s" % (known["pid"], known["uid"], known["command"])
        return reasons.cause("port_in_use", "port %s is held by %s" % (self.port, who))

    # ------------------------------------------------------------------ readiness
    def _wait_ready(self, watch: Watch) -> None:
        pause_s = 0.05
        self._tell_stage()
        while True:
            self._take_log()
            self._fail_if_ended()
            self._fail_if_overdue()
            watch.extend(self.stages.newly_longer_s())
            if self._port_is_ours():
                self._reach("health")
                if self._answers(5.0, watch.check):
                    break
            watch.pause(pause_s)
            pause_s = min(0.25, pause_s * 1.2)
        self._reach("probe")
        self._probe(watch)
        self._take_all_of_the_log()
        self.ready = True
        ready_s = round(self._age_s(), 3)
        self.record.update(stages=self.stages.table(ready_s), context=self.stages.context)
        self.record.update(status="ready", t_ready=time.time(), ready_s=ready_s)
        self._save()
        self.events.emit("ready", seconds=ready_s)

    def _answers(self, timeout_s: float, check: Callable[[], None]) -> bool:
        return server_http.healthy(self.base_url, timeout_s, check, self.headers)

    def get_json(self, path: str, timeout_s: float, check: Callable[[], None]) -> Any:
        return server_http.get_json(self.base_url, path, timeout_s, check, self.headers)

    def _age_s(self) -> float:
        return time.monotonic() - self.spawned_at

    def _take_log(self) -> None:
        seen = self.log.offset
        for line in self.log.lines():
            if self.stages.line(line, self._age_s()):
                self._tell_stage()
        rest = self.log.rest() if self.log.offset != seen else ""
        if rest and self.stages.unfinished(rest, self._age_s()):
            self._tell_stage()

    def _take_all_of_the_log(self) -> None:
        """A flood may be further than its reader; one that never ends is not waited for."""
        for _piece in range(MOST_PIECES):
            self._take_log()
            if not self.log.behind():
                return

    def _reach(self, stage: str) -> None:
        if self.stages.reach(stage, self._age_s()):
            self._tell_stage()

    def _tell_stage(self) -> None:
        """The one that begins now, and what the ones before it took."""
        name, t_s = self.stages.stage, round(self.stages.begun[-1][1], 3)
        self.record.update(stages=self.stages.table(self._age_s()), context=self.stages.context)
        limit_s = self.stages.limit_s()
        self.events.emit(
            "stage", stage=name, words=start_stages.WORDS[name], t_s=t_s, limit_s=limit_s
        )

    def _fail_if_overdue(self) -> None:
        now = time.monotonic()
        silent_s = now - max(self.log.grown_at, self.spawned_at)
        text = self.stages.overdue(now - self.spawned_at, silent_s, self.log.rest())
        if text is not None:
            raise StartFailed(self._explain(timed_out=text))

    def _fail_if_ended(self) -> None:
        assert self.link is not None
        if not self.link.poll():
            raise StartFailed(self._explain())

    def _port_is_ours(self) -> bool:
        """True: one of our processes listens there. False: nobody yet. A stranger is a failure."""
        assert self.link is not None and self.port is not None
        for _attempt in range(3):  # a worker may be forked between our two looks
            if not ports.listeners(self.port, reachable_only=True):
                return False
            if ports.owner_among(self.port, self.link.pids()) is not None:
                return True
            time.sleep(0.05)
        owner = ports.owner_of(self.port)
        if owner is None:
            return False
        raise StartFailed(self._foreign(owner))

    def model(self) -> str:
        """The name that requests use: the order's, else the one that the server itself names."""
        told = [m.get("id") for m in (self.record["models"] or {}).get("data") or []]
        return str(self.order["server"]["model"] or (told[0] if told else ""))

    def _probe(self, watch: Watch) -> None:
        """The facts it tells, then the one token. A server error may heal for a while."""
        end = time.monotonic() + self.order["limits"]["probe_s"]
        self.record["models"] = self.get_json("/v1/models", 10.0, watch.check)
        self.record["version"] = self.get_json("/version", 5.0, watch.check)
        owners = {m.get("owned_by") for m in (self.record["models"] or {}).get("data") or []}
        if SIMULATOR in owners:  # it says so itself, whatever the config believes
            self.record["source"] = "simulated"
        model = self.model()
        while True:
            left = max(0.5, end - time.monotonic())
            trouble = server_http.one_token(self.base_url, model, left, watch.check, self.headers)
            if trouble is None and self.record["models"] is None:
                trouble = "/v1/models does not answer"
            if trouble is None:
                return
            self._fail_if_ended()
            if trouble.startswith("HTTP 4") or time.monotonic() >= end:
                failed = reasons.cause("probe_failed", trouble)
                raise StartFailed(dict(failed, stage=self.stages.working))
            watch.pause(0.5)

    def _explain(self, timed_out: Optional[str] = None) -> Dict[str, Any]:
        assert self.link is not None
        code = None if timed_out else self.link.exit_code
        cause = start_cause.explain(
            self.mask.text(long_log.read(self.log_path)), code, timed_out is not None
        )
        if cause.get("root_cause") is None:
            ended = "the server ended with exit code %s" % code
            cause["root_cause"] = timed_out or ended
        if room.is_full(self.folder):  # whatever it says: it could not write
            text = "%s: no space left; %s" % (self.folder, cause["root_cause"])
            return reasons.cause("no_space", text)
        if cause["class"] == "none" and not timed_out:
            return reasons.cause("ended_early", cause["root_cause"])
        if cause["class"] == "timeout":
            cause["stage"] = self.stages.working
        return beside_foreign_memory(cause, self.env.device_check)

    # ------------------------------------------------------------------ while it runs
    def alive(self) -> bool:
        return self.link is not None and self.link.poll()

    def healthy(self, check: Callable[[], None]) -> bool:
        """Alive, still the owner of its port, and answering."""
        assert self.link is not None
        return (
            self.alive()
            and ports.owner_among(self.port or 0, self.link.pids()) is not None
            and self._answers(10.0, check)
        )

    def exit_code(self) -> Optional[int]:
        return None if self.link is None else self.link.exit_code

    # ------------------------------------------------------------------ stop
    def take_down(self) -> StopReport:
        """Stop it, whatever its state; wait for its port; never raises for the server's sake."""
        died = self.ready and not self.alive()
        self.events.emit("stop_begin", start_id=self.start_id)
        self.record["t_stop"] = time.time()
        report = StopReport(0.0, 0, [])
        if self.link is not None:
            grace_s = self.order["limits"]["stop_grace_s"] if self.ready else SHORT_GRACE_S
            report = self.link.stop(grace_s)
            self.record["port_free"] = self._port_came_free()
            self.record["exit_code"] = self.link.exit_code
            self.record["autogroup"] = self.link.scheduling()
        if self.ready:
            self.record["status"] = "died" if died else "stopped"
        self.record.update(stop_s=report.seconds, left=report.left, t_end=time.time())
        shutil.rmtree(self.cwd, ignore_errors=True)
        self.events.emit("stop_end", seconds=report.seconds, killed=report.killed, left=report.left)
        return report

    def _port_came_free(self) -> bool:
        """Nobody listens any more (a stranger who held it all along is not waited for)."""
        cause = self.record["cause"] or {}
        end = time.monotonic() + PORT_FREE_S
        while ports.listeners(self.port or 0, reachable_only=True):
            if cause.get("class") == "port_in_use" or time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def seal(self, status: str, why: List[str]) -> None:
        if not os.path.isdir(self.folder):
            return
        server = self.order["server"]
        facts = {
            "start_id": self.start_id,
            "run": None,
            "server": server["digest"],
            "start": server["start"],
        }
        settle(self.folder)
        self.mask.folder(self.folder)
        if os.path.exists(self.log_path):
            os.chmod(self.log_path, 0o644)
        self._save()
        whole.seal(self.folder, facts, status, why)

    def _save(self) -> None:
        whole.write_json(os.path.join(self.folder, "start.json"), self.mask.deep(self.record))
