"""Orders at the door: checked, stamped, put into the queue.

In:  a batch {"owner", "orders": [...], "replace": true, "lock_wait_s", "host_lock"} (each order of
schema "decodelab.order/1"). Out: the queue changed, or StoreError with what is wrong in words.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any, Dict, List

from cargo import printable, race, secret_files, stopped_sessions, whole
from cargo.queue_store import DIGEST, Store, StoreError

ORDER_SCHEMA = "decodelab.order/1"
LOCK_WAIT_S = 6 * 3600.0


def check_order(order: Any) -> None:
    """Refuse what cannot be carried out, and any digest that is not safe as a folder name."""
    if not isinstance(order, dict) or order.get("schema") != ORDER_SCHEMA:
        raise StoreError("an order must be an object with schema %s" % ORDER_SCHEMA)
    if not DIGEST.match(str(order.get("launch"))):
        raise StoreError("launch must be 16 hex digits, found %r" % order.get("launch"))
    server = order.get("server")
    if not isinstance(server, dict) or not DIGEST.match(str(server.get("digest"))):
        raise StoreError("launch %s: server.digest must be 16 hex digits" % order["launch"])
    argv = server.get("argv")
    if not server.get("attach") and not (
        isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv)
    ):
        raise StoreError("launch %s: server.argv must be a list of strings" % order["launch"])
    limits = order.get("limits")
    wanted = ("start_s", "silence_s", "probe_s", "stop_grace_s", "life_s")
    if not isinstance(limits, dict) or not all(_is_number(limits.get(name)) for name in wanted):
        names = ", ".join(wanted)
        raise StoreError("launch %s: limits needs numbers %s" % (order["launch"], names))
    stages = limits.get("stages", {})
    if not isinstance(stages, dict) or not all(map(_is_number, stages.values())):
        raise StoreError("launch %s: limits.stages must be numbers by stage" % order["launch"])
    runs = order.get("runs")
    if not isinstance(runs, list):
        raise StoreError("launch %s: runs must be a list" % order["launch"])
    for run in runs:
        if not isinstance(run, dict) or not DIGEST.match(str(run.get("digest"))):
            raise StoreError("launch %s: a run's digest must be 16 hex digits" % order["launch"])
    _check_profile(order)
    _check_devices(order)
    _check_surroundings(order)
    _check_client(order)
    _check_screens(order)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_profile(order: Dict[str, Any]) -> None:
    told = order["server"].get("profile")
    whole = told is None or (
        isinstance(told, dict)
        and told.get("mode") in ("event", "sync")
        and isinstance(told.get("regions"), dict)
        and isinstance(told.get("skip"), list)
        and type(told.get("timeline_steps")) is int
        and not order["server"].get("attach")
    )
    if not whole:
        text = "launch %s: profile needs mode, regions, skip and timeline_steps, and a server that is started, found %r"
        raise StoreError(text % (order["launch"], told))


def _check_devices(order: Dict[str, Any]) -> None:
    told = order.get("device_check")
    if told is None:
        return
    devices = told.get("devices") if isinstance(told, dict) else ()
    whole = (
        isinstance(told, dict)
        and told.get("mode") in ("auto", "on", "off")
        and (
            devices is None or (isinstance(devices, list) and all(type(d) is int for d in devices))
        )
        and type(told.get("need")) is int
        and isinstance(told.get("choose"), bool)
        and _is_number(told.get("deadline_s"))
    )
    if not whole:
        text = "launch %s: device_check needs mode, devices, need, choose and deadline_s, found %r"
        raise StoreError(text % (order["launch"], told))


def _check_surroundings(order: Dict[str, Any]) -> None:
    setup, key = order.get("setup"), order.get("api_key")
    if setup is not None and not (isinstance(setup, str) and setup):
        raise StoreError("launch %s: setup must be a path or null" % order["launch"])
    named = order.get("secrets") or []
    if not isinstance(named, list):
        raise StoreError("launch %s: secrets must be a list of names" % order["launch"])
    for name in [*named, *([] if key is None else [key])]:
        if not isinstance(name, str) or not secret_files.NAME.match(name):
            text = "launch %s: secrets and api_key are names of environment variables, found %r"
            raise StoreError(text % (order["launch"], name))


def _check_screens(order: Dict[str, Any]) -> None:
    screens = order.get("screens") or []
    for screen in screens if isinstance(screens, list) else [None]:
        whole = (
            isinstance(screen, dict)
            and DIGEST.match(str(screen.get("race")))
            and screen.get("metric") in race.METRICS
            and _is_number(screen.get("within"))
            and all(DIGEST.match(str(run)) for run in [screen.get("run"), *screen.get("then", [])])
            and all(screen.get(x) is None or _is_number(screen[x]) for x in ("best", "own"))
        )
        if not whole:
            text = (
                "launch %s: screens needs race, metric, within, run, then, best and own, found %r"
            )
            raise StoreError(text % (order["launch"], screen))


def _check_client(order: Dict[str, Any]) -> None:
    """Before anything starts: the client that brings httpx must run here."""
    zipapp = order.get("client_zipapp")
    if zipapp is None:
        return
    try:
        file, needed = zipapp["file"], tuple(int(part) for part in zipapp["python"].split("."))
    except (TypeError, KeyError, AttributeError, ValueError):
        file, needed = "", ()
    if not needed or not isinstance(file, str) or not os.path.isabs(file):
        text = "launch %s: client_zipapp needs an absolute path `file` and a version `python`"
        raise StoreError(text % order["launch"])
    if sys.version_info < needed and any(
        (run.get("client") or {}).get("http") == "httpx" for run in order["runs"]
    ):
        raise StoreError(
            "launch %s: --http httpx needs Python %s or newer on the host; this is %d.%d.\n"
            "Hint: name a newer one as hosts.<name>.python, or set `http: epoll` in the workload."
            % (order["launch"], zipapp["python"], *sys.version_info[:2])
        )


def submit_orders(store: Store, batch: Dict[str, Any]) -> Dict[str, Any]:
    """Under the lock: put the batch into the queue. Idempotent by launch.

    The owner's own pending orders become the batch, in its order; other owners' orders stay and
    come first. Launches that run, are finished, or belong to another owner are left as they are;
    so are those that another job of the same call (session) has ordered. A call that was stopped by
    hand is refused as a whole.
    """
    stopped = stopped_sessions.known(store)
    owner, orders = printable.plain(str(batch.get("owner", ""))), batch.get("orders", [])
    if any(order.get("session") in stopped for order in orders):
        _claim_secrets(store, owner)
        return {"queued": [], "already": {}, "dropped": [], "refused": "stopped by hand"}
    store.sweep_forgotten()
    store.apply_stop()  # a stop that was asked for before this batch must not swallow it
    current = (store.agent_alive() or {}).get("current")
    session = next((order.get("session") for order in orders), None)
    others, mine, siblings = {}, [], set()
    for item in store.queued():
        order = store.order(item) or {}
        if order.get("owner") == owner and item.launch != current:
            mine.append(item.launch)
            if session and order.get("session") == session:
                siblings.add(item.launch)
        else:
            others[item.launch] = order
    already: Dict[str, str] = {}
    wanted: List[Dict[str, Any]] = []
    for order in orders:
        launch = order["launch"]
        if launch in others:
            already[launch] = "running" if launch == current else "queued"
        elif store.outcome(launch) is not None:
            already[launch] = "finished"
        elif launch not in {o["launch"] for o in wanted}:
            wanted.append(_stamped(order, owner, batch))
    names = [order["launch"] for order in wanted]
    gone = [launch for launch in mine if launch not in names and launch not in siblings]
    dropped = gone if batch.get("replace", True) else []
    kept = [launch for launch in mine if launch in names]
    in_order = kept == names[: len(kept)]
    in_place = {item.launch: item.path for item in store.queued() if item.launch in kept}
    _write_all(store, wanted, in_place if in_order else {})
    for path in [] if in_order else in_place.values():
        os.unlink(path)  # it stands behind the others now
    for launch in dropped:
        store.drop(launch, "replaced")
    _claim_secrets(store, owner)
    if orders:
        store.clear_halt()
    return {
        "queued": [item.launch for item in store.queued()],
        "already": already,
        "dropped": dropped,
    }


def _claim_secrets(store: Store, owner: str) -> None:
    """They stay with the owner's orders; with none queued (all finished meanwhile, or refused) they go."""
    secret_files.claim(store.root, owner)
    store.sweep_secrets()


