"""The host agent: carries out an ordered queue of launches on this host, detached and on its own.

    python agent.py submit  --workdir W < {"owner", "orders": [...], "replace", "lock_wait_s", "host_lock"}
    python agent.py secrets --workdir W < {"owner", "values": {NAME: value}}
    python agent.py status  --workdir W [--launch D]
    python agent.py stop    --workdir W [--owner O] [--drain] [--wait S]
    python agent.py forget  --workdir W --launch D
    python agent.py work    --workdir W         the loop itself; `submit` starts it

Each prints one JSON object. Exit code 0, or 1 with {"error": words}. Input, output and paths are
UTF-8, whatever the host's locale says.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Optional, Tuple

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import agent_status, printable, procs, room, stopped_sessions, utf8_io
from cargo.queue_store import DIGEST, Store, StoreError

# `status` is polled while a measurement runs on few cores: what only `work` and `stop` need is
# imported there.

LOG_LIMIT_BYTES = 5 << 20


# ---------------------------------------------------------------------- submit, secrets
def read_object(shape: str, *needed: str) -> Dict[str, Any]:
    found = utf8_io.read()
    if not isinstance(found, dict) or any(name not in found for name in needed):
        raise StoreError("stdin must be an object %s" % shape)
    return found


def secrets(store: Store) -> Dict[str, Any]:
    from cargo import secret_files

    handed = read_object('{"owner", "values": {NAME: value}}', "owner", "values")
    trouble = secret_files.trouble(handed["values"])
    if trouble is not None:
        raise StoreError(trouble)
    store.prepare()
    with store.locked():
        secret_files.put(store.root, printable.plain(str(handed["owner"])), handed["values"])
    return {"kept": sorted(handed["values"])}


def submit(store: Store) -> Dict[str, Any]:
    from cargo.intake import check_order, submit_orders

    batch = read_object('{"owner", "orders": [...]}', "orders")
    if not isinstance(batch["orders"], list):
        raise StoreError("orders must be a list")
    for order in batch["orders"]:
        check_order(order)
    store.prepare()
    with store.locked():
        answer = submit_orders(store, batch)
        alive = store.agent_alive()
        started = alive is None and bool(store.queued()) and "refused" not in answer
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
            try:
                out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            except OSError:  # a full disk
                out = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.closerange(3, 1024)
            me = os.path.abspath(__file__)
            os.execv(sys.executable, [*procs.PYTHON, "-S", me, "work", "--workdir", store.root])
        finally:
            os._exit(127)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        pid = int(pipe.read() or b"0")
    os.waitpid(child, 0)
    return pid


# ---------------------------------------------------------------------- stop, forget
def stop(store: Store, drain: bool, wait_s: float, owner: Optional[str]) -> Dict[str, Any]:
    """Stop everything, or with `owner` only what is that owner's: nobody ends a neighbour's run."""
    try:
        agent, for_others = ask(store, "drain" if drain else "now", owner)
    except OSError as error:  # nothing can be written there; a signal needs no file
        agent, for_others = signal_agent(store, drain, owner, error), False
    if for_others:
        return {"stopped": True, "agent": "busy for others", "left": []}
    if agent is None:
        return after_dead_agent(store, owner, drain)
    end = time.monotonic() + wait_s
    while at_work(store, agent):
        if time.monotonic() >= end:
            return {"stopped": False, "agent": "alive", "current": agent.get("current"), "left": []}
        time.sleep(0.05)
    if store.stop_word() is not None:  # the agent died instead of stopping
        return after_dead_agent(store, owner, drain)
    return {"stopped": True, "agent": "idle" if store.agent_alive() else "gone", "left": []}


def ask(store: Store, word: str, owner: Optional[str]) -> Tuple[Optional[Dict[str, Any]], bool]:
    """Leave the request; returns the living agent, and whether it works for others only."""
    store.prepare()
    with store.locked():
        agent = store.agent_alive()
        if word == "now":
            stopped_sessions.remember(store, owner)
        if agent is not None and owner is None:
            store.ask_to_stop(word)
            store.apply_stop()
            store.drop_secrets(None)
        elif agent is not None:
            store.drop_queued(str(owner))
            store.drop_secrets(owner)
            if agent.get("current") is None or agent.get("owner") != owner:
                return agent, True
            store.ask_to_stop(word, dropped=True)
    return agent, False


def signal_agent(
    store: Store, drain: bool, owner: Optional[str], error: OSError
) -> Optional[Dict[str, Any]]:
    """TERM means: stop all now. Only where that is what was asked for."""
    agent = store.agent_alive()
    others = owner is not None and any(other != owner for other in store.owners())
    if agent is None or drain or others:
        raise error
    procs.send(procs.Proc(agent["pid"], agent["start_time"]), signal.SIGTERM)
    return dict(agent, signalled=True)


def at_work(store: Store, agent: Dict[str, Any]) -> bool:
    if store.agent_alive() is None:
        return False
    return store.stop_word() is not None or agent.get("signalled", False)


def after_dead_agent(store: Store, owner: Optional[str], drain: bool) -> Dict[str, Any]:
    """No agent lives: end what it left, and empty the queue (what was measured stays fetchable)."""
    from cargo.keeper_link import clean_after_dead_agent

    left: List[int] = []
    for name in sorted(os.listdir(store.at("live"))):
        if name.endswith(".json"):
            left += clean_after_dead_agent(store.at("live", name))[1]
    with store.locked():
        if store.agent_alive() is None:
            if not drain:
                stopped_sessions.remember(store, owner)
            for item in store.queued():
                if owner is None or (store.order(item) or {}).get("owner") == owner:
                    store.drop(item.launch, "stopped")
            store.clear_stop()
            store.remove_agent()
            store.drop_secrets(owner)
    return {"stopped": not left, "agent": "gone", "left": left}


def forget(store: Store, launch: str, purge: bool) -> Dict[str, Any]:
    """Its owner has what it measured; `purge`: it is to be carried out anew."""
    with store.locked():
        current = (store.agent_alive() or {}).get("current")
        do = store.purge if purge else store.forget
        return {"forgotten": launch != current and do(launch)}


# ---------------------------------------------------------------------- the loop
def work(store: Store) -> Dict[str, Any]:
    from cargo import agent_log
    from cargo.queue_loop import QueueLoop
    from cargo.watch import Signals

    agent_log.use()
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
    except OSError as error:
        traceback.print_exc()
        raise StoreError("the agent ended: %s" % room.words(error)) from None
    except Exception:
        traceback.print_exc()
        raise StoreError("the agent ended; see the lines above") from None


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="host agent: carries out a queue of launches")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("submit", "secrets", "status", "stop", "forget", "work"):
        sub = commands.add_parser(name)
        sub.add_argument("--workdir", required=True)
        if name in ("status", "forget"):
            sub.add_argument("--launch", required=name == "forget", help="16 hex digits")
        if name == "forget":
            sub.add_argument("--purge", action="store_true", help="remove it, to carry it out anew")
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
        return submit(store)
    if args.command == "secrets":
        return secrets(store)
    if args.command == "status":
        return agent_status.status(store, args.launch)
    if args.command == "stop":
        owner = None if args.owner is None else printable.plain(args.owner)
        return stop(store, args.drain, args.wait, owner)
    if args.command == "forget":
        return forget(store, args.launch, args.purge)
    return work(store)


def trouble_in_words(error: OSError) -> str:
    hint = {
        "no_space": " Hint: free space on that disk; nothing that was finished is lost.",
        "not_writable": " Hint: set hosts.<name>.workdir to a folder that you may write.",
    }
    return room.words(error) + "." + hint.get(room.code_of(error) or "", "")


def main(argv: Optional[List[str]] = None) -> int:
    args = parse(argv)
    try:
        utf8_io.say(answer(args))
        return 0
    except (StoreError, utf8_io.NotReadable) as error:
        utf8_io.say({"error": str(error)})
    except OSError as error:
        utf8_io.say({"error": trouble_in_words(error)})
    return 1


if __name__ == "__main__":
    utf8_io.start_in_utf8()
    sys.exit(main())
