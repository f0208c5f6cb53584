"""Which calls of the workflow were stopped by hand: none of their jobs may order anew.

In:  the store, whose orders a stop is about to drop. Out: stopped.json, the last 20 sessions with
the time of their stop. `remember` is called under queue.lock, before the orders go.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, List, Optional

from cargo import whole
from cargo.queue_store import Store

KEPT = 20


def remember(store: Store, owner: Optional[str]) -> None:
    """The sessions of this owner's orders, or of all; the launch that runs is still among them."""
    orders = [store.order(item) or {} for item in store.queued()]
    mine = [order for order in orders if owner is None or order.get("owner") == owner]
    named = [order["session"] for order in mine if isinstance(order.get("session"), str)]
    new = [session for session in dict.fromkeys(named) if session]
    if not new:
        return
    now = time.time()
    kept = [entry for entry in _entries(store) if entry["session"] not in new]
    kept += [{"session": session, "t": now} for session in new]
    facts = {"sessions": kept[-KEPT:]}
    with contextlib.suppress(OSError):  # the stop itself matters more than the memory of it
        store.reserve.write(lambda: whole.write_json(store.at("stopped.json"), facts))


def known(store: Store) -> List[str]:
    return [entry["session"] for entry in _entries(store)]


def _entries(store: Store) -> List[Dict[str, Any]]:
    found = whole.read_json(store.at("stopped.json"))
    entries = found.get("sessions") if isinstance(found, dict) else None
    return [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("session"), str)
    ]