def _write_all(store: Store, wanted: List[Dict[str, Any]], in_place: Dict[str, str]) -> None:
    """All or none of the new ones: a full disk must not tear a batch."""
    added: List[str] = []
    try:
        for order in wanted:
            if order["launch"] in in_place:
                whole.write_json(in_place[order["launch"]], order, exact=True)
            else:
                added.append(store.append(order))
    except OSError:
        for path in added:
            os.unlink(path)
        raise


def _stamped(order: Dict[str, Any], owner: str, batch: Dict[str, Any]) -> Dict[str, Any]:
    stamped = json.loads(json.dumps(order))
    stamped["owner"] = owner
    stamped["submitted"] = {
        "t": time.time(),
        "lock_wait_s": _lock_wait_s(batch.get("lock_wait_s")),
        "host_lock": _host_lock(batch.get("host_lock")),
    }
    return stamped


def _lock_wait_s(asked: Any) -> float:
    if asked is None:
        return LOCK_WAIT_S
    if isinstance(asked, bool) or not isinstance(asked, (int, float)):
        raise StoreError("lock_wait_s must be a number of seconds, found %r" % (asked,))
    if not (math.isfinite(asked) and asked >= 0):
        raise StoreError("lock_wait_s must be 0 or more seconds, found %r" % asked)
    return float(asked)


def _host_lock(path: Any) -> Any:
    """Told now, to whoever orders, rather than by a queue that cannot go on."""
    if path is None:
        return None
    if not isinstance(path, str) or not os.path.isabs(path):
        raise StoreError("host_lock must be an absolute path, found %r" % (path,))
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        text = "the folder of the host lock, %s, is not there. Hint: make it, or name another lock."
        raise StoreError(text % folder)
    return path
