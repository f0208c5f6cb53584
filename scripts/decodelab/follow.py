"""Follow one launch on its host: hand its queue over, wait, fetch what is finished, read the
outcome.

In:  an AgentClient, the launch's digest, orders. Out: whole attempts and starts in the raw store;
LaunchFailed if the launch came to no final result. Every wait has a deadline; every step may be
repeated by another process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decodelab.agent_client import AgentClient
from decodelab.progress import Progress
from decodelab.receipts import is_pending
from decodelab.store import DamagedError, Store

STATUS_EVERY_POLLS = 20  # the agent's own answer costs the host a start of Python
LOOK_EVERY_POLLS = 5  # whether its process is there costs nothing
NOT_FINAL = ("invalid", "stopped")


class LaunchFailed(Exception):
    """No final result; the text says why and what happens next."""


class Follower:
    """One launch as seen from the workflow's side."""

    def __init__(
        self,
        client: AgentClient,
        launch: Mapping[str, Any],
        store: Store,
        progress: Progress,
        session: str,
        owner: str,
    ) -> None:
        self.client, self.launch, self.store, self.owner = client, launch, store, owner
        self.digest = str(launch["digest"])
        self.progress, self.session = progress, session
        self.drain = False  # asked for, by a signal: finish this launch, drop the rest
        self._drained = False
        self._agent: int | None = None  # its pid, by its last answer
        self._offset = 0

    def settle_earlier(self, *, retry: bool) -> bool:
        """Take in what is on the host already. True: the launch is finished; False: it is still to be handed over.

        A failure of an earlier call is tried again; one of this very call (its session) is final for this call.
        """
        state = self.client.status(self.digest)
        outcome = state["launch"].get("outcome")
        if state["launch"]["state"] == "finished" and outcome:
            self._take_in(state)
            mine = bool(self.session) and outcome.get("session") == self.session
            failed = outcome["status"] in NOT_FINAL
            if failed and mine:
                raise LaunchFailed(_why(outcome))
            # Another checkout's order may have wanted less of this launch than ours.
            again = failed or (retry and not mine) or is_pending(self.launch, self.store)
            self.client.forget(self.digest, purge=again)
            return not again
        self._check_stopped(state)
        halted = state.get("halted") or {}
        if self.session and halted.get("session") == self.session:
            raise LaunchFailed(
                f"not started: the queue of host {self.client.host.name} was stopped: {halted['reason']}\n"
                "Hint: mend the host, then call snakemake again; nothing measured is lost."
            )
        return False

    def _check_stopped(self, state: Mapping[str, Any]) -> None:
        """A stop by hand ends the whole call, not only the launch that ran."""
        if self.session and self.session in (state.get("stopped_sessions") or []):
            raise LaunchFailed(
                f"the queue of host {self.client.host.name} was stopped by hand.\n"
                "Hint: call snakemake again to go on; what was measured is kept."
            )

    def hand_over(self, orders: Sequence[dict[str, Any]], lock: str | None) -> None:
        """Queue the orders on the host; `lock` is the file that all users of its accelerators share."""
        wait_s = float(orders[0]["limits"]["lock_wait_s"])
        self.client.submit(orders[0]["owner"], orders, lock, wait_s)

    def wait(self, patience_s: float) -> None:
        """Until the launch ends; each finished run is fetched at once. Raises LaunchFailed for an
        outcome that is not final.
        """
        end = time.monotonic() + patience_s
        host, polls = self.client.host, 0
        while time.monotonic() < end:
            # The launch goes on without us, so may the wait.
            host.patience_s = end - time.monotonic()
            self._drain_if_asked()
            if self._pass_on_events():
                break
            gone = polls % LOOK_EVERY_POLLS == 0 and self._agent_is_gone()
            if (gone or polls % STATUS_EVERY_POLLS == 0) and self._finished_or_lost():
                break
            polls += 1
            time.sleep(host.poll_s)
        else:
            raise LaunchFailed(f"no end after {patience_s:.0f} s, its maximum life; see agent.log")
        self._conclude()

    def fetch(self) -> None:
        """Bring every whole folder of the launch into the raw store. Names on the host are names in the store."""
        self._take_in(self.client.status(self.digest))

    def _take_in(self, state: Mapping[str, Any]) -> None:
        for name in state.get("sealed") or []:
            if not self._have(name):
                path = f"{self.client.folder_of(self.digest)}/{name}"
                try:
                    with self.client.host.fetch(path) as folder:
                        self._keep(folder, name)
                except DamagedError as error:  # it counts as not made; the others are whole
                    self.progress.say(f"{path} on the host is damaged: {error}")

    def _have(self, name: str) -> bool:
        server, start = str(self.launch["server"]), int(self.launch["start"])
        return self.store.has(server, start, name.removeprefix("runs/"))

    def _keep(self, folder: Path, name: str) -> None:
        """`name`: start-<id>, or runs/<run>/<attempt>."""
        server, start = str(self.launch["server"]), int(self.launch["start"])
        kept = self.store.put(folder, server, start, name.removeprefix("runs/"))
        if name.startswith("start-"):
            self._note_engine(kept)

    def _note_engine(self, kept: Path) -> None:
        facts = json.loads((kept / "start.json").read_text(encoding="utf-8"))
        key, fingerprint = facts.get("engine_key"), facts.get("fingerprint")
        if key and fingerprint and facts.get("ready_s") is not None:
            self.store.remember_engine(key, fingerprint, facts["start_id"])

    def _drain_if_asked(self) -> None:
        if self.drain and not self._drained:
            self.client.stop(self.owner, drain=True)
            self._drained = True

    def _pass_on_events(self) -> bool:
        """Show and act on new events; True when the launch has ended."""
        events, self._offset = self.client.events(self.digest, self._offset)
        for event in events:
            self.progress.show(event)
        if any(e["event"] == "run_end" for e in events):
            self.fetch()
        return any(e["event"] == "launch_end" for e in events)

    def _agent_is_gone(self) -> bool:
        return self._agent is not None and not self.client.lives(self._agent)

    def _finished_or_lost(self) -> bool:
        state = self.client.status(self.digest)
        self._agent = state["agent"].get("pid")
        if state["launch"]["state"] == "finished":
            return True
        if state["launch"]["state"] == "unknown":
            self._check_stopped(state)
            raise LaunchFailed(
                "the host no longer has this launch in its queue"
                + (f": {state['halted']['reason']}" if state.get("halted") else ".")
                + "\nHint: call snakemake again; nothing measured is lost."
            )
        if not state["agent"]["alive"]:
            raise LaunchFailed(
                f"the agent on host {self.client.host.name} died; its log is {self.client.host.workdir}/agent.log.\n"
                "Hint: call snakemake again: it cleans up what was left and goes on with what is missing."
            )
        return False

    def _conclude(self) -> None:
        state = self.client.status(self.digest)
        outcome = state["launch"].get("outcome")
        self._take_in(state)
        if outcome is None:
            raise LaunchFailed("ended without an outcome; see agent.log")
        if outcome["status"] in NOT_FINAL:
            raise LaunchFailed(_why(outcome))
        lacks = is_pending(self.launch, self.store)
        self.client.forget(self.digest, purge=lacks)
        if lacks:
            raise LaunchFailed(
                "some of what it measured is not here, or damaged.\n"
                "Hint: call snakemake again; only that is measured anew."
            )


def _why(outcome: dict[str, Any]) -> str:
    cause = outcome.get("cause") or {}
    lines = [
        f"{outcome['status']}: {outcome.get('reason') or cause.get('class') or 'no reason given'}"
    ]
    if cause.get("root_cause"):
        lines.append(f"root cause: {cause['root_cause']}")
    hint = cause.get("hint")
    if hint:
        lines.append(f"Hint: {hint['en'] if isinstance(hint, dict) else hint}")
    return "\n".join(lines)
