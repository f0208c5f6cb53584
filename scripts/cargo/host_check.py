"""Is this host fit for a study? Looked at without starting or changing anything.

    python -S host_check.py < {"workdir", "setup", "server": {"argv0", "env", "modules": ["vllm", "torch"]},
                               "telemetry": {"tool", "argv", "env", "interval_s"}, "port", "lock", "owner",
                               "device_check": as in an order}

Out: one JSON list of rows {"check", "state": "ok"|"warn"|"fail", "found": words, "todo": words or
null}: python, workdir, setup, `import NAME` for each module, devices (if asked for), telemetry, port,
lock, leftovers, agent. The setup's row has "set" (names and values), that of telemetry "out" (what the tool
printed) and the sampler's choice. All looks run side by side, each with a deadline: one that hangs
or breaks hides no other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import (
    agent_status,
    beside,
    device_check,
    engine_look,
    host_lock,
    keeper_link,
    ports,
    procs,
    reasons,
    room,
    server_env,
    smi_tools,
    utf8_io,
    whole,
)
from cargo.device_verdict import PHASES, Asked
from cargo.queue_store import Store
from cargo.setup_env import DEADLINE_S as SETUP_S
from cargo.setup_env import Setup, SetupFailed, Setups
from cargo.smi_choice import BUDGET_S, CALL_S, Chooser

GIB = 1 << 30
WARN_FREE_BYTES = 5 * GIB
FAIL_FREE_BYTES = 200 << 20
LOOK_S = 20.0  # of a look that starts nothing


class Row(NamedTuple):
    state: str
    found: str
    todo: Optional[str] = None
    more: Optional[Dict[str, Any]] = (
        None  # for the asker: what the setup sets, what the tool printed
    )


class Look(threading.Thread):
    """One check in a thread of its own, so that a hanging disk or driver delays nobody else."""

    def __init__(self, name: str, check: Callable[[], Row], deadline_s: float) -> None:
        super().__init__(daemon=True)
        self.check_name, self.check, self.deadline_s = name, check, deadline_s
        self.row: Optional[Row] = None

    def run(self) -> None:
        try:
            self.row = self.check()
        except Exception as error:
            last = traceback.format_exc().strip().splitlines()[-1]
            words = room.words(error) if isinstance(error, OSError) else last
            self.row = Row("fail", words, "look at the host: this check itself broke")

    def result(self, begin: float) -> Dict[str, Any]:
        self.join(max(0.0, begin + self.deadline_s - time.monotonic()))
        words = "no answer within %g s" % self.deadline_s
        row = self.row or Row("fail", words, "look at the host: something there hangs")
        told = {"check": self.check_name, "state": row.state, "found": row.found, "todo": row.todo}
        return dict(told, **(row.more or {}))


class HostCheck:
    def __init__(self, asked: Dict[str, Any]) -> None:
        self.asked = asked
        self.store = Store(os.path.expanduser(str(asked["workdir"])))
        self.server: Dict[str, Any] = asked.get("server") or {}
        self.telemetry: Dict[str, Any] = asked.get("telemetry") or {}
        self._setup: Optional[Setup] = None
        self._setup_known = threading.Event()

    def rows(self) -> List[Dict[str, Any]]:
        begin = time.monotonic()
        looks = self._looks()
        for look in looks:
            look.start()
        return [look.result(begin) for look in looks]

    def _looks(self) -> List[Look]:
        engine_s = SETUP_S + engine_look.IMPORT_S + 20.0
        looks = [
            Look("python", self.python, LOOK_S),
            Look("workdir", self.workdir, LOOK_S),
            Look("setup", self.setup, SETUP_S + 10.0),
        ]
        for name in self.server.get("modules") or []:
            looks.append(Look("import " + name, lambda name=name: self.module(name), engine_s))  # type: ignore[misc]
        asked = Asked.of(self.asked)
        if asked is not None:
            limit_s = SETUP_S + PHASES * (asked.deadline_s + device_check.MARGIN_S)
            looks.append(Look("devices", lambda: self.devices(asked), limit_s))
        return [
            *looks,
            Look("telemetry", self.smi, SETUP_S + BUDGET_S + CALL_S),
            Look("port", self.port, LOOK_S),
            Look("lock", self.lock, LOOK_S),
            Look("leftovers", self.leftovers, LOOK_S),
            Look("agent", self.agent, LOOK_S),
        ]

    # ------------------------------------------------------------------ the machine
    def python(self) -> Row:
        found = "%s (%s)" % (sys.version.split()[0], sys.executable)
        if sys.version_info < (3, 9):
            return Row("fail", found, "set hosts.<name>.python to Python 3.9 or newer")
        return Row("ok", found)

    def workdir(self) -> Row:
        place = self.store.root
        while not os.path.isdir(place) and place != "/" and not os.path.exists(place):
            place = os.path.dirname(place)
        todo = "set hosts.<name>.workdir to a folder that you may write"
        try:
            scratch = tempfile.mkdtemp(prefix=".check-", dir=place)
            try:
                whole.write(os.path.join(scratch, "x"), b"x" * 4096)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        except OSError as error:
            if room.code_of(error) == "no_space":
                todo = "free space on that disk"
            return Row("fail", room.words(error), todo)
        free = room.free_bytes(place) or 0
        made = "" if place == self.store.root else ", to be made in " + place
        found = "%s%s: %.1f GB free" % (self.store.root, made, free / GIB)
        if free < WARN_FREE_BYTES:
            state = "fail" if free < FAIL_FREE_BYTES else "warn"
            return Row(state, found, "free space on that disk")
        return Row("ok", found)

    # ------------------------------------------------------------------ the server's world
    def setup(self) -> Row:
        path = self.asked.get("setup")
        try:
            self._setup = Setups().of(path)
        except SetupFailed as failed:
            return Row("fail", str(failed), "source it by hand in a new shell, and correct it")
        finally:
            self._setup_known.set()
        record = self._setup.record
        if record is None:
            return Row("ok", "none")
        names = ", ".join(record["set"]) or "nothing"
        gone = ("; unsets " + ", ".join(record["unset"])) if record["unset"] else ""
        found = "%s sets %s%s" % (record["path"], names, gone)
        return Row("ok", found, more={"set": record["set"]})

    def _env(self, more: Optional[Dict[str, Any]]) -> Optional[Dict[str, str]]:
        """The setup's environment and a layer on it; None when the setup failed."""
        self._setup_known.wait(SETUP_S + 10.0)
        return None if self._setup is None else server_env.layered(self._setup.env, more or {})

    def module(self, name: str) -> Row:
        env = self._env(self.server.get("env"))
        if env is None:
            return Row("fail", "not tried, since the setup failed", "see setup")
        if not self.server.get("argv0"):
            return Row("ok", "not looked at: the server is somebody else's")
        return Row(*engine_look.module(self.server["argv0"], env, name))

    def devices(self, asked: Asked) -> Row:
        """A few seconds of work on each, while the host's lock says that nobody measures."""
        env, argv0 = self._env(self.server.get("env")), self.server.get("argv0")
        if env is None:
            return Row("fail", "not tried, since the setup failed", "see setup")
        if not argv0:
            return Row("ok", "not looked at: the server is somebody else's")
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(self._lock_path(), os.O_RDONLY)
                stack.callback(os.close, fd)
                try:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return Row("ok", "not looked at: the host is in use (see lock)")
            found = device_check.check(asked, argv0, env, self.store.root)
        if found["state"] == "failed":
            return Row("fail", found["found"], reasons.REASONS["device_unfit"][1])
        return Row("ok", found["found"])

    def smi(self) -> Row:
        """The tool as the sampler would call it."""
        asked = str(self.telemetry.get("tool") or "none")
        if asked == "none":
            return Row("ok", "none is asked for")
        env = self._env(self.telemetry.get("env"))
        if env is None:
            return Row("fail", "not tried, since the setup failed", "see setup")
        wanted_s = float(self.telemetry.get("interval_s") or 1.0)
        return _smi_row(Chooser(asked, list(self.telemetry["argv"]), env, wanted_s))

    # ------------------------------------------------------------------ who else is here
    def port(self) -> Row:
        port = self.asked.get("port")
        if port is None:
            return Row("ok", "a free one is taken at each start")
        owner = ports.owner_of(int(port))
        if owner is None:
            return Row("ok", "%s is free" % port)
        if owner["pid"] is None:
            who = "a process of uid %s" % owner["uid"]
        else:
            if owner["pid"] in self._our_pids():
                return Row("warn", "%s is held by our own server (pid %s)" % (port, owner["pid"]))
            known = procs.describe(owner["pid"])
            who = "pid %s (uid %s): %s" % (known["pid"], known["uid"], known["command"])
        todo = "free it, or leave out hosts.<name>.port so that a free one is taken"
        return Row("fail", "%s is held by %s" % (port, who), todo)

    def _lock_path(self) -> str:
        return str(self.asked.get("lock") or self.store.at("host.lock"))

    def lock(self) -> Row:
        path = self._lock_path()
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            folder = os.path.dirname(path)
            if path.startswith(self.store.root + "/") or os.path.isdir(folder):
                return Row("ok", "%s is free (not made yet)" % path)
            return Row(
                "fail", "the folder %s is not there" % folder, "make it, or set hosts.<name>.lock"
            )
        except OSError as error:
            return Row(
                "fail", room.words(error), "let every user open it, or set hosts.<name>.lock"
            )
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return Row("ok", "%s is free" % path)
        except BlockingIOError:
            return self._held(path)
        finally:
            os.close(fd)

    def _held(self, path: str) -> Row:
        who = host_lock.holder(path)
        since = who["since"]
        when = (
            "unknown" if since is None else time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(since))
        )
        found = "held by %s since %s, doing: %s" % (who["owner"], when, who["doing"] or "unknown")
        if (host_lock.read_owner(path) or {}).get("workdir") == self.store.root:
            return Row("ok", found + " (this working folder's own agent)")
        return Row("warn", found, "wait, or ask the owner; a launch waits by itself")

    def _live(self) -> List[Dict[str, Any]]:
        """What is written of servers of this boot."""
        try:
            names = [n for n in os.listdir(self.store.at("live")) if n.endswith(".json")]
        except OSError:
            return []
        records = [whole.read_json(self.store.at("live", name)) for name in sorted(names)]
        return [r for r in records if r is not None and r.get("boot_id") == procs.boot_id()]

    def _our_pids(self) -> List[int]:
        return [pair[0] for record in self._live() for pair in record.get("members", [])]

    def leftovers(self) -> Row:
        if self.store.agent_alive() is not None:
            return Row("ok", "none: what runs belongs to an agent at work")
        found: Dict[int, procs.Proc] = {}
        for record in self._live():
            marks = [record["mark"], record["mark"] + beside.SUFFIX]
            log_id = tuple(record["log_id"]) if record.get("log_id") else None
            for proc in keeper_link.find_leftovers(marks, log_id, record):
                found[proc.pid] = proc
        if not found:
            return Row("ok", "none")
        told = ["%d (%s)" % (pid, procs.describe(pid)["command"]) for pid in sorted(found)]
        states = {(procs.read_stat(pid) or procs.Stat("?", 0, 0, 0)).state for pid in found}
        todo = "the next launch ends them; or now: agent.py stop --workdir %s" % self.store.root
        if "D" in states:
            todo += "; one is stuck in a driver: if it stays, the administrator is needed"
        return Row("warn", "%d processes: %s" % (len(found), "; ".join(told)), todo)

    def agent(self) -> Row:
        told = agent_status.status(self.store, None)
        waiting = "" if not told["queue"] else ", %d more queued" % len(told["queue"])
        if told["halted"] is not None:
            todo = "mend the cause; the next call of snakemake goes on"
            return Row("warn", "halted: %s" % told["halted"]["reason"], todo)
        if told["agent"]["alive"]:
            return self._at_work(told, waiting)
        if told["queue"]:
            trouble = told["agent"].get("trouble")
            last = trouble or (told["agent"]["log_tail"].strip().splitlines() or ["nothing"])[-1]
            words = "gone, with %d launches queued; its last words: %s" % (len(told["queue"]), last)
            return Row("warn", words, "the next call of snakemake starts it again")
        return Row("ok", "idle")

    def _at_work(self, told: Dict[str, Any], waiting: str) -> Row:
        owner, current = told["agent"]["owner"], told["current"]
        if current is None:
            return Row("ok", "%s for %s%s" % (told["agent"]["state"], owner, waiting))
        label = self.store.order_of(current).get("label")
        found = "working on %s (launch %s) for %s%s" % (label, current, owner, waiting)
        if owner in (None, self.asked.get("owner")):
            return Row("ok", found)
        return Row("warn", found, "wait: a launch queues behind it by itself")


