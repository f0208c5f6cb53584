"""The host agent: carries out an ordered queue of launches on this host, detached and on its own.

    python agent.py submit --workdir W < {"owner", "orders": [...], "replace": true}
    python agent.py status --workdir W [--launch D]
    python agent.py stop   --workdir W [--owner O] [--drain] [--wait S]
    python agent.py forget --workdir W --launch D
    python agent.py work   --workdir W          the loop itself; `submit` starts it

Each prints one JSON object. Exit code 0, or 1 with {"error": words}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from typing import Any, Dict, List, Optional

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import procs, queue_store
from cargo.queue_store import DIGEST, Store, StoreError

# `status` is polled while a measurement runs on few cores: what only `work` and `stop` need is
# imported there.

LOG_LIMIT_BYTES = 5 << 20


# ---------------------------------------------------------------------- submit
def submit(store: Store, text: str) -> Dict[str, Any]:
    try:
        batch = json.loads(text)
    except ValueError as error:
        raise StoreError("stdin is not JSON: %s" % error) from error
    if not isinstance(batch, dict) or not isinstance(batch.get("orders"), list):
        raise StoreError('stdin must be an object {"owner", "orders": [...]}')
    for order in batch["orders"]:
        queue_store.check_order(order)
    store.prepare()
    with store.locked():
        answer = queue_store.submit_orders(store, batch)
        alive = store.agent_alive()
        started = alive is None and bool(store.queued())
        pid = spawn(store) if started else (alive or {}).get("pid")
        if started:
            store.write_agent(pid or 0, state="starting", current=None, owner=batch.get("owner"))
    answer["agent"] = {"pid": pid, "started": started}
    return answer


def spawn(store: Store) -> int:
    """Start the loop as a grandchild in a session of its own, with nothing of ours open."""
    log = store.at("agent.log")
    if os.path.exists(log) and os.path.getsize(log) > LOG_LIMIT_BYTES:
        os.replace(log, log + ".1")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            grandchild = os.fork()
            if grandchild:
                os.write(write_end, b"%d" % grandchild)
                os._exit(0)
            os.chdir(store.root)
            null = os.open(os.devnull, os.O_RDONLY)
            out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.closerange(3, 1024)
            me = os.path.abspath(__file__)
            os.execv(sys.executable, [sys.executable, "-S", me, "work", "--workdir", store.root])
        finally:
            os._exit(127)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        pid = int(pipe.read() or b"0")
    os.waitpid(child, 0)
    return pid


# ---------------------------------------------------------------------- status
def status(store: Store, launch: Optional[str]) -> Dict[str, Any]:
    alive = store.agent_alive()
    current = (alive or {}).get("current")
    queue = [item.launch for item in store.queued()]
    answer: Dict[str, Any] = {
        "agent": {
            "alive": alive is not None,
            "pid": (alive or {}).get("pid"),
            "owner": (alive or {}).get("owner"),
            "state": (alive or {}).get("state"),
        },
        "queue": [name for name in queue if name != current],
        "current": current,
        "halted": store.halted(),
        "kept": store.kept(),
        "now": time.time(),
    }
    if alive is None and queue:  # it should be there: say what it said last
        answer["agent"]["log_tail"] = store.log_tail()
    if launch is not None:
        answer["launch"] = launch_state(store, launch, current, queue)
    return answer


def launch_state(
    store: Store, launch: str, current: Optional[str], queue: List[str]
) -> Dict[str, Any]:
    outcome = store.outcome(launch)
    if outcome is not None:
        return {"state": "finished", "outcome": outcome}
    if launch == current:
        return {"state": "running", "outcome": None}
    return {"state": "queued" if launch in queue else "unknown", "outcome": None}


# ---------------------------------------------------------------------- stop, forget
def stop(store: Store, drain: bool, wait_s: float, owner: Optional[str]) -> Dict[str, Any]:
    """Stop everything, or with `owner` only what is that owner's: nobody ends a neighbour's run."""
    store.prepare()
    word = "drain" if drain else "now"
    with store.locked():
        agent = store.agent_alive()
        if agent is not None and owner is None:
            store.ask_to_stop(word)
            store.apply_stop()
        elif agent is not None:
            store.drop_queued(str(owner))
            if agent.get("current") is None or agent.get("owner") != owner:
                return {"stopped": True, "agent": "busy for others", "left": []}
            store.ask_to_stop(word, dropped=True)
    if agent is None:
        return after_dead_agent(store, owner)
    end = time.monotonic() + wait_s
    while store.stop_word() is not None and store.agent_alive() is not None:
        if time.monotonic() >= end:
            return {"stopped": False, "agent": "alive", "current": agent.get("current"), "left": []}
        time.sleep(0.05)
    if store.stop_word() is not None:  # the agent died instead of stopping
        return after_dead_agent(store, owner)
    return {"stopped": True, "agent": "idle" if store.agent_alive() else "gone", "left": []}


def after_dead_agent(store: Store, owner: Optional[str]) -> Dict[str, Any]:
    """No agent lives: end what it left, and empty the queue (what was measured stays fetchable)."""
    from cargo.keeper_link import clean_after_dead_agent

    left: List[int] = []
    for name in sorted(os.listdir(store.at("live"))):
        if name.endswith(".json"):
            left += clean_after_dead_agent(store.at("live", name))[1]
    with store.locked():
        if store.agent_alive() is None:
            for item in store.queued():
                if owner is None or (store.order(item) or {}).get("owner") == owner:
                    store.drop(item.launch, "stopped")
            store.clear_stop()
            store.remove_agent()
    return {"stopped": not left, "agent": "gone", "left": left}


def forget(store: Store, launch: str) -> Dict[str, Any]:
    with store.locked():
        current = (store.agent_alive() or {}).get("current")
        return {"forgotten": launch != current and store.forget(launch)}


# ---------------------------------------------------------------------- the loop
def work(store: Store) -> Dict[str, Any]:
    from cargo.queue_loop import QueueLoop
    from cargo.watch import Signals

    signals = Signals()
    signals.install()
    store.prepare()
    with store.locked():
        other = store.agent_alive()
        if other is not None and other["pid"] != os.getpid():
            return {"worked": False, "why": "agent %d is alive" % other["pid"]}
        store.write_agent(os.getpid(), state="starting", current=None, owner=None)
    procs.become_subreaper()
    try:
        return {"worked": True, "launches": QueueLoop(store, signals).run()}
    except Exception:
        traceback.print_exc()
        raise StoreError("the agent ended; see the lines above") from None


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="host agent: carries out a queue of launches")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("submit", "status", "stop", "forget", "work"):
        sub = commands.add_parser(name)
        sub.add_argument("--workdir", required=True)
        if name in ("status", "forget"):
            sub.add_argument("--launch", required=name == "forget", help="16 hex digits")
        if name == "stop":
            sub.add_argument("--drain", action="store_true", help="let the current launch finish")
            sub.add_argument("--wait", type=float, default=0.0, metavar="S")
            sub.add_argument("--owner", help="stop only what this owner ordered")
    args = parser.parse_args(argv)
    if getattr(args, "launch", None) is not None and not DIGEST.match(args.launch):
        parser.error("--launch must be 16 hex digits")
    return args


def answer(args: argparse.Namespace) -> Dict[str, Any]:
    store = Store(args.workdir)
    if args.command == "submit":
        return submit(store, sys.stdin.read())
    if args.command == "status":
        return status(store, args.launch)
    if args.command == "stop":
        return stop(store, args.drain, args.wait, args.owner)
    if args.command == "forget":
        return forget(store, args.launch)
    return work(store)


def main(argv: Optional[List[str]] = None) -> int:
    args = parse(argv)
    try:
        print(json.dumps(answer(args), ensure_ascii=False), flush=True)
        return 0
    except (StoreError, OSError) as error:
        print(json.dumps({"error": str(error)}, ensure_ascii=False), flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
