"""One launch: an order carried out from its first second to its outcome.

In: an order, the store, what this agent knows of failed servers. Out: done/<launch>/ with
events.jsonl, start-<id>/, runs/ and outcome.json (last). Whatever happens, the server is stopped.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set

from cargo import (
    identity,
    machine_look,
    reasons,
    room,
    screening,
    secret_files,
    server_http,
    start_cause,
    whole,
)
from cargo.attached_server import AttachedServer
from cargo.client_floor import ClientFloor
from cargo.device_check import DeviceGate
from cargo.device_verdict import Asked
from cargo.event_log import EventLog
from cargo.mask import Mask
from cargo.queue_store import Store
from cargo.run_once import RunOnce
from cargo.server_env import LaunchEnv, secret_names
from cargo.server_start import ServerStart, StartFailed, word_after
from cargo.setup_env import SetupFailed, Setups
from cargo.watch import LifeOver, Signals, StopNow, Watch

MAX_RESTARTS = 2
# Failures that say nothing about the host's health: they do not count towards the halt.
NOT_THE_HOST = ("engine_changed",)


class Ended(Exception):
    """The launch cannot go on; how it ends."""

    def __init__(self, status: str, reason: Optional[str], cause: Optional[Dict[str, Any]]) -> None:
        super().__init__(reason)
        self.status, self.reason, self.cause = status, reason, cause


class NotPossible:
    """Servers of this queue whose start failed for a cause in their configuration."""

    def __init__(self) -> None:
        self.causes: Dict[str, Dict[str, Any]] = {}
        self.starts: Dict[str, List[str]] = {}


class Known(NamedTuple):
    """What one agent learns in its life."""

    not_possible: NotPossible
    setups: Setups
    client_floor: ClientFloor
    devices: DeviceGate
    races: screening.Races


class Launch:
    def __init__(self, store: Store, order: Dict[str, Any], known: Known, signals: Signals) -> None:
        self.store, self.order = store, order
        self.known, self.setups = known.not_possible, known.setups
        self.client_floor, self.devices = known.client_floor, known.devices
        self.races = known.races
        self.launch = order["launch"]
        self.folder = store.launch_dir(self.launch)
        self.server_digest = order["server"]["digest"]
        self.watch = Watch(store, signals, order["limits"].get("life_s"))
        self.starts: List[str] = []
        self.left: List[int] = []
        self.done: Dict[str, Dict[str, Any]] = {}
        self.screened_out: List[
            Dict[str, Any]
        ] = []  # runs that a cheap one showed not to be worth it
        self.came_up = False
        self.events: Optional[EventLog] = None
        self.mask = Mask(secret_files.all_values(store.root, order["owner"]))
        self.died: Optional[Dict[str, Any]] = None
        self.host_is_ours: Callable[[], bool] = lambda: (
            True
        )  # the lock file may be deleted meanwhile

    def carry_out(self) -> Dict[str, Any]:
        self.t_begin = time.time()
        try:
            events = self._prepare()
            self._carry_out(events)
            end = Ended("done", None, None)
        except Ended as ended:
            end = ended
        except StopNow:
            end = Ended("stopped", "stopped", None)
        except LifeOver:
            text = "the launch lived longer than %g s" % self.order["limits"]["life_s"]
            end = Ended("invalid", "life_over", reasons.cause("life_over", text))
        except Exception as error:  # one launch's surprise must not end the night's queue
            print(self.mask.text(traceback.format_exc()), file=sys.stderr, flush=True)
            end = _surprise(error)
        self.devices.proved = end.status == "done"
        if end.status == "done":
            self.races.note(self.store, self.order, self.done)
        return self._finish(end)

    def _prepare(self) -> EventLog:
        self.store.reserve.hold()
        os.makedirs(self.folder, exist_ok=True)
        whole.write_json(os.path.join(self.folder, "order.json"), self.order)
        self.events = events = EventLog(os.path.join(self.folder, "events.jsonl"), self.mask)
        self._sweep_halves()
        self.done = self.store.finished_runs(self.launch)
        self.starts = self.store.starts(self.launch)
        self.came_up = any(self.store.start_came_up(self.launch, start) for start in self.starts)
        events.emit(
            "launch_begin", launch=self.launch, runs=len(self.order["runs"]), kept=len(self.done)
        )
        self._screen(events)
        return events

    def _sweep_halves(self) -> None:
        """What a dead agent was writing: half runs go, a half start is sealed as it stands."""
        shutil.rmtree(os.path.join(self.folder, ".scratch"), ignore_errors=True)
        runs = os.path.join(self.folder, "runs")
        for run in os.listdir(runs) if os.path.isdir(runs) else []:
            for name in os.listdir(os.path.join(runs, run)):
                if name.startswith("."):
                    shutil.rmtree(os.path.join(runs, run, name), ignore_errors=True)
        self.store.seal_half_starts(self.launch)

    def _finish(self, end: Ended) -> Dict[str, Any]:
        runs = dict(self.done)
        out = self._left_out()
        for run in self.order["runs"]:
            if run["digest"] in out:
                runs.setdefault(
                    run["digest"],
                    {"status": "screened_out", "start_id": None, "attempt": None, "reasons": []},
                )
            not_made = {"status": "not_started", "start_id": None, "attempt": None}
            runs.setdefault(run["digest"], dict(not_made, reasons=[end.reason or "not_started"]))
        if self.events is not None:
            self.events.emit("launch_end", status=end.status, reason=end.reason)
            self.events.close()
        cause, times = self.mask.deep(end.cause), (self.t_begin, time.time())
        self.store.reserve.write(lambda: os.makedirs(self.folder, exist_ok=True))
        return self.store.write_outcome(
            self.launch,
            end.status,
            end.reason,
            cause,
            self.starts,
            runs,
            *times,
            screened_out=self.screened_out,
        )

    # ------------------------------------------------------------------ the work
    def _carry_out(self, events: EventLog) -> None:
        if self.server_digest in self.known.causes and self._unfinished():
            self.starts = list(self.known.starts[self.server_digest])
            cause = self.known.causes[self.server_digest]
            raise Ended("not_possible", cause["class"], cause)
        restarts = 0
        while self._unfinished():
            env = self._environment()
            engine = self._check_engine(env)
            self._check_devices(env, events)
            if self._serve(events, engine, env):
                continue
            self.devices.proved = False
            restarts += 1
            if restarts > MAX_RESTARTS and self._pending():
                raise Ended("invalid", "server_died", self._death())

    def _unfinished(self) -> bool:
        """Runs to make; an order without runs asks only whether the server comes up."""
        return bool(self._pending()) or (not self.order["runs"] and not self.came_up)

    def _pending(self) -> List[Dict[str, Any]]:
        out = self._left_out()
        return [
            r for r in self.order["runs"] if r["digest"] not in self.done and r["digest"] not in out
        ]

    # ------------------------------------------------------------------ the race
    def _screen(self, events: EventLog) -> None:
        """After each run: whether the rest is still worth its time. Told once, with both figures."""
        told = {screen["race"] for screen in self.screened_out}
        made = screening.decisions(self.store, self.order, self.done, self.races)
        self.screened_out = screening.left_out(self.order, made, self.done)
        for screen in self.screened_out:
            if screen["race"] not in told:
                events.emit("screened_out", **screen)

    def _left_out(self) -> Set[str]:
        return {run for screen in self.screened_out for run in screen["runs"]}

    def _environment(self) -> LaunchEnv:
        values = secret_files.values(self.store.root, self.order["owner"])
        needed = secret_names(self.order)
        missing = [name for name in needed if name not in values]
        if missing:
            text = "no value was handed over for %s" % ", ".join(missing)
            raise Ended("invalid", "secret_missing", reasons.cause("secret_missing", text))
        key = self.order.get("api_key")
        if key is not None and not (values[key].isascii() and values[key].strip().isprintable()):
            text = "the value of %s cannot be sent as a key: printable ASCII only" % key
            raise Ended("invalid", "secret_missing", reasons.cause("secret_missing", text))
        try:
            setup = self.setups.of(self.order.get("setup"), self.watch.check)
        except SetupFailed as failed:
            cause = reasons.cause("setup_failed", str(failed))
            raise Ended("invalid", "setup_failed", cause) from failed
        return LaunchEnv(self.order, setup, {name: values[name] for name in needed})

    def _check_engine(self, env: LaunchEnv) -> Dict[str, Any]:
        """Who would answer; refused before anything starts when it is not what was measured."""
        server = self.order["server"]
        if server.get("attach"):
            return identity.observed()
        wanted = server.get("fingerprint") or {}
        cwd = self.store.at("cwd", "identity")
        os.makedirs(cwd, exist_ok=True)
        found = identity.probe(
            server["argv"],
            env.probe(),
            cwd,
            wanted.get("modules") or [],
            wanted.get("files") or [],
        )
        expected = server.get("expected_fingerprint")
        if expected is not None and found["fingerprint"] != expected:
            text = "the engine's fingerprint is %s, measured under this label was %s" % (
                found["fingerprint"],
                expected,
            )
            raise Ended("invalid", "engine_changed", reasons.cause("engine_changed", text))
        model = word_after(server["argv"], "--model") or server.get("model")
        machine = machine_look.machine(self.order.get("telemetry"), env.sampler(), model)
        found["identity"]["machine"] = machine
        return found

    def _note_ready(self, server: ServerStart) -> None:
        """What only a live server tells: its configuration's gauges and the libraries it holds."""
        server.record["gauges"] = server_http.info_gauges(
            server.base_url, 5.0, self.watch.check, server.headers
        )
        if server.link is not None:
            server.record["identity"]["loaded"] = machine_look.loaded(sorted(server.link.pids()))

    def _check_devices(self, env: LaunchEnv, events: EventLog) -> None:
        """Whether the accelerators compute; chooses among them where the order lets it."""
        asked = Asked.of(self.order)
        if asked is None:
            return
        argv0, root, heed = self.order["server"]["argv"][0], self.store.root, self.watch.check
        events.emit("device_check_begin")
        found, new = self.devices.look(asked, argv0, env.probe(), root, heed)
        env.device_check = found
        events.emit("device_check", state=found["state"], found=found["found"], new=new)
        if found["state"] == "failed":
            cause = reasons.cause("device_unfit", self.mask.text(found["found"]))
            raise Ended("invalid", "device_unfit", cause)

    def _serve(self, events: EventLog, engine: Dict[str, Any], env: LaunchEnv) -> bool:
        """One real start with as many runs as it lives to see. False: it died, start another."""
        kind = AttachedServer if self.order["server"].get("attach") else ServerStart
        floor = self.client_floor.of(self.store, events, self.watch)  # while nothing else runs here
        server = kind(self.store, self.order, events, engine, env, floor)
        engine_same = EngineWatch(engine)
        seal_status, seal_reasons = "invalid", ["interrupted"]
        try:
            server.bring_up(self.watch)
            self.came_up = True
            self._note_ready(server)
            survived = self._run_all(server, events, engine_same)
            seal_status, seal_reasons = "done", [] if survived else ["server_died"]
        except StartFailed as failed:
            if start_cause.is_final(failed.cause):
                seal_status, seal_reasons = "done", []
            else:
                seal_reasons = [failed.cause["class"]]
            raise self._failed_start(server, failed) from failed
        except (StopNow, LifeOver) as over:
            name = "stopped" if isinstance(over, StopNow) else "life_over"
            seal_status = "done" if server.ready else "invalid"
            seal_reasons = [] if server.ready else [name]
            raise
        finally:
            report = server.take_down()
            self.left += report.left
            self.store.reserve.write(lambda: server.seal(seal_status, seal_reasons))
            self.starts.append(server.start_id)
        if self.left and self._pending():
            text = "pids %s are still there" % self.left
            raise Ended("invalid", "left_processes", reasons.cause("left_processes", text))
        return survived

    def _failed_start(self, server: ServerStart, failed: StartFailed) -> Ended:
        cause = failed.cause
        # a configuration that came up once cannot be what is wrong now
        if start_cause.is_final(cause) and not self.came_up and not server.attached:
            self.known.causes[self.server_digest] = cause
            self.known.starts[self.server_digest] = [server.start_id]
            return Ended("not_possible", cause["class"], cause)
        return Ended("invalid", cause["class"], cause)

    def _run_all(self, server: ServerStart, events: EventLog, engine_same: "EngineWatch") -> bool:
        total = len(self.order["runs"])
        for run in self._pending():
            self.watch.check()
            if run["digest"] in self._left_out():
                continue
            if not server.alive():
                return self._note_death(server)
            one = RunOnce(self.order, run, server, self.folder, events, self.watch, engine_same)
            one.host_is_ours = self.host_is_ours
            result = one.carry_out(len(self.done) + 1, total)
            self.done[run["digest"]] = {
                "status": result.status,
                "start_id": result.start_id,
                "attempt": result.attempt,
                "reasons": result.reasons,
            }
            self._screen(events)
            if "engine_changed" in result.reasons:
                text = "the engine's files changed while the server ran"
                raise Ended("invalid", "engine_changed", reasons.cause("engine_changed", text))
            if result.server_died:
                return self._note_death(server)
        return True

    def _note_death(self, server: ServerStart) -> bool:
        server.events.emit("server_died", exit_code=server.exit_code(), start_id=server.start_id)
        self.died = {"start_id": server.start_id, "exit_code": server.exit_code()}
        if server.attached and self._pending():
            text = "the attached server does not answer any more"
            raise Ended("invalid", "server_died", reasons.cause("server_died", text))
        return False

    def _death(self) -> Dict[str, Any]:
        died = self.died or {}
        text = "died %d times; last start %s, exit code %s" % (
            MAX_RESTARTS + 1,
            died.get("start_id"),
            died.get("exit_code"),
        )
        return reasons.cause("server_died", text)


def _surprise(error: Exception) -> Ended:
    code = room.code_of(error)
    if isinstance(error, OSError) and code is not None:
        return Ended("invalid", code, reasons.cause(code, room.words(error)))
    text = "%s: %s" % (type(error).__name__, error)
    return Ended("invalid", "agent_error", reasons.cause("agent_error", text))


class EngineWatch:
    """Whether the engine's files are still those of the start (cheap: sizes and times first)."""

    def __init__(self, engine: Dict[str, Any]) -> None:
        self.engine = engine
        self.stamp = identity.stamp(engine["roots"], engine["files"])

    def __call__(self) -> bool:
        roots, files = self.engine["roots"], self.engine["files"]
        now = identity.stamp(roots, files)
        if now == self.stamp:
            return True
        self.stamp = now
        return identity.fingerprint(roots, files) == self.engine["fingerprint"]