def _smi_row(chooser: Chooser) -> Row:
    choice = chooser.choose()
    todo = "install it, add its folder to PATH in the setup script, or set hosts.<name>.telemetry"
    if choice.tool == "none":
        there = [words for words in choice.tried if not words.endswith(": not found")]
        if not there:
            words = "no SMI tool is here (%s)" % ", ".join(tool.name for tool in smi_tools.TOOLS)
            return Row("ok", words, more={"tool": "none"})
        return Row("warn", "no SMI tool answers: " + "; ".join(there), todo, {"tool": "none"})
    if not choice.cost_s or chooser.last is None:
        return Row("fail", choice.tried[-1], todo)
    fields = " with %d query fields" % len(choice.fields) if choice.fields else ""
    found = "%s, %s%s; a call takes %.3g s" % (
        choice.argv[0],
        choice.form,
        fields,
        min(choice.cost_s),
    )
    more = dict(choice._asdict(), out=chooser.last.text)
    if choice.interval_s > choice.wanted_interval_s:
        found += ", so %g s between samples, not %g s" % (
            choice.interval_s,
            choice.wanted_interval_s,
        )
        return Row("warn", found, "set hosts.<name>.telemetry.interval_s to that", more)
    return Row("ok", found, more=more)


def main() -> int:
    try:
        asked = utf8_io.read()
        rows = HostCheck(asked).rows()
    except (utf8_io.NotReadable, KeyError, TypeError) as error:
        utf8_io.say({"error": "stdin: %s" % error})
        return 1
    utf8_io.say(rows)
    return 0


if __name__ == "__main__":
    utf8_io.start_in_utf8()
    os._exit(main())  # a look that hangs must not keep us
