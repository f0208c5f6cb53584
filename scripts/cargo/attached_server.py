"""A server that somebody else runs: looked at, never started, never stopped.

In:  an order with an `attach` address. Out: as of a start of our own, with what can be seen of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Callable

from cargo import ports, procs, reasons, route, server_http
from cargo.keeper_link import StopReport
from cargo.server_start import ServerStart, StartFailed
from cargo.watch import Watch


class AttachedServer(ServerStart):
    attached = True

    def bring_up(self, watch: Watch) -> None:
        os.makedirs(self.folder)
        self.base_url = str(self.order["server"]["attach"]).rstrip("/")
        self.spawned_at = time.monotonic()
        self.events.emit("start_begin", start_id=self.start_id, attach=self.base_url)
        try:
            self._observe(watch)
        except StartFailed as failed:
            self.record["cause"] = failed.cause = self.mask.deep(failed.cause)
            raise

    def _observe(self, watch: Watch) -> None:
        try:
            address = server_http.address_of(self.base_url)
            self._look_at(address)
            status, _body = server_http.call(
                self.base_url,
                "GET",
                "/v1/models",
                timeout_s=10.0,
                check=watch.check,
                headers=self.headers,
            )
        except (server_http.ServerHttpError, ValueError) as error:
            text = "%s does not answer: %s" % (self.base_url, error)
            raise StartFailed(reasons.cause("not_reachable", text)) from error
        if status != 200:
            text = "%s/v1/models answers with HTTP %d" % (self.base_url, status)
            raise StartFailed(reasons.cause("not_reachable", text))
        self._probe(watch)
        self._check_identity()
        self.ready = True
        ready_s = round(time.monotonic() - self.spawned_at, 3)
        self.record.update(status="ready", t_ready=time.time(), ready_s=ready_s)
        self._save()
        self.events.emit("ready", seconds=ready_s)

    def _look_at(self, address: server_http.Address) -> None:
        """Whose process it is can be seen on this host only."""
        self.record["port"] = self.port = address.port
        owner = ports.owner_of(address.port) if route.is_loopback(address.host) else None
        if owner is not None and owner["pid"] is not None:
            self.record["pid"] = owner["pid"]
            self.record["identity"]["command"] = procs.describe(owner["pid"])["command"]

    def _check_identity(self) -> None:
        """What can be seen of a foreign server stands for its files: another one under the same
        `build` label is refused, or its figures would pass for the first one's.
        """
        models = [
            {key: model.get(key) for key in ("id", "root", "max_model_len")}
            for model in (self.record["models"] or {}).get("data") or []
        ]
        seen = [models, self.record["version"], self.record["identity"].get("command")]
        text = json.dumps(seen, sort_keys=True)
        self.record["fingerprint"] = hashlib.sha256(text.encode()).hexdigest()
        expected = self.order["server"].get("expected_fingerprint")
        if expected is not None and expected != self.record["fingerprint"]:
            words = "another server answers at %s than was measured under this label: %s"
            raise StartFailed(reasons.cause("engine_changed", words % (self.base_url, text)))

    def _fail_if_ended(self) -> None:
        return

    def alive(self) -> bool:
        return True  # nothing of it is ours to watch; `healthy` decides

    def healthy(self, check: Callable[[], None]) -> bool:
        """Not every server has /health; the list of models will do."""
        return self._answers(10.0, check) or self.get_json("/v1/models", 10.0, check) is not None

    def take_down(self) -> StopReport:
        self.record["t_end"] = time.time()
        return StopReport(0.0, 0, [])
